"""Matrix norms, each with its dual, steepest direction, prox and projection, and the cosine between directions."""

from attsvm.norms.base import Norm
from attsvm.norms.direction import direction_cosine, direction_distance
from attsvm.norms.entrywise import Entrywise
from attsvm.norms.frobenius import Frobenius
from attsvm.norms.projective import InfinityToOne as InfinityToOne
from attsvm.norms.projective import Projective, factor_norm
from attsvm.norms.semidefinite import Gamma2
from attsvm.norms.semidefinite import SpectralOfHeads as SpectralOfHeads
from attsvm.norms.singular import KyFan as KyFan
from attsvm.norms.singular import Nuclear, Spectral
from attsvm.norms.singular import NuclearByFrequency as NuclearByFrequency
from attsvm.norms.singular import SpectralByFrequency as SpectralByFrequency
from attsvm.norms.singular import SpectralOfRank as SpectralOfRank
from attsvm.norms.sizes import LargestColumn as LargestColumn
from attsvm.norms.sizes import LargestRow as LargestRow
from attsvm.norms.sizes import MaxEntry, SumEntry
from attsvm.norms.sizes import SumOfColumns as SumOfColumns
from attsvm.norms.sizes import SumOfRows as SumOfRows

__all__ = [
    "Entrywise", "Frobenius", "Gamma2", "MaxEntry", "Norm", "Nuclear", "Projective", "Spectral", "SumEntry",
    "direction_cosine", "direction_distance", "factor_norm",
]  # fmt: skip
