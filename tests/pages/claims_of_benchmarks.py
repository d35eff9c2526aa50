"""What pages say of prediction, solvers, engines and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pages.reading import claims, power, results, row, short, span

PREDICTION = "docs/prediction.md"
SHIPPED = "270 growing steps"


def by_rule() -> dict[str, list[dict[str, Any]]]:
    """The rows of every rule, in the order of the settings A to J, and then those of other starts and steps."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for each in results("prediction")["rows"]:
        rows.setdefault(each["rule"], []).append(each)
    return rows


def percent(each: dict[str, Any], key: str = "accuracy") -> str:
    return f"{100 * each[key]:.1f}"


@claims(PREDICTION)
def table_of_rules() -> Iterator[str]:
    for rule, rows in by_rule().items():
        name = f"{rule} (the default)" if rule == SHIPPED else rule
        yield f"| {name} | {rows[0]['family']} | {' | '.join(percent(each) for each in rows[:10])} |"


@claims(PREDICTION)
def other_starts() -> Iterator[str]:
    names = (
        "normalized, start of norm 20", "normalized, start of norm 100", "normalized, start of norm 500",
        "gradient descent, step 1", "sign descent, step 0.01", "spectral descent, step 0.03", "Adam, step 0.01",
    )  # fmt: skip
    for name, each in zip(names, by_rule()[SHIPPED][10:], strict=True):
        assert name.split()[-1] == each["start"] or each["start"] == "default"
        yield f"| {name} | {percent(each)} | {each['runs_not_at_a_local_optimum']} |"


@claims(PREDICTION)
def how_to_read_it() -> Iterator[str]:
    rules = by_rule()
    optimal, path = rules["optimal tokens"], rules["local path, 9 radii to 15, then ascent"]
    without = rules["local path, 9 radii to 15"]
    yield f"is right in {percent(optimal[0])} % at (6, 8, 10)"
    yield f"At (4, 6, 10) and (4, 6, 20) it is {percent(optimal[2])} % and {percent(optimal[4])} %."
    strict = [rows[0] for rows in rules.values() if rows[0]["family"] in ("closed form", "svm")]
    best, learned = max(strict, key=lambda each: each["accuracy"]), rules["nearby, learned"][0]
    gains = [
        f"{percent(each, 'gain_over_optimal')} ± {percent(each, 'its_standard_error')}" for each in (best, learned)
    ]
    yield (
        f"the best is {percent(best)} % without fitting and {percent(learned)} % with, a gain of {gains[0]} and"
        f" {gains[1]} points at (6, 8, 10)."
    )
    yield f"one step of it names {100 * rules['one gradient step of 100'][0]['accuracy']:.0f} %."
    ten = rules[SHIPPED][:10]
    right = [100 * each["accuracy"] for each in ten]
    yield (
        f"{min(right):.1f} to {max(right):.0f} % in the ten settings, at"
        f" {span([100 * each['cost'] for each in ten], lambda value: f'{value:.1f}')} % of the time"
    )
    yield f"followed by an ascent: {percent(path[0])} % at (6, 8, 10)."
    yield f"at (10, 12, 16) the optimal tokens are right in {percent(optimal[7])} % and the local path"
    yield f"the local path with an ascent in {percent(path[7])} %."
    yield f"({percent(path[8])} % with, {percent(without[8])} % without, at (6, 8, 10))"
    errors = [each["standard_error"] for rows in rules.values() for each in rows]
    yield f"The standard error is at most {100 * max(errors):.1f} points."


@claims(PREDICTION)
def step_size() -> Iterator[str]:
    rows = results("prediction_step_size")["rows"]
    changed = [100 * each["changed_by_step_size"] for each in rows]
    yield f"it changes in {min(changed):.0f} to {max(changed):.1f} % of the data sets of the ten settings"
    assert len(rows) == 10
    yield f"{changed[0]:.1f} % at (6, 8, 10), {changed[8]:.1f} % there for (K, Q)"
    missed, both = (sum(each[key] for each in rows) for key in ("missed", "missed_and_changed_by_step_size"))
    yield f"Of {missed} misses of a rule with 400 growing steps in the ten settings, {both} are data sets of this kind."


@claims("docs/solvers.md")
def gaps() -> Iterator[str]:
    for each in results("svm_usual")["rows"]:
        others = {name: number for name, number in each["status"].items() if number and name != "SOLVED"}
        assert each["problems"] == 200
        solved = f"{each['status']['SOLVED']}" + "".join(f", {number} {name}" for name, number in others.items())
        yield f"| {each['norm']} | {power(each['median_gap'])} | {power(each['largest_gap'])} | {solved} |"


