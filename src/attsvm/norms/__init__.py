"""Matrix norms, each with its dual, steepest direction, prox and projection, and the cosine between directions.

The norms of factors that `factor_norm` makes (`SpectralOfRank`, `Projective`) and their duals are here by name too.
"""

from attsvm.norms.base import Norm
from attsvm.norms.direction import direction_cosine, direction_distance
from attsvm.norms.entrywise import Entrywise
from attsvm.norms.factors import KyFan as KyFan
from attsvm.norms.factors import SpectralOfRank as SpectralOfRank
from attsvm.norms.factors import factor_norm
from attsvm.norms.frobenius import Frobenius
from attsvm.norms.max_entry import MaxEntry
from attsvm.norms.nuclear import Nuclear
from attsvm.norms.projective import InfinityToOne as InfinityToOne
from attsvm.norms.projective import Projective as Projective
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
    "factor_norm",
]
