"""
From a text to the layer it trains
==================================

A layer of attention learns to point at the next word of a short text. What it will answer is known before training:
words that beat each other share probability, words that always win come first.
"""

import attsvm
from attsvm.next_token import from_text, predict_limit, priority_graph, respond, train, verify
from attsvm.plots import PALETTE, house_style, plot_priority_graph
from attsvm.plots.style import new_figure

text = """
the cat saw the dog . the dog saw the cat . the cat and the dog saw the hen . the hen saw the dog and the cat .
the dog and the hen saw the cat . the cat saw the hen and the dog . the hen saw the cat .
"""
data = from_text(text, window=6)
print(data)

# %%
# The graph
# ---------
# After each last word there is an order of the words that stood in the window. Blue boxes are components: their words
# beat each other in different windows.

graph = priority_graph(data)
picture = plot_priority_graph(graph, ["the", "."])

# %%
# The limit
# ---------
# ``W ~ W_fin + C W_svm``: the Graph-SVM separates components, W_fin sets the shares inside them. Both are certified.

limit = predict_limit(graph)
print(limit)
context = "hen and the dog saw the"
print(context, "->", limit.answer(context))

# %%
# Training
# --------
# Two-part steps, with the gradient split into its finite and its growing part, and plain gradient descent.

run = train(limit, steps=600)
print(verify(limit, run))
plain = train(limit, steps=600, parameterization=attsvm.Weights(), optimizer=attsvm.GradientDescent(1.0))
print(verify(limit, plain))

# %%
# Attention after training beside the prediction. Plain descent is on its way: it has not dropped the rest yet.

answer = limit.answer(context)
predicted = dict(zip(answer.words, answer.probabilities, strict=True))
shown = {
    "predicted": predicted,
    "two parts": respond(data, run.weights, context),
    "plain": respond(data, plain.weights, context),
}
names = list(dict.fromkeys(context.split()))
with house_style():
    bars = new_figure(6.4, 3.0, layout="constrained")
    axes = bars.add_subplot()
    for place, (label, shares) in enumerate(shown.items()):
        heights = [shares.get(word, 0.0) for word in names]
        axes.bar([x + 0.27 * (place - 1) for x in range(len(names))], heights, 0.25, color=PALETTE[place], label=label)
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="attention", title=f"{context} ...")
    axes.legend()

# sphinx_gallery_thumbnail_number = 1
