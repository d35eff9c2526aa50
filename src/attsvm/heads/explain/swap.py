"""Run a model with other attention in some heads: is a head its max-margin solution?

A head's attention is replaced while the model runs, by that of other weights on what the layer reads then, or by 0
where the head is removed; nothing is saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attsvm.heads.analysis.head import same_spectrum
from attsvm.heads.explain.max_margin import MaxMargin, of_sentences
from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.loading.tokenizers import read_sentences
from attsvm.heads.loading.transformers_model import TransformersModel, recorded
from attsvm.heads.model import HeadModel, Place, Sentence, Text, counted, head_place, named_heads
from attsvm.heads.report.records import Settings

_SOFTMAX = (torch.softmax, torch.nn.functional.softmax, Tensor.softmax)
KINDS = ("W_mm", "random", "removed")

Attends = HeadWeights | MaxMargin  # whose `attention` can stand in the place of a head's own


@contextmanager
def swap(model: HeadModel, head: str | Mapping[str, Attends | None], weights: Attends | None = None) -> Iterator[None]:
    """Inside the block `model` runs with other weights in a head, or without it (None); several heads as a mapping.

    Arguments:
        model: from `load`.
        head: such as ``"L3H7"``, or heads and the weights of each.
        weights: what attends in its place: `HeadWeights`, or W_mm from `max_margin`; None removes the head.

    Raises:
        ValueError: if there is no such head, or the model was not loaded from weights of the transformers library.
    """
    given = head if isinstance(head, Mapping) else {head: weights}
    places = {head_place(model, name): kept for name, kept in given.items()}
    own = _check(model)
    with recorded(own._layers) as calls, _Swapped(own, places, calls) as running, ExitStack() as hooks:
        for attention in {layer.attention for layer in own._layers}:
            hooks.callback(attention.register_forward_hook(running.leave).remove)
        yield


def _check(model: HeadModel) -> TransformersModel:
    """A model whose attention can be replaced."""
    if not isinstance(model, TransformersModel) or model._layers[0].norms is not None:
        raise ValueError(f"{model.name} must be a model of the transformers library without norms inside its heads")
    return model


class _Swapped(TorchFunctionMode):
    """Replaces rows of what softmax returns inside attention modules."""

    def __init__(self, model: TransformersModel, places: Mapping[Place, Attends | None], calls: Any) -> None:
        super().__init__()
        self._model, self._places = model, places
        self._calls: Mapping[Any, list[Any]] = calls  # what modules of this layer were given
        self._layer = 0  # that runs now, or next

    def leave(self, *_: object) -> None:
        """A layer has attended."""
        self._layer = (self._layer + 1) % self._model.layers
        for calls in self._calls.values():
            calls.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        wanted = [place for place in self._places if place[0] == self._layer]
        inside = bool(self._calls[self._model._layers[self._layer].attention])
        if func not in _SOFTMAX or not inside or result.ndim != 4 or not wanted:
            return result
        result = result.clone()
        for text, attention in enumerate(result[..., : result.shape[-2]]):  # a sink has a column behind those of tokens
            seen = self._seen(text, attention.detach())
            for place in wanted:
                kept = self._places[place]
                attention[place[1]] = 0.0 if kept is None else kept.attention(seen).nan_to_num().to(result)
        return result

    def _seen(self, text: int, attention: Tensor) -> LayerStates:
        """What the layer reads of one text of a batch.

        Padding gets no attention from any head, but from other padding: rows that see nothing look at everything.
        """
        model, layer = self._model, self._model._layers[self._layer]
        keys, queries = (model._wide([self._calls[part.module][-1][text]])[0] for part in (layer.key, layer.query))
        allowed = model._allowed(attention.shape[-1], [self._layer])
        looked = (attention > 0).any(0).cpu()
        blind = (looked & ~allowed).any(-1)
        allowed = allowed & looked[~blind].any(0)
        phases = model._architecture.phases(layer, self._calls[layer.attention][-1], text) if layer.turns else None
        return LayerStates(keys, queries, allowed, phases, model._buckets(len(allowed)))


@dataclass(frozen=True)
class Swapped:
    """What a model does with some heads swapped: means and half-widths of 95 % intervals over texts."""

    heads: str  #: "L3H7", "layer 3" or "all"
    kind: str  #: "W_mm", "random" or "removed"
    swapped: int  #: number of heads that were
    same_choice: tuple[float, float]  #: share of queries for which the heads choose the same token as before
    cosine: tuple[float, float]  #: between the last hidden states with and without
    loss: tuple[float, float]  #: added to the next-token loss, in nats; NaN without an output tied to the embedding


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run on one sentence."""

    states: Float[Tensor, "T d"]
    attention: list[Float[Tensor, "heads T T"]]
    loss: float


