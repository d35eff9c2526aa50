"""Batches: mixed statuses, shapes in and out, indexing, files, warm starts."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import (
    Entrywise,
    Frobenius,
    MaxEntry,
    Norm,
    Nuclear,
    NuclearByFrequency,
    Spectral,
    SpectralOfHeads,
    SpectralOfRank,
)
from attsvm.svm import ActiveSet, AttentionSVM, BatchedFrobenius, BlockDescent, Certificate, Status, SVMSolution, solve
from attsvm.svm.solution import norm_from_repr
from cases import case

from .checks import NORMS, check_ray, check_same_weights, dataset, explicit_rows, random_selection

every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
FROBENIUS = [ActiveSet(), BatchedFrobenius(), BlockDescent()]
every_frobenius_solver = pytest.mark.parametrize("solver", FROBENIUS, ids=lambda solver: type(solver).__name__)


def mixed() -> tuple[AttentionSVM, list[bool]]:
    """Six problems; in the second and fifth the selected token has a twin."""
    tokens = random_sphere(n=3, T=4, d=5, batch=6, seed=1).tokens.clone()
    for element in (1, 4):
        tokens[element, 2, 3] = tokens[element, 2, 0]
    queries = random_sphere(n=3, T=4, d=5, batch=6, seed=1).queries
    data = TokenDataset(tokens, queries, torch.ones(6, 3))
    return AttentionSVM(data, torch.zeros(6, 3, dtype=torch.int64)), [True, False, True, True, False, True]


@every_norm
def test_a_batch_may_mix_feasible_and_infeasible(norm: Norm) -> None:
    problem, feasible = mixed()
    solution = solve(problem, norm)
    assert [status is Status.SOLVED for status in solution.status] == feasible
    assert [status is Status.INFEASIBLE for status in solution.status] == [not one for one in feasible]
    assert solution.solved.tolist() == feasible
    assert solution.weights.isnan().all(-1).all(-1).tolist() == [not one for one in feasible]
    for element, fine in enumerate(feasible):
        alone = solve(problem[element], norm)
        assert alone.status is solution.status[element]
        if fine:
            expected = alone.certificate.primal_value.item()
            assert solution.certificate.primal_value[element].item() == pytest.approx(expected, rel=1e-7)
        else:
            check_ray(explicit_rows(problem.data[element], problem.reference[element]), solution.duals[element])


@every_frobenius_solver
def test_every_frobenius_solver_mixes(solver) -> None:
    problem, feasible = mixed()
    assert solve(problem, solver=solver).solved.tolist() == feasible


def test_require_solved() -> None:
    problem, _ = mixed()
    solution = solve(problem)
    with pytest.raises(
        ValueError, match=r"2 of 6 problems are not solved; the first, element \[1\], is infeasible: the duals hold"
    ):
        solution.require_solved()
    with pytest.raises(ValueError, match=r"^the problem is infeasible: the duals hold a ray"):
        solution[4].require_solved()
    assert solution[0].require_solved().status is Status.SOLVED
    unfinished = solve(problem[0], solver=BlockDescent(rounds=1, accuracy=1e-300))
    assert unfinished.status is Status.SEPARABLE
    with pytest.raises(ValueError, match=r"^the problem is separable, not solved to the tolerance: the weights"):
        unfinished.require_solved()


def test_the_sentence_is_the_status() -> None:
    problem, _ = mixed()
    assert str(solve(problem[1]).status).startswith("infeasible: ")
    assert "2 infeasible" in repr(solve(problem))
    assert "4 solved" in repr(solve(problem))


@every_norm
def test_unbatched_in_unbatched_out(norm: Norm) -> None:
    data = random_sphere(n=3, T=4, d=5, dq=2, seed=2)
    solution = solve(AttentionSVM(data, random_selection(data, 2)), norm)
    assert solution.batch_shape == ()
    assert solution.weights.shape == (5, 2)
    assert solution.duals.shape == solution.support.shape == solution.margins.shape == (3, 4)
    assert isinstance(solution.status, Status)
    shapes = {getattr(solution.certificate, field.name).shape for field in fields(Certificate)}
    assert shapes == {torch.Size([])}
    assert solution.iterations.shape == solution.ambiguous.shape == solution.rank().shape == ()


@every_norm
def test_many_axes(norm: Norm) -> None:
    data = random_sphere(n=2, T=3, d=4, batch=(2, 3), seed=3)
    selected = random_selection(data, 3)
    solution = solve(AttentionSVM(data, selected), norm)
    assert solution.batch_shape == solution.status.shape == (2, 3)
    assert solution.weights.shape == (2, 3, 4, 4)
    for place in np.ndindex(2, 3):
        alone = solve(AttentionSVM(data[place], selected[place]), norm)
        check_same_weights(solution.weights[place], alone.weights, 1e-6)
        assert solution[place].certificate.primal_value.item() == solution.certificate.primal_value[place].item()


@every_frobenius_solver
def test_a_batch_equals_its_elements(solver) -> None:
    data = random_sphere(n=4, T=5, d=6, batch=40, seed=4)
    problem = AttentionSVM(data, random_selection(data, 4))
    whole = solve(problem, solver=solver)
    for element in (0, 17, 39):
        check_same_weights(whole.weights[element], solve(problem[element], solver=solver).weights, 1e-7)


def test_threads_do_not_change_the_answer() -> None:
    data = random_sphere(n=4, T=5, d=6, batch=64, seed=5)
    problem = AttentionSVM(data, random_selection(data, 5))
    one, two = (solve(problem, solver=ActiveSet(threads=count)) for count in (1, 2))
    assert one.weights.equal(two.weights)
    assert one.duals.equal(two.duals)


def test_tiny_problems_run_on_one_thread() -> None:
    """Threads would only wait for each other there; larger batches have those of PyTorch, and nothing stays changed."""
    seen: list[int] = []

    class Watched(ActiveSet):
        def solve(self, *arguments):
            seen.append(torch.get_num_threads())
            return super().solve(*arguments)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for count in (2, 2000):
            data = random_sphere(n=4, T=5, d=6, batch=count, seed=5)
            solve(AttentionSVM(data, random_selection(data, 5)), solver=Watched())
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2]


@every_norm
def test_an_empty_batch(norm: Norm) -> None:
    data = random_sphere(n=2, T=3, d=4, batch=2, seed=6)
    problem = AttentionSVM(data, random_selection(data, 6))
    empty = solve(problem[:0], norm)
    assert repr(empty).startswith(f"SVMSolution({norm.name}, no problems, ")
    assert empty.batch_shape == (0,)
    assert empty.weights.shape == (0, 4, 4)
    assert empty.require_solved() is empty


def test_indexing() -> None:
    problem, feasible = mixed()
    solution = solve(problem)
    part = solution[1:4]
    assert part.batch_shape == (3,)
    assert part.solved.tolist() == feasible[1:4]
    assert part.weights[1:].equal(solution.weights[2:4])
    assert solution[torch.tensor(feasible)].require_solved().batch_shape == (4,)
    assert problem[1:4].batch_shape == (3,)
    assert problem[2].reference.equal(problem.reference[2])
    assert solve(problem[[5, 0]]).weights.equal(solve(problem[[5, 0]]).weights)
    assert solution[[5, 0]].weights.equal(solution.weights[[5, 0]])


@every_norm
def test_support_and_duals(norm: Norm) -> None:
    """Complementary slackness: a dual above round-off sits on a support row; the selected token has neither."""
    data = random_sphere(n=4, T=5, d=6, seed=7)
    selected = random_selection(data, 7)
    solution = solve(AttentionSVM(data, selected), norm).require_solved()
    heavy = solution.duals > 1e-4 * solution.duals.max()
    assert bool((solution.support | ~heavy).all())
    assert not bool(solution.support.gather(-1, selected[:, None]).any())
    assert not bool(solution.duals.gather(-1, selected[:, None]).any())
    close = (solution.margins - 1).abs() <= 1e-6
    assert bool((solution.support == (close & (solution.margins != 0))).all())
    assert int(solution.ambiguous) <= 2


# ------------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("norm", [Frobenius(), MaxEntry(), Entrywise(1.75)], ids=repr)
def test_save_and_load(tmp_path, suffix: str, norm: Norm) -> None:
    problem, _ = mixed()
    solution = solve(problem, norm)
    path = solution.save(tmp_path / f"solution.{suffix}")
    back = SVMSolution.load(path)
    for name in ("weights", "duals", "codes", "margins", "support", "ambiguous", "unique", "iterations"):
        torch.testing.assert_close(getattr(back, name), getattr(solution, name), rtol=0, atol=0, equal_nan=True)
        assert getattr(back, name).dtype == getattr(solution, name).dtype
    for field in fields(Certificate):
        mine, theirs = getattr(solution.certificate, field.name), getattr(back.certificate, field.name)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    assert (back.norm, back.solver, back.seconds, back.tolerance) == (
        norm,
        solution.solver,
        solution.seconds,
        solution.tolerance,
    )
    assert (back.status == solution.status).all()


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_save_and_load_one(tmp_path, suffix: str) -> None:
    problem, _ = mixed()
    solution = solve(problem[0])
    back = SVMSolution.load(solution.save(tmp_path / f"solution.{suffix}"))
    assert back.batch_shape == ()
    assert back.status is Status.SOLVED
    assert back.weights.equal(solution.weights)


@pytest.mark.parametrize(
    "norm", [*NORMS, SpectralOfRank(2), SpectralOfHeads(3), NuclearByFrequency(2, unturned=True)], ids=repr
)
def test_norms_come_back_from_their_names(norm: Norm) -> None:
    assert norm_from_repr(repr(norm)) == norm


def test_files_that_are_no_solution(tmp_path) -> None:
    data = random_sphere(n=2, T=3, d=4, seed=8)
    path = data.save(tmp_path / "data.npz")
    with pytest.raises(ValueError, match="is not a saved solution"):
        SVMSolution.load(path)
    with pytest.raises(ValueError, match=r"missing\.npz"):
        SVMSolution.load(tmp_path / "missing.npz")
    with pytest.raises(ValueError, match="no norm prints itself as 'Taxicab"):
        norm_from_repr("Taxicab()")
    with pytest.raises(ValueError, match="no norm prints itself as 'Frobenius"):
        norm_from_repr("Frobenius(")


# ------------------------------------------------------------------- warm starts


@every_frobenius_solver
def test_warm_start_from_the_solution(solver) -> None:
    """The same answer; where the solver counts its steps from the start, not more of them."""
    data = random_sphere(n=6, T=8, d=10, batch=20, seed=9)
    problem = AttentionSVM(data, random_selection(data, 9))
    cold = solve(problem, solver=solver).require_solved()
    warm = solve(problem, solver=solver, initial=cold).require_solved()
    for element in range(20):
        check_same_weights(
            warm.weights[element], cold.weights[element], 1e-4 if isinstance(solver, BlockDescent) else 1e-9
        )
    assert warm.iterations.sum() <= cold.iterations.sum()
    if isinstance(solver, ActiveSet):
        assert warm.iterations.sum() < 0.5 * cold.iterations.sum()


@every_norm
def test_warm_start_from_a_similar_problem(norm: Norm) -> None:
    data = random_sphere(n=4, T=5, d=6, seed=10)
    selected = random_selection(data, 10)
    nearby = TokenDataset(data.tokens + 1e-3 * random_sphere(n=4, T=5, d=6, seed=11).tokens, data.queries, data.labels)
    start = solve(AttentionSVM(nearby, selected), norm)
    cold = solve(AttentionSVM(data, selected), norm)
    for initial in (start, start.duals):
        warm = solve(AttentionSVM(data, selected), norm, initial=initial).require_solved()
        assert warm.certificate.primal_value.item() == pytest.approx(cold.certificate.primal_value.item(), rel=1e-7)


@every_frobenius_solver
@pytest.mark.parametrize("start", ["ray", "random", "another problem"])
def test_a_bad_start_does_no_harm(solver, start: str) -> None:
    data = random_sphere(n=3, T=4, d=5, batch=4, seed=12)
    problem = AttentionSVM(data, random_selection(data, 12))
    expected = solve(problem, solver=ActiveSet())
    other, _ = mixed()
    duals = {
        "ray": solve(other).duals[[1, 4, 1, 4]],
        "random": torch.from_numpy(np.random.default_rng(0).standard_normal((4, 3, 4)) * 1e3),
        "another problem": solve(other).duals[:4],
    }[start]
    found = solve(problem, solver=solver, initial=duals).require_solved()
    for element in range(4):
        check_same_weights(found.weights[element], expected.weights[element], 1e-4)


@pytest.mark.parametrize("name", ["infeasible", "d too small", "duplicate tokens"])
@every_frobenius_solver
def test_an_infeasible_problem_stays_so_from_a_warm_start(solver, name: str) -> None:
    one = case(name)
    problem = AttentionSVM(one.data, one.selected)
    first = solve(problem, solver=solver)
    assert solve(problem, solver=solver, initial=first).status is Status.INFEASIBLE


def test_devices_and_time_are_reported() -> None:
    problem, _ = mixed()
    solution = solve(problem)
    assert solution.seconds > 0
    assert solution.solver in {"ActiveSet", "BatchedFrobenius"}
    assert solve(problem, solver=ActiveSet()).solver == "ActiveSet"
    assert solve(problem, Nuclear()).solver == "NuclearInteriorPoint"
    assert solve(problem, MaxEntry()).solver == "LinearProgram"
    assert solve(problem, Entrywise(3)).solver == "Conic"
    assert solve(problem, Spectral()).solver == "InteriorPoint"
    data = random_sphere(n=2, T=3, d=4, batch=16, seed=1)
    assert solve(AttentionSVM(data, random_selection(data, 1)), MaxEntry()).solver == "InteriorPoint"


@pytest.mark.parametrize("norm", [Frobenius(), Nuclear(), Spectral(), MaxEntry(), Entrywise(3)])
def test_where_nothing_is_asked_for_zero_is_the_only_solution(norm: Norm) -> None:
    """No other matrix has norm 0; where something is asked for, a norm with flat sides proves nothing of the kind."""
    data = random_sphere(n=2, T=3, d=4, batch=2, seed=1)
    sides = torch.tensor([-1.0, 1.0]).double()[:, None].expand(2, 2)
    solution = solve(AttentionSVM(data, random_selection(data, 1), right_hand_side=sides), norm)
    assert solution.solved.all()
    assert bool(solution.unique[0])
    assert not bool(solution.weights[0].any())
    assert bool(solution.unique[1]) or not isinstance(norm, (Frobenius, Entrywise))
    single = dataset(np.ones((2, 1, 3)), np.ones((2, 3)))
    assert bool(solve(AttentionSVM(single, [0, 0]), norm).unique)


def test_one_token_has_nothing_to_separate() -> None:
    """T = 1: the solution is 0 and its margin infinite, and the status says so."""
    solution = solve(AttentionSVM(dataset(np.ones((2, 1, 3)), np.ones((2, 3))), [0, 0]))
    assert solution.status is Status.NO_ROWS
    assert "margin infinite" in str(solution.status)
    assert not bool(solution.weights.any())
    assert solution.certificate.min_margin.item() == np.inf
    assert solution.certificate.relative_gap.item() == 0
    assert solution.rank().item() == 0
    assert solution.require_solved() is solution
    ragged = dataset(np.ones((2, 3, 3)), np.ones((2, 3)), mask=np.array([[True, False, False], [False, False, True]]))
    assert solve(AttentionSVM(ragged, [0, 2])).status is Status.NO_ROWS
    mask = np.array([[[True, False]], [[True, True]]])
    both = dataset(random_sphere(n=1, T=2, d=3, batch=2, seed=1).tokens.numpy(), np.ones((2, 1, 3)), mask=mask)
    assert [status.name for status in solve(AttentionSVM(both, [[0], [0]])).status] == ["NO_ROWS", "SOLVED"]
