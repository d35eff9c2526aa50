"""Several optimal tokens: the best of the SVMs that keep one optimal token of each input."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_mask, check_count, check_shape
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, SVMSolution, solve

_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class SeveralOptimal:
    """The disjunction over one optimal token per input."""

    selected: Int[Tensor, "*batch n"]  #: the best choice found, one token of O_i per input
    solution: SVMSolution  #: its SVM, with rows only against tokens outside O_i; infeasible where every choice tried is
    value: Float[Tensor, "*batch"]  #: N of it, inf where infeasible: the optimum where `exact`, else an upper bound
    lower_bound: Float[Tensor, "*batch"]  #: proved for every choice; equals `value` where `exact`
    exact: Bool[Tensor, "*batch"]  #: all choices are decided
    choices: Float[Tensor, "*batch"]  #: how many there are, prod_i |O_i|, as a float that may be inf
    solved: Int[Tensor, "*batch"]  #: how many SVMs of whole choices were solved
    unique: Bool[Tensor, "*batch"]  #: the next choice is worse by more than 1e-6, or there is none; where `exact`

    @property
    def weights(self) -> Float[Tensor, "*batch d dq"]:
        """The predicted direction; NaN where infeasible."""
        return self.solution.weights

    def __str__(self) -> str:
        said, others = f"{int(self.exact.sum())} of {self.exact.numel()} exact", ~self.exact
        if bool(others.any()):
            tried = f"{int(self.solved[others].sum())} SVMs of {float(self.choices[others].sum()):g} choices"
            said += f"; the others are upper bounds on N(W) from {tried}, with lower bounds beside them"
        return said


def several_optimal(
    data: TokenDataset, optimal_set: ArrayLike, norm: Norm | None = None, *, limit: int = 4096
) -> SeveralOptimal:
    """Where the regularization path goes if several tokens of an input share the best score [TaSVM, several optima].

        min over choices beta_i in O_i  of  min N(W)  s.t.  (x_i,beta_i - x_it)^T W z_i >= 1   for t outside O_i

    The loss does not care how probability is shared within O_i, so one of its tokens must beat those outside, and none
    of the others: a disjunction of prod_i |O_i| convex problems. If there are at most `limit`, all are solved. Beyond
    that, a coordinate search (change the token of one input at a time while that helps) gives an upper bound on N(W),
    and the hardest single input, with the inputs that have no choice taken together, a lower bound.

    Arguments:
        optimal_set: O, ``[*batch, n, T]``, for example `optimal_token_set(data, head, tolerance)`.
        limit: largest number of choices of one element to enumerate.

    >>> tokens = torch.tensor([[[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]]).double()
    >>> data = TokenDataset.prompt(tokens, [1])
    >>> best = several_optimal(data, torch.tensor([[True, True, False]]))
    >>> best.selected.tolist(), best.weights.flatten().tolist(), bool(best.exact)
    ([1], [0.0, 0.25], True)
    """
    check_count(limit, "limit")
    norm = norm or Frobenius()
    whole, optimal = data.to(dtype=torch.float64), as_mask(optimal_set, "optimal_set").to(data.device)
    check_shape(optimal, "optimal_set", (*data.batch_shape, data.n, data.T), "batch, n, T")
    for bad, sentence in (
        ((optimal & ~data.real).any(-1), "must hold real tokens; it holds a masked one at"),
        (~optimal.any(-1), "must keep a token of every input; none is kept at"),
    ):
        if bool(bad.any()):
            raise ValueError(f"optimal_set {sentence} {torch.nonzero(bad)[0].tolist()} (element, input)")
    sets, shape = optimal.reshape(-1, data.n, data.T), data.batch_shape
    search = _Search(whole.flatten(), sets, norm)
    names = [[torch.nonzero(row).flatten().tolist() for row in each] for each in sets]
    choices = [math.prod(float(len(each)) for each in own) for own in names]
    listed = [b for b, many in enumerate(choices) if many <= limit]
    found: dict[int, tuple[Tensor, Tensor, Tensor, int, bool]] = {}  # selected, value, lower bound, solved, unique
    if listed:
        counts = [int(choices[b]) for b in listed]
        owner = torch.tensor(listed).repeat_interleave(torch.tensor(counts))
        table = torch.tensor([choice for b in listed for choice in itertools.product(*names[b])])
        each = [every.split(counts) for every in (*search.values(owner, table), table)]
        for b, upper, lower, tried in zip(listed, *each, strict=True):
            order = upper.sort()
            apart = len(tried) == 1 or bool(order.values[1] > (1 + 1e-6) * order.values[0])
            found[b] = tried[int(order.indices[0])], order.values[0], lower.min(), len(tried), apart
    for b, many in enumerate(choices):
        if many > limit:
            found[b] = (*search.descend(b, names[b], limit), False)
    best, sizes, bounds, solved, alone = zip(*(found[b] for b in range(len(names))), strict=True)
    value, bound = torch.stack(sizes), torch.stack(bounds)
    # Statuses that are not decided leave a gap between the bounds; so does a search.
    exact = torch.tensor([many <= limit for many in choices], device=sets.device)
    exact &= (bound >= value * (1 - 1e-6)) | (torch.isinf(value) & torch.isinf(bound))
    selected = torch.stack(best).to(sets.device).reshape(*shape, data.n)
    several, counted, unique = (torch.tensor(each, device=sets.device) for each in (choices, solved, alone))
    parts = (value, torch.minimum(bound, value), exact, several.double(), counted, unique & exact)
    solution = solve(AttentionSVM(whole, selected, rows=~optimal), norm)
    return SeveralOptimal(selected, solution, *(part.reshape(shape) for part in parts))


@dataclass(frozen=True, eq=False)
class _Search:
    """SVMs of choices, many at a time; data with one batch axis."""

    data: TokenDataset
    sets: Bool[Tensor, "batch n T"]
    norm: Norm

    def values(self, owner: Tensor, selected: Tensor, asked: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """N of choices ``[k, n]`` (inf where not solved), and a proved lower bound; inputs not `asked` make no rows."""
        upper, lower, device = [], [], self.sets.device
        for where, chosen in zip(owner.to(device).split(_CHUNK), selected.to(device).split(_CHUNK), strict=True):
            rows = ~self.sets[where]  # the other tokens of the set make no rows
            if asked is not None:
                rows = rows & asked.to(device).unsqueeze(-1)
            solution = solve(AttentionSVM(self.data[where], chosen, rows=rows), self.norm)
            size = self.norm.value(solution.weights.nan_to_num(0.0))
            upper.append(size.masked_fill(~solution.solved, torch.inf))
            proved = solution.certificate.dual_value.masked_fill(solution.infeasible, torch.inf)
            lower.append(torch.where(solution.solved, size, proved))
        return torch.cat(upper), torch.cat(lower)

    def descend(self, element: int, names: list[list[int]], limit: int) -> tuple[Tensor, Tensor, Tensor, int]:
        """Change one input's token at a time, from each input's own best, until nothing helps or `limit` is reached.

        Returns the choice, its N, a bound for all choices, and the number of SVMs of whole choices. The bound: the
        inputs without a choice together, and each other input by itself.
        """
        first, place = torch.tensor([each[0] for each in names]), torch.arange(len(names))

        def tried(choice: Tensor, i: int, tokens: list[int], asked: Tensor | None = None) -> tuple[Tensor, ...]:
            trial = choice.repeat(len(tokens), 1)
            trial[:, i] = torch.tensor(tokens)
            return trial, *self.values(torch.full((len(tokens),), element), trial, asked)

        fixed = torch.tensor([len(each) == 1 for each in names])
        bounds, now = [tried(first, 0, names[0][:1], fixed)[2].min()], first.clone()
        for i, each in enumerate(names):
            _, _, lower = tried(first, i, each, place == i)
            bounds.append(lower.min())
            now[i] = each[int(lower.argmin())]
        value, spent, improved = tried(now, 0, now[:1].tolist())[1][0], 1, True
        while improved and spent < limit:
            improved = False
            for i, each in enumerate(names):
                others = [t for t in each if t != int(now[i])]
                if not others or spent >= limit:
                    continue
                trial, sizes, _ = tried(now, i, others)
                spent += len(others)
                if bool(sizes.min() < value * (1 - 1e-9)):
                    now, value, improved = trial[int(sizes.argmin())], sizes.min(), True
        return now, value, torch.stack(bounds).max(), spent
