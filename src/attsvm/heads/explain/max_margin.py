"""The max-margin weights W_mm of one head's own selections, to ask which examples carry a choice, or to swap in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.analysis.lifted import LiftedSolution, Pairs, solve_lifted
from attsvm.heads.analysis.selections import choices, layers_of
from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.loading.tokenizers import read_sentences
from attsvm.heads.model import HeadModel, Place, Sentence, Text, head_place, spaced
from attsvm.heads.report.records import Settings


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """W_mm of a head."""

    head: str  #: its name
    form: HeadWeights  #: the head's own weights
    solution: LiftedSolution  #: the multipliers of ``W_mm / ||W_mm|| = sum_r lam_r row_r``, and the proof of their gap
    examples: tuple[str, ...]  #: for each query of the problem what it chose, in words
    factor: float = 1.0  #: logits are those of W_mm / ||W_mm|| times this

    def scaled(self, factor: float) -> MaxMargin:
        """The same with other logits: `factor` times those of W_mm / ||W_mm||."""
        return replace(self, factor=factor)

    def attention(self, seen: LayerStates) -> Float[Tensor, "T T"]:
        """The attention of every query over the tokens allowed to it, as that of `HeadWeights`."""
        return (self.factor * self.logits(seen)).softmax(-1)

    def logits(self, seen: LayerStates) -> Float[Tensor, "T T"]:
        """Of W_mm / ||W_mm|| over the tokens allowed to each query, -inf elsewhere; row = query."""
        asking = torch.nonzero(seen.allowed.any(-1))[:, 0].tolist()
        pairs = Pairs.of(self.form, [seen], [(0, query, -1) for query in asking])
        found = torch.full(seen.allowed.shape, -torch.inf, dtype=torch.float64)
        found[torch.tensor(asking)[pairs.query], pairs.token] = self.solution.logits(pairs)
        return found

    @property
    def solved(self) -> bool:
        """Whether there is a W_mm, optimal to the accuracy asked for."""
        return not math.isnan(self.solution.value)

    @property
    def support(self) -> int:
        """Number of support tokens: rows with a multiplier above 0."""
        return int((self.solution.multipliers > 0).sum())


def max_margin(
    model: HeadModel,
    head: str,
    texts: Sequence[Text] | None = None,
    *,
    queries: int = 200,
    confidence: float = 0.5,
    accuracy: float = 1e-3,
    seed: int = 0,
) -> MaxMargin:
    """W_mm of the choices that a head makes on `texts`, in the Frobenius norm.

    Arguments:
        model: from `load` or `from_arrays`.
        head: such as ``"L3H7"``.
        texts: to read; None means the model's own sentences, or else the bundled sample.
        queries, confidence, accuracy, seed: as those of `analyze`.

    Raises:
        ValueError: if there is no such head, it has a fixed bias (ALiBi), or no query is confident.
    """
    place = head_place(model, head)
    settings = Settings(queries=queries, confidence=confidence, accuracy=accuracy, seed=seed)
    (found,) = of_sentences(model, [place], read_sentences(model, texts), settings)
    if found is None:
        raise ValueError(
            f"head {head} has no query with more than {confidence:g} of its attention on one token, or a fixed bias by"
            " distance, which W_mm does not scale; lower the confidence or give other texts"
        )
    return found


def of_sentences(
    model: HeadModel, places: Sequence[Place], sentences: Sequence[Sentence], settings: Settings
) -> Iterator[MaxMargin | None]:
    """`max_margin` of some heads, sorted; None for those with a fixed bias (ALiBi) or without a confident query."""
    for view in layers_of(model, sentences, sorted({layer for layer, _ in places}), ()):
        for layer, number in sorted(place for place in places if place[0] == view.index):
            form, name = model.weights(layer, number), f"L{layer}H{number}"
            views = [own.of(form) for own in view.views]
            sure = choices(views, form).confident(settings.confidence)
            if len(sure) == 0 or form.slope:
                yield None
                continue
            drawn = sure.draw(settings.queries, torch.Generator().manual_seed(settings.seed))
            solution = solve_lifted(form, views, drawn, settings)
            names = [[spaced(token) for token in own.sentence.tokens] for own in views]
            words = tuple(f"{names[n][i]!r} to {names[n][s]!r} in text {n}" for n, i, s in drawn.triples)
            yield MaxMargin(name, form, solution, words)
