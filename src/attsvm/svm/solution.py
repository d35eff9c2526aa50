"""A solved max-margin problem: weights, duals, support, and the proof."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data.files import read_arrays, write_arrays
from attsvm.norms import Norm
from attsvm.svm.certificate import Certificate

SUPPORT_TOLERANCE = 1e-6
"""Rows whose margin is at most this far above their right-hand side are support rows."""


class Status(Enum):
    """How a solve ended: what the certificate proves, whatever the solver claims."""

    SOLVED = "solved: the certificate proves the solution optimal to the tolerance"
    INFEASIBLE = "infeasible: the duals hold a ray that proves that no weights separate this selection"
    NO_ROWS = "no constraints: every input has one token, the solution is zero and its margin infinite"
    NOT_CONVERGED = (
        "not converged: neither optimality nor infeasibility is proved; the certificate says how close it came"
    )

    @property
    def code(self) -> int:
        """Its place in `CODES`."""
        return CODES.index(self)

    def __str__(self) -> str:
        return self.value


CODES: tuple[Status, ...] = tuple(Status)
"""Statuses by the integer code in which batches store them."""


_TENSORS = ("weights", "duals", "codes", "margins", "support", "ambiguous", "unique", "iterations")
_CERTIFICATE = tuple(field.name for field in fields(Certificate))


@dataclass(frozen=True, eq=False, repr=False)
class SVMSolution:
    """The max-margin solution of each problem of a batch, or the proof that there is none.

    Attributes:
        weights: W_mm ``[*batch, d, dq]``; NaN where infeasible.
        duals: multipliers of the norm form ``[*batch, n, T]``, zero where there is no row; equality multipliers are
            signed and their representative token holds minus their sum. Where infeasible: the ray.
        codes: status of each element as its place in `CODES`; `status` gives the `Status` itself.
        margins: of W_mm on every row ``[*batch, n, T]``, 0 where there is no row.
        support: the neighbours, inequality rows with margin <= right-hand side + 1e-6.
        ambiguous: number of rows within a factor of ten of that line, on either side.
        unique: where the solution is proved to be the only one; False means not proved, or known not to be.
        certificate: the proof, in numbers for each element.
        norm: the norm that was minimised.
        solver: name of the solver that ran.
        iterations: of each element, in the solver's own unit.
        seconds: wall time of the whole batch.
        tolerance: to which the certificate was asked to hold.
    """

    weights: Float[Tensor, "*batch d dq"]
    duals: Float[Tensor, "*batch n T"]
    codes: Int[Tensor, "*batch"]
    margins: Float[Tensor, "*batch n T"]
    support: Bool[Tensor, "*batch n T"]
    ambiguous: Int[Tensor, "*batch"]
    unique: Bool[Tensor, "*batch"]
    certificate: Certificate
    norm: Norm
    solver: str
    iterations: Int[Tensor, "*batch"]
    seconds: float
    tolerance: float

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; () for a single problem."""
        return tuple(self.codes.shape)

    @cached_property
    def status(self) -> Any:
        """A `Status` for a single problem, an array of them for a batch."""
        if self.codes.ndim == 0:
            return CODES[int(self.codes)]
        named = np.empty(tuple(self.codes.shape), dtype=object)
        for index in np.ndindex(*named.shape):
            named[index] = CODES[int(self.codes[index])]
        return named

    @cached_property
    def solved(self) -> Bool[Tensor, "*batch"]:
        """Where there is a proved solution (problems without constraints included)."""
        return (self.codes == Status.SOLVED.code) | (self.codes == Status.NO_ROWS.code)

    @cached_property
    def infeasible(self) -> Bool[Tensor, "*batch"]:
        """Where it is proved that there is none."""
        return self.codes == Status.INFEASIBLE.code

    def require_solved(self) -> SVMSolution:
        """This solution, or a ValueError with the status sentence of the first element that was not solved."""
        if bool(self.solved.all()):
            return self
        bad = int((~self.solved).sum())
        where = torch.nonzero(~self.solved)[0].tolist()
        sentence = CODES[int(self.codes[tuple(where)])].value
        if not where:
            raise ValueError(f"the problem is {sentence}")
        raise ValueError(
            f"{bad} of {self.codes.numel()} problems are not solved; the first, element {where}, is {sentence}"
        )

    def rank(self, tolerance: float = 1e-8) -> Int[Tensor, "*batch"]:
        """Number of singular values above `tolerance` times the largest; 0 where infeasible."""
        known = torch.where(torch.isfinite(self.weights), self.weights, torch.zeros_like(self.weights))
        values = torch.linalg.svdvals(known)
        return ((values > tolerance * values[..., :1]) & (values > 0)).sum(-1)

    def __getitem__(self, index: Any) -> SVMSolution:
        """One solution, or some of them, along the batch."""
        parts: dict[str, Any] = {name: getattr(self, name)[index] for name in _TENSORS}
        return replace(self, **parts, certificate=self.certificate[index])

    def __repr__(self) -> str:
        counts = [f"{int((self.codes == code).sum())} {status.name.lower()}" for code, status in enumerate(CODES)]
        shown = ", ".join(text for text in counts if not text.startswith("0 "))
        worst = self.certificate.relative_gap[self.solved]
        gap = f", largest gap {worst.max().item():.2g}" if worst.numel() else ""
        return f"SVMSolution({self.norm.name}, {shown}{gap}, {self.solver}, {self.seconds:.3g} s)"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to .npz or .safetensors, atomically."""
        arrays = {name: getattr(self, name) for name in _TENSORS}
        arrays |= {f"certificate/{name}": getattr(self.certificate, name) for name in _CERTIFICATE}
        return write_arrays(
            path,
            arrays,
            {
                "kind": "SVMSolution",
                "norm": repr(self.norm),
                "solver": self.solver,
                "seconds": self.seconds,
                "tolerance": self.tolerance,
            },
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SVMSolution:
        """Read what `save` wrote.

        Raises:
            ValueError: if the file is missing, damaged or not a solution.
        """
        arrays, metadata = read_arrays(path)
        if metadata.get("kind") != "SVMSolution":
            raise ValueError(f"{path} is not a saved solution (its kind is {metadata.get('kind', 'unknown')!r})")
        return cls(
            **{name: arrays[name] for name in _TENSORS},
            certificate=Certificate(**{name: arrays[f"certificate/{name}"] for name in _CERTIFICATE}),
            norm=norm_from_repr(str(metadata["norm"])),
            solver=str(metadata["solver"]),
            seconds=float(metadata["seconds"]),  # type: ignore[arg-type]
            tolerance=float(metadata["tolerance"]),  # type: ignore[arg-type]
        )


def norm_from_repr(text: str) -> Norm:
    """The norm that printed itself as `text`, such as ``Entrywise(p=3)``.

    Raises:
        ValueError: if no norm prints itself so.
    """
    from attsvm import norms

    name, _, rest = text.partition("(")
    kind: Any = getattr(norms, name, None)
    known = isinstance(kind, type) and issubclass(kind, Norm)
    if not known:
        raise ValueError(f"no norm prints itself as {text!r}")
    argument = rest.rstrip(")").partition("=")[2] or rest.rstrip(")")
    return kind(float(argument)) if argument else kind()
