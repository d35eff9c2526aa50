"""Between the playground's problems, which are plain JSON, and token data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attsvm.data import EXAMPLES, StartingPoints, TokenDataset, example
from attsvm.data.checks import check_kind

MOST_INPUTS = 8
MOST_TOKENS = 12
LARGEST = 1000.0
"""Largest coordinate or score, of either sign; all three are the page's own limits."""


def problem_to_data(problem: object) -> TokenDataset:
    """The token data set of a problem of the playground.

    A problem has a `kind` ("prompt": dq = 1, or "matrix": each input has a query in the plane), a `head` v in the plane
    and `inputs`, each with a `label`, a `query` and `tokens`; a token has a place `x` and a `score`, None where it is
    v^T x. Where scores are given they become a third coordinate of the values, and v = e3, as in the papers. What JSON
    gives and is no problem is a ValueError that names the entry, what was expected and what came.

    >>> token = {"x": [1, 0], "score": None}
    >>> problem_to_data({"kind": "prompt", "head": [0, 1], "inputs": [{"label": 1, "query": None, "tokens": [token]}]})
    TokenDataset(n=1, T=1, d=2, dq=1, head, float64, cpu)
    """
    given = Given(problem, "problem")
    if (kind := given.entry("kind")).value not in ("prompt", "matrix"):
        kind.refuse("'prompt' or 'matrix'")
    head = given.entry("head").point()
    labels, queries, places, scores = [], [], [], []
    for one in given.entry("inputs").parts(MOST_INPUTS):
        label = one.entry("label")
        if isinstance(label.value, bool) or label.value not in (1, -1):
            label.refuse("1 or -1")
        labels.append(float(label.value))
        queries.append([1.0] if kind.value == "prompt" else one.entry("query").point())
        tokens = one.entry("tokens").parts(MOST_TOKENS)
        places.append(_tensor([token.entry("x").point() for token in tokens]))
        own = [token.entry("score", None) for token in tokens]
        scores.append(_tensor([math.nan if score.value is None else score.number() for score in own]))
    points, vector, values = pad_sequence(places, batch_first=True), _tensor(head), None
    given_scores = pad_sequence(scores, batch_first=True, padding_value=math.nan)
    if not bool(given_scores.isnan().all()):
        heights = torch.where(given_scores.isnan(), points @ vector, given_scores)
        values, vector = torch.cat([points, heights.unsqueeze(-1)], -1), _tensor([0.0, 0.0, 1.0])
    mask = torch.arange(points.shape[1]) < torch.tensor([len(each) for each in places])[:, None]
    return TokenDataset(points, _tensor(queries), _tensor(labels), None if bool(mask.all()) else mask, values, vector)


def _tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def data_to_problem(data: TokenDataset) -> dict[str, Any]:
    """The playground's problem of a token data set in the plane, dq = 1 or 2.

    Values that are not the tokens show as given scores, v^T value. Masked tokens are left out. A data set without a
    head gets v = (0, 1). A ValueError says what does not fit the plane, or is more than the page can draw.
    """
    if data.batch_shape:
        shape = list(data.batch_shape)
        raise ValueError(f"data must be a single data set; got a batch of shape {shape}: choose one, data[0]")
    d, dq, n, longest = data.d, data.dq, data.n, int(data.real.sum(-1).max())
    if d != 2 or dq not in (1, 2):
        raise ValueError(f"data must lie in the plane, d = 2 and dq = 1 (a prompt) or 2; got d = {d}, dq = {dq}")
    if n > MOST_INPUTS or longest > MOST_TOKENS:
        most = f"{MOST_INPUTS} inputs of {MOST_TOKENS} tokens"
        raise ValueError(f"data may have {most} to be drawn; got {n} of {longest}")
    if dq == 1 and bool((data.queries != 1).any()):
        raise ValueError("queries must all be 1 where dq = 1 (a prompt); scale the tokens instead")
    plain = data.to(device="cpu", dtype=torch.float64)
    scores = None  # v^T value of every token, where values and tokens differ
    if plain.values is not plain.tokens and not torch.equal(plain.values, plain.tokens):
        if plain.head is None:
            raise ValueError("data must have a head where values differ from the tokens: else no token has a score")
        scores = plain.values @ plain.head
    head = _tensor([0.0, 1.0]) if plain.head is None or scores is not None else plain.head
    for name, part in {"tokens": plain.tokens, "queries": plain.queries, "head": head, "scores": scores}.items():
        if part is not None and bool((part.abs() > LARGEST).any()):
            raise ValueError(f"{name} must lie within {LARGEST:g} to be drawn; the largest is {part.abs().max():g}")
    inputs = []
    for i in range(plain.n):
        row = i // plain.queries_per_sequence
        tokens = [
            {"x": plain.tokens[row, t].tolist(), "score": None if scores is None else float(scores[row, t])}
            for t in torch.nonzero(plain.real[i]).flatten().tolist()
        ]
        query = plain.queries[i].tolist() if plain.dq == 2 else None
        inputs.append({"label": int(plain.labels[i]), "query": query, "tokens": tokens})
    return {"kind": "prompt" if plain.dq == 1 else "matrix", "head": head.tolist(), "inputs": inputs}


