"""What docs/heads_study.md says of the heads of two transformers, and of one that was trained here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pages.reading import claims, median, results, row

PAGE = "docs/heads_study.md"
MODELS = {"minilm": "MiniLM", "rxnmapper": "rxnmapper"}
COLUMNS = (
    "efficiency", "efficiency_random", "efficiency_untrained", "efficiency_quantile", "quantile_random",
    "quantile_untrained", "cosine", "cosine_random", "cosine_untrained",
)  # fmt: skip
MEASURES = ("margin efficiency (smallest)", "margin efficiency (quantile)", "direction cosine")
MINILM, RXNMAPPER, WITHOUT = (results(f"heads_{name}") for name in ("minilm", "rxnmapper", "minilm_without_sinks"))


def shown(value: float | None, form: str = ".3g", factor: float = 1.0) -> str:
    return "–" if value is None else f"{factor * value:{form}}"  # noqa: RUF001  as the page writes what is missing


def percent(value: float | None) -> str:
    return shown(value, ".0f", 100)


def share(value: float) -> str:
    """In percent; below one, two digits."""
    return percent(value) if value >= 0.01 or value == 0 else shown(value, ".2g", 100)


@claims(PAGE)
def tables_of_heads() -> Iterator[str]:
    for found in (MINILM, RXNMAPPER):
        for each in found["rows"]:
            selects = "–" if each["selects"] is None else f"{each['selects']} {percent(each['selects_share'])}"  # noqa: RUF001
            numbers = " | ".join(shown(each[key]) for key in COLUMNS)
            learned = " | ".join(percent(each[key]) for key in ("agreement", "agreement_rule"))
            yield f"| {each['head']} | {selects} | {share(each['confident'])} | {numbers} | {learned} |"


@claims(PAGE)
def verdicts() -> Iterator[str]:
    for found in (MINILM, RXNMAPPER, WITHOUT):
        for measure in MEASURES:
            cells = []
            for each in (one for one in found["verdicts"] if one["measure"] == measure):
                words = "closer" if each["sentence"].startswith("Trained heads are closer") else "not clearly"
                equal = f" (equal in {each['equal']})" if each["equal"] else ""
                assert (words == "closer") == (each["p"] < 0.01 and each["larger"] > each["heads"] / 2)
                cells.append(
                    f"{words}: {each['trained']:.3g} against {each['controlled']:.3g},"
                    f" larger in {each['larger']} of {each['heads']}{equal}"
                )
            order = sorted(
                range(3), key=lambda place: ("random", "shuffled", "untrained").index(_control(found, place))
            )
            yield f"| {measure} | {' | '.join(cells[place] for place in order)} |"


def _control(found: dict[str, Any], place: int) -> str:
    name = [each["control"] for each in found["verdicts"] if each["measure"] == MEASURES[0]][place]
    return next(word for word in ("random", "shuffled", "untrained") if word in name)


def verdict(found: dict[str, Any], measure: str, control: str) -> dict[str, Any]:
    (only,) = [each for each in found["verdicts"] if each["measure"] == measure and control in each["control"]]
    return only


def head(found: dict[str, Any], name: str) -> dict[str, Any]:
    return row(found, head=name)


def count(rows: Sequence[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> int:
    return sum(bool(holds(each)) for each in rows)


@claims(PAGE)
def minilm() -> Iterator[str]:
    rows = MINILM["rows"]
    solved = [each for each in rows if each["outcome"] == "solved"]
    assert all(each["gap"] <= 1e-3 for each in solved)
    yield f"{len(solved)} of {len(rows)} heads are solved."
    best = max(solved, key=lambda each: each["efficiency"])
    middle = median(each["efficiency"] for each in solved)
    yield (
        f"The median efficiency is {100 * middle:.1f} %; the best head, {best['head']}, has"
        f" {100 * best['efficiency']:.0f} %."
    )
    closer = verdict(MINILM, "direction cosine", "random")
    behind = closer["heads"] - closer["larger"]
    yield f"In {behind} of {closer['heads']} cases random weights are closer to their own W_mm"
    first = {each["head"]: MINILM["heads"][each["head"]]["kinds"].get("first", 0.0) for each in rows}
    sinks = [each for each in rows if first[each["head"]] >= 0.95]
    others = [each for each in rows if first[each["head"]] < 0.70]
    yield (
        f"of the {len(sinks)} heads that select `[CLS]` in at least 95 % of their confident queries,"
        f" {count(sinks, _ahead)} have a larger cosine than random weights; of the {len(others)} heads that do so in"
        f" less than 70 %, {count(others, _ahead)} have."
    )
    ranks = [median(each[key] for each in rows) for key in ("effective_rank_svm", "effective_rank")]
    yield f"the median effective rank is {ranks[0]:.0f} against {ranks[1]:.0f}"
    agrees = [median(each[key] for each in rows) for key in ("agreement", "agreement_rule")]
    yield f"selects what the head selects in {percent(agrees[0])} % of queries (median), the best rule"
    yield f"rule without weights in {percent(agrees[1])} %."
    better = count(rows, lambda each: each["agreement"] > each["agreement_rule"])
    worse = count(rows, lambda each: each["agreement"] < each["agreement_rule"])
    yield f"It beats the rule in {better} heads and loses in {worse}."
    margins = median(each["margin_shuffled"] for each in rows)
    none = [each["head"] for each in rows if each["margin_shuffled"] is None]
    yield f"their max margin is {margins:.2f} of the head's own. In {len(none)} heads of layer 0"
    assert all(name.startswith("L0") for name in none)
    yield f"| few tokens determine the solution | {median(each['support_rows'] for each in rows):.0f} rows"


def _ahead(each: dict[str, Any]) -> bool:
    return each["cosine"] > each["cosine_random"]


@claims(PAGE)
def without_sinks() -> Iterator[str]:
    before, after = (verdict(found, "direction cosine", "random")["trained"] for found in (MINILM, WITHOUT))
    yield f"The median cosine rises from {before:.3f} to {after:.3f}"


@claims(PAGE)
def rxnmapper() -> Iterator[str]:
    rows = RXNMAPPER["rows"]
    solved = [each for each in rows if each["outcome"] == "solved"]
    yield f"{len(solved)} of {len(rows)} heads are solved"
    none = sorted(int(each["head"][1:-2]) for each in rows if each["outcome"] != "solved")
    yield f"(head 2 in layers {', '.join(map(str, none[:-1]))} and {none[-1]})"
    assert all(each["head"].endswith("H2") for each in rows if each["outcome"] != "solved")
    cosine = verdict(RXNMAPPER, "direction cosine", "untrained")["trained"]
    yield f"rxnmapper: closer than controls, cosine {cosine:.2f}"
    atoms = RXNMAPPER["atoms"]
    yield f"({atoms['L10H5']['atoms']} product atoms;"
    yield (
        f"in {percent(atoms['L10H5']['right'])} % of cases (L11H5 in {percent(atoms['L11H5']['right'])} %); a random"
        f" reactant atom of the same element would be right in {percent(atoms['L10H5']['chance'])} %."
    )
    sinks = [each["head"] for each in rows if each["selects"] == "first" and each["selects_share"] > 0.7]
    assert sinks == ["L1H5"]
    assert head(RXNMAPPER, "L1H5")["cosine"] < head(RXNMAPPER, "L1H5")["cosine_random"]
    few = [each for each in rows if each["queries"] < 20]
    assert len(few) == 13  # "Thirteen heads ... have fewer than 20 queries"


@claims(PAGE)
def three_heads() -> Iterator[str]:
    before, mark, atoms = head(MINILM, "L0H2"), head(MINILM, "L3H11"), head(RXNMAPPER, "L10H5")
    yield f"{percent(before['agreement_rule'])} % of held-out selections are the token before"
    yield (
        f"its efficiency is {before['efficiency']:.3f} (random weights: {before['efficiency_random']:.4f}), its cosine"
        f" {before['cosine']:.3f} ({before['cosine_random']:.3f})."
    )
    examples = MINILM["heads"]["L0H2"]["support_tokens"]
    shares = [each.split("(")[1].split("%")[0] for each in examples]
    yield f"the first *it* and not the second ({shares[0]} % of all multipliers)"
    yield f"the second *it* and not the first ({shares[1]} %)"
    yield f"this *farmer*, not that one ({shares[2]} %)"
    kinds = MINILM["heads"]["L3H11"]["kinds"]
    beside = kinds["self"] + kinds["previous"] + kinds["next"]
    yield f"in {percent(kinds['delimiter'])} % of cases a delimiter farther away, in {percent(beside)} % themselves or"
    yield f"No rule in our list describes it ({percent(mark['agreement_rule'])} % held out)"
    yield f"it agrees on {percent(mark['agreement'])} % of held-out queries, from {mark['support_rows']} support rows"
    yield (
        f"({mark['efficiency']:.4f} against {mark['efficiency_random']:.4f}; cosine {mark['cosine']:.3f} against"
        f" {mark['cosine_random']:.3f})"
    )
    yield f"{percent(atoms['selects_share'])} % of its confident selections are another token of the same name"
    yield (
        f'The rule "another token of the same name" finds {percent(atoms["agreement_rule"])} % of them, since a'
        f" reaction has many *c*; W_mm finds {percent(atoms['agreement'])} %."
    )


@claims(PAGE)
def nuclear() -> Iterator[str]:
    ranks: list[tuple[float, float]] = []
    for name, title in MODELS.items():
        for each in results(f"heads_nuclear_{name}")["rows"]:
            keys = ("efficiency", "efficiency_random", "efficiency_untrained", "cosine", "cosine_random",
                    "cosine_untrained", "effective_rank", "effective_rank_svm")  # fmt: skip
            numbers = " | ".join(shown(each[key]) for key in keys)
            yield f"| {title} {each['head']} | {each['queries']} | {numbers} | {each['outcome']} |"
            ranks.append((each["effective_rank_svm"], each["effective_rank"]))
            assert min(each["efficiency"] - each["efficiency_random"], each["cosine"] - each["cosine_random"]) > 0
            assert min(each["efficiency"] - each["efficiency_untrained"], each["cosine"] - each["cosine_untrained"]) > 0
    small, large = zip(*ranks, strict=True)
    yield f"effective rank {min(small):.0f} to {max(small):.0f} against {min(large):.0f} to {max(large):.0f}"


@claims(PAGE)
def training() -> Iterator[str]:
    found = results("heads_training")
    epochs = sorted({each["epoch"] for each in found["rows"]})
    yield f"| epoch | {' | '.join(map(str, epochs))} |"

    def of(key: str) -> list[str]:
        return [f"{median(each[key] for each in found['rows'] if each['epoch'] == one):.2f}" for one in epochs]

    yield f"| cosine to W_mm, median | {' | '.join(of('cosine'))} |"
    yield f"| the same of random weights | {' | '.join(of('random_cosine'))} |"
    yield f"| efficiency, 10 % quantile, median | {' | '.join(of('efficiency_quantile'))} |"
    yield f"| the same of random weights | {' | '.join(of('random_efficiency_quantile'))} |"
    yield f"rises too, from {of('random_cosine')[0]} to {of('random_cosine')[-1]}"
    assert all(median(each["efficiency"] for each in found["rows"] if each["epoch"] == one) < 0.01 for one in epochs)


@claims(PAGE)
def costs() -> Iterator[str]:
    files = (MINILM, RXNMAPPER, WITHOUT, *(results(f"heads_nuclear_{name}") for name in MODELS))
    seconds = sum(sum(each["cpu_seconds"].values()) for each in files)
    yield f"They take about {round(seconds, -1):,.0f} CPU seconds, which is {seconds / 120:.0f} minutes on two cores"
    yield f"at most {MINILM['peak_memory_of_a_process_mib'] / 1024:.1f} GiB per process"


@claims(PAGE)
def from_scratch() -> Iterator[str]:
    found = results("heads_rotary")["settings"]
    many, few = ([each for each in found[name]["rows"] if "factors" in each] for name in found)
    assert len(many) == found["many frequencies"]["data_sets"] == 100
    for words, part in (("$K$ and $Q$ trained", "factors"), ("the stack trained", "stack")):
        cells = [
            f"{median(each[part][norm][measure] for each in many):.3f}"
            for measure in ("efficiency", "cosine")
            for norm in ("group", "Frobenius")
        ]
        yield f"| {words}, median | {' | '.join(cells)} |"

    def nearer(each: dict[str, Any], part: str, norm: str, other: str) -> bool:
        return all(each[part][norm][measure] > each[part][other][measure] for measure in ("efficiency", "cosine"))

    factors = count(many, lambda each: nearer(each, "factors", "group", "Frobenius"))
    yield f"in margin and in direction in {factors} of 100"
    yield f"nearer to Frobenius in {count(many, lambda one: nearer(one, 'stack', 'Frobenius', 'group'))} of 100"
    (odd,) = [each for each in many if not nearer(each, "factors", "group", "Frobenius")]
    cells = [f"{odd['factors'][norm]['efficiency']:.2f}" for norm in ("group", "Frobenius")]
    yield f"data set {odd['seed']}, the efficiency is {cells[0]} against {cells[1]}"
    yield f"in the median {median(each['active'] for each in many):.0f} of 8 frequencies are active"
    yield f"so that K and Q can reach it, in {count(many, lambda each: each['rank_one'])} of 100"
    assert all(
        nearer(each, "factors", "group", "Frobenius") and nearer(each, "stack", "Frobenius", "group") for each in few
    )
    yield f"in all {len(few)} data sets that were solved to a gap of 1e-6 (of {found['few frequencies']['data_sets']}"
    assert all(each["gap"]["group"] < 2e-6 for each in found["few frequencies"]["rows"])
    yield f"{count(few, lambda each: each['rank_one'])} of them with solutions of rank one"
