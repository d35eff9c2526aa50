"""How a solve ended; the value of each status is the sentence a person reads."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """The end of a solve, decided by the certificate and not by the solver's word."""

    SOLVED = "solved: the certificate proves the solution optimal to the tolerance"
    INFEASIBLE = "infeasible: the duals hold a ray that proves that no weights separate this selection"
    NO_ROWS = "no constraints: every input has one token, the solution is zero and its margin infinite"
    NOT_CONVERGED = (
        "not converged: neither optimality nor infeasibility is proved; the certificate says how close it came"
    )

    def __str__(self) -> str:
        return self.value


CODES: tuple[Status, ...] = tuple(Status)
"""Statuses by the integer code in which batches store them."""
