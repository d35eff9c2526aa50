"""Heads with positions inside their logits: the kernel against lifted tokens that are written out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.heads_frequencies import channel_energies

import attsvm
from attsvm.heads import SINKS, HeadWeights, Settings, analyze, load
from attsvm.heads.analysis.comparison import _compare_lifted, compare_with_max_margin, selection_problem
from attsvm.heads.analysis.head import same_spectrum
from attsvm.heads.analysis.lifted import Pairs, solve_lifted
from attsvm.heads.analysis.selections import NO_TOKEN, choices, layers_of, seen_by
from attsvm.norms import Frobenius, Nuclear
from heads.loading.small import POSITIONED, VOCABULARY, lately
from heads.planted import random_views

WIDTH = 5
ANGLES = torch.tensor([1.0, 0.3], dtype=torch.float64)
CASES = ["turned", "half turned", "learned bias", "turned, learned bias"]


def positioned(case: str, seed: int, count: int = 6) -> tuple[list, HeadWeights]:
    """Random sentences and a random head with positions."""
    generator = torch.Generator().manual_seed(seed)
    columns = 6 if case == "half turned" else 4
    key, query = (torch.randn(WIDTH, columns, generator=generator, dtype=torch.float64) for _ in range(2))
    pairs = torch.tensor([[0, 2], [1, 3]]) if "turned" in case else None
    relative = torch.randn(4, generator=generator, dtype=torch.float64) if "bias" in case else None
    views = []
    for view in random_views(count, WIDTH, seed, causal=True):
        place = torch.arange(len(view.keys))
        views.append(replace(
            view, phases=torch.exp(1j * place[:, None] * ANGLES),
            buckets=(place[:, None] - place).clamp(0, 3),
        ))  # fmt: skip
    sink = 0.5 if "sink" in case else None
    return tuple(reversed(seen_by(HeadWeights(key, query, pairs, relative, sink=sink), views, ())))


def lifted_rows(views: list, form: HeadWeights, drawn) -> np.ndarray:
    """Every row with all its channels, written out from the definition of the logits."""
    rows = []
    for index, i, selected in drawn.triples:
        view = views[index]

        def features(j: int, view=view, i=i) -> torch.Tensor:
            content = view.keys[j].outer(view.queries[i]).flatten()
            parts = []
            if form.pairs is not None:
                for angle in ANGLES * (j - i):
                    parts += [angle.cos() * content, angle.sin() * content]
            if bool(form.unturned.any()):
                parts.append(content)
            if form.relative is not None:
                parts.append((torch.arange(len(form.relative)) == view.buckets[i, j]).double())
            return torch.cat(parts)

        candidates = torch.nonzero(view.allowed[i])[:, 0].tolist()
        rows += [(features(selected) - features(j)).numpy() for j in candidates if j != selected]
    return np.array(rows)


def written_out(form: HeadWeights) -> np.ndarray:
    """The head's own weights in the same channels."""
    parts = []
    if form.pairs is not None:
        for one, two in form.pairs.tolist():
            k1, k2, q1, q2 = form.key[:, one], form.key[:, two], form.query[:, one], form.query[:, two]
            parts += [k1.outer(q1) + k2.outer(q2), k1.outer(q2) - k2.outer(q1)]
    if bool(form.unturned.any()):
        parts.append(form.key[:, form.unturned] @ form.query[:, form.unturned].T)
    flat = [part.flatten() for part in parts]
    return torch.cat([*flat, *([] if form.relative is None else [form.relative])]).numpy()


def explicit(rows: np.ndarray) -> attsvm.SVMSolution:
    tokens = torch.from_numpy(np.stack([rows, np.zeros_like(rows)], 1))
    data = attsvm.TokenDataset(tokens, torch.ones(len(rows), 1).double(), torch.ones(len(rows)))
    return attsvm.solve(attsvm.AttentionSVM(data, torch.zeros(len(rows), dtype=torch.int64))).require_solved()


