"""Independent models of the attention layer: a plain autograd one, one in many digits, and a max-margin direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from attsvm import TokenDataset
from attsvm.attention import ScaledTensor

# ------------------------------------------------------------------- autograd


def plain_risk(
    data: TokenDataset,
    weights: Tensor,
    head: Callable[[Tensor], Tensor],
    loss: Callable[[Tensor], Tensor] = lambda margin: torch.log(1 + torch.exp(-margin)),
) -> Tensor:
    """Risk ``[*batch]`` of W ``[*batch, d, dq]`` as the formula reads, every token written out for every query."""
    keys, values = (part.repeat_interleave(data.queries_per_sequence, dim=-3) for part in (data.tokens, data.values))
    logits = (keys @ (weights.unsqueeze(-3) @ data.queries.unsqueeze(-1))).squeeze(-1)
    if data.mask is not None:
        logits = logits.masked_fill(~data.mask, -torch.inf)
    attended = (torch.softmax(logits, -1).unsqueeze(-2) @ values).squeeze(-2)
    return loss(data.labels * head(attended)).mean(-1)


def autograd(risk: Callable[..., Tensor], **parameters: Tensor) -> dict[str, Tensor]:
    """Gradient of the summed risk with respect to named parameters."""
    leaves = {name: value.detach().clone().requires_grad_(True) for name, value in parameters.items()}
    gradients = torch.autograd.grad(risk(**leaves).sum(), list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True))


def assert_same_gradient(
    found: Mapping[str, ScaledTensor], expected: Mapping[str, Tensor], relative: float = 1e-12
) -> None:
    """Raise unless every parameter's gradient agrees with the expected one, relative to its norm."""
    assert set(found) == set(expected)
    for name, want in expected.items():
        got = found[name].tensor()
        assert got.shape == want.shape, (name, got.shape, want.shape)
        error = (got - want).norm() / want.norm()
        assert error <= relative, f"{name}: relative error {error:.2e} above {relative:.0e}"


# ---------------------------------------------------------------- many digits


@dataclass(frozen=True)
class ExactHead:
    """A head in mpmath: output and gradient at a list of mpf."""

    output: Callable[[list[Any]], Any]
    gradient: Callable[[list[Any]], list[Any]]


def exact(array: Any) -> Any:
    """Nested lists of mpf, each float's exact value."""
    values = np.asarray(array)
    return mp.mpf(float(values)) if values.ndim == 0 else [exact(part) for part in values]


def _dot(a: list[Any], b: list[Any]) -> Any:
    return mp.fsum(x * y for x, y in zip(a, b, strict=True))


def exact_linear(vector: Any) -> ExactHead:
    v = exact(vector)
    return ExactHead(lambda x: _dot(v, x), lambda x: v)


def exact_quadratic(vector: Any, penalty: float) -> ExactHead:
    v, weight = exact(vector), mp.mpf(penalty)
    return ExactHead(
        lambda x: _dot(v, x) - weight * _dot(x, x), lambda x: [a - 2 * weight * b for a, b in zip(v, x, strict=True)]
    )


def exact_relu(matrix: Any) -> ExactHead:
    columns = exact(np.asarray(matrix).T)
    return ExactHead(
        lambda x: mp.fsum(max(_dot(c, x), mp.mpf(0)) for c in columns),
        lambda x: [mp.fsum(c[j] for c in columns if _dot(c, x) > 0) for j in range(len(x))],
    )


def exact_tanh(inner: Any, outer: Any) -> ExactHead:
    """``outer^T tanh(inner x)``."""
    rows, last = exact(inner), exact(outer)

    def gradient(x: list[Any]) -> list[Any]:
        slopes = [w * (1 - mp.tanh(_dot(row, x)) ** 2) for w, row in zip(last, rows, strict=True)]
        return [mp.fsum(s * row[j] for s, row in zip(slopes, rows, strict=True)) for j in range(len(x))]

    return ExactHead(lambda x: mp.fsum(w * mp.tanh(_dot(row, x)) for w, row in zip(last, rows, strict=True)), gradient)


# loss'(m) of the margin m
EXACT_SLOPES: dict[str, Callable[[Any], Any]] = {
    "Logistic": lambda m: -1 / (1 + mp.exp(m)),
    "Exponential": lambda m: -mp.exp(-m),
    "Linear": lambda m: mp.mpf(-1),
}


