"""What docs/heads_study.md says of the heads of three transformers, and of two that were trained here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pages.reading import claims, median, results, row

PAGE = "docs/heads_study.md"
MODELS = {"minilm": "MiniLM", "rxnmapper": "rxnmapper"}
COLUMNS = ("efficiency", "efficiency_random", "efficiency_untrained", "cosine", "cosine_random", "cosine_untrained")
MEASURES = ("margin efficiency (smallest)", "margin efficiency (quantile)", "direction cosine")
SMOLLM, MINILM, RXNMAPPER, SMOLLM_WITHOUT, MINILM_WITHOUT = (
    results(f"heads_{name}")
    for name in ("smollm", "minilm", "rxnmapper", "smollm_without_sinks", "minilm_without_sinks")
)
ROTARY = results("heads_rotary")["settings"]
NEAR = ("self", "previous", "next")


def shown(value: Any, form: str = ".3g", factor: float = 1.0) -> str:
    """A number; of a control the range of its draws."""
    if isinstance(value, dict):
        if value["low"] == value["high"]:
            return shown(value["median"])
        return f"{value['low']:.2g} to {value['high']:.2g}"
    return "–" if value is None else f"{factor * value:{form}}"  # noqa: RUF001  as the page writes what is missing


def percent(value: float | None) -> str:
    return shown(value, ".0f", 100)


def share(value: float) -> str:
    """In percent; below one, two digits."""
    return percent(value) if value >= 0.01 or value == 0 else shown(value, ".2g", 100)


def table(found: dict[str, Any]) -> Iterator[str]:
    for each in found["rows"]:
        selects = f"{each['selects']} {percent(each['selects_share'])}" if each["selects"] else "–"  # noqa: RUF001
        numbers = " | ".join(shown(each[key]) for key in COLUMNS)
        learned = " | ".join(percent(each[key]) for key in ("agreement", "agreement_rule"))
        more = ""
        if "frequencies" in found:
            why = found["frequencies"].get(each["head"])
            more = f" {percent(why and why['by_position'])} |"
        yield f"| {each['head']} | {selects} | {share(each['confident'])} | {numbers} | {learned} |{more}"


@claims(PAGE)
def tables_of_heads() -> Iterator[str]:
    for found in (SMOLLM, MINILM, RXNMAPPER):
        yield from table(found)


def cell(each: dict[str, Any]) -> str:
    tone = each["sentence"].split(" max-margin")[0]
    words = "not clearly" if "not clearly" in tone else "further" if "FURTHER" in tone else "closer"
    assert (words == "not clearly") == (each["p"] >= 0.01)
    equal = f" (equal in {each['equal']})" if each["equal"] else ""
    against = each["controlled"]
    return (
        f"{words}: {each['trained']:.3g} against {against['median']:.3g} ({against['low']:.3g} to"
        f" {against['high']:.3g}), larger in {each['larger']} of {each['heads']}{equal}, than every draw in"
        f" {each['above']}"
    )


def verdict_rows(found: dict[str, Any]) -> Iterator[str]:
    for measure in MEASURES:
        cells = [cell(verdict(found, measure, control)) for control in ("random", "shuffled", "untrained")]
        yield f"| {measure} | {' | '.join(cells)} |"


@claims(PAGE)
def verdicts() -> Iterator[str]:
    for found in (SMOLLM, SMOLLM_WITHOUT, MINILM, MINILM_WITHOUT, RXNMAPPER):
        yield from verdict_rows(found)


def verdict(found: dict[str, Any], measure: str, control: str) -> dict[str, Any]:
    (only,) = [each for each in found["verdicts"] if each["measure"] == measure and control in each["control"]]
    return only


def head(found: dict[str, Any], name: str) -> dict[str, Any]:
    return row(found, head=name)


def count(rows: Sequence[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> int:
    return sum(bool(holds(each)) for each in rows)


def solved(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [each for each in found["rows"] if each["outcome"] == "solved"]
    assert all(each["gap"] <= 1e-3 for each in rows)
    return rows


def ahead(each: dict[str, Any]) -> bool:
    return bool(each["cosine"] > each["cosine_random"]["median"])


def first_share(found: dict[str, Any], name: str) -> float:
    return float(found["heads"][name]["kinds"].get("first", 0.0))


@claims(PAGE)
def rules() -> Iterator[str]:
    """W_mm against the best rule, on the same held-out queries."""
    for title, found in (
        ("SmolLM2", SMOLLM), ("SmolLM2 without sinks", SMOLLM_WITHOUT), ("MiniLM", MINILM),
        ("MiniLM without sinks", MINILM_WITHOUT), ("rxnmapper", RXNMAPPER),
    ):  # fmt: skip
        each = verdict(found, "agreement on held-out queries", "rule")
        less = each["heads"] - each["larger"] - each["equal"]
        yield (
            f"| {title} | {percent(each['trained'])} | {percent(each['controlled']['median'])} | {each['larger']} |"
            f" {each['equal']} | {less} | {each['p']:.1g} |"
        )


@claims(PAGE)
def smollm() -> Iterator[str]:
    rows = solved(SMOLLM)
    best = max(rows, key=lambda each: each["efficiency"])
    yield f"{len(rows)} of {len(SMOLLM['rows'])} heads are solved."
    yield (
        f"The median efficiency is {100 * median(each['efficiency'] for each in rows):.1f} %; the best head,"
        f" {best['head']}, has {100 * best['efficiency']:.0f} %."
    )
    sinks = [each for each in rows if first_share(SMOLLM, each["head"]) >= 0.5]
    others = [each for each in rows if first_share(SMOLLM, each["head"]) < 0.5]
    yield (
        f"{len(sinks)} heads select the first token in at least half of their confident queries."
        f" {count(sinks, ahead)} of"
        f" them have a larger cosine than the median draw of random weights; of the other {len(others)} heads"
        f" {count(others, ahead)} have."
    )
    before, after = (verdict(found, "direction cosine", "random")["trained"] for found in (SMOLLM, SMOLLM_WITHOUT))
    yield f"{len(SMOLLM_WITHOUT['rows'])} heads of every sixth layer, the median cosine is {after:.3f}"
    assert after > before


@claims(PAGE)
def positions() -> Iterator[str]:
    found = SMOLLM["frequencies"]
    selects = {each["head"]: each["selects"] for each in SMOLLM["rows"]}
    by_place = [name for name, each in found.items() if each["position"] >= 0.5]
    near = [name for name in by_place if selects[name] in NEAR]
    yield (
        f"In {len(by_place)} of {len(found)} heads the position makes at least half of the gap to the runner-up;"
        f" {len(near)} of them select mostly the token before or themselves"
    )
    content = [name for name, each in found.items() if each["by_content"] >= 0.9]
    yield f"in {len(content)} heads content alone makes at least nine choices in ten"
    for words, kind in (("first token", "first"), ("token before", "previous")):
        some = [each for name, each in found.items() if selects[name] == kind]
        place, rest = (percent(median(each[key] for each in some)) for key in ("by_position", "by_content"))
        yield (
            f"In the {len(some)} heads that mostly select the {words}, position alone makes {place} % of the"
            " choices and"
            f" content alone {rest} % (medians)"
        )
    sinks, rest = ([each for name, each in found.items() if selects[name] == kind] for kind in ("first", "previous"))
    fast = sum(period <= 32 for period in SMOLLM["periods"])
    turned, still = ([sum(each["gap"][:fast]) for each in some] for some in (rest, sinks))
    yield f"The {fast} fastest of {len(SMOLLM['periods'])} frequencies turn once within 32 tokens."
    yield (
        f"They carry {percent(median(turned))} % of the gap (median) where heads select the token before, and"
        f" {percent(median(still))} % where they select the first token."
    )

    def apart(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2

    own = [each for each in found.values() if each["energy_svm"] and each["energy_svm_random"]]
    yield (
        f"Energy by frequency of the head and of its $W_\\text{{mm}}$ differ by"
        f" {median(apart(each['energy'], each['energy_svm']) for each in own):.2f} in the median (total variation, 0 to"
        " 1), those of random weights by"
        f" {median(apart(each['energy'], each['energy_svm_random']) for each in own):.2f}."
    )
    fastest = [median(sum(each[key][:fast]) for each in own) for key in ("energy", "energy_svm", "energy_svm_random")]
    yield (
        f"The fast frequencies hold {percent(fastest[0])} % of the energy of a head and {percent(fastest[1])} % of that"
        f" of its $W_\\text{{mm}}$ ({percent(fastest[2])} % for random weights)."
    )


@claims(PAGE)
def minilm() -> Iterator[str]:
    rows = solved(MINILM)
    yield f"{len(rows)} of {len(MINILM['rows'])} heads are solved."
    best = max(rows, key=lambda each: each["efficiency"])
    yield (
        f"The median efficiency is {100 * median(each['efficiency'] for each in rows):.1f} %; the best head,"
        f" {best['head']}, has {100 * best['efficiency']:.0f} %."
    )
    sinks = [each for each in rows if first_share(MINILM, each["head"]) >= 0.95]
    others = [each for each in rows if first_share(MINILM, each["head"]) < 0.70]
    yield (
        f"of the {len(sinks)} heads that select `[CLS]` in at least 95 % of their confident queries,"
        f" {count(sinks, ahead)}"
        f" have a larger cosine than the median draw of random weights; of the {len(others)} heads that"
        " do so in less than"
        f" 70 %, {count(others, ahead)} have."
    )
    ranks = [median(each[key] for each in rows) for key in ("effective_rank_svm", "effective_rank")]
    yield f"the median effective rank of $W_\\text{{mm}}$ is {ranks[0]:.0f}, that of $W$ {ranks[1]:.0f}"
    before, after = (verdict(found, "direction cosine", "random")["trained"] for found in (MINILM, MINILM_WITHOUT))
    yield f"The median cosine goes from {before:.3f} to {after:.3f}"


@claims(PAGE)
def rxnmapper() -> Iterator[str]:
    rows = RXNMAPPER["rows"]
    yield f"{len(solved(RXNMAPPER))} of {len(rows)} heads are solved"
    assert [each["head"] for each in rows if each["outcome"] != "solved"] == ["L4H2"]
    atoms = RXNMAPPER["atoms"]
    yield f"({atoms['L10H5']['atoms']} product atoms;"
    yield (
        f"in {percent(atoms['L10H5']['right'])} % of cases (L11H5 in {percent(atoms['L11H5']['right'])} %); a random"
        f" reactant atom of the same element would be right in {percent(atoms['L10H5']['chance'])} %."
    )
    few = [each for each in rows if each["queries"] < 20]
    yield f"{len(few)} heads, most of them head 2, have fewer than 20 queries"
    far = [each for each in rows if each["selects"].split()[-1:] in (["before"], ["after"])]
    yield f"{len(far)} heads of these layers keep to a distance of two to four"


@claims(PAGE)
def three_heads() -> Iterator[str]:
    before, mark, atoms = head(MINILM, "L0H2"), head(MINILM, "L3H11"), head(RXNMAPPER, "L10H5")
    yield (
        f"its efficiency is {before['efficiency']:.3f} (random weights:"
        f" {shown(before['efficiency_random'])}), its cosine"
        f" {before['cosine']:.3f} ({shown(before['cosine_random'])})."
    )
    yield (
        f"finds {percent(before['agreement_rule'])} % of its held-out selections, $W_\\text{{mm}}$"
        f" {percent(before['agreement'])} %"
    )
    shares = [each.split("(")[1].split("%")[0] for each in MINILM["heads"]["L0H2"]["support_tokens"][:1]]
    yield f"Its largest multiplier ({shares[0]} % of all)"
    yield (
        f"agrees with {percent(mark['agreement_rule'])} % of its held-out selections and"
        f" $W_\\text{{mm}}$ with {percent(mark['agreement'])} %"
    )
    yield (
        f"(efficiency {mark['efficiency']:.3g} against {shown(mark['efficiency_random'])}; cosine {mark['cosine']:.3f}"
        f" against {shown(mark['cosine_random'])})"
    )
    yield f"{percent(atoms['selects_share'])} % of its confident selections are another token of the same name"
    yield (
        f"finds {percent(atoms['agreement_rule'])} % of them on held-out reactions; $W_\\text{{mm}}$"
        f" finds {percent(atoms['agreement'])} %"
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
def theory() -> Iterator[str]:
    rows = [median(each["support_rows"] for each in solved(found)) for found in (SMOLLM, MINILM, RXNMAPPER)]
    yield (
        f"{rows[0]:.0f}, {rows[1]:.0f} and {rows[2]:.0f} rows (medians) have a positive multiplier, of"
        " 60 queries with a row for every"
        " other token each"
    )


@claims(PAGE)
def margins() -> Iterator[str]:
    middle = [100 * median(each["efficiency"] for each in solved(found)) for found in (SMOLLM, MINILM, RXNMAPPER)]
    yield f"in the median {middle[0]:.1f}, {middle[1]:.1f} and {middle[2]:.1f} % of the max margin"
    cosines = [median(each["cosine"] for each in solved(found)) for found in (RXNMAPPER, MINILM)]
    yield f"closer than controls with 60 queries (cosine {cosines[0]:.2f} in rxnmapper, {cosines[1]:.2f} in MiniLM)"


@claims(PAGE)
def costs() -> Iterator[str]:
    parts = (SMOLLM, SMOLLM_WITHOUT, MINILM, MINILM_WITHOUT, RXNMAPPER)
    yield f"took {sum(each['cpu_seconds'] for each in parts) / 60:.0f} minutes of one core"
    peak = max(each["peak_memory_of_the_process_mib"] for each in parts) / 1024
    yield f"at most {peak:.1f} GiB"


@claims(PAGE)
def from_scratch() -> Iterator[str]:
    found = ROTARY
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


@claims(PAGE)
def more_queries() -> Iterator[str]:
    """MiniLM and rxnmapper as measured before: more queries, one draw of each control, and the rules of today."""
    earlier = results("heads_minilm_500")
    each = verdict(earlier, "direction cosine", "random")
    yield (
        f"With 500 queries per head and one draw (measured earlier) the cosine was {each['trained']:.3g} against"
        f" {each['controlled']:.3g} for random weights, larger in {each['larger']} of {each['heads']} heads"
    )
    found = results("heads_rules")
    for name, title in (("minilm", "MiniLM, 500 queries"), ("rxnmapper", "rxnmapper, 250 queries")):
        rows = [each for each in found[name] if each["agreement"] is not None]
        own, rule, old = (
            percent(median(each[key] for each in rows))
            for key in ("agreement", "agreement_rule", "agreement_earlier_rule")
        )
        better, equal = (count(rows, lambda each, sign=sign: sign(each)) for sign in (_better, _equal))
        yield f"| {title} | {own} | {rule} | {better} | {equal} | {len(rows) - better - equal} |"
        before = count(rows, lambda each: each["agreement"] > each["agreement_earlier_rule"])
        lost = count(rows, lambda each: each["agreement"] < each["agreement_earlier_rule"])
        yield f"{title}: better in {before}, worse in {lost} (median of the old rules {old} %)"
    far = {each["head"]: each for each in found["rxnmapper"]}["L0H0"]
    yield (
        f'In rxnmapper L0H0, called "content" before, "{far["rule"]}" names {percent(far["agreement_rule"])} % of the'
        f" held-out selections, the best of the six rules named {percent(far['agreement_earlier_rule'])} %, and"
        f" $W_\\text{{mm}}$ {percent(far['agreement'])} %."
    )
    mark = {each["head"]: each for each in found["minilm"]}["L3H11"]
    yield (
        f"(with 500 queries {percent(mark['agreement_rule'])} % and {percent(mark['agreement'])} %; the best of the six"
        f" rules had {percent(mark['agreement_earlier_rule'])} %)"
    )


def _better(each: dict[str, Any]) -> bool:
    return bool(each["agreement"] > each["agreement_rule"])


def _equal(each: dict[str, Any]) -> bool:
    return bool(each["agreement"] == each["agreement_rule"])
