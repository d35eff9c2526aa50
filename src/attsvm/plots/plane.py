"""A plane that shows tokens at true scale and, around them, paths that grow without bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DecadePlane:
    """True scale up to `radius`; beyond it angles stay true and each factor of ten takes about `decade`.

    A point at distance r > radius is shown at ``radius + c log(1 + (r - radius) / c)`` with ``c = decade / log 10``,
    which meets the disc without a kink.

    >>> plane = DecadePlane(radius=1.0, decade=0.5)
    >>> plane.shown(np.array([[0.6, 0.8], [0.3, 0.4]])).round(12).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    >>> round(plane.distance(1e9) - plane.distance(1e8), 6)
    0.5
    """

    radius: float
    decade: float

    @classmethod
    def around(cls, tokens: np.ndarray, paths: np.ndarray, *, outer: float = 1.1, widest: float = 0.5) -> DecadePlane:
        """A disc that holds `tokens` ``[..., 2]``, and room for `paths` in `outer` disc radii around it.

        A decade is at most `widest` radii, so that short paths are not stretched.
        """
        reach = float(np.linalg.norm(tokens, axis=-1).max(initial=0.0))
        farthest = float(np.linalg.norm(paths, axis=-1).max(initial=0.0))
        radius = 1.12 * reach if reach > 0 else max(farthest, 1.0)
        decades = max(float(np.log10(max(farthest / radius, 1.0))), 1e-9)
        return cls(radius, min(widest, outer / decades) * radius)

    def distance(self, true: float) -> float:
        """Where a point at distance `true` from the origin is shown."""
        return float(self._distances(np.asarray(true)))

    def shown(self, points: np.ndarray) -> np.ndarray:
        """Where `points` ``[..., 2]`` are shown."""
        true = np.linalg.norm(points, axis=-1, keepdims=True)
        return np.asarray(points * (self._distances(true) / np.where(true > 0, true, 1.0)))

    def powers(self, farthest: float) -> range:
        """Exponents k of the rings 10^k between the disc and `farthest`."""
        # A ring closer than a third of a factor of ten to the disc would touch it.
        first = int(np.ceil(np.log10(self.radius) + 1 / 3))
        return range(first, int(np.floor(np.log10(max(farthest, self.radius)))) + 1)

    def _distances(self, true: np.ndarray) -> np.ndarray:
        scale = self.decade / np.log(10.0)
        return np.asarray(np.minimum(true, self.radius) + scale * np.log1p(np.maximum(true - self.radius, 0.0) / scale))
