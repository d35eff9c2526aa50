"""What pages say of next-token prediction and of several kept tokens, from the summaries of their seeds."""

from __future__ import annotations

from collections.abc import Iterator

from pages.claims_of_experiments import measured, numbers, sentences
from pages.reading import claims, span

PULL, SILENT = "split gradient, every input", "split gradient, an input"


def followed(what: str) -> tuple[int, int, str]:
    """Of the runs that went on with the split gradient: how many end near, how many there are, medians of the seeds."""
    near, every, medians = (measured("multi-token", what, place) for place in (0, 1, 3))
    return int(sum(near)), int(sum(every)), span(medians, lambda value: f"{value:.2g}".replace("e-0", "e-").lstrip("0"))


@sentences("multi-token")
def multi_token() -> Iterator[str]:
    (near, every, medians), (few, silent, far) = followed(PULL), followed(SILENT)
    several = sum(numbers("multi-token", "followed, all pull, several kept"))
    assert every - near == 1  # "the other one"
    yield f"has a gradient ({near} of {every}); mostly not, where one is silent ({few} of {silent})."
    yield f"In eight seeds {every} runs were accepted and followed on with every input that drops a token pulling"
    yield f"{several:.0f} of them with an input that keeps several tokens: {near} end within .001 of the direction"
    yield f"the medians of the seeds are {medians}. The other one"
    yield f"Of {silent} runs with a silent input {few} end within .001; the medians of the seeds are {far}."


@claims("docs/proved.md")
def proved_multi_token() -> Iterator[str]:
    (near, every, medians), (few, silent, _) = followed(PULL), followed(SILENT)
    several = sum(numbers("multi-token", "followed, all pull, several kept"))
    yield f"of {every} runs without such a dead input {near} end within .001 of the direction of W_svm outside S_fin"
    yield f"(the medians of the seeds are {medians}), {several:.0f} of them with an input that keeps several tokens"
    yield f"Of {silent} runs with a dead input that drops a token, {few} do."


@sentences("next-token-cyclic")
def next_token_cyclic() -> Iterator[str]:
    near, every = (measured("next-token-cyclic", "outside S_fin at 100", place) for place in (0, 1))
    assert near == every
    yield f"In eight seeds all {sum(every):.0f} data sets that came to 100 times"
    assert sum(measured("next-token-cyclic", "all data sets turn", 3)) == 1  # "the one that is called stuck"