@pytest.mark.parametrize("case", [*CASES, "turned, sink", "learned bias, sink"])
@pytest.mark.parametrize("seed", range(3))
def test_kernel_and_written_out_problem_have_one_solution(case, seed):
    views, form = positioned(case, seed)
    drawn = choices(views, form).confident(0.3)
    rows, own = lifted_rows(views, form, drawn), written_out(form)
    best = explicit(rows).weights[:, 0].numpy()
    found = compare_with_max_margin(form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-8)).closeness
    assert found.solved
    assert found.rows == len(rows)
    assert 1 / found.max_margin == pytest.approx(np.linalg.norm(best), rel=1e-7)
    assert found.efficiency.smallest == pytest.approx(
        (rows @ own).min() / np.linalg.norm(own) * np.linalg.norm(best), rel=1e-6
    )
    assert found.cosine == pytest.approx(own @ best / np.linalg.norm(own) / np.linalg.norm(best), abs=1e-6)
    assert found.agreement == 1.0  # W_mm makes the selections it was solved for
    assert found.efficiency.smallest <= found.efficiency_projected.smallest <= 1 + 1e-6
    assert found.in_span < 1


@pytest.mark.parametrize("case", CASES)
def test_channels_of_the_head_and_of_the_solution_are_those_written_out(case):
    views, form = positioned(case, 5)
    drawn = choices(views, form).confident(0.3)
    found = solve_lifted(form, views, drawn, Settings(accuracy=1e-10))
    others = torch.ones(len(found.pairs), dtype=torch.bool)
    others[found.selected] = False
    rows = lifted_rows(views, form, drawn)
    best = rows.T @ found.multipliers[others].numpy()
    turned, still = 2 * ("turned" in case), "half" in case or "turned" not in case

    def channels(flat: np.ndarray) -> list[np.ndarray]:
        """Frequencies, what is not turned, biases."""
        blocks = np.split(flat[: len(flat) - 4 * ("bias" in case)], 2 * turned + still)
        sides = [np.concatenate(blocks[2 * f : 2 * f + 2]) for f in range(turned)]
        return [*sides, blocks[-1] if still else np.zeros(1), flat[-4:] if "bias" in case else np.zeros(1)]

    own = written_out(form)
    for energies, flat in ((form.energies, own), (channel_energies(found), best)):
        assert energies.tolist() == pytest.approx([float(part @ part) for part in channels(flat)], rel=1e-7, abs=1e-12)
    assert found.margins(found.pairs.logits())[others].tolist() == pytest.approx((rows @ own).tolist(), abs=1e-9)
    stack = best[: len(best) - 4 * ("bias" in case)].reshape(-1, WIDTH)
    for measured, expected in ((found.stacked, stack), (form.stacked, own[: len(stack) * WIDTH].reshape(-1, WIDTH))):
        values = torch.linalg.svdvals(measured)[:WIDTH]
        assert values.tolist() == pytest.approx(np.linalg.svd(expected)[1][: len(values)].tolist(), abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_in_blocks_gives_the_same_solution(case, monkeypatch):
    """A problem whose kernel is not held: equal values, and weights projected on a larger space."""
    views, form = positioned(case, 6)
    drawn = choices(views, form).confident(0.3)
    whole = compare_with_max_margin(form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-8)).closeness
    monkeypatch.setattr("attsvm.heads.analysis.lifted._BLOCK", 7)
    monkeypatch.setattr("attsvm.heads.analysis.lifted.MOST_PAIRS", 1)
    apart = compare_with_max_margin(form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-8)).closeness
    assert apart.max_margin == pytest.approx(whole.max_margin, rel=1e-8)
    assert apart.efficiency.smallest == pytest.approx(whole.efficiency.smallest, rel=1e-6)
    assert whole.in_span < apart.in_span <= 1 + 1e-9
    assert apart.agreement == 1.0


