"""Losses of the margin Y f: strictly decreasing, with the logarithm of their slope, so that nothing underflows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


class Loss(ABC):
    """A strictly decreasing function of the margin ``m = Y f``."""

    @abstractmethod
    def value(self, margin: Tensor) -> Tensor:
        """loss(m), elementwise."""

    @abstractmethod
    def log_slope(self, margin: Tensor) -> Tensor:
        """log|loss'(m)|, elementwise, accurate where loss' itself underflows."""

    @abstractmethod
    def log_excess(self, best: Tensor, log_shortfall: Tensor) -> Tensor:
        """log( loss(best - D) - loss(best) ) for D = exp(log_shortfall) >= 0, without cancellation."""

    def slope_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Suprema of |loss'| and |loss''| over the intervals [low, high]; not every loss has, or states, them."""
        raise ValueError(f"the Lipschitz bound needs a loss of bounded slope: {self!r} states no bounds")


def _log_expm1(log_x: Tensor) -> Tensor:
    """log(exp(x) - 1) for x = exp(log_x): x itself when tiny, exp(x) when large."""
    x = log_x.exp()
    return torch.where(x < 1e-8, log_x + x / 2, torch.where(x > 40, x, torch.expm1(x.clamp(1e-9, 50.0)).log()))


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-m)), the papers' loss.

    >>> Logistic().value(torch.tensor(0.0)).item() == torch.tensor(2.0).log().item()
    True
    """

    def value(self, margin: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(margin)

    def log_slope(self, margin: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(-margin)

    def log_excess(self, best: Tensor, log_shortfall: Tensor) -> Tensor:
        # log(1+e^(D-b)) - log(1+e^-b) = log1p( sigmoid(-b) expm1(D) )
        inner = torch.nn.functional.logsigmoid(-best) + _log_expm1(log_shortfall)
        small = inner < -40
        plain = torch.log1p(inner.clamp(max=600.0).exp())
        return torch.where(small, inner, torch.where(inner > 600, inner, plain).log())

    def slope_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        nearest = torch.zeros_like(low).clamp(min=low, max=high)
        sigmoid = torch.sigmoid(nearest)
        return torch.sigmoid(-low), sigmoid * (1 - sigmoid)


@dataclass(frozen=True)
class Exponential(Loss):
    """exp(-m)."""

    def value(self, margin: Tensor) -> Tensor:
        return torch.exp(-margin)

    def log_slope(self, margin: Tensor) -> Tensor:
        return -margin

    def log_excess(self, best: Tensor, log_shortfall: Tensor) -> Tensor:
        return -best + _log_expm1(log_shortfall)

    def slope_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.exp(-low), torch.exp(-low)


@dataclass(frozen=True)
class Linear(Loss):
    """-m."""

    def value(self, margin: Tensor) -> Tensor:
        return -margin

    def log_slope(self, margin: Tensor) -> Tensor:
        return torch.zeros_like(margin)

    def log_excess(self, best: Tensor, log_shortfall: Tensor) -> Tensor:
        return log_shortfall

    def slope_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones_like(low), torch.zeros_like(low)


@dataclass(frozen=True)
class Log(Loss):
    """-log(m) of a margin m > 0: the loss of next-token prediction, where m is the attention on the label.

    Its slope has no bound near m = 0; margins below the smallest float count as that.
    """

    def value(self, margin: Tensor) -> Tensor:
        if bool((margin < 0).any()):
            raise ValueError(f"Log() is a loss of positive margins; got {float(margin.min()):.6g}")
        return -margin.clamp(min=torch.finfo(margin.dtype).tiny).log()

    def log_slope(self, margin: Tensor) -> Tensor:
        return self.value(margin)

    def log_excess(self, best: Tensor, log_shortfall: Tensor) -> Tensor:
        share = log_shortfall - best.log()
        return torch.where(share < -20, share, (-torch.log1p(-share.clamp(max=-1e-16).exp())).log())


@dataclass(frozen=True)
class CustomLoss(Loss):
    """A user's own strictly decreasing, differentiable function of the margin.

    Its slope comes from autograd, so it underflows where the function's own derivative does; pass `log_slope_function`
    (log|loss'(m)| in closed form) to follow it further. A function that does not decrease is refused during training.
    """

    function: Callable[[Tensor], Tensor]
    log_slope_function: Callable[[Tensor], Tensor] | None = None

    def __repr__(self) -> str:
        # By name, without the address: a run that is resumed elsewhere must recognise its loss.
        named = [function for function in (self.function, self.log_slope_function) if function is not None]
        return f"CustomLoss({', '.join(getattr(each, '__qualname__', type(each).__name__) for each in named)})"

    def value(self, margin: Tensor) -> Tensor:
        loss = self.function(margin)
        if not isinstance(loss, Tensor) or loss.shape != margin.shape:
            gave = list(loss.shape) if isinstance(loss, Tensor) else repr(loss)
            raise ValueError(f"loss must return one number for each margin, shape {list(margin.shape)}; it gave {gave}")
        return loss

    def log_slope(self, margin: Tensor) -> Tensor:
        if self.log_slope_function is not None:
            return self.log_slope_function(margin)
        with torch.enable_grad():
            at = margin.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(self.value(at).sum(), at)
        if bool((slope > 0).any()) or bool(torch.isnan(slope).any()):
            where = margin[(slope > 0) | torch.isnan(slope)].flatten()[0].item()
            raise ValueError(f"loss must decrease with the margin; its slope is not negative at margin {where:.6g}")
        return (-slope).log()

    def log_excess(self, best: Tensor, log_shortfall: Tensor) -> Tensor:
        shortfall = log_shortfall.exp()
        plain = (self.function(best - shortfall) - self.function(best)).clamp(min=0).log()
        return torch.where(shortfall < 1e-6 * (1 + best.abs()), self.log_slope(best) + log_shortfall, plain)


LossLike = Loss | Callable[[Tensor], Tensor] | None


def as_loss(loss: LossLike) -> Loss:
    """A loss object: `Logistic()` for None, and a plain function becomes a `CustomLoss`."""
    if loss is None or isinstance(loss, Loss):
        return loss or Logistic()
    if callable(loss) and not isinstance(loss, type):
        return CustomLoss(loss)
    known = "Logistic(), Exponential(), Linear(), Log()"
    raise ValueError(f"loss must be {known} or a function of the margin; got {loss!r}")
