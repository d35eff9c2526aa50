"""All heads of a model: what each selects, and how close to max-margin it is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from attsvm.data.checks import as_device
from attsvm.heads.analysis.head import HeadTask, analyze_head
from attsvm.heads.analysis.selections import BUDGET, Views, layers_of, seen_by, state_bytes
from attsvm.heads.form import HeadWeights
from attsvm.heads.loading.tokenizers import read_sentences
from attsvm.heads.model import HeadModel, Place, Sentence, Text, check_index, counted, head_place
from attsvm.heads.report.records import HeadReport, SelectionKind, Settings
from attsvm.heads.report.report import HeadsReport
from attsvm.norms import Frobenius, Norm
from attsvm.sweep import Backend, Configuration, Done, Piece, Sweep, Task, run
from attsvm.sweep.manifest import RESUME, from_plain, to_plain


@dataclass(frozen=True)
class Progress:
    """How far an analysis is: `done` of `total` heads are finished; `message` says what goes on."""

    done: int
    total: int
    message: str


Told = Callable[[Progress], None] | None


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
    backend: Backend | None = None,
    device: str = "cpu",
    progress: Told = None,
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
        cache: a folder in which finished heads are kept; an analysis that was stopped goes on from there.
        backend: where heads are analysed, `attsvm.sweep.Processes(jobs)` or `attsvm.sweep.DaskCluster(address)`; in
            this process by default. Results do not depend on it.
        device: see `Settings`.
        progress: called after every head.

    Raises:
        ValueError: naming the argument, what was expected, and what came.
    """
    settings = Settings(
        tuple(norms), queries, confidence, held_out, tuple(leave_out), accuracy, quantile, other_queries, rounds,
        examples, draws, seed, device,
    )  # fmt: skip
    if not isinstance(model, HeadModel):
        raise ValueError(f"model must come from load() or from_arrays(); got {type(model).__name__}")
    if backend is None:
        as_device(device, "device")  # workers elsewhere may have what this machine has not
    began = time.perf_counter()
    chosen = chosen_heads(model, layers, heads)
    others = [norm.name for norm in norms if not isinstance(norm, Frobenius)]
    if others and not all(model.weights(*place).plain for place in chosen):
        raise ValueError(f"norms must be Frobenius for heads whose logits depend on positions; got {others[0]}")
    sentences, repeated = _sentences(model, texts)
    sweep = heads_sweep(model, sentences, chosen, settings)
    with TemporaryDirectory() if cache is None else contextlib.nullcontext(cache) as folder:
        reports, said = _finished(sweep, len(chosen), Path(folder), device, backend, progress)
    # Bytes of the hidden states of one layer, those of untrained twins included, and of the largest problem.
    memory = state_bytes(model, sentences) * (1 + (draws if model.has_untrained else 0))
    memory += max((found.head.memory for report in reports for found in report.comparisons), default=0)
    return HeadsReport(
        model=model.name,
        architecture=model.architecture,
        layers=model.layers,
        heads_per_layer=model.heads,
        width=model.width,
        notes=(*_notes(model, sentences, repeated), *said, *model.notes),
        sentences=len(sentences),
        tokens=sum(len(sentence) for sentence in sentences),
        settings=settings,
        heads=tuple(sorted(reports, key=lambda found: (-found.selectivity.confident, -found.selectivity.top_mass))),
        seconds=round(time.perf_counter() - began, 3),
        memory=memory,
    )


def _finished(
    sweep: Sweep[Any], total: int, folder: Path, device: str, backend: Backend | None, progress: Told
) -> tuple[list[HeadReport], list[str]]:
    """The reports on all heads, kept in a folder of `folder` as soon as they are there, and notes."""
    notes, before = list[str](), -1

    def tell(done: int, _: int) -> None:
        nonlocal before
        new_round, before = done in (0, before), done
        if progress is not None:
            progress(Progress(done, total, "running the model" if new_round else "solving"))

    own = folder / sweep.default.fingerprint(sweep.id, torch.device(device).type)
    try:
        result = run(sweep, folder=own, backend=backend, resume=True, device=device, progress=tell, say=notes.append)
    except (OSError, ValueError) as error:
        if RESUME not in str(error):
            raise
        raise type(error)(str(error).replace(RESUME, "the same command (in Python, the same call)")) from None
    return [from_plain(HeadReport, json.loads(text)) for text in result.column("heads", "report")], notes


def chosen_heads(model: HeadModel, layers: Sequence[int] | None, heads: Sequence[int | str] | None) -> list[Place]:
    """(layer, head) of every head asked for, in order."""
    wanted = list(range(model.layers) if layers is None else layers)
    for layer in wanted:
        check_index("layers", layer, model.layers, model.name)
    if not wanted:
        raise ValueError("layers must name at least one layer, or be None for all; got none")
    if heads is not None and (len(heads) == 0 or isinstance(heads, str)):
        raise ValueError(f"heads must be a list such as [0, 3] or ['L3H7'], or None for all; got {heads!r}")
    found: set[Place] = set()
    for head in range(model.heads) if heads is None else heads:
        if not isinstance(head, str):
            check_index("heads", head, model.heads, model.name)
            found.update((layer, head) for layer in wanted)
            continue
        if (place := head_place(model, head, "heads"))[0] not in wanted:
            raise ValueError(f"heads: {head} is not in the layers asked for, {wanted}")
        found.add(place)
    return sorted(found)


