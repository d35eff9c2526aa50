"""What an analysis found: records for each head, the table, verdicts, and files."""

from attsvm.heads.report.records import (
    Closeness,
    Comparison,
    Efficiency,
    Example,
    HeadReport,
    Selectivity,
    Spectrum,
    SupportToken,
)
from attsvm.heads.report.report import HeadsReport
from attsvm.heads.report.verdict import Verdict

__all__ = [
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
