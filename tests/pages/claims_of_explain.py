"""What docs/heads_why.md says was measured: `python -m benchmarks.explain`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pages.reading import claims, results, short

PAGE = "docs/heads_why.md"


def plus_minus(mean: float | None, half: float | None, digits: int = 3) -> str:
    if mean is None or half is None:
        return ""
    return f"{short(mean, digits)} ± {short(half, digits)}"


@claims(PAGE)
def sums_and_changes() -> Iterator[str]:
    rows = results("explain_why")["rows"]
    for each in rows:
        numbers = [each["pairs"], f"{each['largest_error']:.0e}", each["changes"], each["flipped_at_1.001"]]
        numbers += [each["stayed_at_0.9"], f"{each['median_seconds']:.1f} s", f"{each['largest_seconds']:.1f} s"]
        yield f"| {each['model']} | {' | '.join(map(str, numbers))} |"
    assert all(each["changes"] == each["flipped_at_1.001"] == each["stayed_at_0.9"] for each in rows)
    yield f"the sums of all {sum(each['pairs'] for each in rows):,} pairs are exact to {_above(rows, 'largest_error')}"
    yield f"all {sum(each['changes'] for each in rows):,} changes do both"
    assert all(each["largest_seconds"] < 10 for each in rows)


def _above(rows: list[dict[str, Any]], key: str) -> str:
    """A power of ten that no number exceeds."""
    return f"1e{math.ceil(math.log10(max(each[key] for each in rows)))}"


@claims(PAGE)
def parts_taken_out() -> Iterator[str]:
    for each in results("explain_ablate")["rows"]:
        cells = [str(each["choices"])]
        for label in ("norms_react", "everything_reacts"):
            kinds = ("correlation", "rank correlation", "median error", "median change")
            cells += [short(each[f"{label}: {kind}"], 2 if "correlation" in kind else 3) for kind in kinds]
        yield f"| {each['model']} | {' | '.join(cells)} |"


@claims(PAGE)
def swapped() -> Iterator[str]:
    for each in results("explain_swap")["rows"]:
        task = each["loss"] if each["model"] == "SmolLM2" else each["task"]
        cells = [between(each["same_choice"]), between(each["cosine"]), between(task)]
        group = f"{each['runs']} single heads" if each["heads"] == "single" else f"{each['heads']} ({each['swapped']})"
        yield f"| {each['model']} | {group} | {each['kind']} | {' | '.join(cells)} |"


def between(found: list[float] | None) -> str:
    """A mean, and its interval where it has one."""
    if found is None:
        return ""
    return short(found[0], 3) + (f" ({short(found[1], 3)} to {short(found[2], 3)})" if len(found) == 3 else "")


@claims(PAGE)
def edited() -> Iterator[str]:
    for each in results("explain_edit")["rows"]:
        counts = [each[key] for key in ("demands", "met", "proved_impossible", "hold_in_the_model", "fine_tuning_met")]
        yield f"| {each['model']} | {' | '.join(map(str, counts))} |"
        for label in ("edit", "edit without keep", "fine-tuned"):
            drifts = [
                plus_minus(each[f"{label}: {key}"], each[f"{label}: {key} (half)"], 4)
                for key in ("choices_changed", "added_loss", "cosine")
            ]
            yield f"| {each['model']} | {label} | {' | '.join(drifts)} |"


@claims(PAGE)
def watched() -> Iterator[str]:
    (each,) = results("explain_watch")["rows"]
    yield (
        f"In {each['steps']} steps of a GPT of four layers and four heads, measuring all heads every {each['every']}"
        f" steps, the default, took {100 * each['overhead']:.1f} % of the time of training"
    )
