"""Any optimizer of PyTorch, driven with gradients that do not underflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.descent.optimizers.base import Optimizer, State, Step, as_matrix
from attsvm.descent.schedules import LipschitzStep, Schedule, as_schedule

if TYPE_CHECKING:
    from attsvm.descent.task import Task

_ADAM = {"exp_avg": 1, "exp_avg_sq": 2, "max_exp_avg_sq": 2, "eps": 1}
# By which power of a factor on all gradients each buffer and each setting must be multiplied to leave the steps as they
# are. Rules that are not here add a number to a root of gradients, or the like, and cannot be scaled.
_POWERS: Mapping[str, Mapping[str, int]] = {
    "SGD": {"momentum_buffer": 1, "lr": -1},
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "NAdam": _ADAM,
    "Adamax": {"exp_avg": 1, "exp_inf": 1, "eps": 1},
    "Adagrad": {"sum": 2, "eps": 1},
    "RMSprop": {"square_avg": 2, "grad_avg": 1, "eps": 1},
    "Rprop": {"prev": 1},
    "Muon": {"momentum_buffer": 1, "eps": 1},
}
# Each entry moves by itself, so that one optimizer can hold the parameters of all data sets.
_ELEMENTWISE = {*_POWERS, "Adadelta", "ASGD", "RAdam"} - {"Muon"}
_PLUMBING = ("capturable", "differentiable", "foreach", "fused", "maximize")
_WINDOW = 32.0  # gradients may leave [2^-32, 2^32] before their scale changes
_SCALE, _UNDERFLOWED = "torch_scale", "underflowed"


@dataclass(frozen=True, repr=False, init=False)
class TorchOptimizer(Optimizer):
    """An optimizer of PyTorch, or anyone's that derives from `torch.optim.Optimizer`.

    It gets the true gradient times one power of two, which stays for a whole stretch of steps. When gradients leave
    its window the power changes, and with it what the optimizer remembers (first moments by the factor, second moments
    by its square) and the settings that it compares with gradients (``eps``), so that every step is the one that exact
    arithmetic would take. Of optimizers about which this is not known a run ends where squares of its gradients
    underflow, and `Run.notes` says so.

    A rule that moves each entry by itself runs once for a batch of data sets; any other in a loop, one data set after
    the other. ``repr`` says which, with all settings, those by default included (`torch.optim.Muon` decays by .1 and
    orthogonalizes in bfloat16); so does ``run.configuration["optimizer"]``.

    Arguments:
        factory: called with a list of parameters and the settings, such as `torch.optim.Muon`.
        step_size: another word for ``lr``; by default the factory's own.
        powers: for an optimizer of your own, the powers of a factor on gradients with which its buffers and settings
            grow, by name: ``{"exp_avg": 1, "exp_avg_sq": 2, "eps": 1}`` for Adam.
        more: settings, as the factory calls them: ``lr=``, ``weight_decay=`` and so on.

    >>> TorchOptimizer(torch.optim.SGD, lr=0.5, momentum=0.9).step_size
    0.5
    """

    decays_itself = True

    factory: Callable[..., torch.optim.Optimizer]
    step_size: float | Schedule
    powers: Mapping[str, int] | None
    settings: Mapping[str, Any]
    _all: Mapping[str, Any] = field(init=False, compare=False)  # settings, those by default included
    _first: Mapping[str, float] = field(init=False, compare=False)  # the first lr, for factories that need one
    _name: str = field(init=False, compare=False)
    _stacked: bool = field(init=False, compare=False)
    _live: dict[Any, torch.optim.Optimizer] = field(init=False, compare=False)

    def __init__(
        self,
        factory: Callable[..., torch.optim.Optimizer],
        step_size: float | Schedule | None = None,
        powers: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        clip: float | None = None,
        **more: Any,
    ) -> None:
        given = {**(settings or {}), **more}
        if settings is not None and "weight_decay" not in settings and not given.get("weight_decay"):
            given.pop("weight_decay", None)  # `dataclasses.replace` gives every field
        lr = given.pop("lr", None) if step_size is None else step_size
        first = {} if lr is None else {"lr": float(as_schedule(lr).sizes(0, 1)[0])}
        made, own = _tried(factory, {**given, **first})
        usual = own.pop("lr", 1.0)
        kind, module = type(made).__name__, type(made).__module__
        decay, of_torch = float(own.get("weight_decay") or 0.0), module.startswith("torch.optim")
        # A decay that is added to the gradient has its own size.
        coupled = decay > 0 and kind != "Muon" and not own.get("decoupled_weight_decay")
        if powers is None and of_torch and not coupled:
            powers = _POWERS.get(kind)
        vars(self).update(  # past the frozen dataclass
            factory=factory,
            step_size=usual if lr is None else lr,
            powers=powers,
            settings={**given, **({"weight_decay": decay} if "weight_decay" in own else {})},
            weight_decay=decay,
            clip=clip,
            _all={name: value for name, value in own.items() if name not in _PLUMBING or value},
            _name=f"torch.optim.{kind}" if of_torch else f"{module}.{type(made).__qualname__}",
            _stacked=of_torch and kind in _ELEMENTWISE,
            _first=first,
            _live={},
        )
        self.__post_init__()

    def __repr__(self) -> str:
        shown = {"lr": self.step_size, **self._all, **({} if self.clip is None else {"clip": self.clip})}
        words = ["one optimizer for all data sets" if self._stacked else "one data set after the other"]
        words += ["orthogonalizes in bfloat16"] if self._name == "torch.optim.Muon" else []
        words += ["ends where gradients underflow"] if self.powers is None else []
        settings = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"TorchOptimizer({self._name}, {settings}; {', '.join(words)})"

    def check(self, task: Task) -> None:
        super().check(task)
        if isinstance(self.step_size, LipschitzStep):
            raise ValueError("TorchOptimizer has one step size for all data sets; LipschitzStep() has one for each")

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        like = next(iter(parameters.values()))
        blank = torch.zeros(like.shape[:2], dtype=like.dtype, device=like.device)
        return {_SCALE: blank, _UNDERFLOWED: blank.bool()}

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        memory = {name: value.clone() for name, value in state.items()}
        sizes = torch.stack([_log2(each.mantissa) + each.log_scale / math.log(2) for each in now.gradients.values()])
        size = sizes.amax(0)  # log2 of the largest entry of the gradient
        if self.powers is not None:
            self._rescale(size, memory, self.powers)
        scale = memory[_SCALE]
        gradients = {
            name: as_matrix(ScaledTensor(each.mantissa, each.log_scale - scale * math.log(2)).tensor())
            for name, each in now.gradients.items()
        }
        moved = {name: as_matrix(value).clone() for name, value in now.parameters.items()}
        if not self._alone:
            memory[_UNDERFLOWED] = torch.isfinite(size) & (size - scale < math.log2(torch.finfo(size.dtype).tiny) / 2)
        # One object serves all places, its memory is handed to it.
        places: list[Any] = [...] if self._stacked else list(np.ndindex(*size.shape))
        key = tuple((tuple(each.shape), each.dtype, each.device) for each in moved.values())
        if key not in self._live:
            self._live.clear()
            leaves = [torch.nn.Parameter(each[places[0]].clone()) for each in moved.values()]
            self._live[key] = self.factory(leaves, **self.settings, **self._first)
        for place in places:
            self._one(place, self._live[key], now, moved, gradients, memory)
        return {name: value.reshape(now.parameters[name].shape) for name, value in moved.items()}, memory

    @property
    def _alone(self) -> bool:
        """Whether each element may have a scale of its own: one optimizer for all has one eps."""
        if self.powers is None or not self._stacked:
            return self.powers is not None
        return not any(self._all.get(name, name == "lr") for name in self.powers)

    def _one(
        self, place: Any, live: torch.optim.Optimizer, now: Step, moved: State, gradients: State, memory: State
    ) -> None:
        """One step at one place; `moved` and `memory` are changed there."""
        leaves = [leaf for group in live.param_groups for leaf in group["params"]]
        exponent = round(float(memory[_SCALE][place].max()))
        before = [dict(group) for group in live.param_groups]
        for group in live.param_groups:
            group["lr"] = float(now.size[place].max())
            for name, power in (self.powers or {}).items():
                if name in group:
                    group[name] = _times(group[name], -power * exponent)
        told = [dict(group) for group in live.param_groups]
        live.state.clear()
        for leaf, name in zip(leaves, moved, strict=True):
            leaf.data, leaf.grad = moved[name][place], gradients[name][place]
            for key, value in memory.items():
                if key.startswith(own := f"torch/{name}/"):
                    held = value.max() if self._stacked and value.ndim == 2 else value[place].clone()
                    live.state[leaf][key.removeprefix(own)] = held
        live.step()
        for group, expected, old in zip(live.param_groups, told, before, strict=True):
            for name in expected.keys() - {"params"}:
                if group[name] is not expected[name] and group[name] != expected[name]:
                    raise ValueError(f"{self._name} changes its setting {name} as it goes, which no data set owns")
            group.update(old)
        for leaf, name in zip(leaves, moved, strict=True):
            moved[name][place] = leaf.data
            remembered = {buffer: value for buffer, value in live.state[leaf].items() if value is not None}
            for buffer, value in remembered.items():
                key, found = f"torch/{name}/{buffer}", torch.as_tensor(value, device=leaf.device)
                if key not in memory:
                    trailing = found.shape[2:] if self._stacked else found.shape
                    memory[key] = found.new_zeros((*now.size.shape, *trailing))
                memory[key][place] = found

    def _rescale(self, size: Tensor, state: State, powers: Mapping[str, int]) -> None:
        """Change the scale of elements whose gradients left the window, and what is remembered with it."""
        before = state[_SCALE]
        if not bool((torch.isfinite(size) & ((size - before).abs() > _WINDOW)).any()):
            return
        last = {key: key.rpartition("/")[2] for key in state if key.startswith("torch/")}
        buffers = {key: powers[name] for key, name in last.items() if name in powers}
        largest = size
        for key, power in buffers.items():
            largest = torch.maximum(largest, before + _log2(state[key]) / power)
        wanted = largest if self._alone else largest.amax().expand_as(largest)
        left = torch.isfinite(wanted) & ((wanted - before).abs() > _WINDOW)
        after = torch.where(left, wanted.round(), before)
        state[_SCALE] = after
        for key, power in buffers.items():
            # What is larger than this was below the smallest number, so zero.
            factor = torch.exp2((power * (before - after)).clamp(max=1000.0)).to(state[key].dtype)
            state[key] = state[key] * factor.reshape(factor.shape + (1,) * (state[key].ndim - 2))


def _log2(value: Tensor) -> Tensor:
    """Of the largest |entry| of every element ``[starts, batch]``."""
    return value.flatten(2).abs().amax(-1).log2() if value.ndim > 2 else value.abs().log2()


def _times(value: float, exponent: int) -> float:
    """value * 2^exponent, at most the largest number."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return 1e308


def _tried(factory: Callable[..., Any], settings: Mapping[str, Any]) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
    """An optimizer that has taken one step, and all its settings; a ValueError if it cannot be used."""
    probe = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    probe.grad = torch.ones_like(probe)
    try:
        made = factory([probe], **settings)
        made.step()
        held, own = made.state[probe], dict(made.param_groups[0])
    except Exception as error:
        wanted = "an optimizer of PyTorch that steps without a closure, such as torch.optim.Muon"
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ValueError(f"factory must make {wanted}; given {given}: {' '.join(str(error).split())}") from None
    for name, value in held.items():
        if not isinstance(value, Tensor | int | float | None):
            kinds = type(made).__name__, type(value).__name__
            raise ValueError(f"{kinds[0]} remembers {name} as {kinds[1]}, which cannot be stored")
    del own["params"]
    return made, own
