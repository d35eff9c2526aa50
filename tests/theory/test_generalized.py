"""W_fin + C W_svm: planted weights, the papers' protocol with a ReLU head, other heads, and where it fails."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attsvm import (
    AttentionSVM,
    Frobenius,
    KeyQuery,
    ModuleHead,
    NormalizedGradientDescent,
    Nuclear,
    QuadraticHead,
    ReluHead,
    TokenDataset,
    fit,
    solve,
)
from attsvm.attention import evaluate
from attsvm.data import orthonormal_tokens, random_sphere
from attsvm.descent import Geometric
from attsvm.svm import finite_component
from attsvm.theory.generalized import GeneralizedComponents, generalized_components


def random_sets(data: TokenDataset, seed: int) -> Tensor:
    """One to three tokens of each input, never all four."""
    draw = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 4, (*data.batch_shape, data.n, 1), generator=draw)
    return torch.rand(*data.batch_shape, data.n, data.T, generator=draw).argsort(-1) < sizes


# ------------------------------------------------------------------------------------------------- planted weights


@pytest.mark.parametrize("norm", [Frobenius(), Nuclear()], ids=repr)
def test_planted_components_come_back(norm: Frobenius | Nuclear) -> None:
    data = random_sphere(n=3, T=4, d=8, batch=10, seed=0)
    sets = random_sets(data, 0)
    draw = torch.Generator().manual_seed(1)
    ratios = torch.rand(10, 3, 4, generator=draw, dtype=torch.float64) + 0.2
    fin, svm = finite_component(data, ratios, sets, norm), solve(AttentionSVM(data, selected_set=sets), norm)
    planted = fin.weights + 60 * svm.weights
    parts = generalized_components(data, evaluate(data, planted).attention, planted, norm=norm)
    solved = parts.accepted & parts.svm_solution.unique & parts.finite_solution.unique
    print(f"{norm}: 10 planted, {int(parts.accepted.sum())} accepted, {int(solved.sum())} of them unique")
    assert torch.equal(parts.selected_set, sets)
    assert bool(parts.accepted.all())
    assert (1 - parts.cosine[solved]).max() < 1e-6 if bool(solved.any()) else True
    inner = (parts.finite_component * parts.svm_component).sum((-1, -2)).abs()
    if isinstance(norm, Frobenius):
        assert torch.allclose(parts.scale, torch.full((10,), 60.0).double(), rtol=1e-6)
        assert inner.max() < 1e-8
        projected = (planted * parts.svm_component).sum((-1, -2)) / parts.svm_component.square().sum((-1, -2))
        assert torch.allclose(parts.scale, projected, rtol=1e-8)
    else:
        assert inner.max() > 1e-3


def test_a_wrong_threshold_gives_a_wrong_prediction() -> None:
    """Sets that keep too little: a token of probability .05 counted as dropped, and the cosine shows it."""
    data = random_sphere(n=3, T=4, d=8, batch=10, seed=0)
    sets = random_sets(data, 0)
    uneven = torch.tensor([0.1, 1.0, 1.0, 1.0]).double().expand(10, 3, 4)
    planted = finite_component(data, uneven, sets).weights + 6 * solve(AttentionSVM(data, selected_set=sets)).weights
    attention = evaluate(data, planted).attention
    right, wrong = (generalized_components(data, attention, planted, threshold=each) for each in (0.02, 0.15))
    fewer = (wrong.selected_set != right.selected_set).any(-1).any(-1)
    print(f"{int(fewer.sum())} of 10 lose a token of probability below .15: 1 - cosine {(1 - right.cosine).max():.1e}"
          f" at most with it, {(1 - wrong.cosine[fewer]).min():.1e} at least without")  # fmt: skip
    assert fewer.sum() >= 3
    assert (1 - right.cosine).max() < 1e-6
    assert (1 - wrong.cosine[fewer]).min() > 1e-3


def test_inputs_that_keep_everything() -> None:
    """A full input adds equalities only; where all are full there is nothing to separate, and W_svm = 0."""
    data = random_sphere(n=2, T=3, d=6, batch=2, seed=4)
    attention = torch.tensor([[[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]]).double()
    weights = finite_component(data, attention.clamp(min=1e-12), attention >= 1e-3).weights
    parts = generalized_components(data, attention, weights)
    assert parts.keeps_everything.tolist() == [False, True]
    assert bool(parts.finite_solution.solved.all() & parts.svm_solution.solved.all())
    assert float(parts.svm_component[1].abs().max()) == 0.0
    assert float(parts.scale[1]) == 0.0
    assert bool(parts.svm_cosine[1].isnan())
    assert float(parts.cosine[1]) == pytest.approx(1.0)
    logits = torch.einsum("ntd,de,ne->nt", data.tokens[0], parts.svm_component[0], data.queries[0])
    assert float((logits[0] - logits[0, 0]).abs().max()) < 1e-9
    assert float(logits[1, 0] - logits[1, 1:].max()) == pytest.approx(1.0)
    assert "1 keep every token (W_svm = 0)" in str(parts)


def test_flags_starts_and_masks() -> None:
    data = random_sphere(n=2, T=3, d=6, seed=4)
    clear = torch.tensor([[0.4, 0.6, 0.0], [1.0, 0.0, 0.0]]).double()
    doubtful = torch.tensor([[0.4, 0.59995, 5e-5], [1.0, 0.0, 0.0]]).double()
    two = generalized_components(data, torch.stack([clear, doubtful]), torch.ones(2, 6, 6).double())
    assert two.ambiguous.tolist() == [False, True]
    assert two.accepted.tolist() == [True, False]
    assert two.ambiguous_tokens[1].tolist() == [[False, False, True], [False, False, False]]
    one = generalized_components(data, clear, torch.ones(6, 6).double())
    assert torch.allclose(one.prediction, two.prediction[0])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    hidden = TokenDataset(data.tokens, data.queries, data.labels, mask)
    part = generalized_components(hidden, clear, torch.ones(6, 6).double())
    assert not bool(part.keeps_everything)
    assert not bool(part.selected_set[0, 2])


def test_bad_input() -> None:
    data = random_sphere(n=2, T=3, d=6, seed=4)
    good, weights = torch.full((2, 3), 1 / 3).double(), torch.ones(6, 6).double()
    for attention, matrix, options, sentence in (
        (good[:1], weights, {}, "attention must have shape"),
        (good, weights[:2], {}, "weights must have shape"),
        (3 * good + 1, weights, {}, "must hold probabilities"),
        (0 * good, weights, {}, "every input must keep a token"),
        (good, weights, {"threshold": 1e-7}, "ambiguous <= threshold"),
        (good, weights, {"ambiguous": 0.0}, "0 < ambiguous <= threshold"),
        (good, weights * torch.nan, {}, "weights must be finite"),
    ):
        with pytest.raises(ValueError, match=sentence):
            generalized_components(data, attention, matrix, **options)


# --------------------------------------------------------------------------------------------- the papers' protocol


def protocol(d: int, batch: int, seed: int) -> tuple[TokenDataset, ReluHead]:
    """n = 3, T = 4, sphere data, head 1^T relu(V^T x), V Gaussian with ||V||_F = 1; all-positive labels skipped."""
    data = random_sphere(n=3, T=4, d=d, batch=batch, seed=seed)
    draw = torch.Generator().manual_seed(100 * seed + d)
    matrix = torch.randn(batch, d, d, generator=draw, dtype=torch.float64)
    mixed = (data.labels < 0).any(-1)
    return data[mixed], ReluHead((matrix / torch.linalg.matrix_norm(matrix)[:, None, None])[mixed])


def test_relu_head() -> None:
    """Accepted runs whose inputs all still have a gradient: median 1 - cosine falls below 5e-3 by 2001 steps.

    Where the ReLU has died on an input (h = 0: no gradient, though tokens are still to be dropped) the conjecture has
    lost its ground, and the mean over all accepted runs hangs on those.
    """
    data, head = protocol(6, 300, 1)
    run = fit(data, head, steps=2001, keep=[], seed=1)
    parts = generalized_components(data, run.attention, run.weights)
    error, accepted = 1 - parts.cosine, parts.accepted
    dead = (evaluate(data, run.weights, head).margin == 0).any(-1)
    alive, lost = accepted & ~dead, accepted & dead
    print(f"relu d=6, {len(accepted)} draws: {parts}; 1 - cosine mean {error[accepted].mean():.3f} median"
          f" {error[accepted].median():.4f}; alive {int(alive.sum())}: {error[alive].mean():.4f},"
          f" {error[alive].median():.5f}; dead {int(lost.sum())}: {error[lost].mean():.3f}, {error[lost].median():.4f};"
          f" one token {(1 - parts.one_token_cosine)[accepted].nanmean():.3f}")  # fmt: skip
    assert 0.04 < accepted.double().mean() < 0.25
    assert alive.sum() >= 5
    assert error[alive].median() < 5e-3
    assert error[accepted].median() < 0.5 * (1 - parts.one_token_cosine)[accepted].nanmedian()
    assert error[lost].median() > 3 * error[alive].median()


# ------------------------------------------------------------------------------------------------------ other heads


def quadratic_data(batch: int) -> tuple[TokenDataset, QuadraticHead]:
    base = orthonormal_tokens(n=3, T=4, d=6, batch=batch, seed=5)
    assert base.head is not None
    return TokenDataset(base.tokens, base.queries, torch.ones(batch, 3).double()), QuadraticHead(base.head, 0.1)


def report(name: str, parts: GeneralizedComponents) -> tuple[Tensor, Tensor, Tensor]:
    kept = parts.accepted
    errors = tuple((1 - each)[kept] for each in (parts.cosine, parts.svm_cosine, parts.one_token_cosine))
    medians = [f"{each.nanmedian():.1e}" for each in errors]
    print(f"{name}: {parts}; median 1 - cosine to prediction, W_svm, one-token SVM: {', '.join(medians)}")
    return errors


def test_quadratic_head_and_its_factors() -> None:
    """The same data trained as W and as (K, Q): each is nearer to its own norm's prediction than to the other's."""
    data, head = quadratic_data(30)
    rule = NormalizedGradientDescent(Geometric(0.3, 0.998))
    run = fit(data, head, optimizer=rule, steps=1200, keep=[])
    loose = {"threshold": 1e-2, "ambiguous": 1e-2}  # too few steps for 1e-6; the sets are clear at 1e-2 in most runs
    own = generalized_components(data, run.attention, run.weights, **loose)
    error, _, single = report("quadratic, W", own)
    assert own.accepted.double().mean() > 0.5
    assert error.median() < 0.05
    assert error.median() < 0.5 * single.nanmedian()
    factors = fit(data, head, parameterization=KeyQuery(), optimizer=rule, steps=800, keep=[])
    nuclear, frobenius = (
        generalized_components(data, factors.attention, factors.weights, norm=norm, **loose)
        for norm in (Nuclear(), Frobenius())
    )
    report("quadratic, (K,Q), nuclear", nuclear)
    report("quadratic, (K,Q), Frobenius", frobenius)
    both = nuclear.accepted & frobenius.accepted
    assert both.sum() >= 10
    assert nuclear.cosine[both].median() > frobenius.cosine[both].median()


def test_large_penalty_keeps_everything() -> None:
    """From W = 0 the run stays at W_fin: cosine 1 without any SVM component."""
    data, head = quadratic_data(10)
    run = fit(
        data,
        QuadraticHead(head.vector, 3.0),
        optimizer=NormalizedGradientDescent(Geometric(0.1, 0.98)),
        steps=600,
        initial="zeros",
        keep=[],
    )
    parts = generalized_components(data, run.attention, run.weights)
    assert bool(parts.keeps_everything.all())
    assert float((1 - parts.cosine).max()) < 1e-6


def test_any_module() -> None:
    """A smooth network as a head: the components come out of its attention and weights like those of any other."""
    data = random_sphere(n=3, T=4, d=8, batch=30, seed=2)
    linear = torch.nn.Linear(8, 8, dtype=torch.float64)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(0)
        linear.weight.copy_(torch.randn(8, 8, generator=draw, dtype=torch.float64))
        linear.bias.zero_()
    head = ModuleHead(torch.nn.Sequential(linear, torch.nn.Tanh(), torch.nn.Flatten(-1), _Sum()))
    run = fit(data, head, steps=800, keep=[])
    parts = generalized_components(data, run.attention, run.weights)
    error, _, _ = report("tanh network", parts)
    assert parts.accepted.sum() >= 5
    assert error.median() < 0.05


class _Sum(torch.nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return values.sum(-1)