def _sentences(model: HeadModel, texts: Sequence[Text] | None) -> tuple[list[Sentence], int]:
    """The sentences, each once, and how many repeated others: those would lie on both sides of the held-out split."""
    found = read_sentences(model, texts)
    different: dict[object, Sentence] = {}
    for index, sentence in enumerate(found):
        # A model's own sentences differ by what they stand for, not by their tokens.
        different.setdefault(index if model.sentences else tuple(sentence.ids.tolist()), sentence)
    repeated, found = len(found) - len(different), list(different.values())
    if all(len(sentence) < 2 for sentence in found):
        what = counted(len(found), "different text")
        raise ValueError(f"texts must have at least two tokens somewhere; got {what} of one token")
    return found, repeated


def _notes(model: HeadModel, sentences: Sequence[Sentence], repeated: int) -> list[str]:
    tokens = [token for sentence in sentences for token in sentence.tokens]
    unknown = sum(token.strip("[]<|>").lower() == "unk" for token in tokens) / max(len(tokens), 1)
    cut = [sentence.left_out for sentence in sentences if sentence.left_out]
    single = sum(len(sentence) < 2 for sentence in sentences)
    notes = {
        f"WARNING: {unknown:.0%} of the tokens are unknown ones: the tokenizer does not fit these texts": unknown > 0.1,
        f"texts that repeat others: {repeated:,}, left out": repeated,
        f"texts longer than the model reads: {len(cut):,}, without their last {counted(sum(cut), 'token')}": cut,
        f"texts of one token, which offers no choice: {single:,}, not counted": single,
        "there is no untrained model of this shape to compare with": not model.has_untrained,
    }
    return [note for note, holds in notes.items() if holds]


_COLUMNS = {"layer": "counted from 0", "head": "in its layer, counted from 0", "report": "all that was found, as JSON"}


@dataclass(frozen=True, kw_only=True)
class HeadsConfiguration(Configuration):
    """What a head's result depends on; the heads that are asked for are not among it."""

    records: int = 5  # form of the reports; another number leaves older ones unread
    model: str = ""  # fingerprint of the weights, the settings and the tokenizer
    texts: str = ""  # hash of the sentences
    settings: str = ""  # of the analysis


def heads_sweep(
    model: HeadModel, sentences: Sequence[Sentence], places: Sequence[Place], settings: Settings
) -> Sweep[HeadsConfiguration]:
    """The sweep over these heads, in rounds of as many layers as are held at once; the model runs once for each."""
    read = hashlib.sha256(repr(model.has_untrained).encode())
    for sentence in sentences:
        read.update(repr((sentence.text, sentence.tokens, sentence.ids.tolist())).encode())
    configuration = HeadsConfiguration(
        seed=settings.seed, model=model.fingerprint(), texts=read.hexdigest(), settings=repr(settings)
    )
    layers = sorted({layer for layer, _ in places})
    twins = settings.draws if model.has_untrained else 0
    group = max(1, BUDGET // (1 + twins) // max(1, state_bytes(model, sentences)))
    rounds = [layers[first : first + group] for first in range(0, len(layers), group)]

    def tasks_of(chosen: Sequence[int]) -> list[Task]:
        return [Task(f"l{layer}h{head}", {"place": (layer, head)}) for layer, head in places if layer in chosen]

    def more(_: HeadsConfiguration, done: Sequence[Done]) -> list[Task]:
        last = max(each.task.values["place"][0] for each in done)
        return tasks_of(next((own for own in rounds if own[0] > last), ()))

    def prepare(_: HeadsConfiguration, missing: Sequence[Task]) -> list[Task]:
        found = _tasks(model, sentences, [task.values["place"] for task in missing], settings)
        return [Task(task.name, {"head": each}) for task, each in zip(missing, found, strict=True)]

    return Sweep(
        id="heads", default=configuration, columns={"heads": _COLUMNS},
        tasks=lambda _: tasks_of(rounds[0]), compute=_compute, more=more, prepare=prepare,
        tolerances={"relative gap": settings.accuracy},
    )  # fmt: skip


def _compute(_: HeadsConfiguration, task: Task, device: torch.device) -> Piece:
    found = analyze_head(task.values["head"])
    text = json.dumps(to_plain(found), allow_nan=False)
    return Piece({"heads": {"layer": [found.layer], "head": [found.head], "report": [text]}})


def _tasks(
    model: HeadModel, sentences: Sequence[Sentence], places: Sequence[Place], settings: Settings
) -> list[HeadTask]:
    """The heads with all that they see; untrained twins are made one after the other, and none is kept."""
    held_out, errors = _held_out(len(sentences), settings), dict[Place, float]()

    def seen(one: HeadModel) -> dict[Place, tuple[HeadWeights, Views]]:
        found = {}
        own = sentences if one is model else list(one.sentences) or sentences
        for layer in layers_of(one, own, sorted({layer for layer, _ in places}), settings.leave_out):
            if not any(bool((view.allowed.sum(-1) > 1).any()) for view in layer.views):
                raise ValueError("no query has two candidates or more; give longer texts, or leave out fewer tokens")
            for place in (place for place in places if place[0] == layer.index):
                errors.setdefault(place, layer.attention_error[place[1]])
                found[place] = seen_by(one.weights(*place), layer.views, settings.leave_out)
        return found

    trained = seen(model)
    draws = range(settings.draws if model.has_untrained else 0)
    twins = [seen(model.untrained(settings.draws * settings.seed + draw)) for draw in draws]
    return [
        HeadTask(place, *trained[place], [twin[place] for twin in twins], held_out, errors[place], settings)
        for place in places
    ]


def _held_out(count: int, settings: Settings) -> Tensor:
    """Which sentences are held out: a share of them, rounded down, drawn with the seed."""
    apart = torch.zeros(count, dtype=torch.bool)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(settings.seed))
    apart[order[: int(settings.held_out * count)]] = True
    return apart
