"""The controls of a head: random weights as selective as the head, and its selections dealt out at random."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from attsvm.heads.analysis.selections import Choices, Views
from attsvm.heads.form import HeadWeights


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
