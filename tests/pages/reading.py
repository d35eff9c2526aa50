"""What the pages say, held against the results that are committed.

A page's numbers are of two kinds. Those that were measured are *claimed*: a generator, registered with `claims`, reads
the results and yields the very words of the page with the numbers put in, and these words must be in the page. All
other numbers, such as sizes and settings, are listed in settings.json. A number that is neither claimed nor listed is
an error, and so is a listed one that is gone; so no digit of a page can be changed alone.

`PYTHONPATH=tests python -m pages.reading` lists anew the numbers that nobody claims. Look at the difference before you
commit it: a measurement does not belong there.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("settings.json")
NUMBER = re.compile(r"(?<![A-Za-z\d_.])(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")
Claims = Callable[[], Iterable[str]]
CLAIMS: dict[str, list[Claims]] = {}


def claims(page: str) -> Callable[[Claims], Claims]:
    """Register a generator of what `page` says; it may yield words that the page says anywhere."""

    def register(function: Claims) -> Claims:
        CLAIMS.setdefault(page, []).append(function)
        return function

    return register


def results(name: str) -> dict[str, Any]:
    """A committed result, by its file's name in benchmarks/results without the ending."""
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def words(text: str) -> str:
    """`text` without code, addresses, emphasis and line breaks; formulas as one would type them."""
    text = re.sub(r"^( *)```.*?^\1```", " ", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\n(?: {4}.*\n)+", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    text = re.sub(r"\]\([^)]*\)|<!--.*?-->|https?://\S+|arXiv[: ]\d{4}\.\d{5}", "]", text)
    text = re.sub(r"(?:([\d.]+) \\cdot )?\b10\^\{(-?\d+)\}", lambda found: f"{found[1] or 1}e{found[2]}", text)
    for formula, typed in ((r"\ell_", "l_"), (r"\le ", "<= "), (r"\ge ", ">= ")):
        text = text.replace(formula, typed)
    text = re.sub(r"\\(mathrm|text|top|,|;)|[${}\\]|\*\*", "", text)
    return " ".join(text.replace("−", "-").split())  # noqa: RUF001  pages may write a real minus sign


def read(page: str, text: str) -> tuple[list[str], list[re.Match[str]]]:
    """Hold `text` against the claims about `page`: what it should say and does not, and the numbers nobody claims."""
    said, missing = words(text), []
    covered = np.zeros(len(said) + 1, dtype=bool)
    for function in CLAIMS[page]:
        for claim in function():
            wanted = words(claim)
            assert NUMBER.search(wanted), f"a claim holds a number: {claim!r}"
            assert len(wanted) >= 10, f"a claim holds enough words to be found: {claim!r}"
            places = [each.span() for each in re.finditer(rf"(?<![\d.]){re.escape(wanted)}(?!\.?\d)", said)]
            missing += [] if places else [wanted]
            for first, last in places:
                covered[first:last] = True
    return missing, [each for each in NUMBER.finditer(said) if not covered[each.start()]]


def problems(page: str, text: str) -> list[str]:
    """Everything in `text` that does not agree with the results and the settings of `page`."""
    missing, rest = read(page, text)
    listed = Counter(json.loads(SETTINGS.read_text(encoding="utf-8")).get(page, "").split())
    there = Counter(each[0] for each in rest)
    return [
        *(f"{page} does not say: {claim}" for claim in missing),
        *(
            f"{page}: {each[0]} is neither claimed nor a setting: ... {_around(each)} ..."
            for each in rest
            if each[0] in there - listed
        ),
        *(f"{page}: the setting {number} is gone" for number in listed - there),
    ]


def _around(found: re.Match[str]) -> str:
    return found.string[max(found.start() - 50, 0) : found.end() + 30]


# ------------------------------------------------------------------------- numbers as pages write them


def short(value: float, digits: int) -> str:
    """A share or cosine with `digits` decimals and without the zero in front: .942."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def power(value: float) -> str:
    """One digit and a power of ten: 6e-16."""
    return re.sub(r"e-0?", "e-", f"{value:.0e}")


def span(values: Sequence[float], write: Callable[[float], str]) -> str:
    """The least and the largest of several values: `a to b`, or one of them if both read the same."""
    least, largest = write(min(values)), write(max(values))
    return least if least == largest else f"{least} to {largest}"


def row(found: dict[str, Any], **where: object) -> dict[str, Any]:
    """The one row of a result whose columns have these values."""
    (only,) = [each for each in found["rows"] if all(each.get(key) == value for key, value in where.items())]
    return only


def median(values: Iterable[float | None]) -> float:
    """Of those that are there."""
    return float(np.median([value for value in values if value is not None and not math.isnan(value)]))


def main() -> None:
    """List the numbers nobody claims as settings, page by page."""
    from pages import test_pages  # it registers all claims

    rest = {page: [each[0] for each in test_pages.read(page, text_of(page))[1]] for page in test_pages.CLAIMS}
    listed = {page: " ".join(sorted(rest[page])) for page in sorted(rest)}
    SETTINGS.write_text(json.dumps(listed, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
