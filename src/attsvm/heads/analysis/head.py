"""The analysis of one head, from its views to its report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.heads.analysis.comparison import Fit, Solved, best_rule, fit, spectrum
from attsvm.heads.analysis.controls import same_spectrum, shuffled
from attsvm.heads.analysis.problem import SelectionProblem
from attsvm.heads.analysis.selections import Choices, choices, matching_temperature, selectivity
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.analysis.views import SentenceView, kind_shares
from attsvm.heads.model import HeadWeights
from attsvm.heads.report.records import Comparison, Example, HeadReport, SupportToken
from attsvm.norms import Frobenius, Norm

_SUPPORT_SHOWN = 40  # support tokens listed
_LONGEST_EXAMPLE = 48  # tokens; longer sentences are shown only where there are no others


def analyze_head(
    place: tuple[int, int],
    form: HeadWeights,
    views: Sequence[SentenceView],
    twin: tuple[HeadWeights, Sequence[SentenceView]] | None,
    apart: Bool[Tensor, " sentences"],
    attention_error: float,
    settings: Settings,
) -> HeadReport:
    """Analyse the head at `place` (layer, head).

    Arguments:
        form: its weights.
        views: the sentences at its layer.
        twin: weights and views of the same head of an untrained model, or None.
        apart: which sentences are held out.
        attention_error: for the report.
        settings: what is asked for.
    """
    found = choices(views, form)
    sharp = selectivity(found, views, settings.confidence)
    confident = found.confident(settings.confidence)
    drawn, tested = _drawn(confident, apart, settings, place, "own")
    rule, rule_agreement = best_rule(views, drawn, tested) if len(drawn) else ("", float("nan"))
    comparisons: list[Comparison] = []
    support: tuple[SupportToken, ...] = ()
    examples: tuple[Example, ...] = ()
    for norm in settings.norms if len(drawn) else ():
        comparison, own = _compare(place, form, views, twin, apart, confident, sharp.confident, norm, settings)
        if not comparisons:
            shares = _shares(own)
            support = _support_tokens(own.problem, shares, views)
            examples = _examples(form, views, found, own.problem, shares, settings.examples)
        comparisons.append(comparison)
    return HeadReport(
        *place,
        outcome=_outcome(comparisons, len(confident), settings),
        selectivity=sharp,
        kinds=kind_shares(
            [view.sentence for view in views], confident.sentence, confident.position, confident.selected
        ),
        attention_error=attention_error,
        spectrum=spectrum(form.weights),
        rule=rule,
        rule_agreement=rule_agreement,
        confident_queries=len(confident),
        held_out_queries=len(tested),
        comparisons=tuple(comparisons),
        untrained_selectivity=None
        if twin is None
        else selectivity(choices(twin[1], twin[0]), twin[1], settings.confidence),
        support_tokens=support,
        examples=examples,
    )


def _compare(
    place: tuple[int, int],
    form: HeadWeights,
    views: Sequence[SentenceView],
    twin: tuple[HeadWeights, Sequence[SentenceView]] | None,
    apart: Bool[Tensor, " sentences"],
    confident: Choices,
    share: float,
    norm: Norm,
    settings: Settings,
) -> tuple[Comparison, Solved]:
    """The head and its controls in one norm; the problem and solution of the head itself."""
    drawn, tested = _drawn(confident, apart, settings, place, "own", norm)
    own = fit(form.weights, views, drawn, tested, norm, settings)

    def matched(other: HeadWeights, seen: Sequence[SentenceView], name: str) -> Fit | None:
        """A control with its own selections, as often confident as the head and with no more queries."""
        temperature = matching_temperature(seen, other, settings.confidence, share)
        sure = choices(seen, other, temperature).confident(settings.confidence)
        few, rest = _drawn(sure, apart, settings, place, name, norm)
        few = few.draw(len(drawn), _stream(settings.seed, place, name + " as many"))
        return fit(other.weights, seen, few, rest, norm, settings).fit if len(few) else None

    mixed = shuffled(confident, views, _stream(settings.seed, place, "shuffled"))
    mixed_drawn, _ = _drawn(mixed, apart, settings, place, "own", norm)  # the same queries
    comparison = Comparison(
        head=own.fit,
        random_weights=matched(same_spectrum(form, _stream(settings.seed, place, "random")), views, "random"),
        shuffled=fit(form.weights, views, mixed_drawn, tested, norm, settings).fit,
        untrained=None if twin is None else matched(*twin, "untrained"),
    )
    return comparison, own


def _drawn(
    confident: Choices,
    apart: Bool[Tensor, " sentences"],
    settings: Settings,
    place: tuple[int, int],
    name: str,
    norm: Norm | None = None,
) -> tuple[Choices, Choices]:
    """The queries of the problem, and those of held-out sentences."""
    few = settings.queries if norm is None or isinstance(norm, Frobenius) else settings.other_queries
    training = confident.within(~apart).draw(min(few, settings.queries), _stream(settings.seed, place, name))
    testing = confident.within(apart).draw(settings.queries, _stream(settings.seed, place, name + " held out"))
    return training, testing


def _stream(seed: int, place: tuple[int, int], name: str) -> torch.Generator:
    """Random numbers of one purpose: the same whichever heads are analysed before."""
    digest = hashlib.sha256(repr((seed, *place, name)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _shares(own: Solved) -> Float[Tensor, "n T"]:
    """Each constraint's share in the sum of all multipliers; 0 where nothing is solved."""
    shape = (len(own.problem.drawn), own.problem.problem.data.T)
    if own.solution is None or bool(own.solution.infeasible):
        return torch.zeros(shape, dtype=torch.float64)
    duals = own.solution.duals[own.problem.sample].clamp(min=0.0)
    return duals / duals.sum().clamp(min=1e-300)


