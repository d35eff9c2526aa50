"""Attention heads of real transformers: what each one selects, and how close to max-margin it is."""

from attsvm.heads.analysis.analyze import Progress, analyze
from attsvm.heads.analysis.comparison import Efficiency, Fit, Spectrum
from attsvm.heads.analysis.selections import Selectivity
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.analysis.views import SINKS, SelectionKind
from attsvm.heads.loading.arrays import from_arrays
from attsvm.heads.loading.load import load
from attsvm.heads.loading.texts import Texts, read_texts, sample_reactions, sample_texts
from attsvm.heads.model import HeadModel, HeadWeights, Sentence, SentenceStates
from attsvm.heads.report.records import Comparison, Example, HeadReport, SupportToken
from attsvm.heads.report.report import HeadsReport
from attsvm.heads.report.verdict import Verdict

__all__ = [
    # loading
    "load",
    "from_arrays",
    "HeadModel",
    "HeadWeights",
    "Sentence",
    "SentenceStates",
    # analysis
    "analyze",
    "Progress",
    "Settings",
    "SelectionKind",
    "SINKS",
    "Texts",
    "read_texts",
    "sample_texts",
    "sample_reactions",
    # reports
    "HeadsReport",
    "HeadReport",
    "Comparison",
    "Fit",
    "Efficiency",
    "Selectivity",
    "Spectrum",
    "SupportToken",
    "Example",
    "Verdict",
]
