r"""
Several tokens kept: a ReLU head
================================

Behind a linear head, attention ends on one token of each input. A nonlinear head may want a mixture.

The conjecture is that trained weights then have two parts, :math:`W \approx W_\text{fin} + C W_\text{svm}`: a finite
one that sets the ratios among the tokens that are kept, and a growing one that separates them from the others.
"""

import torch
from matplotlib.figure import Figure

import attsvm
from attsvm.plots import PALETTE, house_style, plot_attention
from attsvm.plots.curves import Curves

data = attsvm.data.random_sphere(n=3, T=4, d=4, batch=400, seed=2)
data = data[(data.labels < 0).any(-1)].with_head(None)  # where all labels are positive one token wins
matrices = torch.randn(len(data), 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
head = attsvm.ReluHead(matrices / torch.linalg.matrix_norm(matrices, keepdim=True))
run = attsvm.fit(data, head, steps=2001, record=100)

# %%
# A token is kept if its probability is at least 1e-3 and dropped if it is at most 1e-6. Runs with a token in between
# have not decided, and are left out; so are those that drop nothing. What is left out is counted.

parts = attsvm.generalized_components(data, run.attention, run.weights)
print(parts)
chosen = int((parts.accepted & (parts.selected_set.sum(-1) > 1).any(-1)).nonzero()[0])
mixed = plot_attention(run, element=chosen, title="An accepted run: one input keeps several tokens")

# %%
# The accepted runs against three predictions. Medians and means tell different stories: a few runs are far off.

names = {"W_fin + C W_svm": parts.cosine, "W_svm alone": parts.svm_cosine, "one token": parts.one_token_cosine}
distances = {name: (1 - cosine[parts.accepted]).sort().values for name, cosine in names.items()}
for name, values in distances.items():
    print(f"1 - cosine to {name}: median {values.nanmedian():.4f}, mean {values.nanmean():.4f}")

with house_style():
    picture = Figure(figsize=(6.2, 3.6), layout="constrained")
    curves = Curves(picture.add_subplot(yscale="log"))
    for colour, (name, values) in zip(PALETTE, distances.items(), strict=False):
        curves.line(name, torch.linspace(0, 1, len(values)), values, colour, marker="o", markersize=3.5)
    curves.label(0.09, xlabel="share of accepted runs", ylabel="1 - cosine to the trained W", ylim=(1e-6, 2))

# sphinx_gallery_thumbnail_number = 2
