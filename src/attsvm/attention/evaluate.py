"""The model at weights that a user gives: forward pass, risk, and the gradient that saturation does not spoil."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention.gradient import attend, invisible_tokens, risk_gradient
from attsvm.attention.linear_maps import flat_logits, folded
from attsvm.attention.losses import LossLike, as_loss
from attsvm.attention.parameterizations import Parameterization, Weights
from attsvm.attention.prediction_heads import as_head
from attsvm.attention.scaled import ScaledTensor
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, check_finite


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The model at one W: what attention looks like and what it costs."""

    attention: Float[Tensor, "*lead n T"]  #: softmax probabilities, 0 at masked tokens
    log_attention: Float[Tensor, "*lead n T"]  #: their logarithms, exact where the probability rounds to 0 or 1
    selected: Int[Tensor, "*lead n"]  #: the most probable token of each input
    margin: Float[Tensor, "*lead n"]  #: Y_i f_i
    risk: Float[Tensor, "*lead"]
    invisible: Bool[Tensor, "*lead n T"]  #: whose part in the gradient drowned in round-off (`invisible_tokens`)


def evaluate(data: TokenDataset, weights: ArrayLike, head: object = None, loss: LossLike = None) -> Evaluation:
    """Forward pass: attention, margins and risk of W on every data set.

    Arguments:
        weights: W, ``[*starts, *batch, d, dq]``.

    >>> import torch
    >>> data = TokenDataset(torch.eye(2)[None], torch.ones(1, 1), [1], head=torch.tensor([1.0, 0.0]))
    >>> evaluate(data, torch.zeros(2, 1)).attention.tolist()
    [[0.5, 0.5]]
    """
    matrix, lead = folded(data, weights, (data.d, data.dq), "weights", "d, dq")
    check_finite(as_floating(weights, "weights"), "weights", ("row", "column"))
    flat, own = data.flatten(), as_head(head, data).flatten()
    attended = attend(flat, own, flat_logits(flat, matrix))
    risk = as_loss(loss).value(attended.margin).mean(-1)
    invisible = invisible_tokens(flat, own, attended)
    parts = (attended.attention, attended.log_attention, attended.winner, attended.margin, risk, invisible)
    return Evaluation(*(part.reshape((*lead, *part.shape[2:])) for part in parts))


def gradient(
    data: TokenDataset,
    parameters: ArrayLike | Mapping[str, ArrayLike],
    head: object = None,
    loss: LossLike = None,
    parameterization: Parameterization | None = None,
    train_head: bool = False,
) -> dict[str, ScaledTensor]:
    """Gradient of the risk with respect to every trained parameter, as mantissa and log-scale.

    The direction stays right at norms where the gradient itself is far below the smallest float.

    Arguments:
        parameters: W ``[*starts, *batch, d, dq]``, or a mapping such as ``{"key": K, "query": Q}``.
        train_head: also return the gradient of the prediction head's parameters (named ``head`` or ``head.*``).

    >>> import torch
    >>> data = TokenDataset(torch.eye(2)[None], torch.ones(1, 1), [1], head=torch.tensor([1.0, 0.0]))
    >>> far = gradient(data, torch.tensor([[5000.0], [-5000.0]]))["weights"]
    >>> far.normalized().flatten().tolist(), far.log_norm().item() < -9000
    ([-0.7071..., 0.7071...], True)
    """
    kind = parameterization or Weights()
    given = dict(parameters) if isinstance(parameters, Mapping) else {"weights": parameters}
    shapes = kind.shapes(data)
    if set(given) != set(shapes):
        raise ValueError(f"parameters of {kind} must be {', '.join(shapes)}; got {', '.join(given)}")
    flat, own = data.flatten(), as_head(head, data).flatten()
    matrices: dict[str, Tensor] = {}
    leads: dict[tuple[int, ...], str] = {}
    for name, shape in shapes.items():
        matrices[name], lead = folded(data, given[name], shape, name, "rows, columns")
        check_finite(as_floating(given[name], name), name, ("row", "column"))
        leads[lead] = name
    if len(leads) > 1:
        said = " and ".join(f"{name} {list(each)}" for each, name in leads.items())
        raise ValueError(f"parameters must have the same starts; got {said}")
    if train_head:
        own = own.broadcast(tuple(matrices[name].shape[:2]))
    attended = attend(flat, own, flat_logits(flat, kind.weights(matrices)))
    result = risk_gradient(flat, own, as_loss(loss), attended, train_head=train_head, kept=kind.kept)
    each = {**kind.from_logits(flat, matrices, result), **result.head}
    return {
        name: ScaledTensor(part.mantissa.reshape((*lead, *part.mantissa.shape[2:])), part.log_scale.reshape(lead))
        for name, part in each.items()
    }