def selection(selected: object, data: TokenDataset) -> Tensor:
    """The selected token of each input, checked; a ValueError names the input whose token does not exist."""
    given = Given(selected, "selected")
    if not isinstance(selected, list) or len(selected) != data.n:
        given.refuse(f"a list of {data.n} token indices, one per input")
    for i, token in enumerate(given.parts(data.n)):
        length = int(data.real[i].sum())
        if isinstance(token.value, bool) or not isinstance(token.value, int) or not 0 <= token.value < length:
            token.refuse(f"a token of input {i}, 0..{length - 1}")
    return torch.tensor(selected)


@dataclass(frozen=True)
class Given:
    """A part of what the page sent, with its place in it, which every refusal names."""

    value: Any
    where: str

    def refuse(self, expected: str) -> NoReturn:
        """Say in a ValueError what was expected here, and what came."""
        raise ValueError(f"{self.where} must be {expected}; got {_shown(self.value)}")

    def entry(self, name: str, *otherwise: object) -> Given:
        """An entry of an object, which must be there unless something else is given to stand in for it."""
        if not isinstance(self.value, Mapping):
            self.refuse("an object")
        if name not in self.value and not otherwise:
            raise ValueError(f"{self.where} must have an entry {name!r}; it has {_shown(sorted(map(str, self.value)))}")
        return Given(self.value.get(name, *otherwise), f"{self.where}.{name}")

    def parts(self, most: int) -> list[Given]:
        """The entries of a list that has between one and `most`."""
        if not isinstance(self.value, list | tuple):
            self.refuse("a list")
        if not 1 <= len(self.value) <= most:
            raise ValueError(f"{self.where} must have 1 to {most} entries; got {len(self.value)}")
        return [Given(each, f"{self.where}[{k}]") for k, each in enumerate(self.value)]

    def point(self) -> list[float]:
        if not isinstance(self.value, list | tuple) or len(self.value) != 2:
            self.refuse("a list of two numbers")
        return [each.number() for each in self.parts(2)]

    def number(self, largest: float = LARGEST) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.refuse("a number")
        if not (isinstance(self.value, int) or math.isfinite(self.value)) or abs(self.value) > largest:
            self.refuse(f"a finite number within {largest:g}")
        return float(self.value)


def _shown(value: object) -> str:
    """`value` in at most sixty characters, however large or deep it is."""
    if isinstance(value, list | tuple | Mapping) and len(value) > 8:
        return f"{type(value).__name__} of {len(value)} entries"
    if isinstance(value, int) and abs(value) > 10**20:
        return "an integer of more than twenty digits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


VERSION = 1
MOST_COMPANIONS = 12
"""Further runs that the page draws beside the first."""


def data_to_state(data: TokenDataset, starting: StartingPoints | None = None) -> dict[str, Any]:
    """A state of the page that shows `data`, one data set in the plane; a ValueError if it does not fit there.

    For data without a head the page trains one. A built-in example is shown as the page's own preset of that name, with
    its advice, its runs (which start where the paper's do) and its view, unless there are other `starting` points, such
    as `attsvm.data.starting_points` gives: the first becomes the run that the page tells about, the others run beside
    it. The page fills in everything else.
    """
    check_kind(data, TokenDataset, "data", "a TokenDataset, such as attsvm.data.example('two-inputs')")
    if starting is not None:
        check_kind(starting, StartingPoints, "starting", "StartingPoints, such as attsvm.data.starting_points(name)")
    problem = data_to_problem(data)
    trained = "p" if problem["kind"] == "prompt" else "W"
    weights = [] if starting is None else list(starting.weights)
    starts = [{trained: each.flatten().tolist() if trained == "p" else each.tolist()} for each in weights]
    settings: dict[str, Any] = {"trained": trained, "trainHead": data.head is None}
    if starts:
        settings["start"] = starts[0]
    if starting is not None and starting.head is not None:
        settings["startHead"] = starting.head[0].tolist()
    own = [name for name in EXAMPLES if starting is None and _preset_problem(name) == problem]
    state = {"version": VERSION, "preset": next(iter(own), None), "problem": problem, "settings": settings}
    if own:
        return state
    widest = max(float(part.abs().max()) for part in (data.tokens, data.queries))
    companions = [{"start": start} for start in starts[1 : 1 + MOST_COMPANIONS]]
    return state | {"companions": companions, "view": {"extent": min(1.3 * widest or 1.5, LARGEST)}}


PRESET_OPTIONS: Mapping[str, Mapping[str, Any]] = {"loss-comparison": {"C": 10.0}}
"""Where the page shows an example with other options than its defaults: with C = 1 all three losses take one road."""


@cache
def _preset_problem(name: str) -> dict[str, Any]:
    """The problem of the page's preset of this name."""
    return data_to_problem(example(name, **PRESET_OPTIONS.get(name, {})))
