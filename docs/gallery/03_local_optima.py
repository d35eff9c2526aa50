r"""
Local optima and their basins
=============================

Attention need not find the best tokens. It can settle on any *locally optimal* selection: one whose tokens score higher
than their neighbours, the tokens at the margin of its own max-margin problem.

Here is one input of three tokens and a trained prompt :math:`p`, with logits :math:`x_t^\top p`. The scores are 1,
0.9 and 0.
"""

import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

import attsvm
from attsvm.plots import PALETTE, house_style, plot_trajectory_2d

data = attsvm.data.example("single-input-local")
optima = attsvm.locally_optimal_selections(data)
for selection, norm in zip(optima.selections.tolist(), optima.norms.tolist(), strict=True):
    print(f"token {selection[0]} is locally optimal, with margin {1 / norm:.3f}")

# %%
# The six starting points of the paper. Four runs turn to the best token, two to the other one, and stay there.

starts = attsvm.data.starting_points("single-input-local").weights
run = attsvm.fit(data, initial=starts, steps=500, record=1)
rays = [attsvm.solve(attsvm.AttentionSVM(data, selection)) for selection in optima.selections]
print("selected from each start:", run.selected.flatten().tolist())
paths = plot_trajectory_2d(data, {"p": run}, solutions=rays)

# %%
# Where does each start lead? A run from every point of a grid, all in one call.

side = 81
grid = torch.linspace(-4, 4, side, dtype=torch.float64)
points = torch.cartesian_prod(grid, grid)[:, :, None]
ends = attsvm.fit(data, initial=points, steps=1000, record=[1000]).selected.reshape(side, side)

with house_style():
    basins = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = basins.add_subplot(aspect="equal")
    colours = ListedColormap([PALETTE[0], PALETTE[1], "#BBBBBB"])
    axes.pcolormesh(grid, grid, ends.T, cmap=colours, vmin=-0.5, vmax=2.5, alpha=0.55, rasterized=True)
    for token, ((x, y), place) in enumerate(zip(data.tokens[0].tolist(), ((6, 4), (6, 4), (-48, 4)), strict=True)):
        axes.plot(x, y, "o", color="black", markersize=5)
        axes.annotate(f"token {token}", (x, y), xytext=place, textcoords="offset points")
    axes.set(xlabel="first coordinate of p(0)", ylabel="second coordinate of p(0)")
    axes.set_title("Blue starts end at token 0, orange ones at token 1", fontsize=10)
print({f"token {token}": f"{float((ends == token).double().mean()):.0%}" for token in range(3)})

# %%
# With more dimensions runs that miss the best tokens become rare: the share of data sets on which descent from zero
# finds the best selection (:math:`n = 4`, :math:`T = 6`, 50 data sets each).

for d in (2, 5, 10, 20):
    many = attsvm.data.random_sphere(n=4, T=6, d=d, batch=50, seed=0)
    end = attsvm.fit(many, initial="zeros", steps=3000, record=[3000], keep=())
    saturated = (end.attention.amax(-1) > 0.99).all(-1)
    best = (end.selected == attsvm.optimal_tokens(many)).all(-1) & saturated
    print(f"d = {d:2d}: best {int(best.sum())} of 50, not saturated {int((~saturated).sum())}")

# sphinx_gallery_thumbnail_number = 2
