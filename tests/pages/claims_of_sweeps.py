"""What the page on sweeps says of a million data sets."""

from __future__ import annotations

from collections.abc import Iterator

from pages.reading import claims, results

PAGE = "docs/sweeps.md"


def short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


@claims(PAGE)
def law() -> Iterator[str]:
    found = results("million")
    cells, laws = found["cells"], found["laws"]
    ratio, power, quadratic = (laws[name] for name in ("ratio", "power", "quadratic"))
    assert sum(cell["runs"] for cell in cells) == 1_000_000
    assert sum(found["counts"].values()) == 0  # "none is left undecided"
    yield f"{cells[0]['runs']:,} for each of {len(cells)} sizes"
    yield f"On one H200 this took {found['wall_seconds']:.0f} seconds, compiling {len(cells)} kernels"
    named = ("log C", "a", "k")
    parts = [
        f"{name} = {short(value, 2)} [{short(low, 2)}, {short(high, 2)}]"
        for name, value, (low, high) in zip(named, ratio["theta"], ratio["interval"], strict=True)
    ]
    yield f"with {parts[0]}, {parts[1]} and {parts[2]}."
    middle, largest = short(ratio["median_miss"]), short(ratio["largest_miss"])
    yield f"it misses a cell by {middle} in the median and by {largest} at most"
    fresh = ratio["fresh"]
    yield f"on {fresh['cells']} other sizes with another seed"
    yield f"by {short(fresh['median_miss'])} and {short(fresh['largest_miss'])}. A power law"
    yield f"misses by {short(power['median_miss'])} and {short(power['largest_miss'])}."
    ahead = quadratic["fresh"]
    yield f"interpolates to {short(ahead['median_miss'])} and {short(ahead['largest_miss'])} on the other sizes"


@claims(PAGE)
def locally_optimal() -> Iterator[str]:
    cells = results("million")["cells"]
    least, most = (end(cells, key=lambda cell: cell["locally_optimal"]) for end in (min, max))
    low, high = (100 * cell["locally_optimal"] for cell in (least, most))
    yield f"Between {low:.0f} % and {high:.0f} % of the runs of a cell"
    yield f"lowest at n = {least['n']}, T = {least['T']}, d = {least['d']}."


@claims(PAGE)
def unfinished() -> Iterator[str]:
    most = max(1 - cell["saturated"] for cell in results("million")["cells"])
    yield f"({100 * most:.0f} % of the runs of one cell, fewer elsewhere)"


@claims(PAGE)
def times() -> Iterator[str]:
    core, gpu = (results(name)["seconds"] for name in ("million_cpu", "million_h200"))
    rows = {
        "draw, integer seed, which is done on a core": ("draw, streams of NumPy on one core", 1, 1),
        "draw, `code`, on the device": ("draw, counter on the device", 1, 2),
        "train, 2000 steps": ("train, 2000 steps", 0, 1),
        "train, 2000 steps, ReLU head of width 10": ("train, 2000 steps, ReLU head", 0, 1),
        "train until attention is saturated to 1e-3": ("train until saturated", 0, 1),
        "solve and certify in the Frobenius norm": ("solve and certify, Frobenius", 1, 2),
        "solve and certify in the nuclear norm": ("solve and certify, nuclear", 0, 0),
    }
    for said, (part, fine, finer) in rows.items():
        yield f"| {said} | {core[part]:.{fine}f} | {gpu[part]:.{finer}f} |"
