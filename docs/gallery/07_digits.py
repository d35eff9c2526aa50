"""
Real patches: digits
====================

Images are inputs, patches are tokens. Forty images of the digits 0 and 1 from scikit-learn's collection, cut into 16
patches of 2 x 2 pixels; the patch in the middle asks, and each patch knows its place.
"""

import torch
from matplotlib.figure import Figure

import attsvm
from attsvm.plots import house_style

data = attsvm.data.digits_patches(patch=2, classes=(0, 1), count=40, seed=0, positions=attsvm.data.one_hot_positions)
images = attsvm.data.patches_to_images(data.tokens, 2)
print(data)

# %%
# Head and attention are trained together, from a small random start.

run = attsvm.fit(data, torch.zeros(data.d, dtype=torch.float64), train_head=True, steps=1500, record=50)
found = attsvm.attention.evaluate(data, run.weights, run.parameters["head"])
print(f"images on the right side: {int((found.margin > 0).sum())} of {data.n}")
print(f"attention on the selected patch: median {run.attention.amax(-1).median():.3f}")

# %%
# Where six of them look, and the patch they select.

with house_style():
    picture = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = picture.subplots(2, 6)
    shown = [*(data.labels < 0).nonzero().flatten()[:3].tolist(), *(data.labels > 0).nonzero().flatten()[:3].tolist()]
    for column, place in enumerate(shown):
        panels[0][column].imshow(images[place], cmap="Greys")
        panels[1][column].imshow(run.attention[place].reshape(4, 4), cmap="Blues", vmin=0, vmax=1)
        for axes in panels[:, column]:
            axes.set_xticks([])
            axes.set_yticks([])
    panels[0][0].set_ylabel("image")
    panels[1][0].set_ylabel("attention")

# %%
# Is the selection one that a max-margin solution can have, and how near is the trained direction to it? The certificate
# proves either answer.

problem = attsvm.AttentionSVM(data, run.selected)
solution = attsvm.solve(problem)
print(solution)
print(f"cosine {attsvm.direction_cosine(run.weights, solution.weights):.3f}")
print(f"margin efficiency {attsvm.margin_efficiency(run.weights, problem, solution=solution):.3f}")
