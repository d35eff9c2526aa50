"""Selections and constraints written out by hand, for tests of the problem and of what is measured on it."""

from __future__ import annotations

import numpy as np
import torch

from attsvm.heads.analysis.selections import Choices, choices


def rows(views, drawn):
    """All constraints, written out: (x_selected - x_t) z^T."""
    found = []
    for index, query, selected in drawn.triples:
        keys, z = views[index].keys.numpy(), views[index].queries[query].numpy()
        found += [
            np.outer(keys[selected] - keys[t], z)
            for t in range(len(keys))
            if t != selected and views[index].allowed[query, t]
        ]
    return np.array(found)


def drawn_from(views, form, count=40):
    return choices(views, form).confident(0.0).draw(count, torch.Generator().manual_seed(0))


def select(sentence, position, selected):
    """Choices made by hand."""
    size = len(sentence)
    ones = torch.ones(size, dtype=torch.float64)
    numbers = (torch.tensor(part) for part in (sentence, position, selected))
    return Choices(*numbers, ones, ones, torch.full((size,), 2), torch.zeros(size, dtype=torch.bool))