def outcome(model: TransformersModel, sentence: Sentence) -> Outcome:
    """Last hidden states, attention of all layers, and the next-token loss, of a model as it is now."""
    with torch.no_grad():
        found = model._architecture.run(model._core, model._inputs(sentence))
        states, loss = found.last_hidden_state[0], math.nan
        if model.causal and getattr(model._core.config, "tie_word_embeddings", False) and len(sentence) > 1:
            scores = states[:-1] @ model._core.get_input_embeddings().weight.T
            loss = float(torch.nn.functional.cross_entropy(scores, sentence.ids[1:].to(scores.device)))
    return Outcome(states, [layer[0] for layer in found.attentions], loss)


def candidates(
    model: TransformersModel,
    sentences: Sequence[Sentence],
    places: Sequence[Place],
    *,
    queries: int = 100,
    confidence: float = 0.5,
    seed: int = 0,
    most: int = 30,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, dict[Place, Attends | None]], list[Sentence]]:
    """W_mm and random weights of heads: fitted on half of the sentences, temperatures on a few; the rest, held out.

    Heads without a confident query, or without a W_mm, keep their own weights in every kind but "removed".
    """
    order = torch.randperm(len(sentences), generator=torch.Generator().manual_seed(seed)).tolist()
    drawn, half, few = [sentences[k] for k in order], len(order) // 2, max(1, min(8, len(order) // 8))
    fit, tune, held = drawn[:half], drawn[half : half + few], drawn[half + few :]
    kinds: dict[str, dict[Place, Attends | None]] = {kind: {} for kind in KINDS}
    seen = [model.states(sentence) for sentence in tune]
    settings = Settings(queries=queries, confidence=confidence, accuracy=1e-2, seed=seed)
    fitted = of_sentences(model, places, fit, settings)
    for number, (place, best) in enumerate(zip(sorted(places), fitted, strict=True), 1):
        tell(f"{number} of {counted(len(places), 'head')} fitted")
        form, here = model.weights(*place), [states.layer(place[0]) for states in seen]
        kinds["removed"][place] = None
        if best is None or not best.solved:
            continue
        generator = torch.Generator().manual_seed(seed * 100_003 + place[0] * 1_009 + place[1])
        mixed = same_spectrum(form, generator, seed)
        kinds["W_mm"][place] = best.scaled(_temperature(best, form.size, form, here))
        kinds["random"][place] = mixed.scaled(_temperature(mixed, 1.0, form, here))
    return kinds, held[:most]


def _temperature(other: MaxMargin | HeadWeights, size: float, form: HeadWeights, seen: Sequence[LayerStates]) -> float:
    """The factor, a power of 2 times `size`, with the least cross-entropy to the head's own attention."""
    factors = [size * 2.0**power for power in range(-10, 4)]
    totals = torch.zeros(len(factors), dtype=torch.float64)
    for states in seen:
        own, logits = form.attention(states), other.logits(states).masked_fill(~states.allowed, -torch.inf)
        for k, factor in enumerate(factors):
            totals[k] -= (own * (factor * logits).log_softmax(-1).clamp(min=-100.0)).sum()
    return factors[int(totals.argmin())]


