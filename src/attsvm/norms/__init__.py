"""Matrix norms, each with its dual, steepest direction, prox and projection, and the cosine between directions.

The norms of factors that `factor_norm` makes (`SpectralOfRank`, `Projective`, `Gamma2`), `SpectralOfHeads`, the longest
row and column, the norms of rotary heads (`NuclearByFrequency`) and their duals are here by name too.
"""

from attsvm.norms.base import Norm
from attsvm.norms.direction import direction_cosine, direction_distance
from attsvm.norms.entrywise import Entrywise
from attsvm.norms.factors import KyFan as KyFan
from attsvm.norms.factors import SpectralOfRank as SpectralOfRank
from attsvm.norms.factors import factor_norm
from attsvm.norms.frobenius import Frobenius
from attsvm.norms.largest_row import LargestColumn as LargestColumn
from attsvm.norms.largest_row import LargestRow as LargestRow
from attsvm.norms.largest_row import SumOfColumns as SumOfColumns
from attsvm.norms.largest_row import SumOfRows as SumOfRows
from attsvm.norms.max_entry import MaxEntry
from attsvm.norms.nuclear import Nuclear
from attsvm.norms.projective import InfinityToOne as InfinityToOne
from attsvm.norms.projective import Projective
from attsvm.norms.rotary import NuclearByFrequency as NuclearByFrequency
from attsvm.norms.rotary import SpectralByFrequency as SpectralByFrequency
from attsvm.norms.semidefinite import Gamma2
from attsvm.norms.semidefinite import SpectralOfHeads as SpectralOfHeads
from attsvm.norms.spectral import Spectral
from attsvm.norms.sum_entry import SumEntry

__all__ = [
    "Entrywise",
    "Frobenius",
    "Gamma2",
    "MaxEntry",
    "Norm",
    "Nuclear",
    "Projective",
    "Spectral",
    "SumEntry",
    "direction_cosine",
    "direction_distance",
    "factor_norm",
]
