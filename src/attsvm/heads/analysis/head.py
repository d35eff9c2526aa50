"""The analysis of one head, from its views to its report; and its controls: random weights, and other selections."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from attsvm.heads.analysis.comparison import Compared, compare_with_max_margin, spectrum
from attsvm.heads.analysis.rules import MOST_QUERIES, best_rule
from attsvm.heads.analysis.selections import Choices, SentenceView, Views, choices, kind_shares, selectivity
from attsvm.heads.form import HeadWeights
from attsvm.heads.report.records import Closeness, Comparison, Example, HeadReport, Settings, SupportToken
from attsvm.norms import Frobenius, Norm

_SUPPORT_SHOWN = 40  # support tokens listed
_LONGEST_EXAMPLE = 48  # tokens; longer sentences are shown only where there are no others


@dataclass(frozen=True, eq=False)
class HeadTask:
    """One head and all that its analysis reads; no task depends on another."""

    place: tuple[int, int]  # layer and head, counted from 0
    form: HeadWeights  # its weights
    views: Views  # the sentences at its layer
    twins: Sequence[tuple[HeadWeights, Views]]  # the same head of untrained models, if there are any
    held_out: Bool[Tensor, " sentences"]  # which sentences are kept apart
    attention_error: float  # how far its attention is from the one recomputed from `form`, for the report
    settings: Settings  # what is asked for

    def stream(self, purpose: str) -> torch.Generator:
        """Random numbers for one purpose: the same whichever heads are analysed before."""
        digest = hashlib.sha256(repr((self.settings.seed, *self.place, purpose)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def draw(self, confident: Choices, purpose: str, most: int) -> tuple[Choices, Choices]:
        """At most `most` queries for the problem, and queries of the held-out sentences."""
        training = confident.within(~self.held_out).draw(most, self.stream(purpose))
        return training, confident.within(self.held_out).draw(self.settings.queries, self.stream(f"{purpose} held out"))


def analyze_head(task: HeadTask) -> HeadReport:
    """What the head selects, how close it is to max-margin in every norm asked for, and what holds it there."""
    form, views, settings = task.form, task.views, task.settings
    found = choices(views, form)
    sharp = selectivity(found, views, settings.confidence)
    confident = found.confident(settings.confidence)
    drawn, tested = task.draw(confident, "own", settings.queries)
    known = confident.within(~task.held_out).draw(MOST_QUERIES, task.stream("rules"))
    rule, rule_agreement = best_rule(views, known, tested) if len(drawn) else ("", math.nan)
    made = [_compare(task, confident, sharp.confident, norm) for norm in settings.norms if len(drawn)]
    comparisons = tuple(comparison for comparison, _ in made)
    first = made[0][1] if made else None  # tokens and examples are shown in the first norm
    return HeadReport(
        *task.place,
        outcome=_outcome(comparisons, len(confident), settings),
        selectivity=sharp,
        kinds=kind_shares([view.sentence for view in views], confident.triples),
        attention_error=task.attention_error,
        spectrum=spectrum(form.stacked),
        rule=rule,
        rule_agreement=rule_agreement,
        confident_queries=len(confident),
        held_out_queries=len(tested),
        comparisons=comparisons,
        untrained_selectivity=tuple(
            selectivity(choices(seen, twin), seen, settings.confidence) for twin, seen in task.twins
        ),
        support_tokens=() if first is None else _support_tokens(first.drawn, first.shares, views),
        examples=() if first is None else _examples(form, views, found, first, settings.examples),
    )


def _compare(task: HeadTask, confident: Choices, share: float, norm: Norm) -> tuple[Comparison, Compared]:
    """The head and its controls in one norm; the problem and solution of the head itself."""
    form, views, settings = task.form, task.views, task.settings
    most = settings.queries if isinstance(norm, Frobenius) else min(settings.queries, settings.other_queries)
    drawn, tested = task.draw(confident, "own", most)
    own = compare_with_max_margin(form, views, drawn, tested, norm, settings)

    def matched(other: HeadWeights, seen: Views, name: str) -> Closeness | None:
        """A control with its own selections, as often confident as the head and with no more queries."""
        other = other.scaled(matching_temperature(seen, other, settings.confidence, share))
        few, rest = task.draw(choices(seen, other).confident(settings.confidence), name, most)
        few = few.draw(len(drawn), task.stream(f"{name} as many"))
        if len(few) == 0:
            return None
        return compare_with_max_margin(other, seen, few, rest, norm, settings).closeness

    def mixed(name: str) -> Closeness:
        """The head's weights and other selections of the same queries."""
        other, _ = task.draw(shuffled(confident, views, task.stream(name)), "own", most)
        if torch.equal(other.selected, drawn.selected):
            return own.closeness
        return compare_with_max_margin(form, views, other, tested, norm, settings).closeness

    draws, first = range(settings.draws), settings.draws * settings.seed
    random = [(same_spectrum(form, task.stream(f"random {k}"), first + k), views) for k in draws]
    comparison = Comparison(
        head=own.closeness,
        random_weights=_kept(matched(*control, f"random {k}") for k, control in enumerate(random)),
        shuffled=_kept(mixed(f"shuffled {k}") for k in draws),
        untrained=_kept(matched(*twin, f"untrained {k}") for k, twin in enumerate(task.twins)),
    )
    return comparison, own


def _kept(draws: Iterable[Closeness | None]) -> tuple[Closeness, ...]:
    """The draws that there are; from the second on without what only drawings show."""
    return tuple(
        draw if k == 0 else replace(draw, margins=(), spectrum=replace(draw.spectrum, values=()))
        for k, draw in enumerate(filter(None, draws))
    )


