"""Matrix norms, each with its dual, steepest direction, prox and projection, and the cosine between directions."""

from attsvm.norms.base import Norm
from attsvm.norms.direction import direction_cosine, direction_distance
from attsvm.norms.entrywise import Entrywise
from attsvm.norms.frobenius import Frobenius
from attsvm.norms.max_entry import MaxEntry
from attsvm.norms.nuclear import Nuclear
from attsvm.norms.spectral import Spectral
from attsvm.norms.sum_entry import SumEntry

__all__ = [
    "Entrywise",
    "Frobenius",
    "MaxEntry",
    "Norm",
    "Nuclear",
    "Spectral",
    "SumEntry",
    "direction_cosine",
    "direction_distance",
]
