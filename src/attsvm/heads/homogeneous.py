"""Homogeneous coordinates: a constant coordinate absorbs the biases, so that logits are bilinear, x^T W z."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.heads.model import HeadModel, HeadWeights, SentenceStates

# A float32 forward pass is off by about 1e-6 times the largest logit; a wrong form is off by far more than this.
TOLERANCE = 1e-3


def with_constant(states: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch D"]:
    """`states` in float64 on the CPU with a last coordinate of 1.

    >>> with_constant(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0, 1.0]]
    """
    wide = states.detach().to("cpu", torch.float64)
    return torch.cat([wide, wide.new_ones(*wide.shape[:-1], 1)], dim=-1)


def head_weights(
    key: Float[Tensor, "d m"],
    query: Float[Tensor, "d m"],
    key_bias: Float[Tensor, " m"] | None,
    query_bias: Float[Tensor, " m"] | None,
    scale: float,
) -> HeadWeights:
    """The form of logits ``scale (key^T x + key_bias) . (query^T z + query_bias)``, in float64."""
    return HeadWeights(key=_with_bias(key, key_bias), query=scale * _with_bias(query, query_bias))


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    wide = weight.detach().to("cpu", torch.float64)
    row = wide.new_zeros(1, wide.shape[1]) if bias is None else bias.detach().to("cpu", torch.float64)[None]
    return torch.cat([wide, row])


def recomputed_attention(
    keys: Float[Tensor, "T D"], queries: Float[Tensor, "T D"], head: HeadWeights, allowed: Bool[Tensor, "T T"]
) -> Float[Tensor, "T T"]:
    """softmax(X key query^T z) over the allowed tokens X, for every query z; row = query.

    >>> one = torch.ones(2, 1)
    >>> recomputed_attention(one, one, HeadWeights(torch.ones(1, 1), torch.ones(1, 1)), torch.eye(2) > -1).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    logits = (queries @ head.query) @ (keys @ head.key).T
    return logits.masked_fill(~allowed, -torch.inf).softmax(-1)


def attention_error(
    model: HeadModel, states: SentenceStates, layers: Sequence[int] | None = None
) -> Float[Tensor, "layers heads"]:
    """Largest difference between the model's own attention and the one recomputed from its forms, per head.

    Arguments:
        model: whose forms to use.
        states: as ``model.states(sentence, layers)`` gave them.
        layers: the layers that `states` holds (None: all).
    """
    chosen = list(range(model.layers)) if layers is None else list(layers)
    error = torch.zeros(len(chosen), model.heads, dtype=torch.float64)
    for row, layer in enumerate(chosen):
        for head in range(model.heads):
            form = model.weights(layer, head)
            again = recomputed_attention(states.keys[row], states.queries[row], form, states.allowed)
            error[row, head] = (again - states.attention[row, head]).abs().max()
    return error


def check_exact(model: HeadModel, states: SentenceStates, layers: Sequence[int]) -> None:
    """Raise unless the forms of `model` give its own attention on `states`."""
    error = attention_error(model, states, layers)
    worst = float(error.max())
    if not worst <= TOLERANCE:
        row, head = divmod(int(error.nan_to_num(torch.inf).argmax()), model.heads)
        raise ValueError(
            f"{model.name} is more than softmax(X K Q^T z): the attention of L{layers[row]}H{head} recomputed"
            f" from its key and query weights is off by {worst:.1e} (adapters, masks, or another scale?); pass its"
            " hidden states and effective weights to from_arrays instead"
        )
