"""What arbitrary weights, arbitrary selections and an untrained model would give: the controls beside every number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attsvm.heads.analysis.selections import Choices
from attsvm.heads.analysis.views import SentenceView
from attsvm.heads.model import HeadWeights


def same_spectrum(form: HeadWeights, generator: torch.Generator) -> HeadWeights:
    """Random weights with the singular values of `form`: both orthonormal factors are drawn uniformly."""
    values = factored_singular_values(form)
    width, rank = form.key.shape
    left, right = (_orthonormal(width, rank, generator) for _ in range(2))
    return HeadWeights(left * values, right)


def factored_singular_values(form: HeadWeights) -> Tensor:
    """Singular values of key query^T from its factors, ``[m]``."""
    return torch.linalg.svdvals(torch.linalg.qr(form.key).R @ torch.linalg.qr(form.query).R.T)


def shuffled(found: Choices, views: Sequence[SentenceView], generator: torch.Generator) -> Choices:
    """The same queries and the same selected tokens, sentence by sentence, but dealt out at random.

    How often each token of a sentence is selected does not change; which query selects it does. A query keeps its own
    token where nothing that is left is among its candidates. A head that always selects the same token of a sentence is
    not changed at all.
    """
    selected = found.selected.clone()
    for index in torch.unique(found.sentence).tolist():
        here = torch.nonzero(found.sentence == index)[:, 0]
        candidates = views[index].candidates[found.position[here]]
        tokens = found.selected[here][torch.randperm(len(here), generator=generator)].tolist()
        # Queries with few candidates first, so that the others can take what is left.
        for row in torch.argsort(candidates.sum(-1), stable=True).tolist():
            fitting = next((k for k, token in enumerate(tokens) if bool(candidates[row, token])), None)
            if fitting is not None:
                selected[here[row]] = tokens.pop(fitting)
    return replace(found, selected=selected)


def _orthonormal(width: int, rank: int, generator: torch.Generator) -> Tensor:
    gaussian = torch.randn(width, rank, generator=generator, dtype=torch.float64)
    factor, triangle = torch.linalg.qr(gaussian)
    return factor * triangle.diagonal().sign()  # the sign makes the draw uniform
