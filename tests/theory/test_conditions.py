"""Every condition: where it holds its theorem's conclusion is seen, where it fails the conclusion can fail too."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from attsvm import (
    AttentionSVM,
    Exponential,
    GradientDescent,
    Logistic,
    ModuleHead,
    NormalizedGradientDescent,
    QuadraticHead,
    ReluHead,
    Run,
    TokenDataset,
    diagnose,
    direction_cosine,
    fit,
    label_svm,
    lipschitz_bound,
    optimal_tokens,
    solve,
)
from attsvm.attention import evaluate, gradient
from attsvm.data import equal_scores, example, orthonormal_tokens, random_sphere
from attsvm.descent import Geometric, LipschitzStep
from attsvm.theory.conditions import (
    Condition,
    all_tokens_support,
    all_tokens_support_everywhere,
    equal_scores_condition,
    favourable_first_gradient,
    step_size_bound,
    unique_optimum,
)
from attsvm.theory.enumeration import locally_optimal_selections_of_each
from attsvm.theory.mixtures import label_margin_assumption, one_winner


def test_a_condition_prints_and_has_a_truth_value() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=2, seed=0)
    batch, one = unique_optimum(data), unique_optimum(data[0])
    assert str(batch).startswith("unique optimum: holds for 2 of 2; the best token")
    assert str(one).startswith("unique optimum: holds (margin ")
    assert str(one).endswith("[TaSVM, regularization path]")
    assert one
    with pytest.raises(ValueError, match="checked on a batch"):
        bool(batch)
    loose = Condition("a", torch.tensor(True), torch.tensor(1.0), "b", "[c]", certain=torch.tensor(False))
    assert "not proved" in str(loose)


# ------------------------------------------------------------------ unique optimum


def test_unique_optimum_and_what_a_tie_does() -> None:
    """With a unique best token all of 40 starts go to it; with two best tokens the start decides which one wins."""
    tokens = torch.tensor([[[0.0, 1.0, 1.0], [1.0, 0.2, 1.0], [0.0, 0.0, 0.0]]]).double()
    head = torch.tensor([0.0, 0.0, 1.0]).double()
    tied = TokenDataset.prompt(tokens, [1], torch.eye(2, 3).double(), head=head)
    tokens = tokens.clone()
    tokens[0, 1, 2] = 0.9
    clear = TokenDataset.prompt(tokens, [1], torch.eye(2, 3).double(), head=head)
    assert unique_optimum(clear).margin.item() == pytest.approx(0.1)
    assert unique_optimum(clear)
    assert not unique_optimum(tied)
    assert unique_optimum(tied).margin.item() == 0
    starts = 0.1 * torch.randn(40, 2, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = [
        fit(data, initial=starts, steps=3000, keep=()).selected.flatten().bincount(minlength=3).tolist()
        for data in (clear, tied)
    ]
    print(f"tokens selected from 40 starts: unique {counts[0]}, tied {counts[1]}")
    assert counts[0] == [40, 0, 0]
    assert min(counts[1][:2]) > 5
    assert counts[1][2] == 0


def test_unique_optimum_at_its_edges() -> None:
    single = TokenDataset(torch.ones(2, 1, 3).double(), torch.ones(2, 3).double(), [1, -1], head=torch.ones(3).double())
    assert unique_optimum(single).margin.item() == math.inf
    data = random_sphere(n=2, T=4, d=3, seed=1)
    tokens = data.tokens[:, [0, 1, 2, 3, 0, 1, 2, 3]]
    assert not unique_optimum(TokenDataset(tokens, data.queries, data.labels, head=data.head))


# --------------------------------------------------------------------- B1 and B2


def orthogonal(batch: int, seed: int) -> TokenDataset:
    """Orthonormal tokens and queries: every SVM splits into inputs whose constraints are all tight."""
    data = orthonormal_tokens(n=3, T=4, d=6, dq=3, batch=batch, seed=seed)
    return TokenDataset(data.tokens, torch.eye(3).double().expand(batch, 3, 3), data.labels, head=data.head)


def smallest_pull(data: TokenDataset, starts: int = 200) -> torch.Tensor:
    """Smallest cosine between -grad L(W) and W_mm(opt) over random W of norms 0.1 to 100: ``[batch]``."""
    solution = solve(AttentionSVM(data, optimal_tokens(data))).require_solved()
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(starts, *solution.weights.shape, generator=generator, dtype=torch.float64)
    sizes = torch.logspace(-1, 2, starts).double()[:, None, None, None]
    weights = sizes * weights / torch.linalg.matrix_norm(weights)[..., None, None]
    return direction_cosine(-gradient(data, weights)["weights"].normalized(), solution.weights).amin(0)


def test_under_b1_and_b2_no_finite_point_is_stationary_and_without_them_descent_may_point_away() -> None:
    b1, b2, neither = (
        orthogonal(20, 1),
        equal_scores(n=3, T=4, d=6, batch=20, seed=1),
        random_sphere(n=3, T=4, d=6, batch=20, seed=1),
    )
    assert all_tokens_support(b1).holds.all()
    assert equal_scores_condition(b2).holds.all()
    plain = ~(all_tokens_support(neither).holds | equal_scores_condition(neither).holds)
    pulls = [smallest_pull(data) for data in (b1, b2, neither)]
    away = int((pulls[2] < 0)[plain].sum())
    print(f"200 points each: smallest pull B1 {pulls[0].min():.3f}, B2 {pulls[1].min():.3f}; neither: {away} of"
          f" {int(plain.sum())} data sets have a point where descent moves away from W_mm")  # fmt: skip
    assert bool((pulls[0] > -1e-12).all())  # may be positive below round-off
    assert bool((pulls[1] > 0).all())
    assert away > 10


def test_b1_measures_the_excess() -> None:
    data = random_sphere(n=4, T=6, d=10, batch=5, seed=2)
    condition = all_tokens_support(data)
    margins = solve(AttentionSVM(data, optimal_tokens(data))).margins
    torch.testing.assert_close(condition.margin, -(margins - 1).flatten(1).amax(-1))
    assert not condition.holds.any()
    line = TokenDataset(torch.tensor([[[-1.0], [0.0], [1.0]]]).double(), torch.ones(1, 1).double(), [1])
    assert all_tokens_support(line, selected=[1]).margin.item() == -math.inf
    assert all_tokens_support(line, selected=[0]).margin.item() == -1.0


def test_if_all_tokens_support_every_svm_the_optimum_is_the_only_local_one() -> None:
    held, broken = orthogonal(6, 3), random_sphere(n=3, T=4, d=6, batch=12, seed=3)
    assert all_tokens_support_everywhere(held).holds.all()
    assert not all_tokens_support_everywhere(broken).holds.any()
    only, several = ([len(result) for result in locally_optimal_selections_of_each(data)] for data in (held, broken))
    print(f"locally optimal selections: all supporting {only}, otherwise {several}")
    assert only == [1] * 6
    assert max(several) > 1
    with pytest.raises(ValueError, match="limit must be at least"):
        all_tokens_support_everywhere(held, limit=10)


def exact_ties(drawn: TokenDataset) -> TokenDataset:
    """The same data with scores of exactly 1 and 0: those of `equal_scores` tie up to 1e-16 only."""
    best = torch.nn.functional.one_hot(optimal_tokens(drawn), drawn.T).double()
    values = (best * drawn.labels[..., None]).unsqueeze(-1)
    head = torch.ones(*drawn.batch_shape, 1).double()
    return TokenDataset(drawn.tokens, drawn.queries, drawn.labels, values=values, head=head)


def trained_from(data: TokenDataset, radius: float, count: int = 4) -> tuple[Run, torch.Tensor, torch.Tensor]:
    """Runs from random starts of this norm, which of them select opt, and their cosine to W_mm(opt)."""
    starts = torch.randn(count, *data.batch_shape, data.d, data.dq, generator=torch.Generator().manual_seed(1)).double()
    run = fit(data, initial=radius * starts / torch.linalg.matrix_norm(starts)[..., None, None], steps=4000, keep=())
    best = solve(AttentionSVM(data, optimal_tokens(data)))
    return run, (run.selected == optimal_tokens(data)).all(-1), direction_cosine(run.weights, best.weights)


def test_b2_sends_every_small_start_to_the_optimum_and_sphere_data_do_not() -> None:
    """80 data sets each, 4 starts of norm 1 each."""
    drawn = equal_scores(n=4, T=6, d=10, batch=80, seed=4)
    tied, sphere = exact_ties(drawn), random_sphere(n=4, T=6, d=10, batch=80, seed=4)
    assert equal_scores_condition(drawn).holds.all()
    assert equal_scores_condition(tied).holds.all()
    assert bool((equal_scores_condition(tied).margin == 0).all())
    assert not equal_scores_condition(sphere).holds.any()
    for name, data in (("round-off ties", drawn), ("exact ties", tied)):
        _, home, cosine = trained_from(data, 1.0)
        print(f"B2, {name}: {int(home.sum())} of 320 starts at the optimum, smallest cosine {cosine.min():.4f}")
        assert bool(home.all())
        assert bool((cosine > 0.99).all())
    _, home, _ = trained_from(sphere, 1.0)
    print(f"sphere: {int(home.sum())} of 320")
    assert not bool(home.all())


def test_b2_from_far_away_an_input_of_tied_tokens_can_be_left_behind() -> None:
    """Starts of norm 20: not all reach opt, and the exceptions are understood.

    Tied tokens do not pull. An input that begins on a non-optimal token i, t keeps it if at the SVM of the *other*
    inputs alone its optimal token trails by more than their margin of 1: its pull then dies out faster than theirs, for
    ever. Such runs tend to that reduced SVM, which is no solution of the SVM of any selection.
    """
    data = exact_ties(equal_scores(n=4, T=6, d=5, batch=80, seed=4))
    run, home, _ = trained_from(data, 20.0)
    start, place = torch.nonzero(~home, as_tuple=True)
    kept = data[place.tolist()]
    longer = fit(
        kept, initial=run.weights[start, place], steps=40_000, keep=(), optimizer=NormalizedGradientDescent(1.0)
    )
    right = longer.selected == optimal_tokens(kept)
    stayed = ~right.all(-1)
    rows = right[..., None].expand(-1, 4, 6).contiguous()
    reduced = solve(AttentionSVM(kept, longer.selected, rows=rows)).require_solved()
    trailing = AttentionSVM(kept, longer.selected).margins(reduced.weights)
    trailing = trailing.gather(-1, optimal_tokens(kept)[..., None])[..., 0].masked_fill(right, torch.inf).amin(-1)
    cosine = direction_cosine(longer.weights, reduced.weights)
    print(f"B2, starts of norm 20: {int(home.sum())} of 320 at the optimum; of the others {int(stayed.sum())} stay"
          f" for 100 times as long; their optimal tokens trail by at least {trailing[stayed].min():.3f}, least cosine"
          f" to the reduced SVM {cosine[stayed].min():.5f}")  # fmt: skip
    assert bool(stayed.any())
    assert int(home.sum()) > 160  # most reach it
    assert bool((trailing[stayed] > 1).all())
    assert bool((cosine[stayed] > 0.999).all())


def test_equal_scores_need_a_unique_best_and_a_linear_head() -> None:
    data = equal_scores(n=2, T=4, d=5, seed=5)
    flat = TokenDataset(data.tokens[:, 1:], data.queries, data.labels, head=torch.zeros(5).double())
    assert equal_scores_condition(flat).margin.item() == -math.inf
    with pytest.raises(ValueError, match="equal_scores_condition needs a linear prediction head; got QuadraticHead"):
        equal_scores_condition(data, QuadraticHead(data.head, 1.0))


# ------------------------------------------------------- favourable first gradient


def test_a_favourable_first_gradient_leads_to_the_optimum_after_a_large_first_step() -> None:
    """Step one of norm 100 along -grad L(0), then small steps: all favourable data sets of 300 end at opt."""
    data = random_sphere(n=4, T=6, d=10, batch=300, seed=6)
    condition = favourable_first_gradient(data)
    step = -gradient(data, torch.zeros(300, 10, 10).double())["weights"].normalized()
    problem = AttentionSVM(data, optimal_tokens(data))
    torch.testing.assert_close(condition.margin, problem.margins(step)[problem.rows].reshape(300, -1).amin(-1))
    run = fit(data, initial=100 * step, optimizer=NormalizedGradientDescent(0.05), steps=3000, keep=())
    home = (run.selected == optimal_tokens(data)).all(-1)
    good = condition.holds
    print(f"{int(good.sum())} favourable: {int(home[good].sum())} at the optimum;"
          f" {int((~good).sum())} not: {int(home[~good].sum())}")  # fmt: skip
    assert int(good.sum()) > 50
    assert bool(home[good].all())
    assert not bool(home[~good].all())


def test_a_tie_leaves_only_its_own_data_set_open() -> None:
    data = random_sphere(n=2, T=4, d=5, batch=6, seed=5)
    alone = favourable_first_gradient(data)
    head = data.head.clone()
    head[2] = 0  # every token of the third data set scores the same
    mixed = favourable_first_gradient(data, head)
    others = torch.arange(6) != 2
    assert bool(mixed.certain[others].all())
    assert not bool(mixed.certain[2])
    assert not bool(mixed.holds[2])
    assert mixed.holds[others].tolist() == alone.holds[others].tolist()
    assert mixed.margin[others].tolist() == alone.margin[others].tolist()
    (shown,) = [one for one in diagnose(data, head).conditions if one.name == "favourable first gradient"]
    assert shown.certain.tolist() == mixed.certain.tolist()


# ---------------------------------------------------------------------- step size


@pytest.mark.parametrize("loss", [Logistic(), Exponential()], ids=repr)
def test_steps_within_the_bound_never_raise_the_risk_and_far_above_they_can(loss: Logistic | Exponential) -> None:
    data = random_sphere(n=8, T=6, d=2, dq=1, batch=30, seed=7)
    bound = lipschitz_bound(data, None, loss)
    assert step_size_bound(data, None, 1 / bound, loss).holds.all()
    assert not step_size_bound(data, None, 1.01 / bound, loss).holds.any()
    torch.testing.assert_close(step_size_bound(data, None, 0.5, loss).margin, 1 / bound - 0.5)
    kwargs = {"loss": loss, "steps": 300, "record": 1, "keep": ["risk"]}
    within = fit(data, optimizer=GradientDescent(LipschitzStep(1.0)), **kwargs)
    above = fit(data, optimizer=GradientDescent(LipschitzStep(1000.0)), **kwargs)
    assert bool((within.history.risk.diff(dim=0) <= 1e-15).all())
    raised = int((above.history.risk.diff(dim=0) > 1e-6).any(0).sum())
    print(f"30 data sets: risk rises at 1000/L in {raised}, at 1/L in none")
    assert raised > 5


def test_step_size_at_its_edges() -> None:
    single = TokenDataset(torch.ones(2, 1, 3).double(), torch.ones(2, 3).double(), [1, -1], head=torch.ones(3).double())
    assert step_size_bound(single, None, 1e9).margin.item() == math.inf
    with pytest.raises(ValueError, match="step_size must be positive and finite"):
        step_size_bound(single, None, -1.0)
    with pytest.raises(ValueError, match="needs a linear prediction head"):
        step_size_bound(single, QuadraticHead(torch.ones(3).double(), 1.0))


# --------------------------------------------------------------------- one winner


def quadratic(lead: float, penalty: float = 0.5) -> tuple[TokenDataset, QuadraticHead]:
    """Four orthonormal tokens of scores lead, 0, -1, -1 (before the penalty), one input, Y = 1."""
    data = TokenDataset(torch.eye(4).double()[None], torch.ones(1, 1).double(), [1])
    return data, QuadraticHead(torch.tensor([lead, 0.0, -1.0, -1.0]).double(), penalty)


def test_one_winner_of_a_quadratic_head_and_the_token_with_half_the_margin() -> None:
    """Lead 2 lambda: no linear gap, and token 2 needs half the margin of the others only; above it W_mm is reached.

    At a lead of exactly 2 lambda the pull of token 2 is of order s_2^2, so its row asks for 1/2 in place of 1.
    """
    whole = solve(AttentionSVM(quadratic(1.5)[0], [0]))
    half = solve(AttentionSVM(quadratic(1.5)[0], [0], right_hand_side=torch.tensor([[0.0, 0.5, 1.0, 1.0]])))
    for lead, holds in ((1.5, True), (2.5, True), (1.0, False), (0.6, False)):
        data, head = quadratic(lead)
        condition = one_winner(data, head)
        assert bool(condition) is holds
        assert bool(condition.certain)
        assert condition.margin.item() == pytest.approx(lead - 1.0)
        optimizer = NormalizedGradientDescent(Geometric(0.1, 1.01, largest=1.0))
        run = fit(data, head, initial="zeros", optimizer=optimizer, steps=500, keep=())
        to_whole, to_half = (float(direction_cosine(run.weights, target.weights)) for target in (whole, half))
        print(f"lead {lead}: cosine to W_mm {to_whole:.4f}, with half a margin for token 2 {to_half:.4f}")
        if holds:
            assert to_whole > 0.999
        elif lead == 1.0:
            assert to_half > 0.999
            assert to_whole < 0.99
        else:
            assert float(run.attention.amax()) < 0.9


def random_mixtures(data: TokenDataset, count: int) -> torch.Tensor:
    drawn = np.random.default_rng(0).dirichlet([0.3] * data.T, (count, *data.batch_shape, data.n))
    return torch.from_numpy(drawn)


@pytest.mark.parametrize("kind", ["linear", "quadratic", "relu", "module"])
def test_the_gap_of_one_winner_against_random_mixtures(kind: str) -> None:
    """The constant bounds the gap of 2,000 mixtures, and some mixture (a vertex or one close to opt) attains it."""
    data = random_sphere(n=3, T=4, d=5, batch=20, seed=8)
    module = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()
    generator = torch.Generator().manual_seed(5)
    for parameter in module.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    head = {
        "linear": None,
        "quadratic": QuadraticHead(data.head, 0.3),
        "relu": ReluHead(torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)),
        "module": module,
    }[kind]
    condition = one_winner(data, head)
    own = {"linear": None, "module": ModuleHead(module)}.get(kind, head)
    outputs = own.output if own is not None else lambda x: torch.einsum("...bnd,bd->...bn", x, data.head)
    scores = torch.stack([outputs(data.values[:, :, t]) * data.labels for t in range(4)], -1)
    best = scores.argmax(-1)
    vertices = torch.eye(4).double()[:, None, None].expand(4, 20, 3, 4)
    pure = torch.nn.functional.one_hot(best, 4).double()
    mixtures = torch.cat([random_mixtures(data, 2000), vertices, pure + 1e-6 * (vertices - pure)])
    reached = outputs(torch.einsum("mbnt,bntd->mbnd", mixtures, data.values)) * data.labels
    taken = 1 - mixtures.gather(-1, best.expand(len(mixtures), 20, 3).unsqueeze(-1)).squeeze(-1)
    gaps = torch.where(taken > 1e-9, (scores.amax(-1) - reached) / taken.clamp(min=1e-9), math.inf).amin(0).amin(-1)
    slack = 1e-4 if kind != "module" else 0.2
    assert bool((gaps > condition.margin - slack).all())
    assert bool((gaps < condition.margin + slack).all())
    assert bool(condition.certain.all()) is (kind != "module")
    print(f"{kind}: holds in {int(condition.holds.sum())} of 20")
    if kind == "linear":
        torch.testing.assert_close(condition.margin, unique_optimum(data).margin)


def test_a_sampled_verdict_agrees_with_the_exact_one_and_says_that_it_is_sampled() -> None:
    class Same(torch.nn.Module):
        def __init__(self, vector: torch.Tensor) -> None:
            super().__init__()
            self.vector = torch.nn.Parameter(vector)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values @ self.vector - 0.3 * values.square().sum(-1)

    data = random_sphere(n=2, T=4, d=5, batch=20, seed=9)
    shared = TokenDataset(data.tokens, data.queries, data.labels)
    exact = one_winner(shared, QuadraticHead(data.head[0], 0.3))
    sampled = one_winner(shared, Same(data.head[0].clone()))
    assert sampled.holds.equal(exact.holds)
    assert bool(exact.holds.any())
    assert not bool(exact.holds.all())
    assert sampled.certain.equal(~sampled.holds)


# ------------------------------------------------------------------- label margin


def label_margin(points: torch.Tensor) -> float:
    """min ||sum lam_i r_i|| over the simplex by non-negative least squares, for signed points ``[n, dv]``."""
    heavy = 1e5
    system = np.vstack([points.numpy().T, heavy * np.ones((1, len(points)))])
    return float(nnls(system, np.append(np.zeros(points.shape[1]), heavy))[1])


def test_label_margin_of_the_papers_examples() -> None:
    for name in ("joint-training-tight", "joint-training-relaxed"):
        condition = label_margin_assumption(example(name), [1, 1, 1])
        assert condition
        assert condition.certain
        assert condition.margin.item() > 0.1


def selected_margin(data: TokenDataset, best: torch.Tensor) -> float:
    return label_margin(data.values[torch.arange(data.n), best] * data.labels[:, None])


def random_margins(data: TokenDataset, best: torch.Tensor, count: int, seed: int) -> np.ndarray:
    """Label margins of random mixtures of all inputs."""
    rng = np.random.default_rng(seed)
    pure = torch.nn.functional.one_hot(best, data.T).double()
    found = []
    for _ in range(count):
        s = pure + rng.random() * (torch.from_numpy(rng.dirichlet([0.4] * data.T, data.n)) - pure)
        found.append(label_margin(torch.einsum("nt,ntd->nd", s, data.values) * data.labels[:, None]))
    return np.array(found)


def exchanged_margins(data: TokenDataset, best: torch.Tensor) -> np.ndarray:
    """Label margins after one token was exchanged, by half or wholly."""
    found = []
    for i in range(data.n):
        for t in range(data.T):
            for share in (0.5, 1.0):
                points = data.values[torch.arange(data.n), best].clone()
                points[i] = (1 - share) * points[i] + share * data.values[i, t]
                found += [label_margin(points * data.labels[:, None])] if t != int(best[i]) else []
    return np.array(found)


def test_where_the_label_margin_assumption_is_proved_no_mixture_does_better() -> None:
    """20 data sets, selected tokens Y (2 e_1 + noise), others short: proved, and 50 mixtures of each lower the margin.

    Sphere data mostly fail: where selected tokens nearly contradict each other a short token does less harm.
    """
    data = random_sphere(n=4, T=3, d=6, batch=20, seed=10)
    tokens = data.tokens * torch.tensor([1.0, 0.2, 0.2]).double()[:, None]
    tokens[:, :, 0, 0] += 2 * data.labels
    short = TokenDataset(tokens, data.queries, data.labels)
    selected = torch.zeros(20, 4, dtype=torch.int64)
    condition = label_margin_assumption(short, selected)
    proved = condition.holds & condition.certain
    print(f"20 data sets: {int(condition.holds.sum())} hold, {int(proved.sum())} of them proved")
    assert int(proved.sum()) >= 10
    for b in torch.nonzero(proved).flatten().tolist():
        support = label_svm(short[b], selected[b]).support
        others = short[b].take_inputs(torch.nonzero(support).flatten())
        own = selected_margin(others, selected[b][support])
        assert bool((random_margins(others, selected[b][support], 50, b) < own).all())


def test_where_the_label_margin_assumption_fails_some_mixture_does_better_and_joint_training_goes_there() -> None:
    """One input: a longer token of the same sign raises the margin, and joint training selects it."""
    data = TokenDataset.prompt(torch.tensor([[[0.0, 1.0], [1.0, 2.0]]]).double(), [1])
    poor, rich = label_margin_assumption(data, [0]), label_margin_assumption(data, [1])
    assert not poor
    assert poor.certain
    assert poor.margin.item() < -1
    assert rich
    assert rich.certain
    v = torch.tensor([0.0, 0.1]).double()
    starts = torch.randn(6, 2, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reached = fit(data, v, initial=starts, train_head=True, steps=500, keep=()).selected.flatten().tolist()
    print(f"joint training from 6 starts selects {reached}")
    assert reached == [1] * 6


def test_random_selections_are_mostly_refuted_by_a_mixture_that_nnls_confirms() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=20, seed=11)
    condition = label_margin_assumption(data, optimal_tokens(data))
    failed = ~condition.holds & torch.isfinite(condition.margin)
    assert int(failed.sum()) > 5
    assert bool(condition.certain[failed].all())
    confirmed = 0
    for b in torch.nonzero(failed).flatten().tolist():
        best = optimal_tokens(data)[b]
        confirmed += bool((exchanged_margins(data[b], best) >= selected_margin(data[b], best)).any())
    print(f"{int(failed.sum())} refuted, {confirmed} confirmed by exchanges")
    assert confirmed > 0.5 * int(failed.sum())


def test_labels_that_cannot_be_separated() -> None:
    data = TokenDataset.prompt(torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]]).double(), [1, -1])
    condition = label_margin_assumption(data, [0, 0])
    assert not condition
    assert condition.margin.item() == -math.inf
    fine = TokenDataset.prompt(torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]]).double(), [1, 1])
    assert label_margin_assumption(fine, [0, 0]).margin.item() == math.inf


def test_conditions_of_a_batch_are_those_of_its_elements() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=(2, 2), seed=12)
    selected = optimal_tokens(data)
    for check in (
        unique_optimum, all_tokens_support, all_tokens_support_everywhere, equal_scores_condition,
        favourable_first_gradient, step_size_bound, one_winner,
    ):  # fmt: skip
        whole = check(data)
        for a in range(2):
            for b in range(2):
                torch.testing.assert_close(check(data[a, b]).margin, whole.margin[a, b])
    joint = label_margin_assumption(data, selected)
    alone = label_margin_assumption(data[1, 0], selected[1, 0], seed=[(0, 2)])
    torch.testing.assert_close(joint.margin[1, 0], alone.margin)
    assert evaluate(data, torch.zeros(2, 2, 5, 5).double()).attention.shape == (2, 2, 3, 4)