def swaps(
    model: HeadModel,
    texts: Sequence[Text] | None = None,
    heads: Sequence[str] | None = None,
    *,
    queries: int = 100,
    confidence: float = 0.5,
    seed: int = 0,
    most: int = 30,
    kept: Sequence[Swapped] = (),
    progress: Callable[[str, Sequence[Swapped]], None] | None = None,
) -> list[Swapped]:
    """What a model does with W_mm, with random weights and without heads: each alone, by layer, and all at once.

    Arguments:
        model: from `load`.
        texts: half of them for W_mm, a few for temperatures, at most `most` of the others to measure on.
        heads: such as ``["L3H7"]``; None means all.
        queries, confidence, seed: as those of `max_margin`.
        kept: what an earlier call with the same arguments had found when it was stopped; it is not measured again.
        progress: called after every head that is fitted and every row that is measured, with what is done, in words,
            and the rows that are there.

    Raises:
        ValueError: as `swap`; or if there are fewer than four texts.
    """
    model, places = _check(model), named_heads(model, heads)
    sentences = [one for one in read_sentences(model, texts) if len(one) > 1]
    if len(sentences) < 4:
        raise ValueError(f"texts must hold at least 4 of two tokens or more, to be split; got {len(sentences)}")
    groups = {f"L{layer}H{head}": [(layer, head)] for layer, head in places}
    if len(places) > 1:
        groups |= {f"layer {layer}": [place for place in places if place[0] == layer] for layer, _ in places}
        groups["all"] = list(places)
    found: list[Swapped] = []

    def tell(done: str) -> None:
        if progress is not None:
            progress(done, found)

    def measured(name: str, kind: str) -> Swapped:
        own = {place: made[kind][place] for place in groups[name] if place in made[kind]}
        with swap(model, {f"L{layer}H{head}": kept for (layer, head), kept in own.items()}):
            after = [outcome(model, sentence) for sentence in held_out]
        values = differences(model, own, before, after)
        if kind == "removed":
            values["same_choice"] = [math.nan]  # nothing chooses
        return Swapped(name, kind, len(own), **{key: interval(each) for key, each in values.items()})

    made, held_out = candidates(
        model, sentences, places, queries=queries, confidence=confidence, seed=seed, most=most, tell=tell
    )
    before = [outcome(model, sentence) for sentence in held_out]
    known = {(row.heads, row.kind): row for row in kept}
    rows = [(name, kind) for name in groups for kind in KINDS]
    for row in rows:
        found.append(known.get(row) or measured(*row))
        tell(f"{len(found)} of {counted(len(rows), 'row')} measured")
    return found


def differences(
    model: TransformersModel, places: Iterable[Place], before: Sequence[Outcome], after: Sequence[Outcome]
) -> dict[str, list[float]]:
    """`Swapped.same_choice` of the heads at `places`, `cosine` and `loss`, for each sentence."""
    found: dict[str, list[float]] = {"same_choice": [], "cosine": [], "loss": []}
    for old, new in zip(before, after, strict=True):
        hits = []
        for layer, head in places:
            same = new.attention[layer][head].argmax(-1) == old.attention[layer][head].argmax(-1)
            hits.append(same[model._allowed(len(old.states), [layer]).sum(-1) > 1])
        found["same_choice"].append(float(torch.cat(hits).double().mean()) if hits else math.nan)
        found["cosine"].append(float(torch.nn.functional.cosine_similarity(new.states, old.states).mean()))
        found["loss"].append(new.loss - old.loss)
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of a 95 % interval of the mean."""
    found = torch.tensor(values, dtype=torch.float64)
    return float(found.mean()), 1.96 * float(found.std()) / math.sqrt(len(found)) if len(found) > 1 else math.nan
