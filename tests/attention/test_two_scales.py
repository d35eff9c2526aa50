"""Finite and growing part: the split gradient against autograd, against mpmath far out, and against summing first."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch

import attsvm
from attsvm.attention import FiniteSpace, Log, TwoScales, Weights, gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.data import random_sphere
from attsvm.next_token import from_ids, predict_limit, priority_graph
from next_token.samples import random_samples

from .reference import (
    EXACT_SLOPES,
    ExactHead,
    direction_and_log_norm,
    direction_error,
    exact,
    exact_gradient,
    exact_linear,
    exact_relu,
)


def split(data, kept, weights, **options):
    """The gradients of both parts at W."""
    kind = TwoScales(data, kept)
    parts = kind.normal_form({"finite": weights[None, None], "growing": torch.zeros_like(weights)[None, None]})
    given = {name: part[0, 0] for name, part in parts.items()}
    return gradient(data, given, parameterization=kind, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("head", ["log", "relu"])
def test_the_parts_add_up_to_the_gradient(seed, head):
    generator = torch.Generator().manual_seed(seed)
    if head == "log":
        data, options = random_samples(seed, d=5, n=15).dataset, {"loss": Log()}
    else:
        data = random_sphere(n=5, T=4, d=5, seed=seed)
        options = {"head": attsvm.ReluHead(torch.randn(5, 3, dtype=torch.float64, generator=generator))}
    kept = torch.rand(data.n, data.T, generator=generator) < 0.5
    kept[:, 0] = True
    weights = torch.randn(5, 5, dtype=torch.float64, generator=generator)
    whole = gradient(data, weights, **options)["weights"].tensor()
    parts = {name: part.tensor() for name, part in split(data, kept, weights, **options).items()}
    assert torch.allclose(parts["finite"] + parts["growing"], whole, atol=1e-14)
    inside = FiniteSpace.of(data, kept).project(whole[None])[0]
    assert torch.allclose(parts["finite"], inside, atol=1e-14)
    assert abs(float((parts["finite"] * parts["growing"]).sum())) < 1e-15


def exact_outside(rows, matrix):
    """The part of a matrix of mpf orthogonal to the span of rows, by Gram-Schmidt in many digits."""
    basis = []
    for row in rows:
        left = list(row)
        for unit in basis:
            overlap = mp.fsum(a * b for a, b in zip(left, unit, strict=True))
            left = [a - overlap * b for a, b in zip(left, unit, strict=True)]
        size = mp.sqrt(mp.fsum(a * a for a in left))
        if size > mp.mpf(10) ** (-mp.mp.dps // 2):
            basis.append([a / size for a in left])
    flat = [entry for line in matrix for entry in line]
    for unit in basis:
        overlap = mp.fsum(a * b for a, b in zip(flat, unit, strict=True))
        flat = [a - overlap * b for a, b in zip(flat, unit, strict=True)]
    width = len(matrix[0])
    return [flat[start : start + width] for start in range(0, len(flat), width)]


@pytest.mark.parametrize("norm", [1e2, 1e3, 1e4])
def test_the_growing_part_against_many_digits(norm):
    """At W_fin + C W_svm the summed gradient is round-off outside S_fin; the split one keeps ten digits."""
    samples = random_samples(0, tokens=4, d=4, n=14, window=3)
    limit = predict_limit(samples)
    data, kept = samples.dataset, limit.graph.kept
    assert int(limit.finite.space.dimension) > 0
    assert limit.graph.strict.any()
    weights = limit.finite_component + norm * limit.svm_component / limit.svm_component.norm()
    found = split(data, kept, weights, loss=Log())["growing"]
    plain = gradient(data, weights, loss=Log(), parameterization=Weights())["weights"]
    summed = plain.normalized() - limit.finite.space.project(plain.normalized()[None])[0]
    with mp.workdps(int(norm / 2) + 60):
        one = ExactHead(lambda x: x[0], lambda x: [mp.mpf(1)])
        whole = exact_gradient(data, exact(weights), one, lambda m: -1 / m)
        table = exact(samples.embeddings)
        rows = [
            [(a - b) * z for a, b in zip(table[ids[0]], table[token], strict=True) for z in table[last]]
            for window, mask, last in zip(samples.ids, kept, samples.last.tolist(), strict=True)
            for ids in [window[mask].tolist()] for token in ids[1:]
        ]  # fmt: skip
        wanted = exact_outside(rows, whole)
        direction, size = direction_error(found, wanted)
        unit, _ = direction_and_log_norm(wanted)
    assert direction < 1e-10
    assert size < 1e-9
    if norm >= 1e3:  # summed first, the direction is lost
        assert float((summed * unit).sum()) / float(summed.norm()) < 0.9


@pytest.mark.parametrize("norm", [1e2, 1e4])
@pytest.mark.parametrize("kind", ["linear", "relu"])
def test_any_kept_sets_against_many_digits(kind, norm):
    """Two random tokens of every input keep probability, with any head: far out along the SVM of these sets."""
    generator = torch.Generator().manual_seed(3)
    data = random_sphere(n=3, T=4, d=6, seed=3)
    kept = torch.zeros(3, 4, dtype=torch.bool).scatter(1, torch.rand(3, 4, generator=generator).topk(2).indices, True)
    solution = attsvm.solve(attsvm.AttentionSVM(data, selected_set=kept))
    assert bool(solution.solved)
    finite = FiniteSpace.of(data, kept).project(torch.randn(1, 6, 6, dtype=torch.float64, generator=generator))[0]
    weights = finite + norm * solution.weights / solution.weights.norm()
    matrix = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    head = attsvm.LinearHead(matrix[:, 0]) if kind == "linear" else attsvm.ReluHead(matrix)
    found = split(data, kept, weights, head=head)["growing"]
    with mp.workdps(int(norm / 2) + 60):
        own = exact_linear(matrix[:, 0]) if kind == "linear" else exact_relu(matrix)
        whole = exact_gradient(data, exact(weights), own, EXACT_SLOPES["Logistic"])
        rows = [
            [(a - b) * z for a, b in zip(one, other, strict=True) for z in query]
            for tokens, mask, query in zip(data.tokens, kept, exact(data.queries), strict=True)
            for one, other in [exact(tokens[mask])]
        ]
        wanted = exact_outside(rows, whole)
        direction, size = direction_error(found, wanted)
    assert direction < 1e-9
    assert size < 1e-8


def test_queries_that_depend_on_each_other_span_jointly():
    # Two parallel queries and one that is their sum with another: seven products, but fewer dimensions.
    queries = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).double()
    tokens = torch.eye(3).double().expand(4, 3, 3)
    data = attsvm.TokenDataset(tokens, queries, torch.ones(4).double())
    space = FiniteSpace.of(data, torch.ones(4, 3, dtype=torch.bool))
    assert space.dimension.tolist() == [4]  # two differences of tokens times two dimensions of queries
    some = torch.randn(1, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    centred = some - some.mean(1, keepdim=True)
    assert torch.allclose(space.project(some), centred, atol=1e-14)


@pytest.mark.parametrize("large", [2**24, 0])
def test_both_ways_to_a_basis(large, monkeypatch):
    monkeypatch.setattr("attsvm.attention.parameterizations._LARGE", large)
    samples = random_samples(1, tokens=6, d=3, n=20)
    kept = priority_graph(samples).kept
    space = FiniteSpace.of(samples.dataset, kept)
    table = samples.embeddings
    rows = torch.stack([
        torch.outer(table[ids[0]] - table[token], table[last]).flatten()
        for window, mask, last in zip(samples.ids, kept, samples.last.tolist(), strict=True)
        for ids in [window[mask].tolist()] for token in ids[1:]
    ])  # fmt: skip
    assert space.dimension.tolist() == [int(torch.linalg.matrix_rank(rows))]
    some = torch.randn(1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inside = space.project(some)
    assert torch.allclose(rows @ (some - inside).flatten(), torch.zeros(len(rows)).double(), atol=1e-12)
    assert torch.allclose(space.project(inside), inside, atol=1e-12)


def test_a_batch_is_its_elements():
    data = random_sphere(n=4, T=3, d=4, batch=3, seed=0)
    kept = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(2)) < 0.6
    kept[..., 0] = True
    space = FiniteSpace.of(data, kept)
    some = torch.randn(2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for element in range(3):
        alone = FiniteSpace.of(data[element], kept[element])
        assert int(alone.dimension) == int(space.dimension[element])
        assert torch.allclose(space.project(some)[:, element], alone.project(some[:, element : element + 1])[:, 0])


def test_shared_pairs_give_the_same_maps():
    samples = random_samples(3, tokens=5, d=4, n=12)
    short = from_ids([[0, 1, 2], [1, 1]], [1, 1], np.eye(3, 4))  # with a masked token
    for each in (samples, short):
        data = each.dataset.flatten()
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(2, 1, 4, 4, dtype=torch.float64, generator=generator)
        rows = data.fill_masked(torch.randn(2, 1, data.n, data.T, dtype=torch.float64, generator=generator), 0.0)
        found, wanted = each.pairs.logits(weights), flat_logits(data, weights)
        assert torch.allclose(data.fill_masked(found, 0.0), data.fill_masked(wanted, 0.0), atol=1e-14)
        assert torch.allclose(each.pairs.adjoint(rows), flat_adjoint(data, rows), atol=1e-14)


def test_what_does_not_fit_is_refused():
    data = random_sphere(n=3, T=3, d=3, seed=0)
    kept = torch.zeros(3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="every input; input 0 has none"):
        TwoScales(data, kept)
    with pytest.raises(ValueError, match="float64"):
        TwoScales(data.to(dtype=torch.float32), kept)
    with pytest.raises(ValueError, match=r"kept must have shape \[3, 3\]"):
        TwoScales(data, kept[:2])
    kind = TwoScales(data, ~kept)
    with pytest.raises(ValueError, match="takes no mini-batches"):
        attsvm.fit(data, parameterization=kind, steps=1, batch_size=2)
    with pytest.raises(ValueError, match="TwoPartDescent trains TwoScales"):
        attsvm.fit(data, optimizer=attsvm.descent.TwoPartDescent(), steps=1)


def test_the_log_loss():
    margin = torch.tensor([1.0, 0.25, 1e-300], dtype=torch.float64)
    assert torch.equal(Log().value(margin), -margin.log())
    assert torch.equal(Log().log_slope(margin), -margin.log())
    best, shortfall = torch.tensor(0.5, dtype=torch.float64), torch.tensor([1e-30, 1e-3, 0.3], dtype=torch.float64)
    with mp.workdps(60):
        wanted = [float(mp.log(mp.log(mp.mpf(0.5)) - mp.log(mp.mpf(0.5) - mp.mpf(float(d))))) for d in shortfall]
    assert np.allclose(Log().log_excess(best, shortfall.log()).numpy(), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match=r"positive margins; got -0\.5"):
        Log().value(torch.tensor(-0.5))
    with pytest.raises(ValueError, match="bounded slope"):
        Log().slope_bounds(margin, margin)
