"""The hand-made examples: their numbers, and the closed forms that the papers read off them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls

from attsvm.data import EXAMPLES, TokenDataset, example, starting_points

from .helpers import assert_same

RANDOM = ["multi-input", "trajectories", "hyperplanes"]
SIX = [1.0, 0.5, 0.0, -0.5, -1.0, -1.5]


def scores(data: TokenDataset) -> torch.Tensor:
    assert data.head is not None
    return data.labels[..., None] * torch.einsum("...ntd,...d->...nt", data.values, data.head)


def rows(data: TokenDataset, selected: list[int]) -> np.ndarray:
    """The rows (x_i,alpha - x_it) z_i^T of the SVM, flattened."""
    return np.array(
        [
            np.outer(data.tokens[i, chosen] - data.tokens[i, t], data.queries[i]).ravel()
            for i, chosen in enumerate(selected)
            for t in range(data.T)
            if t != chosen
        ]
    )


def assert_max_margin(constraints: np.ndarray, solution: list[float], right: list[float] | None = None) -> np.ndarray:
    """The conditions of Karush, Kuhn and Tucker; gives the margins."""
    wanted = np.ones(len(constraints)) if right is None else np.array(right)
    margins = constraints @ np.array(solution)
    assert (margins >= wanted - 1e-12).all()
    tight = np.abs(margins - wanted) < 1e-9
    assert nnls(constraints[tight].T, np.array(solution))[1] < 1e-12
    return margins


# ------------------------------------------------------------------- the papers'


@pytest.mark.parametrize(("name", "third"), [("single-input-global", 0.9), ("single-input-local", 0.0)])
def test_single_input(name: str, third: float) -> None:
    data = example(name)
    assert (data.n, data.T, data.d, data.dv, data.dq) == (1, 3, 2, 3, 1)
    assert data.tokens.tolist() == [[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]]
    assert scores(data).tolist() == [[1.0, 0.9, third]]
    first = assert_max_margin(rows(data, [0]), [-10 / 101, 100 / 101])
    second = assert_max_margin(rows(data, [1]), [1.0, 0.0])
    assert np.allclose(first, [111 / 101, 1])
    assert np.allclose(second, [1.1, 1])
    assert bool(scores(data)[0, 1] > scores(data)[0, 2]) == (name == "single-input-local")


def test_multi_input() -> None:
    data = example("multi-input")
    assert (data.n, data.T, data.d, data.dv, data.dq) == (3, 7, 2, 3, 1)
    assert scores(data).tolist() == [[1.0] + 6 * [0.5]] * 3
    many = example("multi-input", batch=400, seed=1).tokens
    centres = torch.tensor([[1.0, 0.0]] + 3 * [[-1.0, 1.0]] + 3 * [[-0.5, -0.5]], dtype=torch.float64)
    noise = many - centres
    assert float(noise.mean((0, 1)).abs().max()) < 5 * 0.2 / 1200**0.5
    assert abs(float(noise.std()) - 0.2) < 0.005
    assert (rows(data, [0, 0, 0]) @ np.array([1.0, 0.0]) > 0).all()


@pytest.mark.parametrize(("name", "height"), [("joint-training-tight", 1.0), ("joint-training-relaxed", 1.5)])
def test_joint_training(name: str, height: float) -> None:
    data = example(name)
    assert data.tokens.tolist() == [[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, height]]]
    assert data.labels.tolist() == [1, -1, 1]
    assert data.head is None
    assert data.values is data.tokens
    labelled = (data.labels[:, None] * data.tokens[:, 1]).numpy()
    supports = assert_max_margin(labelled, [0.0, 1.0])
    assert np.allclose(supports, [1, 1, height])
    if name == "joint-training-tight":
        assert_max_margin(rows(data, [1, 1, 1]), [4 / 3, 1 / 3])
    else:
        assert_max_margin(rows(data, [1, 1, 1]), [1.0, 0.0], right=[1, 1, 0])


@pytest.mark.parametrize("C", [1, 2.5, 100])
def test_loss_comparison(C: float) -> None:
    data = example("loss-comparison", C=C)
    assert data.tokens.tolist() == [[[0, 0], [1, 1]], [[0, 0], [1, -1]]]
    assert scores(data).tolist() == [[0, C], [0, 1]]
    assert_max_margin(rows(data, [1, 1]), [1.0, 0.0])


def test_loss_comparison_refuses() -> None:
    with pytest.raises(ValueError, match=r"^C must be a positive finite number; got 0$"):
        example("loss-comparison", C=0)


def test_trajectories() -> None:
    data = example("trajectories", batch=2000, seed=0)
    assert (data.n, data.T, data.d, data.dq) == (2, 3, 2, 2)
    noise = data.tokens - torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]], dtype=torch.float64)
    assert float(noise.mean((0, 2)).abs().max()) < 5 * 0.3 / 6000**0.5
    assert abs(float(noise.std()) - 0.3) < 0.005
    assert data.head is not None
    for vectors in (data.queries, data.head):
        assert float((vectors.norm(dim=-1) - 1).abs().max()) < 1e-15
        assert float(vectors.mean((0, 1) if vectors.ndim == 3 else 0).abs().max()) < 5 * 0.5**0.5 / 2000**0.5
    assert bool((data.labels == 1).all())


def test_hyperplanes() -> None:
    data = example("hyperplanes", batch=2000, seed=0)
    assert (data.n, data.T, data.d, data.dq) == (2, 5, 2, 2)
    assert data.tokens[7, :, 0].tolist() == [[1, 0.5], [1, -0.5]]
    noise = data.tokens[..., 1:, :] - torch.tensor([-1.0, 0.0], dtype=torch.float64)
    assert float(noise.mean((0, 2)).abs().max()) < 5 * 0.5 / 8000**0.5
    assert abs(float(noise.std()) - 0.5) < 0.005
    assert scores(example("hyperplanes")).argmax(-1).tolist() == [0, 0]


@pytest.mark.parametrize("name", RANDOM)
def test_random_examples_are_seeded(name: str) -> None:
    batch = example(name, batch=3, seed=4)
    assert_same(batch, example(name, batch=3, seed=4))
    assert_same(batch[1], example(name, seed=[(4, 1)]))
    assert_same(batch[0], example(name, seed=4))
    assert not torch.equal(batch.tokens[0], batch.tokens[1])


# --------------------------------------------------------------------- pictures


def max_margin(data: TokenDataset, nuclear: bool) -> np.ndarray:
    """W_mm of the optimal tokens by a general solver; ||W||_* is the least (||K||^2 + ||Q||^2) / 2 with K Q^T = W."""
    constraints = rows(data, scores(data).argmax(-1).tolist())

    def weights(x: np.ndarray) -> np.ndarray:
        return x[:4].reshape(2, 2) @ x[4:].reshape(2, 2).T if nuclear else x.reshape(2, 2)

    found = []
    for seed in range(4):
        start = 2 * np.random.default_rng(seed).standard_normal(8 if nuclear else 4)
        margin = {"type": "ineq", "fun": lambda x: constraints @ weights(x).ravel() - 1}
        run = minimize(lambda x: x @ x / 2, start, constraints=margin, options={"ftol": 1e-14, "maxiter": 1000})
        if margin["fun"](run.x).min() > -1e-8:  # type: ignore[operator]
            found.append((run.fun, weights(run.x)))
    return min(found, key=lambda pair: pair[0])[1]


def ray_angles(data: TokenDataset, nuclear: bool) -> np.ndarray:
    """Directions of W_mm z_i, in degrees."""
    along = data.queries.numpy() @ max_margin(data, nuclear).T
    return np.degrees(np.arctan2(along[:, 1], along[:, 0]))


def descend(data: TokenDataset, steps: int = 200) -> torch.Tensor:
    """Attention on the optimal tokens after normalized descent of W from zero."""
    weights = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    best = scores(data).argmax(-1, keepdim=True)
    for _ in range(steps):
        attention = torch.einsum("itd,de,ie->it", data.tokens, weights, data.queries).softmax(-1)
        risk = torch.nn.functional.softplus(-(attention * scores(data)).sum(-1)).mean()
        (gradient,) = torch.autograd.grad(risk, weights)
        with torch.no_grad():
            weights -= 0.1 * gradient / gradient.norm()
    return attention.detach().gather(-1, best).squeeze(-1)


@pytest.mark.parametrize("name", ["two-inputs", "trajectories", "hyperplanes"])
def test_pictures_are_clear(name: str) -> None:
    """Descent reaches the optimal tokens, two Frobenius rays are far apart, and the nuclear ones coincide."""
    data = example(name)
    assert float(descend(data).min()) > 0.9
    assert abs(np.diff(ray_angles(data, nuclear=False))[0]) > 45
    assert abs(np.diff(ray_angles(data, nuclear=True))[0]) < 0.1


def test_two_inputs() -> None:
    data = example("two-inputs")
    assert (data.n, data.T, data.d, data.dq, data.dtype) == (2, 4, 2, 2, torch.float64)
    assert data.labels.tolist() == [1, 1]
    assert torch.allclose(data.queries.norm(dim=-1), torch.ones(2, dtype=torch.float64), atol=1e-15)
    assert abs(float(torch.linalg.det(data.queries))) > 0.5
    assert scores(data).argmax(-1).tolist() == [0, 0]
    assert float(-scores(data).sort(-1, descending=True).values.diff(dim=-1).max()) > 0.25
    points = data.tokens.reshape(-1, 2)
    assert float(torch.pdist(points).min()) > 0.5


# ---------------------------------------------------------------- names, starts


def test_every_example_is_a_data_set() -> None:
    for name in EXAMPLES:
        assert example(name).dtype == torch.float64
        assert_same(example(name), example(name))


def test_near_names() -> None:
    with pytest.raises(ValueError, match=r"^no example is called 'multi_inputs'; did you mean 'multi-input'\?$"):
        example("multi_inputs")
    with pytest.raises(ValueError, match=r"did you mean 'hyperplanes'\?$"):
        starting_points("hyperplane")
    with pytest.raises(ValueError, match=r"^no example is called 'q'; there are single-input-global, "):
        example("q")


def test_options_that_an_example_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"^example 'two-inputs' has no option 'seed'; it takes none$"):
        example("two-inputs", seed=1)
    with pytest.raises(ValueError, match=r"^example 'trajectories' has no option 'C'; it takes batch, seed$"):
        example("trajectories", C=1)


def test_starting_points() -> None:
    assert starting_points("single-input-global").weights[..., 0].tolist() == [[0, c] for c in SIX]
    assert starting_points("single-input-local").weights[..., 0].tolist() == [[0, c] for c in SIX]
    assert starting_points("multi-input").weights[..., 0].tolist() == [[c, 0] for c in SIX]
    assert starting_points("loss-comparison").weights.tolist() == [[[0], [0]]]
    for name in ("joint-training-tight", "joint-training-relaxed"):
        start = starting_points(name)
        assert start.weights[..., 0].tolist() == [[0, -1]]
        assert start.head is not None
        assert start.head.tolist() == [[-1, 0]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_starting_points_fit_their_example(name: str) -> None:
    data, start = example(name), starting_points(name)
    assert start.weights.shape[1:] == (data.d, data.dq)
    assert start.weights.dtype == data.dtype
    assert (start.head is None) == (data.head is not None)
