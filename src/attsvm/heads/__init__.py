"""Attention heads of real transformers: what each one selects, and how close to max-margin it is."""

from attsvm.heads.analysis import SINKS, Progress, SelectionKind, Settings, analyze
from attsvm.heads.form import HeadWeights
from attsvm.heads.loading import Texts, from_arrays, load, read_texts, sample_reactions, sample_texts
from attsvm.heads.model import HeadModel, Sentence, SentenceStates
from attsvm.heads.report import (
    Closeness,
    Comparison,
    Efficiency,
    Example,
    HeadReport,
    HeadsReport,
    Selectivity,
    Spectrum,
    SupportToken,
    Verdict,
)

__all__ = [
    # loading
    "load",
    "from_arrays",
    "HeadModel",
    "HeadWeights",
    "Sentence",
    "SentenceStates",
    "Texts",
    "read_texts",
    "sample_texts",
    "sample_reactions",
    # analysis
    "analyze",
    "Progress",
    "Settings",
    "SelectionKind",
    "SINKS",
    # reports
    "HeadsReport",
    "HeadReport",
    "Comparison",
    "Closeness",
    "Efficiency",
    "Selectivity",
    "Spectrum",
    "SupportToken",
    "Example",
    "Verdict",
]
