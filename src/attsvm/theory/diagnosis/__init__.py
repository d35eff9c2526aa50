"""What the theory says about data, prediction head and training, and whether a run agrees."""

from attsvm.theory.diagnosis.diagnose import Diagnosis, Limit, Start, diagnose
from attsvm.theory.diagnosis.implicit_bias import ImplicitBias, Standing, implicit_bias
from attsvm.theory.diagnosis.theorems import Result
from attsvm.theory.diagnosis.verify import Outcome, Verification, verify

__all__ = [
    "Diagnosis",
    "ImplicitBias",
    "Limit",
    "Outcome",
    "Result",
    "Standing",
    "Start",
    "Verification",
    "diagnose",
    "implicit_bias",
    "verify",
]