@claims("docs/solvers.md")
def hard_gaps() -> Iterator[str]:
    for each in results("svm_hard")["rows"]:
        status = each["status"]
        assert sum(status.values()) == status["SOLVED"] + status["SEPARABLE"] == each["problems"] == 200
        yield (
            f"| {each['problem']} | {each['norm']} | {power(each['tolerance'])} | {status['SOLVED']} |"
            f" {status['SEPARABLE']} | {power(each['median_gap'])} | {power(each['largest_gap'])} |"
        )
    assert max(each["largest_gap"] for each in results("svm_hard")["rows"] if each["norm"] == "Frobenius") < 1e-8


@claims("docs/solvers.md")
def on_a_gpu() -> Iterator[str]:
    first, second = results("svm_large_gpu")["rows"][:2]
    assert first["cuda_status"] == second["cuda_status"] == "SOLVED"
    assert (first["problem"], second["problem"]) == tuple(f"planted, n={n} T=128 d=64" for n in (20_000, 200_000))
    yield f"({first['rows']:,} rows) takes {first['cuda_s']:.1f} seconds"
    yield f"gap {power(first['cuda_gap'])}, and one of"
    memory = f"{second['peak_gpu_memory_mb'] / 1024:.0f} GB"
    yield f"takes {second['cuda_s']:.1f} seconds and {memory}, gap {power(second['cuda_gap'])}"


@claims("docs/solvers.md")
def against_daqp() -> Iterator[str]:
    ten, hundred, thousand = results("svm_daqp")["rows"]
    assert [each["problems"] for each in (ten, hundred, thousand)] == [10, 100, 1000]
    yield f"takes {hundred['ours_cpu_ms_each']:.3f} ms of one core per problem, certificate included"
    yield f"{hundred['ours_is_faster_by']:.2f} times less than a bare loop over DAQP"
    yield f"takes {thousand['ours_cpu_ms_each']:.3f} ms, {thousand['ours_is_faster_by']:.2f} times less"
    yield f"one of 10 takes {ten['ours_cpu_ms_each']:.3f} ms"
    assert 3 < 1 / ten["ours_is_faster_by"] < 4


@claims("docs/solvers.md")
def nuclear_speed() -> Iterator[str]:
    rows = {each["program"]: each for each in results("svm_nuclear")["rows"]}
    ours = rows["attsvm NuclearInteriorPoint"]
    assert (ours["problems"], ours["not_solved"]) == (1000, 0)
    yield f"takes {ours['cpu_ms_each']:.2f} ms of one core with its certificate"
    clarabel, scs = (rows[f"CVXPY + {name}"]["ours_is_faster_by"] for name in ("Clarabel", "SCS"))
    yield f"{clarabel:.0f} times less than CVXPY with Clarabel and {scs:.0f} times less than CVXPY with SCS"
    before, after = (
        next(each for each in results(name)["rows"] if (each["norm"], each["problems"]) == ("nuclear", 100_000))
        for name in ("svm_gpu_before", "svm_gpu")
    )
    assert before["solved"] == after["solved"] == 100_000
    yield f"{after['microseconds_each']:.0f} microseconds each, largest gap {power(after['largest_gap'])}"
    yield f"({before['microseconds_each']:.0f} microseconds before there was a kernel: `svm_gpu_before.json`)"
    older, newer = (results(name)["rows"]["nuclear, near"] for name in ("kernels_compiled_before", "kernels_compiled"))
    assert newer["largest_error"] < 1e-12
    instructions = [round(each["instructions_of_a_warp"], -3) for each in (newer, older)]
    yield f"{instructions[0]:,} instructions per problem, {round(newer['float64'], -3):,} of them arithmetic of numbers"
    yield f"they were {instructions[1]:,} before"


@claims("docs/engines.md")
def kernels() -> Iterator[str]:
    said = {"linear prediction head": "linear", "ReLU head of width 10": "relu", "(K, Q)": "factors", "Adam": "adam"}
    rows = results("kernels_h200")["rows"]
    for name, key in said.items():
        yield f"| {name} | {1000 * rows[key]['thousand_runs_a_second']:,} |"


@claims("docs/engines.md")
def instructions() -> Iterator[str]:
    rows = results("kernels_compiled")["rows"]
    linear, relu, factors, loops = (
        rows[name]["instructions_of_a_warp"] for name in ("linear", "relu", "factors", "linear, loops")
    )
    yield f"{linear} with a linear head, {relu} with a ReLU head, {factors} for (K, Q), and {loops} in the kernel"


