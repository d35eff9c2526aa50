"""What pages say of the experiments, from the summaries of their seeds in benchmarks/results/experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.experiments import page_block

from pages.reading import NUMBER, ROOT, claims, power, results, short, span, words

SUMMARIES = sorted(path.stem for path in (ROOT / "benchmarks" / "results" / "experiments").glob("*.json"))


def page_of(experiment: str) -> str:
    return (Path("docs") / "experiments" / f"{experiment}.md").as_posix()


def summary(experiment: str) -> dict[str, Any]:
    return results(f"experiments/{experiment}")


def check(experiment: str, what: str) -> dict[str, Any]:
    """The one check whose name begins with `what`."""
    (only,) = [each for each in summary(experiment)["checks"] if each["what"].startswith(what)]
    return only


def held(experiment: str, what: str) -> str:
    """In how many seeds a check holds: `7 of 8`."""
    return f"{check(experiment, what)['counts'].get('holds', 0)} of {len(summary(experiment)['seeds'])}"


def measured(experiment: str, what: str, place: int) -> list[float]:
    """The number at this place of what a check measured, by seed."""
    texts = check(experiment, what)["measured"]
    return [float(NUMBER.findall(text)[place].replace(",", "")) for text in texts]


def numbers(experiment: str, name: str) -> list[float]:
    """A further number, by seed."""
    found: list[float] = summary(experiment)["numbers"][name]
    return found


def cosines(values: list[float], digits: int = 3) -> str:
    return span(values, partial(short, digits=digits))


def counts(values: list[float]) -> str:
    return span(values, lambda value: f"{value:,.0f}")


def powers(values: list[float]) -> str:
    return span(values, lambda value: f"{value:.1e}".replace("e-0", "e-"))


def percents(shares: list[float]) -> str:
    return span([100 * share for share in shares], lambda value: f"{value:.1f}")


def total(experiment: str, reason: str) -> int:
    """Instances counted for this reason in all seeds together."""
    return sum(summary(experiment)["counts"][reason])


# ------------------------------------------------------------------------- the tables of every page


def rows_of(experiment: str) -> Iterator[str]:
    yield from (line for line in page_block(summary(experiment)).splitlines() if NUMBER.search(words(line)))


for each in SUMMARIES:
    claims(page_of(each))(partial(rows_of, each))


# ------------------------------------------------------------------------- what their sentences say


def sentences(experiment: str) -> Callable[[Callable[[], Iterator[str]]], Callable[[], Iterator[str]]]:
    """Register what the page of an experiment says, once its summary is there."""
    return claims(page_of(experiment))


@sentences("multi-input")
def multi_input() -> Iterator[str]:
    (slowest,) = [value for value in measured("multi-input", "the picture's", 0) if value <= 0.999]
    yield f"still below .999 after 1000 steps, at {short(slowest, 4)} or a little more"
    assert total("multi-input", "SVM of the optimal tokens not solved") == 0


@sentences("loss-comparison")
def loss_comparison() -> Iterator[str]:
    (rest,) = set(measured("loss-comparison", "every C and loss: second", 2))
    yield f"-{rest:.2f} for C = 100 with the logistic loss."


@sentences("trajectories")
def trajectories() -> Iterator[str]:
    own = partial(numbers, "trajectories")
    yield (
        f"Of the hundred runs of W, {counts(own('W, optimal'))} reach the optimal tokens, of (K, Q)"
        f" {counts(own('KQ, optimal'))}"
    )
    stuck = sum(measured("trajectories", "all data sets: W turns", 3))
    yield f"{stuck:.0f} of 800 runs do"
    yield f"in the plane {counts(measured('trajectories', 'all data sets: (K,Q) turns', 3))} runs in a hundred"
    yield from changed("trajectories")


@sentences("hyperplanes")
def hyperplanes() -> Iterator[str]:
    own = partial(numbers, "hyperplanes")
    yield (
        f"Of the hundred runs of W, {counts(own('W, optimal'))} reach the optimal tokens, of (K, Q)"
        f" {counts(own('KQ, optimal'))}"
    )
    w, kq = (sum(100 - each for each in own(f"{kind}, locally_optimal")) for kind in ("W", "KQ"))
    yield f"{w:.0f} of W and {kq:.0f} of (K, Q) are not at a locally optimal selection"
    assert sum(measured("hyperplanes", "all data sets: W turns", 3)) == 1  # "the one run of W"
    yield from changed("hyperplanes")


def changed(experiment: str) -> Iterator[str]:
    reasons = [f"{kind}: selection changed after the paper's steps" for kind in ("W", "KQ")]
    w, kq = (total(experiment, reason) for reason in reasons)
    yield f"changes after the paper's 2000 steps: of 800, {w} of W and {kq} of (K, Q)."


@sentences("quadratic-head")
def quadratic_head() -> Iterator[str]:
    (pairs,) = set(numbers("quadratic-head", "of"))
    yield f"Of the {pairs:.0f} pairs of a data set and a"
    yield f"in each seed, {counts(numbers('quadratic-head', 'off'))} are off by 1e-6 or more"


@sentences("local-convergence")
def local_convergence() -> Iterator[str]:
    own, checked = partial(numbers, "local-convergence"), partial(measured, "local-convergence")
    early = "probability of the selected token, early"
    yield f"at step 100 it has {cosines(checked(early, 1), 2)} on average, W {cosines(checked(early, 0), 2)}."
    mean, median = cosines(own("KQ, mean cosine at 2000")), cosines(own("KQ, median cosine at 2000"))
    yield f"of (K, Q) to the nuclear SVM without the ridge is {mean}, the median {median}"
    paper, late = (powers(own(f"W, median 1 - cosine at {step}")) for step in (2000, 20_000))
    yield f"1 - cosine to the Frobenius SVM is {paper}, and {late} at 20,000."
    conjecture = "all data sets: (K,Q) without ridge turns"
    yield f"without the ridge {counts(checked(conjecture, 3))} stay below .99 and are not"
    yield f"holds in {held('local-convergence', conjecture)} seeds"
    yield f"the median cosine is {median} at step 2000 and {cosines(checked(conjecture, 4))} at 20,000."
    yield f"At step 1000 the mean of our W is {cosines(own('W, mean cosine at 1000'))}"


@sentences("causal")
def causal() -> Iterator[str]:
    own, checked = partial(numbers, "causal"), partial(measured, "causal")
    yield (
        f"{counts(own('W, optimal'))} of the selections of W and {counts(own('KQ, optimal'))} of those of (K, Q) are"
        " optimal at every position"
    )
    assert set(own("W, locally optimal")) == {100}
    yield f"all of W and {counts(own('KQ, locally optimal'))} of (K, Q) are locally optimal"
    yield f"{cosines(own('W to the nuclear SVM'))} (W to the nuclear)"
    yield f"{cosines(own('KQ to the frobenius SVM'))} ((K, Q) to the Frobenius one)"
    w, kq = "all data sets: W turns", "all data sets: (K,Q) turns"
    yield f"Of 800 runs of W, {sum(100 - each for each in checked(w, 0)):.0f} ends so"
    assert sum(checked(w, 3)) == 0
    yield f"Of a hundred runs of (K, Q) {counts(checked(kq, 3))} do not"


@sentences("first-gradient")
def first_gradient() -> Iterator[str]:
    own = partial(numbers, "first-gradient")
    yield f"2,800 data sets, of which {counts(own('favourable'))} are favourable."
    leave = counts(measured("first-gradient", "favourable, small steps: leave", 0))
    yield f"{leave} leave the cone for a while, and {counts(own('favourable, small steps elsewhere'))} end elsewhere."
    small, large = (own(f"not favourable, {name} steps") for name in ("small", "large"))
    assert all(more > less for more, less in zip(small, large, strict=True))
    yield (
        f"Of the others, {percents(small)} % reach the optimal tokens in small steps, {percents(large)} % after one"
        " large step"
    )


@sentences("rank")
def rank() -> Iterator[str]:
    own = partial(numbers, "rank")
    between, least = sum(own("values between 1e-13 and 1e-6")), min(own("least"))
    yield (
        f"of {sum(own('solutions')):,.0f} solutions in eight seeds, {between:.0f} have a value in between, the least"
        f" {power(least)}."
    )
    assert max(own("largest of the rest")) < 1e-15
    two, three, four = (counts(own(f"separable, d = {d}")) for d in (2, 3, 4))
    assert max(own("drawn, d = 4")) == 500
    yield f"{two} of 2,000 at d = 2, {three} of 2,000 at d = 3, {four} of at most 500 at d = 4"
    assert set(own("drawn, d = 2")) | set(own("drawn, d = 3")) == {2000}
    gap = max(measured("rank", "largest certified relative gap", 0))
    yield f"Solved to a relative gap of {gap:.1e}".replace("e-0", "e-") + " or better"
    yield f"rank at d = 20 is {cosines(own('nuclear, n = 5'), 2)} for n = 5"
    assert max(own("nuclear, n = 15")) < 15 / 3
    yield f"The paper's draws take {counts(summary('rank')['cpu_seconds'])} s of CPU time"
    undecided = sum(measured("rank", "neither solved", 0))
    assert undecided == total("rank", "nuclear not solved, not proved infeasible")
    yield f"Neither solved nor proved infeasible: {undecided:.0f} in eight seeds"
    (one,) = set(measured("rank", "separable draws at d = 1", 0))
    yield f"no weights tell equal tokens apart: {one:.0f} of 500 can be separated."


@sentences("regularization-path")
def regularization_path() -> Iterator[str]:
    wide = "KQ: distance to the nuclear solution set of descent"
    for what in ("W", "joint tight", "joint relaxed", "relu"):
        assert held("regularization-path", f"{what}: 1 - cosine of descent") == "8 of 8"
    yield f"for (K, Q) in {held('regularization-path', wide)} seeds."
    middle, worst = (measured("regularization-path", wide, place) for place in (0, 1))
    yield f"is at {cosines(middle)} in the median, and the worst run of a seed at {cosines(worst, 2)}"
    found = summary("regularization-path")["counts"]
    rest = {
        name: sum(sum(values) for reason, values in found.items() if name in reason)
        for name in ("not stationary", "not solved", "single winner")
    }
    yield (
        f"points not stationary to the tolerance: {rest['not stationary']}; SVMs not solved: {rest['not solved']}; ReLU"
        f" heads without a proved single winner: {rest['single winner']}."
    )
    relu, w, kq = (found[f"{name}: descent reached another selection (left out)"] for name in ("relu", "W", "KQ"))
    yield (
        f"reached another selection on {counts(relu)} of 20 data sets, on W on {counts(w)}, on (K, Q) on {counts(kq)};"
        " those runs"
    )


@sentences("attention-sparsity")
def attention_sparsity() -> Iterator[str]:
    early, late = (numbers("attention-sparsity", f"entropy, layer 0, epoch {epoch}") for epoch in (10, 100))
    rising = sum(after > before for before, after in zip(early, late, strict=True))
    yield f"in {rising} of {len(late)} seeds the entropy of the first layer even rises a little."


@sentences("optimizer-geometry")
def optimizer_geometry() -> Iterator[str]:
    found = summary("optimizer-geometry")
    yield f"Each seed has {found['configuration']['datasets']} data sets here"
    for each in found["checks"]:
        adam = each["what"].startswith("Adam")
        assert each["counts"] == {"does not hold" if adam else "holds": 8}, each["what"]
        assert not adam or all("next l_3 " in text for text in each["measured"])
    yield f"(least attention {cosines(numbers('optimizer-geometry', 'mirror 1.1, least attention'), 2)})"
    rest = {reason: sum(values) for reason, values in found["counts"].items() if sum(values)}
    assert list(rest) == ["max entry SVM not decided"]
    yield f"are counted for each norm: {sum(rest.values())} in all seeds, of the largest entry"


@sentences("cones")
def cones() -> Iterator[str]:
    own, found = partial(numbers, "cones"), summary("cones")
    datasets = found["configuration"]["datasets"]
    yield f"Each seed has {datasets} data sets here"
    middle, large = (cosines(own(f"local, mu = 1e-05, norm {radius}"), 2) for radius in (100, 1000))
    yield f"{middle} of the starts return from norm 100, and {large} from norm 1000 on these data sets."
    grows = "local: returned from the narrowest cone"
    yield f"With so few data sets it holds in {held('cones', grows)} seeds"
    failing = [place for place, verdict in enumerate(check("cones", grows)["verdicts"]) if verdict != "holds"]
    ends = [measured("cones", grows, place) for place in (0, 1)]
    assert all(ends[0][place] == ends[1][place] for place in failing)
    missing = sum(own("no other local optimum"))
    yield f"Of the {datasets * len(found['seeds'])} data sets, {missing:.0f} have no locally optimal selection besides"


@sentences("convergence-types")
def convergence_types() -> Iterator[str]:
    own, found = partial(numbers, "convergence-types"), summary("convergence-types")
    yield f"Each seed has {found['configuration']['datasets']} data sets for each d."
    stray = "saturated runs that are not locally optimal"
    few, all_of_them = (sum(measured("convergence-types", stray, place)) for place in (0, 1))
    yield (
        f"Of {all_of_them:,.0f} saturated runs in all seeds, {few:.0f} are not locally optimal, all of them at d = 2."
    )
    assert sum(own("not local, d = 2")) == few
    yield f"There also {cosines(own('not saturated, d = 2'), 2)} of the runs are not saturated"
    undecided = [sum(values) for reason, values in found["counts"].items() if "decided" in reason]
    yield f"could not be decided: {sum(undecided)} in all seeds."


SEVERAL = "1 - cosine to W_fin + C W_svm"


def several(what: str) -> list[list[float]]:
    """What a check of `multi-token` measured, by seed: the numbers of all d, one after the other."""
    return [list(each) for each in zip(*(measured("multi-token", what, place) for place in range(4)), strict=True)]


def listed(what: str) -> str:
    return ", ".join(span(each, lambda value: f"{value:.2g}".lstrip("0")) for each in zip(*several(what), strict=True))


def kept_by_decaying_steps() -> str:
    return cosines([each for seed in several("share accepted, decaying") for each in seed], 2)


# ------------------------------------------------------------------------- pages about several experiments


def below(experiment: str, kind: str) -> float:
    """Runs of all seeds that do not come above .99 to their own SVM."""
    return sum(100 - each for each in numbers(experiment, f"{kind}, above .99 at 20000"))


@claims("docs/public-code.md")
def public_code() -> Iterator[str]:
    stay = "third score 0: the last two starts stay"
    drift = check("single-input", "third score 0: the naive")["measured"][0]
    yield f"cosine {short(min(measured('single-input', stay, 2)), 5)} or more at step 1000."
    yield f"drifts as the public run does, to {short(float(drift.split(', ')[1].split()[0]), 3)}."
    holds, leaves = "relaxed: p holds there", "relaxed: the naive"
    yield (
        f"cosine {cosines(measured('joint-training', holds, 0), 6)} at 200,"
        f" {cosines(measured('joint-training', holds, 2), 6)} at 1000; the float32 loop leaves, to"
        f" {cosines(measured('joint-training', leaves, 2), 3)}."
    )
    yield f"at least {cosines(measured('loss-comparison', 'every C and loss: p to', 0), 4)} at 20,000."
    w, kq = ([below(each, kind) for each in ("trajectories", "hyperplanes")] for kind in ("W", "KQ"))
    yield f"on all but {w[0]:.0f} (`trajectories`) and {w[1]:.0f} (`hyperplanes`) of 800"
    yield f"on {kq[0]:.0f} and {kq[1]:.0f} of 800."
    (off,), (of,) = ([sum(numbers("quadratic-head", name))] for name in ("off", "of"))
    yield f"met to 1e-6 on all but {off:.0f} of {of:,.0f} pairs of a data set and a"


@claims("docs/public-code.md")
def public_local_convergence() -> Iterator[str]:
    checked, own = partial(measured, "local-convergence"), partial(numbers, "local-convergence")
    ridge = cosines(checked("(K,Q) with the public ridge", 0), 4)
    yield f"| W to the Frobenius SVM | .996 | {cosines(checked('W to the Frobenius SVM', 0), 4)} |"
    yield f"| W to the nuclear SVM | .86 | {cosines(checked('W nearer', 3))} |"
    median = cosines(own("KQ, median cosine at 2000"))
    yield f"| (K, Q) to the nuclear SVM | .996 | {cosines(own('KQ, mean cosine at 2000'))}, median {median} |"
    yield f"| the same with the public ridge | | {ridge} |"
    yield f"| (K, Q) to the Frobenius SVM | .85 | {cosines(checked('(K,Q) nearer', 3))} |"
    late = cosines(checked("all data sets: (K,Q) without ridge", 4))
    off = powers(own("W, median 1 - cosine at 20000"))
    yield f"without it the median is {late} at 20,000 steps, while W is at 1 - cosine = {off}."


@claims("docs/public-code.md")
def public_rank() -> Iterator[str]:
    yield f"| {counts(measured('rank', 'infeasible', 0))}, counted, each with a proof |"
    ranks = ", ".join(cosines(numbers("rank", f"nuclear, n = {n}"), 2) for n in (5, 10, 15))
    assert [set(numbers("rank", f"frobenius, n = {n}")) for n in (5, 10, 15)] == [{5}, {10}, {15}]
    yield f"| slightly below | {ranks} |"
    yield f"317 s | {counts(summary('rank')['cpu_seconds'])} s, certified |"
    seconds = span(summary("local-convergence")["cpu_seconds"], lambda value: f"{value:.1f}")
    yield f"both SVMs | 190 s | {seconds} s |"


@claims("docs/proved.md")
def proved() -> Iterator[str]:
    checked, own = partial(measured, "local-convergence"), partial(numbers, "local-convergence")
    turns = "all data sets: (K,Q) without ridge"
    yield (
        f"{cosines(own('KQ, median cosine at 2000'))} after 2,000 steps and {cosines(checked(turns, 4))} after 20,000,"
        f" the least one {cosines(checked(turns, 5))}; for W the median of 1 - cosine is"
        f" {powers(own('W, median 1 - cosine at 20000'))} by then."
    )
    yield f"the mean is {cosines(checked('(K,Q) with the public ridge', 0), 4)} at 2,000"
    plane = [below(each, "KQ") for each in ("trajectories", "hyperplanes")]
    yield f"{plane[0]:.0f} of 800 runs (`trajectories`) and {plane[1]:.0f} of 800 (`hyperplanes`) are not above .99"
    ranks = [cosines(numbers("rank", f"nuclear, n = {n}"), 2) for n in (5, 10, 15)]
    yield f"the mean rank is {ranks[0]}, {ranks[1]} and {ranks[2]} for n = 5, 10 and 15"
    between = sum(numbers("rank", "values between 1e-13 and 1e-6"))
    yield f"Of {sum(numbers('rank', 'solutions')):,.0f} solutions {between:.0f} have a singular value between rounding"


@claims("docs/proved.md")
def proved_causal() -> Iterator[str]:
    w, kq = "all data sets: W turns", "all data sets: (K,Q) turns"
    checked = partial(measured, "causal")
    yield f"to the SVM of the united constraints is {cosines(checked(w, 4), 5)} after 20,000 steps"
    yield f"{sum(100 - each for each in checked(w, 0)):.0f} of 800 runs is below .99 then, on its way"
    yield (
        f"(K, Q) is at {cosines(checked(kq, 4))} to the nuclear one, and {counts(checked(kq, 3))} of a hundred runs"
        " are stuck"
    )


@claims("docs/proved.md")
def proved_paths() -> Iterator[str]:
    path, walked = (f"KQ: distance to the nuclear solution set {each}" for each in ("along the path", "of descent"))
    middle, worst = (measured("regularization-path", walked, place) for place in (0, 1))
    yield f"nuclear solutions is {cosines(middle)} in the median after 10,000 steps"
    yield f"after 10,000 steps, and {cosines(worst, 2)} on the worst"
    yield f"is at {short(max(measured('regularization-path', path, 1)), 3)} or less."


@claims("docs/proved.md")
def proved_transformer() -> Iterator[str]:
    own = partial(numbers, "attention-sparsity")
    first, second = (cosines(own(f"entropy, layer {layer}, epoch 100"), 2) for layer in (0, 1))
    start = min(each for layer in (0, 1) for each in own(f"entropy, layer {layer}, epoch 0"))
    first, second = (each.replace(" to ", " and ") for each in (first, second))
    yield f"falls from {short(start, 2)} or more to between {first} in the first layer"
    yield f"in the first layer and between {second} in the second (means of three models)"
    before, after = (measured("attention-sparsity", "norm of the key-query", place) for place in (0, 1))
    yield f"grows to {span([b / a for a, b in zip(before, after, strict=True)], lambda value: f'{value:.1f}')} times"


@claims("docs/proved.md")
def proved_cones() -> Iterator[str]:
    own, found = partial(numbers, "cones"), summary("cones")

    def share(kind: str, radius: int) -> str:
        return counts([100 * each for each in own(f"{kind}, mu = 1e-05, norm {radius}")])

    there = found["configuration"]["datasets"] * len(found["seeds"]) - sum(own("no other local optimum"))
    yield (
        f"return in {share('local', 1)} % of the cases from norm 1 and in {share('local', 1000)} % from norm 1,000,"
        f" by the seed ({there:.0f} data sets in eight seeds)."
    )
    assert share("global", 1000) == "100"
    yield f"Around the optimal selection it is {share('global', 1)} % and all."
    assert share("not local", 1) == "0"
    yield f"hold none of their starts from norm 1, and {share('not local', 1000)} % from norm 1,000."


@claims("docs/proved.md")
def proved_conditions() -> Iterator[str]:
    types, gradient = partial(numbers, "convergence-types"), partial(numbers, "first-gradient")
    yield (
        f"{cosines(types('global, d = 20'), 2)} of the runs end at the optimal selection at d = 20, where B1 holds on"
        f" {cosines(types('B1, optimal SVM, d = 20'), 2)} of the data sets and the first gradient is favourable on"
        f" {cosines(gradient('favourable, d = 20'), 2)}."
    )
    b1 = [cosines(types(f"B1, optimal SVM, d = {d}"), 2) for d in (84, 320)]
    yield f"B1 holds on {b1[0]} of them at d = 84 and on {b1[1]} at d = 320"
    yield f"other local optima, on {cosines(types('B1, every SVM, d = 160'), 2)} at d = 160."
    for what in ("stay in the margin cone", "reach the optimal selection"):
        assert held("first-gradient", f"favourable, one large step: {what}") == "8 of 8"
    yield f"all of {sum(gradient('favourable')):,.0f} runs after one large step"
    leave = counts(measured("first-gradient", "favourable, small steps: leave", 0))
    yield f"{leave} in a seed leave the cone for a while, and {counts(gradient('favourable, small steps elsewhere'))}"


@claims("docs/public-code.md")
def public_types() -> Iterator[str]:
    shares = [cosines(numbers("convergence-types", f"B1, optimal SVM, d = {d}"), 2) for d in (20, 84, 320)]
    yield f"as the paper says: {shares[0]} at d = 20, {shares[1]} at 84, {shares[2]} at 320."


@claims("docs/public-code.md")
def public_several() -> Iterator[str]:
    yield f"| here, means | {listed(f'{SEVERAL}, means')} |"
    yield f"| here, medians | {listed('medians: generalized')} |"
    yield f"| here with eps = 1e-9, means | {listed(f'{SEVERAL} with the public 1e-9')} |"
    yield f"| accepted, here | {listed('share accepted, paper')} |"
    yield f"by their trend, keep {kept_by_decaying_steps()}."
