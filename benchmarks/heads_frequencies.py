"""Why rotary heads look where they look: the gap to the runner-up by frequency, and by position and content.

With kappa_j the key of token j before it is turned, q_i the query and R_Delta the rotation by their distance, the logit
is a sum over frequencies, and of two parts: ``q_i R_Delta m`` with the mean key m of all tokens but the first, which
depends on the position alone, and the rest, content. Part of the study, ``python -m benchmarks.heads``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attsvm.heads import HeadModel, HeadsReport, HeadWeights
from attsvm.heads.analysis.head import matching_temperature, same_spectrum
from attsvm.heads.analysis.lifted import LiftedSolution, solve_lifted
from attsvm.heads.analysis.selections import Choices, SentenceView, choices, layers_of
from attsvm.heads.report.records import Settings


def frequencies(model: HeadModel, texts: Sequence[str], report: HeadsReport) -> dict[str, Any]:
    """For every head with confident queries: shares of the gap, and energies of the head and of W_mm, by frequency."""
    settings = report.settings
    sentences = model.encode(texts)
    found: dict[str, Any] = {}
    for layer in layers_of(model, sentences, range(model.layers), settings.leave_out):
        for head in range(model.heads):
            form = model.weights(layer.index, head)
            stream = torch.Generator().manual_seed(1000 * layer.index + head)
            made = choices(layer.views, form)
            sure = made.confident(settings.confidence)
            if len(sure) == 0:
                continue
            few = sure.draw(settings.queries, stream)
            record = gap_shares(form, layer.views, sure)
            record["energy"] = _share(form.energies)
            record["energy_svm"] = _svm_energy(form, layer.views, few, settings)
            other = same_spectrum(form, stream, 0)
            share = len(sure) / max(len(made), 1)
            other = other.scaled(matching_temperature(layer.views, other, settings.confidence, share))
            drawn = choices(layer.views, other).confident(settings.confidence).draw(len(few), stream)
            record["energy_svm_random"] = _svm_energy(other, layer.views, drawn, settings)
            found[f"L{layer.index}H{head}"] = record
    return found


def periods(model: HeadModel) -> list[float]:
    """In how many tokens each frequency turns once, from the model's own angles."""
    phases = model.states(model.encode(["one two three"])[0], [0]).phases
    assert phases is not None
    return [2 * torch.pi / abs(angle) for angle in (phases[0, 1] / phases[0, 0]).angle().tolist()]


def gap_shares(form: HeadWeights, views: Sequence[SentenceView], drawn: Choices) -> dict[str, Any]:
    """Of the sum of all gaps between the selected token and the runner-up: shares of position and of each frequency.

    Also how often the part of the logits that knows the position alone, or the content alone, selects the same token.
    """
    assert form.pairs is not None
    mean = torch.cat([view.keys[1:] for view in views]).mean(0) @ form.key
    total = position = 0.0
    turned = torch.zeros(len(form.pairs), dtype=torch.float64)
    by_position = by_content = 0
    for index in torch.unique(drawn.sentence).tolist():
        view, here = views[index], drawn[drawn.sentence == index]
        keys = form.turned(view.keys @ form.key, view.phases)
        queries = form.turned(view.queries @ form.query, view.phases)[here.position]
        places = form.turned(mean.expand(len(keys), -1), view.phases)
        out = ~view.allowed[here.position]
        whole, place = (part.masked_fill(out, -torch.inf) for part in (queries @ keys.T, queries @ places.T))
        others = whole.scatter(1, here.selected[:, None], -torch.inf).argmax(1)
        rows = torch.arange(len(here))
        by_position += int((place.argmax(1) == here.selected).sum())
        by_content += int(((whole - place).masked_fill(out, -torch.inf).argmax(1) == here.selected).sum())
        total += float((whole[rows, here.selected] - whole[rows, others]).sum())
        position += float((place[rows, here.selected] - place[rows, others]).sum())
        terms = queries * (keys[here.selected] - keys[others])
        turned += terms[:, form.pairs].sum((0, 2))
    return {
        "queries": len(drawn), "position": position / total, "by_position": by_position / len(drawn),
        "by_content": by_content / len(drawn), "gap": (turned / total).tolist(),
    }  # fmt: skip


def _share(energies: Tensor) -> list[float]:
    return (energies[:-2] / energies.sum()).tolist()


def channel_energies(solution: LiftedSolution) -> Tensor:
    """Squared norms of the channels of W_mm / N(W_mm), in the order of `HeadWeights.energies`; their sum is 1."""
    few, shares = solution.support
    keys = few.states[few.place]
    content = (keys @ keys.T) * (few.queries @ few.queries.T)[few.query][:, few.query]
    still = (shares @ content @ shares * few.form.unturned.any())[None]
    turned, bias = still[:0], torch.zeros_like(still)
    if few.form.pairs is not None and few.phases is not None:
        sides = torch.view_as_real(few.phases) * shares[:, None, None]
        turned = (sides * (content @ sides.flatten(1)).view_as(sides)).sum((0, 2))
    if few.form.relative is not None and few.buckets is not None:
        marked = few.buckets >= 0
        sums = torch.zeros_like(few.form.relative).index_add(0, few.buckets[marked], shares[marked])
        bias = sums.square().sum()[None]
    return torch.cat([turned, still, bias])


def _svm_energy(
    form: HeadWeights, views: Sequence[SentenceView], drawn: Choices, settings: Settings
) -> list[float] | None:
    solution = solve_lifted(form, views, drawn, settings) if len(drawn) else None
    return None if solution is None or solution.value != solution.value else _share(channel_energies(solution))
