"""Mini-batches of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from attsvm.data.streams import Purpose, streams


@dataclass(frozen=True, eq=False)
class InputBatches:
    """Shuffled passes over the inputs, `size` of them a step, one order for each data set and pass.

    The inputs of step k depend on the seed and k alone, so a resumed run sees the batches it would have seen.
    """

    n: int
    size: int
    keys: tuple[tuple[int, int], ...]
    device: torch.device

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or not 1 <= self.size <= self.n:
            raise ValueError(f"batch_size must be an integer from 1 to n = {self.n}; got {self.size!r}")

    def inputs(self, step: int) -> Tensor:
        """Indices ``[batch, size]`` of the inputs used at `step`; a pass that does not divide evenly drops its rest."""
        per_pass = self.n // self.size
        number, place = divmod(step, per_pass)
        return _orders(self, number)[:, place * self.size : (place + 1) * self.size]


@lru_cache(maxsize=4)
def _orders(batches: InputBatches, number: int) -> Tensor:
    own = streams(batches.keys, (len(batches.keys),), purpose=Purpose.INPUT_ORDER, number=number)
    return torch.from_numpy(np.stack([stream.permutation(batches.n) for stream in own])).to(batches.device)