@pytest.mark.parametrize("case", CASES)
def test_the_projection_is_that_of_the_written_out_spans(case):
    views, form = positioned(case, 3, count=3)
    drawn = choices(views, form).confident(0.0)
    pairs = Pairs.of(form, views, drawn.triples)
    found = pairs.seen_size()
    # Each channel by itself: left factors u (lifted tokens, centred for each query), right factors z.
    turned = torch.view_as_real(pairs.phases).flatten(1) if form.pairs is not None else torch.zeros(len(pairs), 0)
    still = torch.ones(len(pairs), int(bool(form.unturned.any())))
    lifted = (torch.cat([turned, still], 1).double()[:, :, None] * pairs.states[pairs.place][:, None]).flatten(1)
    blocks = len(written_out(form)) - (0 if form.relative is None else 4)
    stack = torch.from_numpy(written_out(form)[:blocks]).reshape(-1, WIDTH)
    left = torch.linalg.pinv(pairs._centred(lifted)) @ pairs._centred(lifted)
    right = torch.linalg.pinv(pairs.queries) @ pairs.queries
    square = float((left @ stack @ right).square().sum())
    if form.relative is not None:
        marks = pairs._centred(torch.eye(4).double()[pairs.buckets])
        square += float((torch.linalg.pinv(marks) @ marks @ form.relative).square().sum())
    assert found == pytest.approx(math.sqrt(square), rel=1e-5)


def test_the_control_keeps_the_strength_of_every_frequency():
    _, form = positioned("half turned", 0)
    other = same_spectrum(form, torch.Generator().manual_seed(0), 0)
    for side in ("key", "query"):
        one, two = (getattr(head, side).T @ getattr(head, side) for head in (form, other))
        assert torch.allclose(one, two)
        assert not torch.allclose(getattr(form, side), getattr(other, side))


def test_a_plain_head_has_one_solution_either_way():
    """On a GPU plain heads are solved through their kernel too."""
    views, form = positioned("", 7)
    drawn = choices(views, form).confident(0.3)
    plain = compare_with_max_margin(form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-8)).closeness
    lifted = _compare_lifted(form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-8)).closeness
    for name in ("max_margin", "cosine", "cosine_projected", "in_span"):
        assert getattr(lifted, name) == pytest.approx(getattr(plain, name), rel=1e-5)
    assert lifted.spectrum.values == pytest.approx(plain.spectrum.values, abs=1e-4)


def test_other_norms_are_refused():
    views, form = positioned("turned", 0)
    drawn = choices(views, form)
    with pytest.raises(ValueError, match="norms must be Frobenius for heads whose logits depend on positions; got nuc"):
        compare_with_max_margin(form, views, drawn, drawn, Nuclear(), Settings())
    with pytest.raises(ValueError, match="norms must be Frobenius for heads whose logits depend on positions; got nuc"):
        analyze(load(lately("Llama")), [[3, 4, 5]], norms=(Frobenius(), Nuclear()))


def test_selections_that_nothing_separates_are_told():
    views, form = positioned("turned", 0, count=1)
    same = replace(views[0], keys=torch.ones_like(views[0].keys), phases=torch.ones_like(views[0].phases))
    drawn = choices(views, form)
    found = solve_lifted(form, [same], drawn, Settings())
    assert math.isnan(found.value)
    assert found.status.startswith("numerically infeasible")


@pytest.mark.parametrize("kind", ["Llama", "Phi", "Gemma2", "GptOss", "Qwen3", "T5", "Bloom"])
def test_small_models_from_end_to_end(kind):
    """Heads of every sort are analysed: they separate their own selections, and none is better than max-margin."""
    changes = next(changes for _, name, changes in POSITIONED if name == kind)
    model = load(lately(kind, **changes))
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(2, VOCABULARY, (9,), generator=generator).tolist() for _ in range(8)]
    report = analyze(
        model, texts, heads=["L0H0", "L1H3"], queries=12, confidence=0.3, accuracy=1e-6, examples=1, draws=1
    )
    solved = [head for head in report if head.comparisons]
    assert solved
    assert any("head" in note for note in report.notes) == (kind == "Qwen3")
    for head in solved:
        assert head.attention_error < 1e-5
        found = head.comparisons[0]
        assert head.outcome == "solved"
        whole, seen = found.head.efficiency.smallest, found.head.efficiency_projected.smallest
        assert 0 < whole <= seen * (1 + 1e-9) <= 1 + 1e-5
        assert all(draw.solved for draw in (*found.random_weights, *found.untrained))
        assert sum(token.share for token in head.support_tokens) > 0.5
    assert "NaN" not in str(report.to_json())


