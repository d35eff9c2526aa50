"""A solved max-margin problem: weights, duals, support, and the proof."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
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
    """How a solve ended: what the certificate and the data prove, whatever the solver claims."""

    # Batches and files store the place in this list: new ones go to the end.
    SOLVED = "solved: the certificate proves the solution optimal to the tolerance"
    INFEASIBLE = "infeasible: the duals hold a ray that proves that no weights separate this selection"
    NO_ROWS = "no constraints: every input has one token, the solution is zero and its margin infinite"
    NOT_CONVERGED = (
        "not converged: no weights that separate were found, nor a proof that there are none; the certificate says how"
        " close it came"
    )
    SEPARABLE = "separable, not solved to the tolerance: the weights separate the selection; a smaller W may as well"
    NUMERICALLY_INFEASIBLE = (
        "numerically infeasible: any weights that separate this selection have a norm above certificate.dual_value;"
        " whether there are any is not known"
    )

    @property
    def code(self) -> int:
        """Its place in `CODES`."""
        return CODES.index(self)

    def __str__(self) -> str:
        return self.value


CODES: tuple[Status, ...] = tuple(Status)
"""Statuses by the integer code in which batches store them."""

# Files without a list of their statuses come from a time of four. What was called infeasible then had a ray of floating
# point, which proves the bound only.
_FOUR_CODES = (Status.SOLVED, Status.NUMERICALLY_INFEASIBLE, Status.NO_ROWS, Status.NOT_CONVERGED)

_TENSORS = ("weights", "duals", "codes", "margins", "support", "ambiguous", "unique", "iterations")
_METADATA = ("solver", "seconds", "tolerance")
_CERTIFICATE = tuple(field.name for field in fields(Certificate))


@dataclass(frozen=True, eq=False, repr=False)
class SVMSolution:
    """The max-margin solution of each problem of a batch, or the proof that there is none."""

    weights: Float[Tensor, "*batch d dq"]  #: W_mm; where separable, some W with margins >= b; NaN where there is a ray
    #: multipliers of the norm form, zero where there is no row; equality multipliers are signed and their
    #: representative token holds minus their sum. Where infeasible, proved or numerically: the ray
    duals: Float[Tensor, "*batch n T"]
    codes: Int[Tensor, "*batch"]  #: status of each element as its place in `CODES`; `status` gives the `Status` itself
    margins: Float[Tensor, "*batch n T"]  #: of W_mm on every row, 0 where there is no row
    support: Bool[Tensor, "*batch n T"]  #: the neighbours, inequality rows with margin <= right-hand side + 1e-6
    ambiguous: Int[Tensor, "*batch"]  #: number of rows within a factor of ten of that line, on either side
    #: where the solution is proved to be the only one; False means not proved, or known not to be
    unique: Bool[Tensor, "*batch"]
    certificate: Certificate  #: the proof, in numbers for each element
    norm: Norm  #: the norm that was minimised
    solver: str  #: name of the solver that ran
    iterations: Int[Tensor, "*batch"]  #: of each element, in the solver's own unit
    seconds: float  #: wall time of the whole batch
    tolerance: float  #: to which the certificate was asked to hold

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; () for a single problem."""
        return tuple(self.codes.shape)

    def _have(self, *statuses: Status) -> Tensor:
        return torch.isin(self.codes, torch.tensor([one.code for one in statuses], device=self.codes.device))

    @cached_property
    def solved(self) -> Bool[Tensor, "*batch"]:
        """Where there is a proved solution (problems without constraints included)."""
        return self._have(Status.SOLVED, Status.NO_ROWS)

    @cached_property
    def separable(self) -> Bool[Tensor, "*batch"]:
        """Where weights that separate the selection are in hand, solved to the tolerance or not."""
        return self._have(Status.SOLVED, Status.NO_ROWS, Status.SEPARABLE)

    @cached_property
    def infeasible(self) -> Bool[Tensor, "*batch"]:
        """Where it is proved, for the data exactly as given, that there is none."""
        return self._have(Status.INFEASIBLE)

    @cached_property
    def barred(self) -> Bool[Tensor, "*batch"]:
        """Infeasible, proved or numerically: by the ray no W of a norm below `certificate.dual_value` separates."""
        return self._have(Status.INFEASIBLE, Status.NUMERICALLY_INFEASIBLE)

    @cached_property
    def undecided(self) -> Bool[Tensor, "*batch"]:
        """Where it is not known whether any weights separate: numerically infeasible or not converged."""
        return self._have(Status.NUMERICALLY_INFEASIBLE, Status.NOT_CONVERGED)

    @cached_property
    def status(self) -> Any:
        """A `Status` for a single problem, an array of them for a batch."""
        return self._each(lambda status, _: status)

    @cached_property
    def sentences(self) -> Any:
        """The sentence of the status with its number: a string, or an array of them for a batch."""
        return self._each(said_with_bound)

    def _each(self, say: Callable[[Status, float], Any]) -> Any:
        """What is said of each element, from its status and its bound; without an array for a single one."""
        said = np.empty(self.batch_shape, dtype=object)
        for index in np.ndindex(*said.shape):
            said[index] = say(CODES[int(self.codes[index])], float(self.certificate.dual_value[index]))
        return said[()]

    def require_solved(self) -> SVMSolution:
        """This solution, or a ValueError with the status sentence of the first element that was not solved."""
        missing = torch.nonzero(~self.solved).tolist()
        if not missing:
            return self
        if not self.batch_shape:
            raise ValueError(f"the problem is {self.sentences}")
        raise ValueError(
            f"{len(missing)} of {self.codes.numel()} problems are not solved; the first, element {missing[0]}, is"
            f" {self[tuple(missing[0])].sentences}"
        )

    def rank(self, tolerance: float = 1e-8) -> Int[Tensor, "*batch"]:
        """Number of singular values above `tolerance` times the largest; 0 where there is a ray."""
        known = torch.where(torch.isfinite(self.weights), self.weights, 0.0)
        values = torch.linalg.svdvals(known)
        return ((values > tolerance * values[..., :1]) & (values > 0)).sum(-1)

    def __getitem__(self, index: Any) -> SVMSolution:
        """One solution, or some of them, along the batch."""
        parts: dict[str, Any] = {name: getattr(self, name)[index] for name in _TENSORS}
        return replace(self, **parts, certificate=self.certificate[index])

    def __repr__(self) -> str:
        counts = [f"{int((self.codes == code).sum())} {status.name.lower()}" for code, status in enumerate(CODES)]
        shown = ", ".join(text for text in counts if not text.startswith("0 ")) or "no problems"
        worst = self.certificate.relative_gap[self.solved]
        gap = f", largest gap {worst.max().item():.2g}" if worst.numel() else ""
        return f"SVMSolution({self.norm.name}, {shown}{gap}, {self.solver}, {self.seconds:.3g} s)"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to .npz or .safetensors, atomically."""
        arrays = {name: getattr(self, name) for name in _TENSORS}
        arrays |= {f"certificate/{name}": getattr(self.certificate, name) for name in _CERTIFICATE}
        metadata = {"kind": "SVMSolution", "norm": repr(self.norm), "statuses": [status.name for status in CODES]}
        return write_arrays(path, arrays, metadata | {name: getattr(self, name) for name in _METADATA})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SVMSolution:
        """Read what `save` wrote.

        Raises:
            ValueError: if the file is missing, damaged or not a solution.
        """
        arrays, found = read_arrays(path)
        metadata: dict[str, Any] = dict(found)
        if metadata.get("kind") != "SVMSolution":
            raise ValueError(f"{path} is not a saved solution (its kind is {metadata.get('kind', 'unknown')!r})")
        names = metadata.get("statuses")
        stored = _FOUR_CODES if names is None else tuple(Status[name] for name in names)
        arrays["codes"] = torch.tensor([status.code for status in stored])[arrays["codes"]]
        parts: dict[str, Any] = {name: arrays[name] for name in _TENSORS}
        parts |= {name: metadata[name] for name in _METADATA}
        certificate = Certificate(**{name: arrays[f"certificate/{name}"] for name in _CERTIFICATE})
        return cls(**parts, certificate=certificate, norm=norm_from_repr(metadata["norm"]))


def said_with_bound(status: Status, bound: float) -> str:
    """The sentence of a status, with the bound of its ray in it, rounded down."""
    if status is not Status.NUMERICALLY_INFEASIBLE:
        return status.value
    return status.value.replace("certificate.dual_value", f"{0.994 * bound:.3g}" if bound < 1e300 else "1e300")


def norm_from_repr(text: str) -> Norm:
    """The norm that printed itself as `text`, such as ``Entrywise(p=3)``; a ValueError if none prints itself so."""
    from attsvm import norms

    try:
        call: Any = ast.parse(text, mode="eval").body
    except SyntaxError:
        call = None
    kind: Any = getattr(norms, getattr(getattr(call, "func", None), "id", ""), None)
    if not (isinstance(kind, type) and issubclass(kind, Norm)):
        raise ValueError(f"no norm prints itself as {text!r}")
    named = {argument.arg: ast.literal_eval(argument.value) for argument in call.keywords}
    return kind(*map(ast.literal_eval, call.args), **named)
