"""
The regularization path
=======================

Descent walks; a simpler question is what the *best* weights of norm at most :math:`R` are. As :math:`R` grows, they too
turn to the max-margin solution, and for this path the result is a theorem without assumptions on a starting point: the
best tokens must be unique and separable.
"""

import numpy as np
import torch
from matplotlib.figure import Figure

import attsvm
from attsvm.plots import PALETTE, house_style
from attsvm.plots.curves import Curves

data = attsvm.data.random_sphere(n=3, T=4, d=6, seed=3)
limit = attsvm.solve(attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))).require_solved()
path = attsvm.regularization_path(data, radii=np.geomspace(1, 1000, 13).tolist())
print(path)

# %%
# Descent beside it, on the same axis: its own norm.

run = attsvm.fit(data, steps=5000, record=sorted({*np.geomspace(1, 5000, 60).astype(int).tolist()}))
same = bool((run.selected == attsvm.optimal_tokens(data)).all())
print(f"descent reached the best tokens: {same}")

away = attsvm.norms.direction_distance(path.weights, limit.weights)
walked = attsvm.norms.direction_distance(run.history.weights, limit.weights)
with house_style():
    picture = Figure(figsize=(6.4, 3.8), layout="constrained")
    curves = Curves(picture.add_subplot(xscale="log", yscale="log"))
    curves.line("best in the ball", path.radii, away, PALETTE[0], marker="o", markersize=4)
    curves.line("descent", run.history.norm, walked, PALETTE[1])
    curves.label(xlabel="norm of W", ylabel="1 - cosine to the max-margin solution")

# %%
# The slope of the path between the last radii: its distance falls like :math:`R^{-2}`.

slope = torch.log(away[-1] / away[-3]) / torch.log(path.radii[-1] / path.radii[-3])
print(f"1 - cosine ~ R^{float(slope):.2f}")