def exact_gradient(data: TokenDataset, weights: Any, head: ExactHead, slope: Callable[[Any], Any]) -> list[list[Any]]:
    """Gradient of the risk in W (nested lists of mpf, so W may be a product in many digits), for one data set.

    The textbook formula: s_it (u_it - sum_t s_it u_it), in as many digits as `mp.dps` asks for.
    """
    shared = data.queries_per_sequence
    keys, values, queries = (exact(part) for part in (data.tokens, data.values, data.queries))
    labels = data.labels.tolist()
    total = [[mp.mpf(0)] * data.dq for _ in range(data.d)]
    for i in range(data.n):
        real = [t for t in range(data.T) if data.mask is None or bool(data.mask[i, t])]
        x, value = ([part[i // shared][t] for t in real] for part in (keys, values))
        direction = [_dot(row, queries[i]) for row in weights]
        powers = [mp.exp(_dot(token, direction)) for token in x]
        mass = mp.fsum(powers)
        s = [power / mass for power in powers]
        attended = [mp.fsum(p * v[j] for p, v in zip(s, value, strict=True)) for j in range(data.dv)]
        u = [_dot(v, head.gradient(attended)) for v in value]
        mean = _dot(s, u)
        pull = slope(labels[i] * head.output(attended)) * labels[i] / data.n
        rows = [pull * p * (a - mean) for p, a in zip(s, u, strict=True)]
        mixed = [mp.fsum(r * token[j] for r, token in zip(rows, x, strict=True)) for j in range(data.d)]
        total = [[g + m * z for g, z in zip(row, queries[i], strict=True)] for row, m in zip(total, mixed, strict=True)]
    return total


def exact_product(left: Any, right: Any) -> list[list[Any]]:
    """left right^T of float arrays or nested lists of mpf."""
    a, b = (part if isinstance(part, list) else exact(part) for part in (left, right))
    return [[_dot(row, other) for other in b] for row in a]


def transposed(matrix: list[list[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def direction_and_log_norm(matrix: list[list[Any]]) -> tuple[Tensor, float]:
    """Unit-norm float64 direction and logarithm of the norm of a matrix of mpf."""
    norm = mp.sqrt(mp.fsum(entry**2 for row in matrix for entry in row))
    unit = torch.tensor([[float(entry / norm) for entry in row] for row in matrix], dtype=torch.float64)
    return unit, float(mp.log(norm))


def direction_error(found: ScaledTensor, expected: list[list[Any]]) -> tuple[float, float]:
    """Distance of the unit directions, and of the log-norms."""
    unit, log_norm = direction_and_log_norm(expected)
    return float((found.normalized() - unit).norm()), abs(float(found.log_norm()) - log_norm)


# ------------------------------------------------------------------ max margin


def margin_rows(data: TokenDataset, selected: Tensor) -> np.ndarray:
    """Rows ``(x_selected - x_t) z^T``, flattened, of one data set: selected token against every other real one."""
    keys = data.tokens.repeat_interleave(data.queries_per_sequence, 0).numpy()
    queries = data.queries.numpy()
    rows = [
        np.outer(keys[i, int(selected[i])] - keys[i, t], queries[i]).ravel()
        for i in range(data.n)
        for t in range(data.T)
        if t != int(selected[i]) and (data.mask is None or bool(data.mask[i, t]))
    ]
    return np.array(rows).reshape(len(rows), data.d * data.dq)


def max_margin(data: TokenDataset, selected: Tensor) -> Tensor:
    """``argmin ||W||_F`` with every margin at least 1, by Lawson and Hanson's least-distance program."""
    rows = margin_rows(data, selected)
    stacked = np.vstack([rows.T, np.ones(len(rows))])
    target = np.zeros(stacked.shape[0])
    target[-1] = 1.0
    multipliers, _ = scipy.optimize.nnls(stacked, target)
    residual = stacked @ multipliers - target
    weights = -residual[:-1] / residual[-1]
    # Polish: with the support known the dual is a linear system, which makes the tight margins equal to round-off.
    active = rows[multipliers > 1e-10]
    weights = active.T @ np.linalg.lstsq(active @ active.T, np.ones(len(active)), rcond=None)[0]
    assert (rows @ weights).min() > 1 - 1e-9, "not separable"
    return torch.from_numpy(weights.reshape(data.d, data.dq))