def _support_tokens(
    made: SelectionProblem, shares: Float[Tensor, "n T"], views: Sequence[SentenceView]
) -> tuple[SupportToken, ...]:
    top = shares.flatten().topk(min(_SUPPORT_SHOWN, int((shares > 0).sum())))
    tokens = []
    for share, flat in zip(top.values.tolist(), top.indices.tolist(), strict=True):
        row, token = divmod(flat, shares.shape[1])
        index, query, selected = (
            int(part[row]) for part in (made.drawn.sentence, made.drawn.position, made.drawn.selected)
        )
        sentence = views[index].sentence
        names = sentence.tokens
        tokens.append(
            SupportToken(
                share, index, query, selected, token, names[query], names[selected], names[token], sentence.text
            )
        )
    return tuple(tokens)


def _examples(
    form: HeadWeights,
    views: Sequence[SentenceView],
    found: Choices,
    made: SelectionProblem,
    shares: Float[Tensor, "n T"],
    count: int,
) -> tuple[Example, ...]:
    """Sentences with the largest multipliers."""
    weight = torch.zeros(len(views), dtype=torch.float64).index_add_(0, made.drawn.sentence, shares.sum(-1))
    used = torch.unique(made.drawn.sentence)
    short = torch.tensor([len(views[index].sentence) <= _LONGEST_EXAMPLE for index in used.tolist()])
    used = used[short] if bool(short.any()) else used[:1]
    order = used[torch.argsort(weight[used], descending=True, stable=True)][:count]
    return tuple(_example(index, form, views[index], found, made, shares) for index in order.tolist())


def _example(
    index: int,
    form: HeadWeights,
    view: SentenceView,
    found: Choices,
    made: SelectionProblem,
    shares: Float[Tensor, "n T"],
) -> Example:
    attention = (view.logits(form.key, form.query).softmax(-1).nan_to_num() * 1000).round().to(torch.int64)
    selected = torch.full((len(view.sentence),), -1)
    here = found[(found.sentence == index) & ~found.tied]
    selected[here.position] = here.selected
    rows = torch.nonzero(made.drawn.sentence == index)[:, 0]
    drawn = torch.zeros(len(view.sentence), dtype=torch.bool)
    drawn[made.drawn.position[rows]] = True
    support = [
        (int(made.drawn.position[row]), int(token), float(shares[row, token]))
        for row in rows.tolist()
        for token in torch.nonzero(shares[row] > 0)[:, 0].tolist()
    ]
    return Example(
        index, view.sentence.tokens, tuple(map(tuple, attention.tolist())), tuple(selected.tolist()),
        tuple(drawn.tolist()), tuple(support),
    )  # fmt: skip


def _outcome(comparisons: Sequence[Comparison], confident: int, settings: Settings) -> str:
    if not confident:
        return f"no query has more than {settings.confidence:g} of its attention on one token: nothing to separate"
    if not comparisons:
        return "all confident queries lie in held-out sentences: nothing to separate"
    unsolved = [found.head for found in comparisons if not found.head.solved]
    if unsolved:
        return "; ".join(f"{found.norm}: {found.status}, relative gap {found.gap:.1e}" for found in unsolved)
    return "solved"
