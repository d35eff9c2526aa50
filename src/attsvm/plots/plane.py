"""What a picture of the plane holds: a scale for paths that grow without bound, tokens, paths, rays and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attsvm.data import TokenDataset
from attsvm.plots.style import DASHES, INK, Dashes, colour_of
from attsvm.svm import SVMSolution

_SAME = 0.01  # rays closer than this angle, in radians, are drawn once
_NEAR = 0.2  # a path this close in angle follows the ray, which then ends where the path does


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
    def around(cls, tokens: np.ndarray, paths: np.ndarray) -> DecadePlane:
        """A disc that holds `tokens` ``[..., 2]``, and room for `paths` around it; short ones are not stretched."""
        reach = float(np.linalg.norm(tokens, axis=-1).max(initial=0.0))
        farthest = float(np.linalg.norm(paths, axis=-1).max(initial=0.0))
        radius = 1.12 * reach if reach > 0 else max(farthest, 1.0)
        decades = max(float(np.log10(max(farthest / radius, 1.0))), 1e-9)
        return cls(radius, min(0.5, 1.1 / decades) * radius)

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


@dataclass(frozen=True)
class Tokens:
    """Tokens in the plane, larger and darker the higher they score; stars mark the optimal ones."""

    places: np.ndarray  # ``[n, T, 2]``
    real: np.ndarray | None = None  # mask ``[n, T]``; None means that all are real
    scores: np.ndarray | None = None  # ``[n, T]``, or None where nothing scores them
    best: np.ndarray | None = None  # mask ``[n, T]`` of the optimal ones, or None

    @property
    def shown(self) -> np.ndarray:
        """Mask of the tokens to draw."""
        return np.ones(self.places.shape[:2], dtype=bool) if self.real is None else self.real


@dataclass(frozen=True)
class Path:
    """One path ``[records, 2]``: its points, its name, what the legend says of it, and its look."""

    points: np.ndarray
    name: str
    key: str
    colour: str = INK
    dashes: Dashes = None


@dataclass(frozen=True)
class Ray:
    """The direction of W_mm z_i in the plane, with its name and look."""

    direction: np.ndarray
    name: str
    colour: str
    dashes: Dashes

    def points(self, ends: np.ndarray) -> np.ndarray:
        """Its two ends, given those of the paths ``[paths, 2]``: as far as the path that follows it, or the longest."""
        lengths = np.linalg.norm(ends, axis=-1)
        cosines = (ends @ self.direction) / np.where(lengths > 0, lengths, 1.0)
        near = lengths[cosines > np.cos(_NEAR)]
        return np.stack([np.zeros(2), self.direction * (near if len(near) else lengths).max()])


def rays_along(
    vectors: np.ndarray, name: str, dashes: Dashes = None, colours: Sequence[str] | None = None
) -> list[Ray]:
    """A ray along each vector ``[inputs, 2]`` but zeros, in its input's colour; those that coincide are one, grey."""
    groups: list[tuple[np.ndarray, list[int]]] = []
    for i, vector in enumerate(vectors):
        length = float(np.linalg.norm(vector))
        if length == 0:
            continue
        near = [group for group in groups if group[0] @ vector > np.cos(_SAME) * length]
        if near:
            near[0][1].append(i)
        else:
            groups.append((vector / length, [i]))

    def colour(inputs: list[int]) -> str:
        if len(inputs) > 1:
            return INK
        return colour_of(inputs[0]) if colours is None else colours[inputs[0]]

    return [Ray(direction, name, colour(inputs), dashes) for direction, inputs in groups]


def rays_of(data: TokenDataset, solutions: Sequence[SVMSolution]) -> list[Ray]:
    """Rays of every solution and input; a ValueError if a solution is of other data, or there is none."""
    found = []
    query = "" if data.dq == 1 else r"\,z_i"
    for order, solution in enumerate(solutions):
        if tuple(solution.weights.shape) != (data.d, data.dq):
            form, got = f"[{data.d}, {data.dq}]", list(solution.weights.shape)
            raise ValueError(f"solutions must have weights {form} to fit the data; solution {order} has {got}")
        if bool(solution.barred):
            raise ValueError(f"solution {order} has no ray to draw: {solution.sentences}")
        label = rf"ray of $W_\mathrm{{mm}}{query}$, {solution.norm.name}"
        vectors = (data.queries.to(solution.weights) @ solution.weights.mT).cpu().numpy()
        found += rays_along(vectors, label, DASHES[order % len(DASHES)])
    return found


@dataclass(frozen=True)
class SeparatingLine:
    """The points x of the plane with ``normal^T x = offset``."""

    normal: np.ndarray
    offset: float
    colour: str = INK

    def chord(self, radius: float) -> np.ndarray | None:
        """The two points where the line meets the circle of this radius; None where it does not."""
        length = float(np.linalg.norm(self.normal))
        if length == 0:
            return None
        foot = self.normal * (self.offset / length**2)
        half = radius**2 - float(foot @ foot)
        if half <= 0:
            return None
        along = np.array([-self.normal[1], self.normal[0]]) / length * half**0.5
        return np.stack([foot - along, foot + along])