def _outcome(comparisons: Sequence[Comparison], confident: int, settings: Settings) -> str:
    if not confident:
        return (
            f"no query has more than {settings.confidence:g} of its attention on one token: nothing to separate (a"
            " smaller confidence, --confidence, lets more queries count)"
        )
    if not comparisons:
        return "all confident queries lie in held-out sentences: nothing to separate"
    unsolved = [found.head for found in comparisons if not found.head.solved]
    return "; ".join(f"{found.norm}: {found.status}, relative gap {found.gap:.1e}" for found in unsolved) or "solved"


def _support_tokens(chosen: Choices, shares: Float[Tensor, "n T"], views: Views) -> tuple[SupportToken, ...]:
    top = shares.flatten().topk(min(_SUPPORT_SHOWN, int((shares > 0).sum())))
    drawn, found = chosen.triples, []
    for share, flat in zip(top.values.tolist(), top.indices.tolist(), strict=True):
        row, token = divmod(flat, shares.shape[1])
        index, query, selected = drawn[row]
        sentence = views[index].sentence
        words = sentence.tokens[query], sentence.tokens[selected], sentence.tokens[token]
        found.append(SupportToken(share, index, query, selected, token, *words, sentence.text))
    return tuple(found)


def _examples(form: HeadWeights, views: Views, found: Choices, own: Compared, count: int) -> tuple[Example, ...]:
    """The `count` sentences with the largest multipliers, short ones where there are any."""
    weight = torch.zeros(len(views), dtype=torch.float64).index_add_(0, own.drawn.sentence, own.shares.sum(-1))
    used = torch.unique(own.drawn.sentence).tolist()
    short = [index for index in used if len(views[index].sentence) <= _LONGEST_EXAMPLE]
    order = sorted(short or used[:1], key=lambda index: -float(weight[index]))
    return tuple(_example(index, form, views[index], found, own) for index in order[:count])


def _example(index: int, form: HeadWeights, view: SentenceView, found: Choices, own: Compared) -> Example:
    attention = (form.log_attention(view.logits(form)).exp().nan_to_num() * 1000).round().to(torch.int64)
    selected = torch.full((len(view.sentence),), -1)
    here = found[(found.sentence == index) & ~found.tied]
    selected[here.position] = here.selected
    rows = own.drawn.sentence == index
    places, shares = own.drawn.position[rows].tolist(), own.shares[rows]
    support = [(places[row], token, float(shares[row, token])) for row, token in torch.nonzero(shares > 0).tolist()]
    return Example(
        index, view.sentence.tokens, tuple(map(tuple, attention.tolist())), tuple(selected.tolist()),
        tuple(place in places for place in range(len(view.sentence))), tuple(support),
    )  # fmt: skip


def same_spectrum(form: HeadWeights, generator: torch.Generator, seed: int) -> HeadWeights:
    """Random weights of the same spectrum: the spaces of keys and of queries are each turned uniformly at random.

    What is turned together, and how strong every frequency and every bias is, stays as it was. The turn of the keys
    depends on `seed` and on the keys alone: heads that share them share those of the control too.
    """
    digest = hashlib.sha256(repr(seed).encode() + form.key.contiguous().numpy().tobytes()).digest()
    shared = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def moved(factor: Tensor, generator: torch.Generator) -> Tensor:
        own = torch.linalg.qr(factor).R
        turn, triangle = torch.linalg.qr(torch.randn(len(factor), len(own), generator=generator, dtype=torch.float64))
        return turn * triangle.diagonal().sign() @ own  # the sign makes the draw uniform

    return replace(form, key=moved(form.key, shared), query=moved(form.query, generator))


def matching_temperature(views: Views, form: HeadWeights, threshold: float, share: float) -> float:
    """The factor on the logits of `form` at which a share of `share` of its queries is confident.

    Margins are normalised, so the factor changes nothing but which queries count as confident: a control is then as
    selective as the head it stands beside. Found by bisection; the share grows with the factor.
    """
    widest = max(len(view.keys) for view in views)
    logits = [view.logits(form)[view.allowed.sum(-1) > 1] for view in views]
    wide = torch.cat([pad(part, (0, widest - part.shape[1]), value=-torch.inf) for part in logits])
    if len(wide) == 0:
        return 1.0
    gaps = wide.amax(-1, keepdim=True) - wide
    scale = float(gaps[gaps.isfinite()].mean()) or 1.0
    low, high = -20.0, 20.0  # natural logarithm of the factor, relative to the mean gap
    for _ in range(50):
        middle = (low + high) / 2
        largest = 1 / torch.exp(-gaps * (math.exp(middle) / scale)).sum(-1)  # attention of each query
        low, high = (low, middle) if float((largest > threshold).double().mean()) >= share else (middle, high)
    return math.exp(high) / scale


def shuffled(found: Choices, views: Views, generator: torch.Generator) -> Choices:
    """The same queries and the same selected tokens in each sentence, but dealt out at random.

    How often each token of a sentence is selected does not change; which query selects it does. A query keeps its own
    token where nothing that is left is among its candidates. A head that always selects the same token of a sentence is
    not changed at all.
    """
    selected = found.selected.clone()
    for index in torch.unique(found.sentence).tolist():
        here = torch.nonzero(found.sentence == index)[:, 0]
        candidates = views[index].allowed[found.position[here]]
        tokens = found.selected[here][torch.randperm(len(here), generator=generator)].tolist()
        # Queries with few candidates first, so that the others can take what is left.
        for row in torch.argsort(candidates.sum(-1), stable=True).tolist():
            fitting = next((k for k, token in enumerate(tokens) if bool(candidates[row, token])), None)
            if fitting is not None:
                selected[here[row]] = tokens.pop(fitting)
    return replace(found, selected=selected)
