"""Verdicts and thresholds that the compiled and the batched solver share."""

from __future__ import annotations

OPTIMAL, INFEASIBLE, UNSURE = 0, 1, 2

EPSILON = 2.0**-52
RAY = 1e-12  # accepted ||sum lam_k A_k|| / sum lam_k ||A_k|| of a ray
BOUND = 1e10  # a ray is believed when it proves ||W|| > BOUND, in units of the largest b_k / ||A_k||
