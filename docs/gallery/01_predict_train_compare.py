"""
Predict, train, certify, compare
================================

The whole circle on two inputs of four tokens in the plane: say beforehand where training should go, train, solve the
max-margin problem of what was reached, with a proof, and compare.
"""

import attsvm
from attsvm.plots import plot_attention, plot_trajectory_2d

data = attsvm.data.example("two-inputs")
print(data)

# %%
# Predict
# -------
# ``diagnose`` checks the assumptions of the papers' results on these data and names the tokens to be selected. The
# margin of a condition is positive where it holds.

start = attsvm.initial_parameters(data, initial="zeros")
diagnosis = attsvm.diagnose(data, initial=start)
print(diagnosis)

# %%
# Train
# -----
# Normalized gradient descent with step 0.1. The attention of each input goes to one token within a hundred steps; the
# weights go on growing, and turning.

attention = plot_attention(attsvm.fit(data, initial=start, steps=150, record=1))
run = attsvm.fit(data, initial=start, steps=1500, record=1)

# %%
# Certify
# -------
# The selected tokens define a max-margin problem. Its solution comes with a lower bound on the norm of every other
# solution: ``relative_gap`` says how far above that bound it lies.

problem = attsvm.AttentionSVM(data, selected=run.selected)
solution = attsvm.solve(problem).require_solved()
print(f"norm {solution.certificate.primal_value:.12f}")
print(f"no solution has a norm below {solution.certificate.dual_value:.12f}")
print(f"support tokens of each input: {[row.nonzero().flatten().tolist() for row in solution.support]}")

# %%
# Compare
# -------
# The paths of :math:`W z_i` bend onto the rays of the solution. The token that lies farthest along a path wins, since
# its logit is the inner product of the two.

print(attsvm.verify(diagnosis, run))
paths = plot_trajectory_2d(data, run, solutions=[solution])

# sphinx_gallery_thumbnail_number = 2
