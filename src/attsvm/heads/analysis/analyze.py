"""All heads of a model: what each selects, and how close to max-margin it is."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.heads.analysis.cache import HeadCache
from attsvm.heads.analysis.head import HeadTask, analyze_head
from attsvm.heads.analysis.kinds import SelectionKind
from attsvm.heads.analysis.selections import BUDGET, LayerView, SentenceView, layers_of, state_bytes
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.form import HeadWeights
from attsvm.heads.loading.texts import sample_texts
from attsvm.heads.model import HeadModel, Sentence, Text, check_index, counted
from attsvm.heads.report.records import HeadReport
from attsvm.heads.report.report import HeadsReport
from attsvm.norms import Frobenius, Norm

_NAME = re.compile(r"L(\d+)H(\d+)")


@dataclass(frozen=True)
class Progress:
    """How far an analysis is: `done` of `total` heads are finished, and `message` names the last of them."""

    done: int
    total: int
    message: str


def analyze(
    model: HeadModel,
    texts: Sequence[Text] | None = None,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int | str] | None = None,
    norms: Sequence[Norm] = (Frobenius(),),
    queries: int = 500,
    confidence: float = 0.5,
    held_out: float = 0.2,
    leave_out: Sequence[SelectionKind] = (),
    accuracy: float = 1e-3,
    quantile: float = 0.1,
    other_queries: int = 60,
    rounds: int = 60,
    examples: int = 3,
    draws: int = 5,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> HeadsReport:
    """Analyse heads of a transformer as support vector machines of their own selections.

    For each head: how sharply it attends and what it selects; then the max-margin problem of the selections of its
    confident queries,

        W_mm = argmin N(W)   s.t.   (x_i,selected - x_it)^T W z_i >= 1   for every other candidate t of query i,

    where x and z are the hidden states that keys and queries are made of. Only where a projection has a bias do they
    get a last coordinate of 1: W then has a last row or column that holds the bias, and W_mm may use it too. (A loaded
    model with any bias has the coordinate in keys and queries; for arrays see `from_arrays`.)

    It says how close the head's own W = key query^T is to W_mm: margin efficiency, direction cosine, spectra, support
    tokens, agreement on held-out sentences. The same is measured for several draws of controls: random weights with the
    same spectrum, shuffled selections, and untrained models of the same shape.

    Arguments:
        model: from `load` or `from_arrays`.
        texts: to run the model on; None means the model's own sentences, or else the bundled sample.
        layers: counted from 0; None means all.
        heads: numbers within each layer, or names such as ``"L3H7"``; None means all.
        norms, queries, confidence, held_out, leave_out, accuracy, quantile, other_queries, rounds, examples, draws,
            seed: see `Settings`.
        cache: a folder in which finished heads are kept, for one process at a time; an analysis that was stopped goes
            on from there.
        progress: called after every head.

    Raises:
        ValueError: naming the argument, what was expected, and what came.
    """
    settings = Settings(
        tuple(norms), queries, confidence, held_out, tuple(leave_out), accuracy, quantile, other_queries, rounds,
        examples, draws, seed,
    )  # fmt: skip
    if not isinstance(model, HeadModel):
        raise ValueError(f"model must come from load() or from_arrays(); got {type(model).__name__}")
    began = time.perf_counter()
    chosen = _chosen_heads(model, layers, heads)
    others = [norm.name for norm in norms if not isinstance(norm, Frobenius)]
    if others and not all(model.weights(*place).plain for place in chosen):
        raise ValueError(f"norms must be Frobenius for heads whose logits depend on positions; got {others[0]}")
    sentences, repeated = _sentences(model, texts)
    kept = None if cache is None else HeadCache(cache, model, sentences, settings)
    with contextlib.nullcontext() if kept is None else kept.open():
        reports = _finished(model, sentences, chosen, settings, kept, progress or (lambda now: None))
    return HeadsReport(
        model=model.name,
        architecture=model.architecture,
        layers=model.layers,
        heads_per_layer=model.heads,
        width=model.width,
        notes=(*_notes(model, sentences, repeated, kept), *model.notes),
        sentences=len(sentences),
        tokens=sum(len(sentence) for sentence in sentences),
        settings=settings,
        heads=tuple(sorted(reports, key=lambda found: (-found.selectivity.confident, -found.selectivity.top_mass))),
        seconds=round(time.perf_counter() - began, 3),
        memory=_memory(model, sentences, reports, draws),
    )


def _finished(
    model: HeadModel,
    sentences: Sequence[Sentence],
    chosen: Sequence[tuple[int, int]],
    settings: Settings,
    kept: HeadCache | None,
    tell: Callable[[Progress], None],
) -> list[HeadReport]:
    """The reports on all chosen heads: those that are kept, and the others, each kept as soon as it is analysed."""
    finished = {} if kept is None else {place: found for place in chosen if (found := kept.read(*place)) is not None}
    missing = [place for place in chosen if place not in finished]
    tell(Progress(len(finished), len(chosen), "running the model"))
    for task in _tasks(model, sentences, missing, settings):
        report = analyze_head(task)
        finished[task.place] = report
        if kept is not None:
            kept.write(report)
        tell(Progress(len(finished), len(chosen), report.name))
    return [finished[place] for place in chosen]


def _chosen_heads(
    model: HeadModel, layers: Sequence[int] | None, heads: Sequence[int | str] | None
) -> list[tuple[int, int]]:
    """(layer, head) of every head asked for, in order."""
    wanted = list(range(model.layers)) if layers is None else list(layers)
    for layer in wanted:
        check_index("layers", layer, model.layers, model.name)
    if not wanted:
        raise ValueError("layers must name at least one layer, or be None for all; got none")
    if heads is not None and (len(heads) == 0 or isinstance(heads, str)):
        raise ValueError(f"heads must be a list such as [0, 3] or ['L3H7'], or None for all; got {heads!r}")
    found: set[tuple[int, int]] = set()
    for head in range(model.heads) if heads is None else heads:
        if not isinstance(head, str):
            check_index("heads", head, model.heads, model.name)
            found.update((layer, head) for layer in wanted)
            continue
        match = _NAME.fullmatch(head)
        if match is None:
            raise ValueError(f"heads must be numbers or names such as 'L3H7'; got {head!r}")
        layer, number = int(match[1]), int(match[2])
        if layer >= model.layers:
            raise ValueError(f"heads: {head} does not exist; {model.name} has layers 0..{model.layers - 1}")
        if layer not in wanted:
            raise ValueError(f"heads: {head} is not in the layers asked for, {wanted}")
        check_index("heads", number, model.heads, model.name)
        found.add((layer, number))
    return sorted(found)


def _sentences(model: HeadModel, texts: Sequence[Text] | None) -> tuple[list[Sentence], int]:
    """The sentences, each once, and how many repeated others: those would lie on both sides of the held-out split."""
    if isinstance(texts, str):
        raise ValueError("texts must be a list of texts; got one string (read_texts reads a file)")
    if texts is not None:
        if len(texts) == 0:
            raise ValueError("texts must hold at least one text; got none")
        found = model.encode(list(texts))
    else:
        found = list(model.sentences) or model.encode(sample_texts())
    different: dict[object, Sentence] = {}
    for index, sentence in enumerate(found):
        # A model's own sentences differ by what they stand for, not by their tokens.
        different.setdefault(index if model.sentences else tuple(sentence.ids.tolist()), sentence)
    repeated, found = len(found) - len(different), list(different.values())
    if all(len(sentence) < 2 for sentence in found):
        raise ValueError(
            f"texts must have at least two tokens somewhere; got {counted(len(found), 'different text')} of one token"
        )
    return found, repeated


def _tasks(
    model: HeadModel, sentences: Sequence[Sentence], places: Sequence[tuple[int, int]], settings: Settings
) -> Iterator[HeadTask]:
    """Head after head, layer by layer; the untrained twins run alongside."""
    layers = sorted({layer for layer, _ in places})
    count = settings.draws if layers and model.has_untrained else 0
    twins = [model.untrained(settings.draws * settings.seed + draw) for draw in range(count)]
    budget = BUDGET // (1 + count)
    held_out = _held_out(len(sentences), settings)
    for layer, *others in zip(
        *(
            layers_of(
                one, sentences if one is model else list(one.sentences) or sentences, layers, settings.leave_out, budget
            )
            for one in (model, *twins)
        ),
        strict=True,
    ):
        if not any(bool((view.candidates.sum(-1) > 1).any()) for view in layer.views):
            raise ValueError("no query has two candidates or more; give longer texts, or leave out fewer tokens")
        for place in (place for place in places if place[0] == layer.index):
            pairs = [_own(twin.weights(*place), other) for twin, other in zip(twins, others, strict=True)]
            error = layer.attention_error[place[1]]
            yield HeadTask(place, *_own(model.weights(*place), layer), pairs, held_out, error, settings)


def _own(form: HeadWeights, layer: LayerView) -> tuple[HeadWeights, tuple[SentenceView, ...]]:
    """A head and what it sees."""
    return form, tuple(view.of(form) for view in layer.views)


def _held_out(count: int, settings: Settings) -> Tensor:
    """Which sentences are held out: a share of them, rounded down, drawn with the seed."""
    apart = torch.zeros(count, dtype=torch.bool)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(settings.seed))
    apart[order[: int(settings.held_out * count)]] = True
    return apart


def _notes(model: HeadModel, sentences: Sequence[Sentence], repeated: int, kept: HeadCache | None) -> list[str]:
    notes = []
    tokens = [token for sentence in sentences for token in sentence.tokens]
    unknown = sum(token in ("[UNK]", "<unk>") for token in tokens) / max(len(tokens), 1)
    if unknown > 0.1:
        notes.append(f"WARNING: {unknown:.0%} of the tokens are unknown ones: the tokenizer does not fit these texts")
    if kept is not None and kept.damaged:
        names = ", ".join(path.name for path in kept.damaged)
        notes.append(f"kept results were damaged, and their heads were analysed again: {names}")
    if repeated:
        which = "repeats another and was" if repeated == 1 else "repeat others and were"
        notes.append(f"{counted(repeated, 'text')} {which} left out")
    cut = [sentence for sentence in sentences if sentence.left_out]
    if cut:
        lost = sum(sentence.left_out for sentence in cut)
        longer = f"{counted(len(cut), 'text')} {'is' if len(cut) == 1 else 'are'} longer than the model reads"
        notes.append(f"{longer}; {counted(lost, 'token')} at the end {'was' if lost == 1 else 'were'} left out")
    single = sum(len(sentence) < 2 for sentence in sentences)
    if single:
        which = (
            "has one token; it offers no choice and is"
            if single == 1
            else "have one token; they offer no choice and are"
        )
        notes.append(f"{counted(single, 'text')} {which} not counted")
    if not model.has_untrained:
        notes.append("there is no untrained model of this shape to compare with")
    return notes


def _memory(model: HeadModel, sentences: Sequence[Sentence], reports: Sequence[HeadReport], draws: int) -> int:
    """Bytes of the hidden states of one layer, those of untrained twins included, and of the largest problem."""
    states = state_bytes(model, sentences) * (1 + (draws if model.has_untrained else 0))
    return states + max((found.head.memory for report in reports for found in report.comparisons), default=0)
