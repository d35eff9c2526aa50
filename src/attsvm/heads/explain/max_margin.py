"""The max-margin weights W_mm of one head's own selections, to ask which examples carry a choice, or to swap in.

W_mm is kept as multipliers of support examples: ``W_mm / ||W_mm|| = sum_r lam_r row_r``, whatever positions the head
has (`attsvm.heads.analysis.lifted`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.analysis.lifted import LiftedSolution, solve_lifted
from attsvm.heads.analysis.selections import choices, layers_of
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.explain.places import head_place
from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.loading.texts import sample_texts
from attsvm.heads.model import HeadModel, Sentence, Text


def size_of(form: HeadWeights) -> float:
    """Frobenius norm of all channels of a head."""
    return math.hypot(float(form.stacked.norm()), 0.0 if form.relative is None else float(form.relative.norm()))


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """W_mm of a head.

    Arguments:
        head: its name.
        form: the head's own weights.
        solution: multipliers, and the proof that they are optimal to a gap.
        examples: for each query of the problem what it chose, in words.
        factor: logits are those of W_mm / ||W_mm|| times this.
    """

    head: str
    form: HeadWeights
    solution: LiftedSolution
    examples: tuple[str, ...]
    factor: float = 1.0

    @property
    def size(self) -> float:
        """Norm of the head's own weights."""
        return size_of(self.form)

    def scaled(self, factor: float) -> MaxMargin:
        """The same with other logits: `factor` times those of W_mm / ||W_mm||."""
        return replace(self, factor=factor)

    def attention(self, seen: LayerStates) -> Float[Tensor, "T T"]:
        """The attention of every query over the tokens allowed to it, as that of `HeadWeights`."""
        logits = (self.factor * self.logits(seen)).masked_fill(~seen.allowed, -torch.inf)
        return logits.softmax(-1)

    def logits(self, seen: LayerStates) -> Float[Tensor, "T T"]:
        """Of W_mm / ||W_mm||, row = query, by its kernel."""
        few, shares = self.solution.support
        content = seen.keys @ few.keys.T
        asked = (seen.queries @ few.queries.T)[:, few.query] * shares
        if few.phases is None or seen.phases is None:
            made = asked @ content.T
        else:
            still = float(few.form.unturned.any())
            held = torch.view_as_real(few.phases).flatten(1).T
            rows = []
            for phase, row in zip(seen.phases, asked, strict=True):
                turned = torch.view_as_real(seen.phases * phase.conj()).flatten(1) @ held
                rows.append((content * (turned + still)) @ row)
            made = torch.stack(rows)
        if self.form.relative is None or few.buckets is None or seen.buckets is None:
            return made
        return made + torch.zeros_like(self.form.relative).index_add(0, few.buckets, shares)[seen.buckets]

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
    layer, number = head_place(model, head)
    if texts is not None:
        sentences = model.encode(list(texts))
    else:
        sentences = list(model.sentences) or model.encode(sample_texts())
    (found,) = of_sentences(model, [(layer, number)], sentences, queries, confidence, accuracy, seed)
    if found is None:
        raise ValueError(
            f"head {head} has no query with more than {confidence:g} of its attention on one token, or a fixed bias by"
            " distance, which W_mm does not scale; lower the confidence or give other texts"
        )
    return found


def of_sentences(
    model: HeadModel,
    places: Sequence[tuple[int, int]],
    sentences: Sequence[Sentence],
    queries: int,
    confidence: float,
    accuracy: float,
    seed: int,
) -> list[MaxMargin | None]:
    """`max_margin` of some heads, sorted; None for those with a fixed bias (ALiBi) or without a confident query."""
    settings = Settings(queries=queries, confidence=confidence, accuracy=accuracy, seed=seed)
    found: list[MaxMargin | None] = []
    for view in layers_of(model, sentences, sorted({layer for layer, _ in places}), ()):
        for layer, number in sorted(place for place in places if place[0] == view.index):
            form, name = model.weights(layer, number), f"L{layer}H{number}"
            views = [own.of(form) for own in view.views]
            sure = choices(views, form).confident(confidence)
            if len(sure) == 0 or form.slope:
                found.append(None)
                continue
            drawn = sure.draw(queries, torch.Generator().manual_seed(seed))
            solution = solve_lifted(form, views, drawn, settings)
            words = []
            for index, position, selected in drawn.triples:
                tokens = views[index].sentence.tokens
                words.append(f"{tokens[position]!r} to {tokens[selected]!r} in text {index}")
            found.append(MaxMargin(name, form, solution, tuple(words)))
    return found
