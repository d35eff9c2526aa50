"""The quadratic head on orthonormal tokens: simplex projection against trained attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attsvm import (
    GradientDescent,
    LinearHead,
    MaxEntry,
    NormalizedGradientDescent,
    QuadraticHead,
    SteepestDescent,
    TokenDataset,
    fit,
)
from attsvm.attention import evaluate
from attsvm.data import orthonormal_tokens, random_sphere
from attsvm.descent import Geometric
from attsvm.theory.generalized import generalized_components, quadratic_attention

PENALTIES = (0.05, 0.2, 0.5, 2.0)
SEEDS = 10


def sweep(data: TokenDataset, vectors: Tensor) -> tuple[TokenDataset, QuadraticHead, Tensor]:
    """Every data set with every penalty, in one batch: data, heads, and the penalty of each element."""
    batch = data.batch_shape[0]
    index = torch.arange(batch).repeat(len(PENALTIES))
    penalty = torch.tensor(PENALTIES, dtype=torch.float64).repeat_interleave(batch)
    return data[index], QuadraticHead(vectors[index], penalty), penalty


def aligned(labels: float = 1.0) -> tuple[TokenDataset, Tensor]:
    """Tokens e_1..e_5 in random order, queries e_1..e_3: every entry of W is a logit of its own."""
    draw = torch.Generator().manual_seed(0)
    order = torch.stack([torch.randperm(5, generator=draw) for _ in range(3 * SEEDS)]).reshape(SEEDS, 3, 5)
    tokens = torch.eye(5, dtype=torch.float64)[order]
    queries = torch.eye(3, dtype=torch.float64).expand(SEEDS, 3, 3).clone()
    vectors = random_sphere(n=1, T=1, d=5, batch=SEEDS, seed=0).head
    assert vectors is not None
    return TokenDataset(tokens, queries, torch.full((SEEDS, 3), labels, dtype=torch.float64)), vectors


def test_trained_attention_is_the_projection_to_1e_6() -> None:
    """Sign descent with a decaying step on aligned tokens: dropped tokens fall by a whole step each time.

    Plain descent would need 1e6 steps, since the pull of a dropped token falls with its probability.
    """
    data, head, penalty = sweep(*aligned())
    predicted = quadratic_attention(data, head)
    rule = SteepestDescent(MaxEntry(), Geometric(0.3, 0.987))
    run = fit(data, head, optimizer=rule, steps=1600, initial="zeros", keep=[])
    error = (run.attention - predicted.attention).abs().amax((-1, -2))
    counts = [predicted.count[penalty == each].double().mean().item() for each in PENALTIES]
    print(f"{len(error)} runs ({SEEDS} seeds x {PENALTIES}): worst error {error.max():.1e}, selected tokens {counts}")
    assert error.max() < 1e-6
    assert torch.equal(run.attention > 1e-6, predicted.selected_set)
    assert counts == sorted(counts)
    assert counts[0] < 1.5
    assert counts[-1] == 5.0


def test_random_frames_after_a_jump_along_the_svm_component() -> None:
    """Random orthonormal tokens and queries: descent finds the set, W + 20 W_svm drops the rest, descent settles it."""
    base = orthonormal_tokens(n=2, T=4, d=6, batch=SEEDS, seed=0)
    assert base.head is not None
    data, head, _ = sweep(TokenDataset(base.tokens, base.queries, torch.ones(SEEDS, 2).double()), base.head)
    predicted = quadratic_attention(data, head)
    rule = NormalizedGradientDescent(Geometric(1.0, 0.995))
    rough = fit(data, head, optimizer=rule, steps=900, initial="zeros", keep=[])
    parts = generalized_components(data, rough.attention, rough.weights, threshold=0.03)
    found = (parts.selected_set == predicted.selected_set).all(-1).all(-1)
    start = rough.weights + 20 * parts.svm_component
    run = fit(data, head, optimizer=GradientDescent(3.0), steps=1200, initial=start, keep=[])
    error = (run.attention - predicted.attention).abs().amax((-1, -2))[found]
    print(f"{len(found)} runs: {int(found.sum())} find the predicted set, {int((error < 1e-6).sum())} of them reach it"
          f" to 1e-6, median error {error.median():.1e}, worst {error.max():.1e}")  # fmt: skip
    assert found.double().mean() > 0.6
    assert (error < 1e-6).double().mean() > 0.8


def test_no_mixture_does_better() -> None:
    """Both labels: the margin of the predicted attention beats 2000 random points of the simplex and all corners."""
    base = orthonormal_tokens(n=6, T=4, d=5, batch=5, seed=1)
    assert base.head is not None
    head = QuadraticHead(base.head, 0.3)
    predicted = quadratic_attention(base, head)
    draw = torch.Generator().manual_seed(0)
    mixtures = torch.cat([torch.rand(2000, 4, generator=draw).double() ** 3, torch.eye(4).double()])
    mixtures = mixtures / mixtures.sum(-1, keepdim=True)

    def margin(attention: Tensor) -> Tensor:
        return base.labels * head.output(torch.einsum("...nt,...ntd->...nd", attention, base.tokens))

    best = margin(predicted.attention)
    others = torch.stack([margin(one.expand(5, 6, 4)) for one in mixtures])
    assert bool((others <= best + 1e-12).all())
    assert bool((base.labels < 0).any())
    assert predicted.count[base.labels < 0].eq(1).all()


def test_negative_labels_are_corners_and_descent_may_end_at_another() -> None:
    """The condition Y = 1 broken: the margin is convex, every run ends at a corner, and large penalties make traps."""
    data, head, penalty = sweep(*aligned(-1.0))
    predicted = quadratic_attention(data, head)
    assert bool((predicted.count == 1).all())
    run = fit(data, head, optimizer=SteepestDescent(MaxEntry(), 0.05), steps=600, seed=3, keep=[])
    corner = run.attention.amax(-1) > 1 - 1e-6
    same = (run.selected == predicted.attention.argmax(-1)).all(-1)
    shares = [same[penalty == each].double().mean().item() for each in PENALTIES]
    print(f"{len(same)} runs: {corner.double().mean():.0%} of inputs at a corner; at the optimum by penalty {shares}")
    assert corner.double().mean() > 0.95
    assert shares[0] > shares[-1]
    assert shares[-1] < 1


def test_degenerate_score_difference() -> None:
    """gamma_1 - gamma_2 = 2 lambda: token 1 alone wins, but token 2 costs nothing to first order and is flagged."""
    data = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1])
    tied = quadratic_attention(data, QuadraticHead(torch.tensor([1.0, 0.5, -1.0]).double(), 0.25))
    assert tied.attention.tolist() == [[1.0, 0.0, 0.0]]
    assert tied.degenerate.tolist() == [[False, True, False]]
    clear = quadratic_attention(data, QuadraticHead(torch.tensor([1.0, 0.5, -1.0]).double(), 0.2))
    assert not bool(clear.degenerate.any())
    assert clear.gaps.tolist()[0] == pytest.approx([0.0, 0.1, 1.6])


def test_degenerate_token_gets_half_the_margin() -> None:
    """[TaSVM, nonlinear heads] a unique winner is not enough: at the best W of norm R token 2 has half a margin."""
    data = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1])
    head = QuadraticHead(torch.tensor([1.0, 0.5, -1.0]).double(), 0.25)
    split = torch.linspace(0.05, 1.0, 4001, dtype=torch.float64)
    # Directions with margins (m_2, m_3) = (split, 1), of least norm: centred logits.
    logits = torch.stack([torch.zeros_like(split), -split, -torch.ones_like(split)], -1)
    logits = logits - logits.mean(-1, keepdim=True)
    logits = 200 * logits / logits.norm(dim=-1, keepdim=True)

    # For s = (1 - a - b, a, b) the margin lost is, exactly and free of cancellation, with
    # 1 - ||s||^2 = 2 (a + b) - (a + b)^2 - a^2 - b^2:
    def lost(a: Tensor, b: Tensor) -> Tensor:
        return 1.5 * b + 0.25 * ((a + b) ** 2 + a**2 + b**2)

    near = torch.softmax(logits / 400, -1)
    margin = evaluate(data, logits[..., None] / 400, head).margin.squeeze(-1)
    assert torch.allclose(0.75 - margin, lost(near[..., 1], near[..., 2]))
    far = torch.softmax(logits, -1)
    best = float(split[lost(far[..., 1], far[..., 2]).argmin()])
    plain = float(split[(0.5 * far[..., 1] + 2.0 * far[..., 2]).argmin()])
    print(f"margin of token 2 over that of token 3 at R = 200: {best:.3f} quadratic, {plain:.3f} linear")
    assert best == pytest.approx(0.5, abs=0.03)
    assert plain > 0.97


def test_zero_penalty_and_masks() -> None:
    data = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1])
    assert quadratic_attention(data, QuadraticHead(torch.tensor([1.0, 2.0, 0.0]).double(), 0.0)).attention.tolist() == [
        [0, 1, 0]
    ]
    masked = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1], mask=[[True, True, False]])
    found = quadratic_attention(masked, QuadraticHead(torch.tensor([0.0, 0.0, 9.0]).double(), 1.0))
    assert found.attention.tolist() == [[0.5, 0.5, 0.0]]


def test_bad_input() -> None:
    sphere = random_sphere(n=2, T=3, d=4, seed=0)
    vector = torch.ones(4).double()
    with pytest.raises(ValueError, match=r"orthonormal to 1e-08; <x_t, x_u> is"):
        quadratic_attention(sphere, QuadraticHead(vector, 1.0))
    frames = orthonormal_tokens(n=1, T=3, d=4, seed=0)
    with pytest.raises(ValueError, match="must be a QuadraticHead"):
        quadratic_attention(frames, LinearHead(vector))  # type: ignore[arg-type]
    flat = TokenDataset(torch.eye(2).double()[None], torch.ones(1, 1).double(), [-1])
    with pytest.raises(ValueError, match="two tokens tie"):
        quadratic_attention(flat, QuadraticHead(torch.ones(2).double(), 1.0))


def test_float32_tokens_are_orthonormal_enough() -> None:
    data = orthonormal_tokens(2, 3, 4, seed=0)
    head = QuadraticHead(torch.ones(4).double(), 0.1)
    single = quadratic_attention(data.to(dtype=torch.float32), QuadraticHead(torch.ones(4), 0.1)).attention
    assert torch.allclose(single, quadratic_attention(data, head).attention, atol=1e-5)
