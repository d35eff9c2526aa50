"""Names on the command line and the objects they stand for: the only place where strings choose mathematics."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from attsvm.attention import Exponential, KeyQuery, Linear, Logistic, Loss, Parameterization, Weights
from attsvm.descent import (
    Adam,
    Constant,
    Geometric,
    GradientDescent,
    InverseSqrt,
    LipschitzStep,
    MirrorDescent,
    NormalizedGradientDescent,
    NormalizedMirrorDescent,
    Optimizer,
    PolyakDescent,
    Saturated,
    Schedule,
    Settled,
    SteepestDescent,
    StoppingRule,
)
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm import (
    ActiveSet,
    BatchedActiveSet,
    BlockDescent,
    Conic,
    Cvxpy,
    LinearProgram,
    NuclearInteriorPoint,
    Solver,
)

PARAMETERIZATIONS = {"w": "weights", "weights": "weights", "kq": "key-query", "key-query": "key-query"}
LOSSES: Mapping[str, Callable[[], Loss]] = {"logistic": Logistic, "exponential": Exponential, "linear": Linear}
NORMS: Mapping[str, Callable[[], Norm]] = {
    "frobenius": Frobenius, "nuclear": Nuclear, "spectral": Spectral, "max-entry": MaxEntry, "sum-entry": SumEntry,
}  # fmt: skip
SVM_NORMS = (*NORMS, "entrywise")
SOLVERS: Mapping[str, Callable[[], Solver]] = {
    "active-set": ActiveSet, "batched-active-set": BatchedActiveSet, "block-descent": BlockDescent,
    "nuclear-interior-point": NuclearInteriorPoint, "linear-program": LinearProgram, "conic": Conic, "cvxpy": Cvxpy,
}  # fmt: skip
SCHEDULES = ("constant", "inverse-sqrt", "geometric", "lipschitz")
STOPPING = ("saturated", "settled")


@dataclass(frozen=True)
class OptimizerOptions:
    """What the command line says about the optimizer besides its name; None where it says nothing."""

    step_size: float | None = None
    schedule: str = "constant"
    growth: float | None = None
    largest: float | None = None
    norm: str | None = None
    p: float | None = None
    momentum: float | None = None


@dataclass(frozen=True)
class _Rule:
    """One optimizer: how to make it, its default step, and which further options it takes."""

    make: Callable[[float | Schedule, OptimizerOptions], Optimizer]
    step_size: float = 0.1
    takes: tuple[str, ...] = ()


def _steepest(norm: Norm, momentum: float) -> _Rule:
    def make(step: float | Schedule, options: OptimizerOptions) -> Optimizer:
        return SteepestDescent(norm, step, momentum if options.momentum is None else options.momentum)

    return _Rule(make, takes=("momentum",))


def _named_steepest(step: float | Schedule, options: OptimizerOptions) -> Optimizer:
    if options.norm is None:
        raise ValueError(f"--optimizer steepest needs --norm: one of {', '.join(NORMS)}, or l1.5 and the like")
    return SteepestDescent(norm_named(options.norm), step, options.momentum or 0.0)


def _mirror(kind: type[MirrorDescent]) -> _Rule:
    def make(step: float | Schedule, options: OptimizerOptions) -> Optimizer:
        if options.p is None:
            raise ValueError("--optimizer mirror and normalized-mirror need --p, strictly between 1 and infinity")
        return kind(options.p, step)

    return _Rule(make, takes=("p",))


OPTIMIZERS: Mapping[str, _Rule] = {
    "gd": _Rule(lambda step, _: GradientDescent(step)),
    "ngd": _Rule(lambda step, _: NormalizedGradientDescent(step)),
    "sign": _steepest(MaxEntry(), 0.0),
    "signum": _steepest(MaxEntry(), 0.9),
    "spectral": _steepest(Spectral(), 0.0),
    "muon": _steepest(Spectral(), 0.95),
    "steepest": _Rule(_named_steepest, takes=("norm", "momentum")),
    "mirror": _mirror(MirrorDescent),
    "normalized-mirror": _mirror(NormalizedMirrorDescent),
    "adam": _Rule(lambda step, _: Adam(step)),
    "polyak": _Rule(lambda step, _: PolyakDescent(step), step_size=1.0),
}


def parameterization_named(name: str, rank: int | None) -> Parameterization:
    """`Weights()` or `KeyQuery(rank)`."""
    kind = PARAMETERIZATIONS[_known(name, PARAMETERIZATIONS, "parameterization")]
    if kind == "key-query":
        return KeyQuery(rank)
    if rank is not None:
        raise ValueError("--rank belongs to --parameterization kq")
    return Weights()


def optimizer_named(name: str, options: OptimizerOptions) -> Optimizer:
    """The optimizer of this name with its step sizes.

    Raises:
        ValueError: if the name is unknown (with the near one), or an option is missing or belongs elsewhere.

    >>> optimizer_named("steepest", OptimizerOptions(norm="nuclear", step_size=0.5))
    SteepestDescent(norm=Nuclear(), step_size=Constant(size=0.5), momentum=0.0)
    """
    rule = OPTIMIZERS[_known(name, OPTIMIZERS, "optimizer")]
    for option in ("norm", "p", "momentum"):
        if getattr(options, option) is not None and option not in rule.takes:
            owners = ", ".join(other for other, entry in OPTIMIZERS.items() if option in entry.takes)
            raise ValueError(f"--{option} does nothing with --optimizer {name}; it belongs to {owners}")
    return rule.make(_schedule(options, rule.step_size), options)


def loss_named(name: str) -> Loss:
    """The loss of this name."""
    return LOSSES[_known(name, LOSSES, "loss")]()


def norm_named(name: str) -> Norm:
    """The norm of this name; l<p> is the entrywise l_p norm.

    >>> norm_named("l1"), norm_named("l1.75"), norm_named("linf")
    (SumEntry(), Entrywise(p=1.75), MaxEntry())
    """
    return _entry_norm(name) or NORMS[_known(name, NORMS, "norm")]()


def svm_norm_named(name: str, p: float | None) -> Norm:
    """The norm of an SVM: as `norm_named`, or entrywise with its exponent beside it.

    >>> svm_norm_named("entrywise", 3.0), svm_norm_named("l3", None)
    (Entrywise(p=3.0), Entrywise(p=3.0))
    """
    norm = _entry_norm(name)
    known = name if norm is not None else _known(name, SVM_NORMS, "norm")
    if known == "entrywise":
        if p is None:
            raise ValueError("--norm entrywise needs --p, strictly between 1 and infinity")
        return Entrywise(p)
    if p is not None:
        raise ValueError(f"--p does nothing with --norm {name}; it belongs to --norm entrywise")
    return norm or NORMS[known]()


def _entry_norm(name: str) -> Norm | None:
    """l<p>, or None for other names."""
    if not name.startswith("l"):
        return None
    try:
        exponent = float(name[1:])
    except ValueError:
        return None
    ends: dict[float, Norm] = {1.0: SumEntry(), 2.0: Frobenius(), math.inf: MaxEntry()}
    return ends.get(exponent) or Entrywise(exponent)


def solver_named(name: str | None) -> Solver | None:
    """The solver of this name; None leaves the choice to norm, size and device."""
    return None if name is None else SOLVERS[_known(name, SOLVERS, "solver")]()


def stopping_named(name: str | None, every: int) -> StoppingRule | None:
    """The stopping rule of this name, asked every `every` steps; None for none."""
    if name is None:
        return None
    rules: dict[str, Callable[[], StoppingRule]] = {
        "saturated": lambda: Saturated(every=every), "settled": lambda: Settled(every=every),
    }  # fmt: skip
    return rules[_known(name, rules, "stop")]()


def _schedule(options: OptimizerOptions, usual: float) -> Schedule:
    name = _known(options.schedule, SCHEDULES, "schedule")
    if name != "geometric" and (options.growth is not None or options.largest is not None):
        raise ValueError(f"--growth and --largest belong to --schedule geometric; the schedule is {name}")
    if name == "lipschitz":
        return LipschitzStep(1.0 if options.step_size is None else options.step_size)
    size = usual if options.step_size is None else options.step_size
    if name == "inverse-sqrt":
        return InverseSqrt(size)
    if name == "geometric":
        growth = 1.01 if options.growth is None else options.growth
        return Geometric(size, growth) if options.largest is None else Geometric(size, growth, options.largest)
    return Constant(size)


def _known(name: str, names: Iterable[str], kind: str) -> str:
    known = list(names)
    if name in known:
        return name
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? There are {', '.join(known)}" if near else f"there are {', '.join(known)}"
    raise ValueError(f"no {kind} is called {name!r}; {hint}")
