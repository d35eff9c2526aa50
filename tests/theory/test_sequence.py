"""Sequence and causal data: one W, one united SVM, and descent that tends to it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attsvm import (
    AttentionSVM,
    Frobenius,
    NormalizedGradientDescent,
    Nuclear,
    TokenDataset,
    direction_cosine,
    fit,
    optimal_tokens,
    solve,
)
from attsvm.data import random_sphere

SEQUENCES, LENGTH, WIDTH, BATCH = 2, 4, 12, 10


def sequences(seed: int, batch: int = BATCH) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, labels of every position, and the head."""
    base = random_sphere(n=SEQUENCES, T=LENGTH, d=WIDTH, batch=batch, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    labels = torch.where(torch.rand(batch, SEQUENCES, LENGTH, generator=draw) < 0.5, -1.0, 1.0).double()
    assert base.head is not None
    return base.tokens, labels, base.head


def copied(tokens: Tensor, labels: Tensor, head: Tensor, causal: bool) -> TokenDataset:
    """Every position written out as an input with tokens of its own, one loop at a time."""
    rows, queries, signs, masks = [], [], [], []
    for sequence, sign in zip(tokens, labels, strict=True):
        for k in range(LENGTH):
            seen = k + 1 if causal else LENGTH
            own = torch.full_like(sequence, 7.5)  # what stands at a masked place must not matter
            own[:seen] = sequence[:seen]
            rows.append(own)
            queries.append(sequence[k])
            signs.append(sign[k])
            masks.append(torch.arange(LENGTH) < seen)
    return TokenDataset(torch.stack(rows), torch.stack(queries), torch.stack(signs), torch.stack(masks), head=head)


def brute_rows(tokens: Tensor, selected: Tensor, causal: bool) -> Tensor:
    """Every constraint (x_selected - x_t) z^T as a vector, gathered with loops."""
    rows = []
    for s, sequence in enumerate(tokens):
        for k in range(LENGTH):
            chosen = int(selected[s * LENGTH + k])
            for t in range(k + 1 if causal else LENGTH):
                if t != chosen:
                    rows.append(torch.outer(sequence[chosen] - sequence[t], sequence[k]).flatten())
    return torch.stack(rows)


def united(tokens: Tensor, labels: Tensor, head: Tensor, causal: bool) -> TokenDataset:
    make = TokenDataset.causal if causal else TokenDataset.sequence
    return make(tokens, labels, head=head)


def any_selection(causal: bool, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.arange(1, LENGTH + 1) if causal else torch.full((LENGTH,), LENGTH)
    return (torch.rand(SEQUENCES, LENGTH, generator=draw) * ends).long().flatten()


@pytest.mark.parametrize("norm", [Frobenius(), Nuclear()], ids=repr)
@pytest.mark.parametrize("causal", [False, True], ids=["sequence", "causal"])
def test_the_united_svm_is_that_of_copied_tokens(causal: bool, norm: Frobenius | Nuclear) -> None:
    solved = 0
    for seed in range(5):
        tokens, labels, head = (part[0] for part in sequences(seed, batch=1))
        chosen = any_selection(causal, seed)
        one = solve(AttentionSVM(united(tokens, labels, head, causal), chosen), norm)
        other = solve(AttentionSVM(copied(tokens, labels, head, causal), chosen), norm)
        assert one.status == other.status
        if not bool(one.solved):
            continue
        solved += 1
        value = float(norm.value(one.weights))
        assert value == pytest.approx(float(norm.value(other.weights)), rel=1e-6)
        margins = brute_rows(tokens, chosen, causal) @ one.weights.flatten()
        assert margins.min() >= 1 - 1e-6
        if isinstance(norm, Frobenius):
            assert torch.allclose(one.weights, other.weights, atol=1e-7 * value)
            assert torch.equal(one.support, other.support)
    print(f"5 seeds, {solved} separable")
    assert solved >= (3 if causal else 1)


def test_the_shared_weights_are_not_those_of_one_position() -> None:
    """Leave the other positions out and the SVM is another one: the sets of constraints must be united."""
    tokens, labels, head = (part[0] for part in sequences(0, batch=1))
    whole = united(tokens, labels, head, causal=True)
    chosen = any_selection(True, 0)
    last = whole.take_inputs(torch.tensor([LENGTH - 1, 2 * LENGTH - 1]))
    alone = solve(AttentionSVM(last, chosen[[LENGTH - 1, 2 * LENGTH - 1]]))
    every = solve(AttentionSVM(whole, chosen)).require_solved()
    assert torch.linalg.matrix_norm(alone.weights) < 0.99 * torch.linalg.matrix_norm(every.weights)
    assert direction_cosine(alone.weights, every.weights) < 0.99


@pytest.mark.parametrize("causal", [False, True], ids=["sequence", "causal"])
def test_descent_tends_to_the_united_svm(causal: bool) -> None:
    """By 1200 normalized steps: cosine above .99 for most saturated runs, all counted, and still rising."""
    seeds = range(3)
    parts = [sequences(seed) for seed in seeds]
    tokens, labels, head = (torch.cat([part[k] for part in parts]) for k in range(3))
    data = united(tokens, labels, head, causal)
    run = fit(data, optimizer=NormalizedGradientDescent(0.1), steps=1200, record=[300, 1200], keep=["weights"])
    solution = solve(AttentionSVM(data, run.selected))
    sharp = (run.attention.amax(-1) > 1 - 1e-6).all(-1) & solution.solved
    assert run.history.weights is not None
    before, after = (direction_cosine(each, solution.weights)[sharp] for each in run.history.weights)
    print(f"{'causal' if causal else 'sequence'}: {len(sharp)} runs of {len(seeds)} seeds, {int(sharp.sum())}"
          f" saturated; share above .99 {(after > 0.99).double().mean():.2f}; median 1 - cosine"
          f" {1 - before.median():.1e} at 300, {1 - after.median():.1e} at 1200")  # fmt: skip
    assert sharp.double().mean() > 0.8
    assert (after > 0.99).double().mean() > 0.85
    assert after.median() > 0.995
    assert after.median() > before.median()


def test_too_narrow_causal_data_are_not_separable() -> None:
    """d = 1: contradictory positions. No W separates, the SVM says so, and no run attends to every optimal token."""
    tokens = torch.tensor([[[1.0], [-1.0], [2.0], [-2.0]]]).double().expand(5, 1, 4, 1).clone()
    data = TokenDataset.causal(tokens, torch.ones(5, 1, 4).double(), head=torch.ones(5, 1).double())
    optimal = optimal_tokens(data)
    assert optimal[0].tolist() == [0, 0, 2, 2]
    assert bool(solve(AttentionSVM(data, optimal)).infeasible.all())
    run = fit(data, steps=500, keep=[])
    assert not bool((run.attention.gather(-1, optimal[..., None]) > 0.9).all(-2).any())
