r"""
W against K and Q
=================

The same attention can be trained as one matrix or as the product of two factors. The model is the same; the direction
that training tends to is not.

One matrix :math:`W` tends to the solution of least Frobenius norm (proved near it), a product
:math:`K Q^\top`, as far as is known, to one of least nuclear norm, which has low rank.
"""

import torch

import attsvm
from attsvm.plots import plot_cosines, plot_trajectory_2d

data = attsvm.data.example("two-inputs")
record = [*range(100), *range(100, 2001, 10)]
weights = attsvm.fit(data, initial="zeros", steps=2000, record=record)
draw = torch.Generator().manual_seed(0)
small = {"key": 0.1 * torch.randn(2, 2, generator=draw, dtype=torch.float64), "query": torch.zeros(2, 2).double()}
factors = attsvm.fit(data, parameterization=attsvm.KeyQuery(), initial=small, steps=2000, record=record)

problem = attsvm.AttentionSVM(data, weights.selected)
frobenius, nuclear = (attsvm.solve(problem, norm) for norm in (attsvm.Frobenius(), attsvm.Nuclear()))
print("singular values, Frobenius:", torch.linalg.svdvals(frobenius.weights).numpy().round(4))
print("singular values, nuclear:  ", torch.linalg.svdvals(nuclear.weights).numpy().round(4))

# %%
# In the plane: solid lines for :math:`W`, dashed for the factors. The nuclear solution has rank one, so both inputs
# share a ray. (These data were chosen to show the difference clearly. As in the paper :math:`K` and :math:`Q` start
# small: :math:`Q` at zero, :math:`K` at 0.1 times a random matrix.)

paths = plot_trajectory_2d(data, {"W": weights, r"KQ^{\mathsf{T}}": factors}, solutions=[frobenius, nuclear])

# %%
# On random data, which were not chosen: 20 data sets of six inputs, eight tokens, ten dimensions. Each run is compared
# with both solutions of the tokens that it reached itself.

data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=20, seed=1)
record = torch.logspace(0, 3.3, 40).int().unique().tolist()
for name, parameterization in (("W", attsvm.Weights()), ("KQ", attsvm.KeyQuery())):
    run = attsvm.fit(data, parameterization=parameterization, steps=2000, record=record)
    problem = attsvm.AttentionSVM(data, run.selected)
    solutions = {norm.name: attsvm.solve(problem, norm) for norm in (attsvm.Frobenius(), attsvm.Nuclear())}
    for norm, solution in solutions.items():
        cosine = attsvm.direction_cosine(run.weights, solution.weights)
        print(f"{name} to the {norm} solution: mean cosine {cosine.mean():.3f}, least {cosine.min():.3f}")
    if name == "W":
        of_weights = plot_cosines(run, solutions, title="W")
    else:
        of_factors = plot_cosines(run, solutions, title="K and Q")
