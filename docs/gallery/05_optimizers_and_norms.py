"""
Optimizers and their norms
==========================

Steepest descent needs a norm to say what a step of length one is. The same norm object, handed to ``solve``, says which
max-margin problem that descent should tend to. For linear models this is proved; for attention it is open, and this
page is a small measurement, not a theorem. The full one is the experiment ``optimizer-geometry``.
"""

import numpy as np
import torch
from matplotlib.figure import Figure

import attsvm
from attsvm.plots import house_style

norms = {"Frobenius": attsvm.Frobenius(), "max entry": attsvm.MaxEntry(), "spectral": attsvm.Spectral()}
decaying = attsvm.descent.InverseSqrt(0.3)
optimizers = {f"{name} steps": attsvm.SteepestDescent(norm, decaying) for name, norm in norms.items()}
optimizers["Adam"] = attsvm.Adam(decaying)

data = attsvm.data.random_sphere(n=4, T=5, d=6, batch=6, seed=0)
runs = {name: attsvm.fit(data, optimizer=each, steps=3000, record=[3000], keep=()) for name, each in optimizers.items()}

# %%
# Each run is compared with the solutions for the tokens that it selected itself. *Margin efficiency* is its margin at
# norm one over the largest possible; unlike the cosine it does not need a unique solution.

efficiency = torch.zeros(len(runs), len(norms))
for row, run in enumerate(runs.values()):
    problem = attsvm.AttentionSVM(data, run.selected)
    for column, norm in enumerate(norms.values()):
        solution = attsvm.solve(problem, norm)
        efficiency[row, column] = attsvm.margin_efficiency(run.weights, problem, norm, solution=solution).mean()

with house_style():
    picture = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = picture.add_subplot()
    axes.imshow(efficiency, cmap="Blues", vmin=0.5, vmax=1, aspect="auto")
    for row, column in np.ndindex(*efficiency.shape):
        value = float(efficiency[row, column])
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.8 else "black")
    axes.set_xticks(range(len(norms)), list(norms))
    axes.set_yticks(range(len(runs)), list(runs))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Margin efficiency, by the norm of the margin", fontsize=10)

# %%
# The three steepest descents have their largest efficiency in their own norm. Adam does not: for linear models it is
# tied to the largest entry, and here, after these steps, it is nearer to the Frobenius solution.
#
# What ``implicit_bias`` says about each of them, and with which standing:

for name, optimizer in optimizers.items():
    bias = attsvm.implicit_bias(attsvm.Weights(), optimizer)
    print(f"{name}: {bias.norm.name}, {bias.standing.value}")
