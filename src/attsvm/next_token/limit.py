"""What training tends to, named before training: W_fin + C W_svm, or the relations that clash."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.next_token.data import NextTokenData
from attsvm.next_token.finite import FinitePart, finite_part
from attsvm.next_token.graph import PriorityGraph, priority_graph
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, SVMSolution, solve
from attsvm.svm.solvers.base import ProgressReport, Solver
from attsvm.sweep.manifest import to_plain
from attsvm.theory import Condition, Standing
from attsvm.theory.diagnosis.tables import conditions_table, printed
from attsvm.theory.diagnosis.theorems import everywhere

SOURCE = "arXiv 2403.08081"
STRICT = "some strict priority"
_TIED = 1e-6  # logits of W_svm closer than this share of its margin of 1 count as equal
_NAMED = 6  # clashing relations that are told in words
_TRIED = 10  # last tokens with the most relations whose relations may clash by themselves
_HELD = 1e-6  # multipliers of a ray below this share of the largest are not told


@dataclass(frozen=True)
class Relation:
    """One row of a clash: after `last`, `winner` before `loser`, or both alike; and its weight in the ray."""

    last: str
    winner: str
    loser: str
    strict: bool
    weight: float

    def __str__(self) -> str:
        verb = "before" if self.strict else "level with"
        return f"after {self.last!r}: {self.winner!r} {verb} {self.loser!r}"


@dataclass(frozen=True)
class Answer:
    """What the layer of the limit answers to a context."""

    words: tuple[str, ...]  #: the tokens that survive, the most probable first
    #: theirs, if `decided`, else only what W_fin and counts would make of them; all other tokens of the context have 0
    probabilities: tuple[float, ...]
    dropped: tuple[str, ...]  #: the other tokens of the context
    seen: bool  #: whether a sample of the data ends in the context's last token
    #: whether one component beats every other token of the context, directly or along a chain. Otherwise W_svm decides
    #: between tokens that the data never compared.
    by_graph: bool
    #: whether the survivors are one component, whose shares W_fin decides. Tokens of several that are level under W_svm
    #: share by what stays bounded outside S_fin, which the limit does not name.
    decided: bool

    @property
    def reason(self) -> str:
        """What decides, or that nothing does, as a phrase."""
        if not (self.seen and self.decided):
            return "level under W_svm; how they share is not decided" if self.seen else "no sample ends in this token"
        return "by the graph" if self.by_graph else "by W_svm; the graph does not compare them all"

    def __str__(self) -> str:
        pairs = zip(self.words, self.probabilities, strict=True)
        listed = (f"{word} {share:.3g}" if self.decided else word for word, share in pairs)
        return f"{', '.join(listed)} ({self.reason})"


@dataclass(frozen=True, eq=False, repr=False)
class LimitPrediction:
    """The limit of training on next-token data: ``W ~ W_fin + C W_svm``, C growing without bound."""

    graph: PriorityGraph  #: the token-priority graph
    solution: SVMSolution  #: of the Graph-SVM, with its certificate, or the ray that proves that relations clash
    finite: FinitePart | None  #: W_fin with its certificate; None where the Graph-SVM has no solution
    conditions: tuple[Condition, ...]  #: of the theorem, checked on these data
    standing: Standing | None  #: how well the prediction is founded; None where there is none

    @property
    def data(self) -> NextTokenData:
        """The samples."""
        return self.graph.data

    @property
    def svm_component(self) -> Float[Tensor, "d d"]:
        """W_svm; 0 where there is no strict priority, NaN where relations clash."""
        return self.solution.weights

    @property
    def finite_component(self) -> Float[Tensor, "d d"]:
        """W_fin; NaN where relations clash."""
        return torch.full_like(self.solution.weights, math.nan) if self.finite is None else self.finite.weights

    @cached_property
    def clash(self) -> tuple[Relation, ...]:
        """The relations of the ray, the heaviest first: no weights meet all of them. Empty where there is no ray."""
        if not bool(self.solution.barred):
            return ()
        problem, words = self.graph.problem, self.data.words
        sizes = self.solution.duals.abs().masked_fill(~problem.rows, 0.0)
        at = torch.nonzero(sizes > _HELD * sizes.max())
        order = torch.argsort(sizes[tuple(at.T)], descending=True, stable=True)
        (ids, last, _), total = self.graph.relations, float(sizes.sum())
        return tuple(
            Relation(
                words[last[row]], words[ids[row, 0]], words[ids[row, token]], bool(problem.inequalities[row, token]),
                float(sizes[row, token]) / total,
            )
            for row, token in at[order].tolist()
        )  # fmt: skip

    def answer(self, context: str | Sequence[str] | Sequence[int]) -> Answer:
        """Which tokens of a context survive in the limit, and with which probabilities.

        Hard retrieval, then soft composition: the tokens with the largest logit under W_svm survive, and share
        probability by their logits under W_fin and how often they occur. The context is a text, tokens by name, or
        token ids; its last token is the query. Where relations clash there is no limit to ask.
        """
        if self.finite is None:
            raise ValueError(f"there is no limit to ask: {self.verdict}")
        given = self.data.encode(context)
        last, counted = given[-1], Counter(given)
        tokens, counts = list(counted), torch.tensor(list(counted.values())).double()
        present, query = self.data.embeddings[tokens], self.data.embeddings[last]
        height = present @ (self.svm_component @ query)
        alive = height >= height.max() - _TIED
        inside = (present @ (self.finite_component @ query) + counts.log()).masked_fill(~alive, -math.inf)
        shares = torch.softmax(inside, 0)
        order = [place for place in torch.argsort(shares, descending=True, stable=True).tolist() if bool(alive[place])]
        words, survivors = self.data.words, [tokens[place] for place in order]
        component = {token: self.graph.component_of(last, token) for token in tokens}
        top = {component[token] for token in survivors}
        together = None not in top and len(top) == 1
        return Answer(
            words=tuple(words[token] for token in survivors),
            probabilities=tuple(float(shares[place]) for place in order),
            dropped=tuple(words[token] for token in tokens if token not in survivors),
            seen=bool((self.data.last == last).any()),
            by_graph=together and set(component.values()) <= self.graph.below(last, top),
            decided=len(survivors) == 1 or together,
        )

    @property
    def verdict(self) -> str:
        """One sentence: what is predicted, or why nothing is."""
        if self.clash:
            proof = "proved" if bool(self.solution.infeasible) else "numerically; not proved"
            listed, rest = "; ".join(map(str, self.clash[:_NAMED])), len(self.clash) - _NAMED
            listed += f"; and {rest} more" if rest > 0 else ""
            return f"relations clash ({proof}), no weights in {self.data.d} dimensions meet all of: {listed}"
        if self.finite is None:
            return f"the Graph-SVM is {self.solution.sentences}"
        if not self.graph.strict.any():
            return "no strict priority: W converges to W_fin and W_svm = 0"
        inside = "W_fin = 0" if int(self.finite.space.dimension) == 0 else f"||W_fin|| = {self._sizes[1]:.4g}"
        return f"W tends to W_fin + C W_svm with {inside}, ||W_svm|| = {self._sizes[0]:.4g} and C growing"

    @property
    def _sizes(self) -> tuple[float, float]:
        return float(self.svm_component.norm()), float(self.finite_component.norm())

    def to_json(self) -> str:
        """Everything that is printed, as JSON; numbers that JSON cannot hold are null."""
        found, finite = self.solution, self.finite
        parts = ("name", "holds", "certain", "margin")
        plain = {
            "samples": self.data.n, "left_out": self.data.left_out, "vocabulary": self.data.K, "dimension": self.data.d,
            "edges": len(self.graph.last), "strict": int(self.graph.strict.sum()), "components": len(self.graph.level),
            "shared_components": sum(len(each) > 1 for each in self.graph.members),
            "verdict": self.verdict, "standing": self.standing, "status": found.status.name.lower(),
            "relative_gap": found.certificate.relative_gap,
            "svm_norm": self._sizes[0], "finite_norm": self._sizes[1],
            "finite_dimension": None if finite is None else int(finite.space.dimension),
            "finite_distance_bound": None if finite is None else finite.distance_bound,
            "conditions": [{name: getattr(one, name) for name in parts} for one in self.conditions],
            "clash": self.clash,
        }  # fmt: skip
        return json.dumps(to_plain(plain), indent=1, allow_nan=False)

    def __repr__(self) -> str:
        return f"LimitPrediction({self.verdict})"

    def __str__(self) -> str:
        lines = [printed(conditions_table(self.conditions)), "", f"Limit: {self.verdict}"]
        if self.standing is not None:
            needed = [one for one in self.conditions if one.name != STRICT]  # without it W converges, also proved
            missing = ", ".join(one.name for one in needed if not bool(one.proved))
            lines.append(f"Standing: {self.standing.value}" + (f" (not proved here: {missing})" if missing else ""))
        gap = float(self.solution.certificate.relative_gap)
        if bool(self.solution.solved) and math.isfinite(gap):
            lines.append(f"Certificate of W_svm: {self.solution.status.name.lower()}, relative gap {gap:.2g}")
        if self.finite is not None and int(self.finite.space.dimension):
            near = f"at most {self.finite.distance_bound:.2g} from the exact one"
            near = near if self.finite.certified else "not proved"
            space = f"S_fin has {int(self.finite.space.dimension)} of {self.data.d**2} dimensions"
            lines.append(f"Certificate of W_fin: {near}, {space}")
        return "\n".join(lines)


def predict_limit(
    data: NextTokenData | PriorityGraph,
    norm: Norm | None = None,
    *,
    solver: Solver | None = None,
    progress: ProgressReport = None,
) -> LimitPrediction:
    """The limit of training on next-token data, before training: ``W ~ W_fin + C W_svm`` (arXiv 2403.08081).

        W_svm = argmin N(W)  s.t. (e_i - e_j)^T W e_k  = 0 inside components of G_k,  >= 1 for strict priorities i => j
        W_fin = the minimiser in S_fin of the loss restricted to the tokens of the label's component

    For the Frobenius norm, gradient descent with small steps on the log loss tends to it from every start, if the
    Graph-SVM is feasible. (The paper's assumptions are known here from its abstract and from excerpts.)

    `norm` is `Frobenius()` (default) for W, `Nuclear()` for W = K Q^T, a conjecture; `solver` is that of the Graph-SVM,
    and `progress` is called with a line of text now and then while a large problem is solved.

    >>> import numpy as np
    >>> from attsvm.next_token import from_ids
    >>> data = from_ids([[0, 1, 2], [0, 2]], [0, 0], np.eye(3), names="abc")
    >>> limit = predict_limit(data)
    >>> limit.answer("b c"), limit.standing.value
    (Answer(words=('b', 'c'), probabilities=(0.5, 0.5), dropped=(), seen=True, by_graph=False, decided=False), 'proved')
    """
    graph = data if isinstance(data, PriorityGraph) else priority_graph(data)
    norm = norm or Frobenius()
    solution = solve(graph.problem, norm, solver=solver, progress=progress)
    if not bool(solution.separable):
        solution = _clash_of_one(graph, solution)
    finite = finite_part(graph) if bool(solution.separable) else None
    conditions = _conditions(graph, solution)
    feasible, _, independent = conditions  # without a strict priority W converges, which convexity proves
    proved = isinstance(norm, Frobenius) and bool(feasible.proved & independent.proved)
    standing = None if finite is None else Standing.PROVED if proved else Standing.CONJECTURED
    return LimitPrediction(graph, solution, finite, conditions, standing)


def _clash_of_one(graph: PriorityGraph, solution: SVMSolution) -> SVMSolution:
    """The same with a ray of relations after one last token k, where these clash by themselves.

    They ask for u = W e_k in R^d only, so that such a ray is short, is told in words, and is proved where one over all
    tokens has too many rows for a proof.
    """
    problem, (_, last, kept) = graph.problem, graph.relations
    sizes = torch.zeros(graph.data.K).long().index_add(0, last, problem.rows.sum(-1))
    for token in torch.argsort(sizes, descending=True, stable=True)[:_TRIED].tolist():
        own = last == token
        if not bool(problem.inequalities[own].any()):
            continue
        one = torch.ones(int(own.sum()), 1, dtype=torch.float64)
        data = TokenDataset(problem.data.tokens[own], one, one[:, 0], problem.data.real[own])
        found = solve(AttentionSVM(data, selected_set=kept[own], rows=problem.data.real[own]))
        if bool(found.infeasible):
            duals = torch.zeros_like(solution.duals)
            duals[own] = found.duals
            return replace(solution, duals=duals, codes=found.codes, certificate=found.certificate)
    return solution


def _conditions(graph: PriorityGraph, solution: SVMSolution) -> tuple[Condition, ...]:
    data = graph.problem.data
    margin = float(1 / solution.certificate.primal_value) if bool(solution.solved) else -math.inf
    feasible = bool(solution.separable) if bool(solution.separable | solution.infeasible) else None
    sizes, strict = torch.linalg.svdvals(graph.data.embeddings), int(graph.strict.sum())
    enough = len(sizes) == graph.data.K
    least = float(sizes[-1]) if enough else 0.0
    independent = True if least > 1e-10 * float(sizes[0]) else None if enough else False
    said = "smallest singular value of the embeddings"
    return (
        everywhere(data, "Graph-SVM feasible", feasible, "some weights meet every relation", SOURCE, margin),
        everywhere(data, STRICT, strict > 0, "relations between components", SOURCE, strict),
        everywhere(data, "embeddings independent", independent, said, SOURCE, least),
    )
