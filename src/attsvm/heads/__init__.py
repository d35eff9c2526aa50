"""Attention heads of real transformers: what each one selects, and how close to max-margin it is."""

from attsvm.heads.analyze import Progress, analyze
from attsvm.heads.arrays import from_arrays
from attsvm.heads.fit import Efficiency, Fit
from attsvm.heads.head_report import Comparison, Example, HeadReport, SupportToken
from attsvm.heads.kinds import SINKS, SelectionKind
from attsvm.heads.load import load
from attsvm.heads.model import HeadModel, HeadWeights, Sentence, SentenceStates
from attsvm.heads.report import HeadsReport
from attsvm.heads.selectivity import Selectivity
from attsvm.heads.settings import Settings
from attsvm.heads.spectrum import Spectrum
from attsvm.heads.texts import Texts, read_texts, sample_reactions, sample_texts
from attsvm.heads.verdict import Verdict

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
