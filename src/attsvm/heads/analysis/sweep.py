"""Heads as tasks of a sweep: each is computed by itself, stored as a chunk with its checksum, and found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attsvm.heads.analysis.head import HeadTask, analyze_head
from attsvm.heads.analysis.selections import BUDGET, Views, layers_of, seen_by, state_bytes
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.form import HeadWeights
from attsvm.heads.model import HeadModel, Place, Sentence
from attsvm.heads.report.records import HeadReport
from attsvm.sweep.manifest import from_plain, to_plain
from attsvm.sweep.task import Configuration, Done, Piece, Sweep, Task

if TYPE_CHECKING:
    from attsvm.sweep import SweepResult

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
        return [Task(name_of(place), {"place": place}) for place in places if place[0] in chosen]

    def more(_: HeadsConfiguration, done: Sequence[Done]) -> list[Task]:
        last = max(each.task.values["place"][0] for each in done)
        return tasks_of(next((own for own in rounds if own[0] > last), ()))

    def prepare(_: HeadsConfiguration, missing: Sequence[Task]) -> list[Task]:
        found = _tasks(model, sentences, [task.values["place"] for task in missing], settings)
        return [Task(name_of(each.place), {"head": each}) for each in found]

    return Sweep(
        id="heads", default=configuration, columns={"heads": _COLUMNS},
        tasks=lambda _: tasks_of(rounds[0]), compute=_compute, more=more, prepare=prepare,
        tolerances={"relative gap": settings.accuracy},
    )  # fmt: skip


def name_of(place: Place) -> str:
    """The name of a head's task."""
    return f"l{place[0]}h{place[1]}"


def _compute(_: HeadsConfiguration, task: Task, device: torch.device) -> Piece:
    found = analyze_head(task.values["head"])
    text = json.dumps(to_plain(found), allow_nan=False)
    return Piece({"heads": {"layer": [found.layer], "head": [found.head], "report": [text]}})


def reports_of(result: SweepResult) -> list[HeadReport]:
    """The reports that a finished sweep holds, in the order of its tasks."""
    return [from_plain(HeadReport, json.loads(text)) for text in result.column("heads", "report")]


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