def test_a_learned_sink_is_a_candidate_or_left_out():
    """gpt-oss: what no token gets is attention on a token of its own; without it the rest is as it was, to a factor."""
    changes = next(changes for _, name, changes in POSITIONED if name == "GptOss")
    model = load(lately("GptOss", **changes))
    texts = [[3, 4, 5, 6, 7, 8, 9], [5, 5, 9, 2, 4]]
    (layer,) = layers_of(model, model.encode(texts), [1], ())
    for index, view in enumerate(layer.views):
        size = len(view.keys)
        attention = model.states(view.sentence, [1]).attention[0]
        for head in range(model.heads):
            form, views = seen_by(model.weights(1, head), layer.views, ())
            whole = form.attention(views[index])[:size]
            assert torch.allclose(whole[:, :size], attention[head], atol=1e-5)
            assert torch.allclose(whole.sum(-1), torch.ones(size).double())
            assert views[index].sentence.tokens[-1] == NO_TOKEN
            form, views = seen_by(model.weights(1, head), layer.views, SINKS)
            rest = form.attention(views[index])
            assert torch.allclose(rest, attention[head] / attention[head].sum(-1, keepdim=True), atol=1e-5)
    report = analyze(model, texts, heads=["L1H0"], queries=9, confidence=0.3, draws=1)["L1H0"]
    assert report.selectivity.queries + report.selectivity.no_choice == sum(map(len, texts))


def test_a_window_smaller_than_the_text_limits_the_candidates():
    model = load(lately("Mistral", sliding_window=3))
    sentences = model.encode([[3, 4, 5, 6, 7, 8, 9, 2]])
    (layer,) = layers_of(model, sentences, [0], ())
    found = choices(layer.views, model.weights(0, 1))
    assert found.options.tolist() == [2] + 6 * [3]
    assert bool(((found.position - found.selected) < 3).all())
    assert set(Pairs.of(model.weights(0, 1), layer.views, found.triples).token.tolist()) == set(range(8))
    attention = model.states(sentences[0], [0]).attention[0, 1]
    assert torch.equal(attention.argmax(-1)[1:], found.selected)
    assert torch.allclose(attention.amax(-1)[1:], found.mass, atol=1e-5)


def test_a_fixed_bias_moves_what_is_asked_for():
    """ALiBi: the problem asks for the head's own smallest gap, so that the head is feasible and at most as good."""
    views, form = positioned("", 4)
    form = replace(form.scaled(2.0), slope=0.4)
    drawn = choices(views, form).confident(0.5)
    found = compare_with_max_margin(form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-8))
    rows = lifted_rows(views, form, drawn)
    own = written_out(form)
    bias = np.array([
        form.slope * (selected - j)
        for index, i, selected in drawn.triples
        for j in torch.nonzero(views[index].allowed[i])[:, 0].tolist()
        if j != selected
    ])  # fmt: skip
    asked = (rows @ own + bias).min()
    best = found.solution.weights.flatten().numpy()
    assert (rows @ best + bias).min() == pytest.approx(asked, rel=1e-6)
    assert found.closeness.efficiency.smallest == pytest.approx(np.linalg.norm(best) / np.linalg.norm(own), rel=1e-6)
    assert found.closeness.efficiency.smallest <= 1
    assert (rows @ best).min() < asked  # the bias does a part of the work
    free = explicit(rows).weights[:, 0].numpy()  # what is left as the gap asked for grows
    together = best @ free / np.linalg.norm(best) / np.linalg.norm(free)
    assert found.closeness.turned_by_bias == pytest.approx(together, abs=1e-6)
    assert together < 0.999
    assert found.closeness.cosine_large_gap < 1
    plain = selection_problem(views, drawn).problem
    n, length = plain.data.n, plain.data.T
    offsets = form.fixed_logits(length)[0].expand(n, length)
    far = attsvm.AttentionSVM(plain.data, plain.reference, right_hand_side=1000 * asked, offsets=offsets)
    distant = attsvm.solve(far).weights.flatten().numpy()
    assert distant @ free / np.linalg.norm(distant) / np.linalg.norm(free) > max(together, 0.9999)