@claims("docs/engines.md")
def one_set() -> Iterator[str]:
    rows = results("descent_one_set")["rows"]
    assert {(each["head"], each["trained"], each["threads"], each["turns"]) for each in rows} == {
        (head, trained, threads, 7) for head in ("linear", "ReLU") for trained in ("W", "(K,Q)") for threads in (1, 2)
    }
    assert min(each["cosine"] for each in rows) > 1 - 1e-12
    assert min(each["least_times_faster_in_a_turn"] for each in rows) > 1
    yield span([each["times_faster"] for each in rows], lambda value: f"{value:.1f}") + " times less wall time"


@claims("docs/engines.md")
def spectral_steps() -> Iterator[str]:
    weights, factors = results("descent_spectral")["rows"]
    assert {(each["size"], each["sets"], each["steps"]) for each in (weights, factors)} == {
        ("n=6 T=8 d=10", 1000, 2000)
    }
    taken = (each["compiled_cpu_ms_per_set"] for each in (weights, factors))
    yield "take {:.1f} ms of one core for W and {:.1f} ms for (K, Q),".format(*taken)
    yield f"{weights['times_faster']:.0f} and {factors['times_faster']:.0f} times less than with `TorchEngine`"


@claims("README.md")
def three_numbers() -> Iterator[str]:
    rule = next(each for each in results("prediction")["rows"] if each["rule"] == SHIPPED)
    yield f"| {percent(rule)} % | of {rule['sets']:,} data sets: all tokens that 10,000 steps select"
    solved = results("svm_small")["rows"][0]
    assert (solved["program"], solved["norm"], solved["not_solved"]) == ("attsvm ActiveSet", "Frobenius", 0)
    yield (
        f"| {power(solved['largest_gap'])} | the largest certified gap of {solved['problems']:,} max-margin solutions,"
        f" {solved['cpu_ms_each']:.3f} ms of CPU time each |"
    )
    fast = next(each for each in results("descent_cpu")["rows"] if each["program"] == "CompiledEngine")
    assert {each["size"] for each in (rule, fast)} == {"n=6 T=8 d=10"}
    assert {each["trained"] for each in (rule, fast)} == {"W"}
    yield f"| {fast['times_faster']:.0f} | times less CPU time for a data set than a plain PyTorch loop"


@claims("docs/proved.md")
def findings() -> Iterator[str]:
    rules = by_rule()
    strict = [rows[0] for rows in rules.values() if rows[0]["family"] in ("closed form", "svm")]
    best = max(strict, key=lambda each: each["accuracy"])
    path = rules["local path, 9 radii to 15, then ascent"][0]
    yield (
        f"the optimal tokens {percent(rules['optimal tokens'][0])} %, the best rule of one gradient and SVMs"
        f" {percent(best)} %, the local regularization path with an ascent {percent(path)} %, and {SHIPPED} of descent,"
        f" the default, {percent(rules[SHIPPED][0])} %."
    )
    early, late = ([each for each in results("verdicts")["rows"] if each["steps"] == steps and each["trained"] == "W"]
                   for steps in (2000, 20_000))  # fmt: skip
    stray, runs = sum(each["not_local"] for each in late), sum(each["runs"] for each in late)
    yield f"{span([each['not_local'] for each in early], str)} stand on a selection that is not locally optimal"
    yield f"after 2,000 steps, and {stray} of {runs:,} after 20,000."
    followed = results("verdicts_followed")["rows"]
    assert (stray, sum(each["not_local_at_20000"] for each in followed)) == (5, 5)  # "all five"
    assert sum(each["still_not_local_at_200000"] for each in followed) == 0


@claims("docs/proved.md")
def rounding() -> Iterator[str]:
    cuda = [each for each in results("descent_gpu")["rows"] if each["program"] == "CudaEngine" and "sets" in each]
    w, kq = ([each for each in cuda if each["trained"] == kind] for kind in ("W", "(K,Q)"))
    assert min(each["smallest_cosine_to_cpu"] for each in w) >= 1 - 1e-15
    yield (
        f"to 1 - {power(max(1 - each['median_cosine_to_cpu'] for each in kq))} in the median, with a smallest cosine of"
        f" {min(each['smallest_cosine_to_cpu'] for each in kq):.3f}."
    )
    rows = [each for each in results("descent_cpu")["rows"] if each["program"] == "CompiledEngine"]
    assert max(each["early_distance"] for each in rows) < 1e-30
    final = [each["final_cosine"] for each in rows if each["size"] == "n=6 T=8 d=10"]
    yield f"the smallest cosine over ten data sets is {final[0]:.2f} for W and {final[1]:.2f} for (K, Q)."


