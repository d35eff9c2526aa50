"""Names on the command line and the objects they stand for: the only place where strings choose mathematics.

Help texts list these names, and help must be quick: an object and the room it comes from are loaded only when a name is
looked up.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attsvm

if TYPE_CHECKING:
    from attsvm.attention import Loss, Parameterization
    from attsvm.descent import Optimizer, Schedule, StoppingRule
    from attsvm.norms import Norm
    from attsvm.svm import Solver

EXAMPLES = (
    "single-input-global", "single-input-local", "multi-input", "joint-training-tight", "joint-training-relaxed",
    "loss-comparison", "trajectories", "hyperplanes", "two-inputs",
)  # fmt: skip
"""The keys of `attsvm.data.EXAMPLES`."""
SAMPLES: Mapping[str, Callable[[], list[str]]] = {
    "sample": lambda: attsvm.heads.sample_texts(),
    "reactions": lambda: attsvm.heads.sample_reactions(),
}
PARAMETERIZATIONS = {"w": "weights", "weights": "weights", "kq": "key-query", "key-query": "key-query"}
LOSSES = {"logistic": "Logistic", "exponential": "Exponential", "linear": "attention.Linear", "log": "attention.Log"}
NORMS = {
    "frobenius": "Frobenius", "nuclear": "Nuclear", "spectral": "Spectral", "max-entry": "MaxEntry",
    "sum-entry": "SumEntry", "projective": "norms.Projective", "gamma2": "norms.Gamma2",
}  # fmt: skip
SVM_NORMS = (*NORMS, "entrywise")
SOLVERS = {
    "active-set": "ActiveSet", "batched-frobenius": "svm.BatchedFrobenius", "block-descent": "BlockDescent",
    "large-interior-point": "svm.LargeInteriorPoint", "nuclear-interior-point": "NuclearInteriorPoint",
    "interior-point": "InteriorPoint",
    "linear-program": "LinearProgram", "conic": "Conic", "cvxpy": "Cvxpy",
}  # fmt: skip
SCHEDULES = {
    "constant": "descent.Constant",
    "inverse-sqrt": "descent.InverseSqrt",
    "geometric": "descent.Geometric",
    "lipschitz": "descent.LipschitzStep",
}
STOPPING = {"saturated": "descent.Saturated", "settled": "descent.Settled"}


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
    weight_decay: float | None = None
    clip: float | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Rule:
    """One optimizer: its class, its norm, usual momentum and step size, the options it takes and the one it needs."""

    kind: str
    norm: str | None = None
    momentum: float | None = None
    takes: tuple[str, ...] = ()
    needs: str | None = None
    step_size: float = 0.1


_MOMENTUM = ("momentum",)
_NEEDED = {"norm": f"one of {', '.join(NORMS)}, l1.5 or spectral2 and the like", "p": "strictly between 1 and infinity"}
OPTIMIZERS: Mapping[str, _Rule] = {
    "gd": _Rule("GradientDescent"),
    "ngd": _Rule("NormalizedGradientDescent"),
    "sign": _Rule("SteepestDescent", "MaxEntry", 0.0, _MOMENTUM),
    "signum": _Rule("SteepestDescent", "MaxEntry", 0.9, _MOMENTUM),
    "spectral": _Rule("SteepestDescent", "Spectral", 0.0, _MOMENTUM),
    "muon": _Rule("SteepestDescent", "Spectral", 0.95, _MOMENTUM),
    "newton-schulz": _Rule("descent.NewtonSchulzDescent", None, 0.95, _MOMENTUM),
    "row": _Rule("SteepestDescent", "norms.LargestRow", 0.0, _MOMENTUM),
    "column": _Rule("SteepestDescent", "norms.LargestColumn", 0.0, _MOMENTUM),
    "steepest": _Rule("SteepestDescent", None, 0.0, ("norm", "momentum"), needs="norm"),
    "joint": _Rule("descent.JointSteepestDescent", "Frobenius", 0.0, ("norm", "momentum")),
    "mirror": _Rule("MirrorDescent", takes=("p",), needs="p"),
    "normalized-mirror": _Rule("NormalizedMirrorDescent", takes=("p",), needs="p"),
    "adam": _Rule("Adam"),
    "lion": _Rule("descent.Lion"),
    "polyak": _Rule("PolyakDescent", step_size=1.0),
}


def parameterization_named(name: str, rank: int | None) -> Parameterization:
    """`Weights()` or `KeyQuery(rank)`."""
    if PARAMETERIZATIONS[_known(name, PARAMETERIZATIONS, "parameterization")] == "key-query":
        return attsvm.KeyQuery(rank)
    if rank is not None:
        raise ValueError("--rank belongs to --parameterization kq")
    return attsvm.Weights()


def optimizer_named(name: str, options: OptimizerOptions) -> Optimizer:
    """The optimizer of this name with its step sizes; a ValueError if an option is missing or belongs elsewhere."""
    if name.startswith(_PYTORCH):
        if options.norm is not None or options.p is not None:
            raise ValueError(f"--norm and --p do nothing with --optimizer {name}")
        return _pytorch(name, options)
    if options.settings:
        raise ValueError(f"--setting belongs to --optimizer torch.optim.NAME; the optimizer is {name}")
    rule = OPTIMIZERS[_known(name, OPTIMIZERS, "optimizer")]
    for option in ("norm", "p", "momentum"):
        if getattr(options, option) is not None and option not in rule.takes:
            owners = ", ".join(other for other, entry in OPTIMIZERS.items() if option in entry.takes)
            raise ValueError(f"--{option} does nothing with --optimizer {name}; it belongs to {owners}")
    if rule.needs is not None and getattr(options, rule.needs) is None:
        raise ValueError(f"--optimizer {name} needs --{rule.needs}: {_NEEDED[rule.needs]}")
    norm = norm_named(options.norm) if options.norm else _made(rule.norm) if rule.norm else None
    momentum = rule.momentum if options.momentum is None else options.momentum
    arguments = (norm, options.p, _schedule(options, rule.step_size), momentum)
    made = _made(rule.kind, *(each for each in arguments if each is not None))
    return replace(made, weight_decay=options.weight_decay or 0.0, clip=options.clip)


def _made(kind: str, *arguments: Any) -> Any:
    """An object of the class that has this name at the top of `attsvm` or in one of its rooms."""
    return attrgetter(kind)(attsvm)(*arguments)


_PYTORCH = "torch.optim."


def _pytorch(name: str, options: OptimizerOptions) -> Optimizer:
    """``torch.optim.NAME`` with ``--setting eps=0`` and the like."""
    import torch

    kinds = [each for each in dir(torch.optim) if isinstance(getattr(torch.optim, each), type) and each != "Optimizer"]
    factory = getattr(torch.optim, _known(name.removeprefix(_PYTORCH), kinds, "optimizer of PyTorch"))
    own = {"weight_decay": options.weight_decay, "momentum": options.momentum}
    given: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
    for each in options.settings:
        key, _, value = each.partition("=")
        try:
            given[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            wanted = "NAME=VALUE with a number, True, False or a tuple"
            raise ValueError(f"--setting must be {wanted}; got {each}") from None
    plain = options.step_size is None and options.schedule == "constant"
    return attsvm.TorchOptimizer(factory, None if plain else _schedule(options, 0.1), clip=options.clip, **given)


def loss_named(name: str) -> Loss:
    """The loss of this name."""
    return _made(LOSSES[_known(name, LOSSES, "loss")])


def norm_named(name: str) -> Norm:
    """The norm of this name; l<p> is the entrywise l_p norm, spectral<m> the spectral norm of rank m."""
    return _numbered_norm(name) or _made(NORMS[_known(name, NORMS, "norm")])


def svm_norm_named(name: str, p: float | None) -> Norm:
    """The norm of an SVM: as `norm_named`, or entrywise with its exponent beside it."""
    if p is not None and name != "entrywise":
        raise ValueError(f"--p does nothing with --norm {name}; it belongs to --norm entrywise")
    if name != "entrywise":
        return _numbered_norm(name) or _made(NORMS[_known(name, SVM_NORMS, "norm")])
    if p is None:
        raise ValueError("--norm entrywise needs --p, strictly between 1 and infinity")
    return attsvm.Entrywise(p)


def _numbered_norm(name: str) -> Norm | None:
    """l<p> or spectral<m>, or None for other names."""
    if (match := re.fullmatch(r"spectral(\d+)|l(\d+\.?\d*|\.\d+|inf)", name)) is None:
        return None
    if match[1]:
        return attsvm.norms.SpectralOfRank(int(match[1]))
    if float(match[2]) < 1:
        raise ValueError(f"norm l<p> needs p of at least 1, or inf; got {name}")
    ends: dict[float, Norm] = {1.0: attsvm.SumEntry(), 2.0: attsvm.Frobenius(), math.inf: attsvm.MaxEntry()}
    return ends.get(float(match[2])) or attsvm.Entrywise(float(match[2]))


def solver_named(name: str | None) -> Solver | None:
    """The solver of this name; None leaves the choice to norm, size and device."""
    return None if name is None else _made(SOLVERS[_known(name, SOLVERS, "solver")])


def stopping_named(name: str | None, every: int) -> StoppingRule | None:
    """The stopping rule of this name, asked every `every` steps; None for none."""
    return None if name is None else replace(_made(STOPPING[_known(name, STOPPING, "stopping rule")]), every=every)


def _schedule(told: OptimizerOptions, usual: float) -> Schedule:
    name = _known(told.schedule, SCHEDULES, "schedule")
    if name != "geometric" and (told.growth is not None or told.largest is not None):
        raise ValueError(f"--growth and --largest belong to --schedule geometric; the schedule is {name}")
    usual = 1.0 if name == "lipschitz" else usual
    settings = [usual if told.step_size is None else told.step_size]
    if name == "geometric":
        settings += [1.01 if told.growth is None else told.growth, *([] if told.largest is None else [told.largest])]
    return _made(SCHEDULES[name], *settings)


def _known(name: str, names: Iterable[str], kind: str) -> str:
    if name in (known := list(names)):
        return name
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? There are {', '.join(known)}" if near else f"there are {', '.join(known)}"
    raise ValueError(f"no {kind} is called {name!r}; {hint}")
