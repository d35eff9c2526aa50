"""Rays along W_mm z_i: where the theory says that paths end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from attsvm.data import TokenDataset
from attsvm.plots.plane import DecadePlane
from attsvm.plots.style import INK, colour_of, tinted
from attsvm.svm import SVMSolution

DASHES: tuple[tuple[float, ...] | None, ...] = (None, (3.2, 1.7), (1.0, 1.4), (5.0, 1.5, 1.0, 1.5))
"""Line styles of the first, second, ... run or solution: solid, dashed, dotted, dash-dotted."""

_WIDTH, _STRENGTH = 1.1, 0.75
_SAME = 0.01  # rays closer than this angle, in radians, are drawn once
_NEAR = 0.2  # a path this close in angle follows the ray, which then ends where the path does


@dataclass(frozen=True)
class Ray:
    """The direction of W_mm z_i in the plane, with its name and look."""

    direction: np.ndarray
    name: str
    colour: str
    dashes: tuple[float, ...] | None

    def points(self, ends: np.ndarray) -> np.ndarray:
        """Its two ends, given the ends of the paths ``[paths, 2]``: it goes as far as the path that follows it, or as
        far as any.
        """
        lengths = np.linalg.norm(ends, axis=-1)
        cosines = (ends @ self.direction) / np.where(lengths > 0, lengths, 1.0)
        near = lengths[cosines > np.cos(_NEAR)]
        return np.stack([np.zeros(2), self.direction * (near if len(near) else lengths).max()])


def rays_along(
    vectors: np.ndarray, name: str, dashes: tuple[float, ...] | None = None, colours: Sequence[str] | None = None
) -> list[Ray]:
    """A ray along each vector ``[inputs, 2]``, in its input's colour; those that coincide share one, in grey.

    Zero vectors (a zero query, or no constraints) have no direction and no ray.
    """
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
    """Rays of every solution and input.

    Raises:
        ValueError: if a solution is of other data, or there is none.
    """
    found = []
    query = "" if data.dq == 1 else r"\,z_i"
    for order, solution in enumerate(solutions):
        if tuple(solution.weights.shape) != (data.d, data.dq):
            form, got = f"[{data.d}, {data.dq}]", list(solution.weights.shape)
            raise ValueError(f"solutions must have weights {form} to fit the data; solution {order} has {got}")
        if bool(solution.infeasible):
            raise ValueError(f"solution {order} has no ray to draw: {solution.status}")
        label = rf"ray of $W_\mathrm{{mm}}{query}$, {solution.norm.name}"
        vectors = (data.queries.to(solution.weights) @ solution.weights.mT).cpu().numpy()
        found += rays_along(vectors, label, DASHES[order % len(DASHES)])
    return found


def draw_rays(axes: Axes, plane: DecadePlane, rays: Sequence[Ray], ends: np.ndarray) -> None:
    """Thin lines below the paths; a ray is straight in this plane, whose angles are true."""
    for ray in rays:
        shown = plane.shown(ray.points(ends))
        (line,) = axes.plot(
            shown[:, 0], shown[:, 1], color=tinted(ray.colour, _STRENGTH), linewidth=_WIDTH, zorder=2, gid="ray"
        )
        if ray.dashes is not None:
            line.set_dashes(ray.dashes)


def ray_keys(rays: Sequence[Ray]) -> list[Line2D]:
    """An entry of the legend for each solution."""
    keys = []
    for name, dashes in dict.fromkeys((ray.name, ray.dashes) for ray in rays):
        line = Line2D([], [], color=tinted(INK, _STRENGTH), linewidth=_WIDTH, label=name)
        if dashes is not None:
            line.set_dashes(dashes)
        keys.append(line)
    return keys
