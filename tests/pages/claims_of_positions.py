"""What docs/heads_models.md says of heads with positions inside their logits: exactness, time and memory."""

from __future__ import annotations

from collections.abc import Iterator

from pages.reading import claims, power, results

PAGE = "docs/heads_models.md"


@claims(PAGE)
def exact() -> Iterator[str]:
    found = results("heads_positions")
    whole, small = found["exactness"], found["small heads"]
    yield f"in all {whole['heads']} heads of SmolLM2 to {power(whole['largest error'])}"
    apart = small["largest relative difference"]
    yield f"on {len(small['heads'])} small heads the values differ by at most {power(apart)}"


@claims(PAGE)
def scale() -> Iterator[str]:
    found = results("heads_positions")["scale"]
    assert not found["not solved"]
    assert {head["queries"] for head in found["each"]} == {found["queries asked for"]}
    yield f"The problems of all {found['heads']} heads of SmolLM2 with {found['queries asked for']} queries each"
    yield f"took {found['cpu seconds']:.0f} seconds of CPU time on one core"
    yield f"after {found['cpu seconds of loading']:.0f} to load the model"
    yield f"and {found['cpu seconds of running the model']:.0f} to run it on {found['texts']} texts"
    yield f"with {found['peak gigabytes']:.1f} GB at most"
    yield f"the largest certified gap is {found['largest gap'] * 1e3:.2f}e-3"


@claims(PAGE)
def many() -> Iterator[str]:
    found = results("heads_positions")["many"]
    most = list(found["by queries"].values())[-1]
    assert not most["not solved"]
    assert found["device"] == "NVIDIA H200"
    yield f"all {most['queries']:,} confident queries of the {most['heads']} heads of one layer"
    yield f"{most['rows']:,} rows, take {most['wall seconds']:.0f} seconds on an H200, and"
    yield f"{found['peak gigabytes of the device']:.1f} GB; with longer texts"
    long = list(results("heads_positions")["many, long texts"]["by queries"].values())[-1]
    assert not long["not solved"]
    yield f"{long['queries']:,} queries and {long['rows']:,} rows take {long['wall seconds']:.0f} seconds"