@claims("docs/proved.md")
def next_token() -> Iterator[str]:
    rows = results("next_token_theorem")["rows"]
    own, few = rows[:10], rows[10:]
    assert sum(each["feasible"] for each in own) == 1000
    assert all(each["both_right"] == each["grown"] == each["problems"] for each in own)
    yield f"tokens, {sum(each['with_cycles'] for each in own)} of them with cycles)"
    yield (
        f"all 1,000 are right in both parts. The smallest cosine outside S_fin is"
        f" {short(min(each['smallest_cosine'] for each in own), 4)}"
    )
    yield f"is {power(max(each['largest_distance_share'] for each in own))}. These steps are accelerated"
    clash, feasible, grown, right = (
        sum(each[name] for each in few) for name in ("proved_infeasible", "feasible", "grown", "both_right")
    )
    assert clash + feasible == 200
    assert grown == right
    rest = [one for each in few for one in each["rest"]]
    early = sum(one["holds_at_last"] for one in rest)
    assert all(one["stages"][-1]["cosine"] > one["stages"][1]["cosine"] for one in rest if not one["holds_at_last"])
    yield (
        f"Of 200 problems {clash} clash, each with a proof. Of the other {feasible}, {grown} reach that norm in 16,000"
        f" steps, and all {grown} hold. The other {len(rest)} have a W_svm of norm"
        f" {span([one['svm_norm'] for one in rest], lambda value: f'{value:,.0f}')} and are still growing; {early} of"
        f" them hold already"
    )


@claims("docs/proved.md")
def next_token_rates() -> Iterator[str]:
    rates = results("next_token_rates")
    normalized, plain = "normalized descent, acyclic", "gradient descent, acyclic"
    last = row(rates, training=normalized, steps=4000)
    early, later = (row(rates, training=normalized, steps=steps)["median_log_risk"] for steps in (250, 500))
    yield f"with a = {last['exponent_of_direction']:.2f} over the last doubling, to 4,000 steps"
    yield f"the logarithm of the loss goes from {early:.2f} to {later:.2f} between 250 and 500 steps"
    slow = row(rates, training=plain, steps=4000)
    yield (
        f"its norm is {slow['median_norm_over_svm']:.1f} times that of W_svm after 4,000, and its direction"
        f" {short(slow['median_distance_of_directions'], 2)} away."
    )
    finite = row(rates, training="gradient descent, with cycles", steps=4000)["exponent_of_finite_part"]
    yield f"converges like t^a with a = {finite:.2f}."
    factors = results("next_token_factors")
    acyclic, cyclic = (row(factors, noise=noise, steps=4000) for noise in (0.0, 0.3))
    assert acyclic["nearer_to_nuclear"] == acyclic["problems"] == 20
    yield (
        f"the median cosine with it is {short(acyclic['median_cosine_nuclear'], 4)} after 4,000 normalized steps (least"
        f" {short(acyclic['smallest_cosine_nuclear'], 3)}), with the Frobenius one"
        f" {short(acyclic['median_cosine_frobenius'], 3)}, and all 20 are nearer to the nuclear one."
    )
    yield (
        f"With cycles it is {short(cyclic['median_cosine_nuclear'], 3)}, and {cyclic['nearer_to_nuclear']} of 20 are:"
        f" steps of one size never let the finite part settle (it is {short(cyclic['median_finite_distance'], 2)} away)"
    )


FACTORS = {
    "gradient, each factor": "gradient, each factor normalized", "gradient, jointly": "gradient, both together",
    "Muon": "Muon, exact", "sign": "sign, m = 5", "rows": "each row normalized", "columns": "each column normalized",
}  # fmt: skip


@claims("docs/proved.md")
def factors_geometry() -> Iterator[str]:
    found = results("factors_geometry")["rows"]
    for each in found:
        assert each["data_sets"] == 1000
        name, won = FACTORS.get(each["row"], each["row"]), f"{each['framed_wins']} of {each['judged']:,}"
        yield f"| {name} | {each['framed']} | {won} | {short(each['median'], 3)}, {short(each['least'], 3)} |"
    yield f"with a relative gap of at most {power(max(each['largest_gap_of_all_solutions'] for each in found))}:"


@claims("docs/proved.md")
def factors_sign() -> Iterator[str]:
    found = results("factors_sign")
    for size in (0.006, 0.03, 0.3):
        cells = []
        for rank in (5, 32):
            for steps in (8_000, 80_000):
                one = row(found, m=rank, step_size=size, steps=steps)
                assert one["judged"] == 60
                cells.append(f"{one['framed_wins']} ({short(one['median'], 2)})")
        yield f"| {size:g} | {' | '.join(cells)} |"
    bad = {name: short(row(found, row=f"bad start, {name}")["median"], 2) for name in ("sign", "Muon", "gradient")}
    yield f"After 20,000 steps sign is at a projective efficiency of {bad['sign']}, where it stays"
    yield f"to a spectral efficiency of {bad['Muon']} so far"
    yield f"leaving, at a nuclear one of {bad['gradient']}."
