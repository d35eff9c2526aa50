"""Attention heads of real transformers: what each one selects, and how close to max-margin it is."""

from attsvm.heads.analysis.analyze import Progress, analyze
from attsvm.heads.explain.edit import Edit, edit
from attsvm.heads.explain.max_margin import MaxMargin, max_margin
from attsvm.heads.explain.swap import Swapped, swap, swaps
from attsvm.heads.explain.watch import Watch, watch
from attsvm.heads.explain.why import Channel, Flip, Reading, Share, Why, why
from attsvm.heads.form import HeadWeights
from attsvm.heads.loading.arrays import from_arrays
from attsvm.heads.loading.load import load
from attsvm.heads.loading.tokenizers import Texts, read_texts, sample_reactions, sample_texts
from attsvm.heads.model import HeadModel, Sentence, SentenceStates
from attsvm.heads.report.records import (
    SINKS,
    Closeness,
    Comparison,
    Efficiency,
    Example,
    HeadReport,
    SelectionKind,
    Selectivity,
    Settings,
    Spectrum,
    SupportToken,
)
from attsvm.heads.report.report import HeadsReport
from attsvm.heads.report.table import Verdict

# fmt: off
__all__ = [
    # loading
    "load", "from_arrays", "HeadModel", "HeadWeights", "Sentence", "SentenceStates",
    "Texts", "read_texts", "sample_texts", "sample_reactions",
    # analysis
    "analyze", "Progress", "Settings", "SelectionKind", "SINKS",
    # explanations
    "why", "Why", "Reading", "Share", "Channel", "Flip", "max_margin", "MaxMargin",
    "swap", "swaps", "Swapped", "edit", "Edit", "watch", "Watch",
    # reports
    "HeadsReport", "HeadReport", "Comparison", "Closeness", "Efficiency", "Selectivity", "Spectrum", "SupportToken",
    "Example", "Verdict",
]
# fmt: on
