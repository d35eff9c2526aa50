"""The analysis of heads: what each one selects, and how close it is to the max-margin solution of its selections."""

from attsvm.heads.analysis.analyze import Progress, analyze
from attsvm.heads.analysis.kinds import SINKS, SelectionKind
from attsvm.heads.analysis.settings import Settings

__all__ = ["analyze", "Progress", "Settings", "SelectionKind", "SINKS"]
