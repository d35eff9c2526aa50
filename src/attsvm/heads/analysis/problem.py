"""The max-margin problem of a head's own selections, as data the solvers read."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attsvm.data import TokenDataset
from attsvm.heads.analysis.selections import Choices, Views
from attsvm.heads.form import HeadWeights
from attsvm.svm import AttentionSVM


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """The SVM of some selections; the tokens of a sentence are stored once for all its queries.

    Every sentence has as many inputs of the problem, one for each query, as the sentence with the most queries. Those
    that are left over have one token, and therefore no rows.
    """

    problem: AttentionSVM  # of all these inputs, sentence after sentence
    inputs: Int[Tensor, " n"]  # which of them belong to the selections, in the order of `drawn`, ``[n]``
    drawn: Choices  # the selections
    asked: float = 1.0  # by how much the logit of a selected token must exceed the others, fixed biases included

    @property
    def rows(self) -> int:
        """Number of constraints."""
        return int(self.problem.inequalities.sum())

    @property
    def memory(self) -> int:
        """Bytes of tokens, queries, and four numbers for each row (right-hand sides, margins, multipliers, kinds)."""
        data = self.problem.data
        return 8 * (data.tokens.numel() + data.queries.numel() + 4 * data.n * data.T)

    def contradiction(self) -> tuple[int, int] | None:
        """Two selections (indices into `drawn`) that no weights can both make, if some are easily seen.

        The same query asks for token a above b and elsewhere for b above a: embeddings repeat where neither token nor
        position differ. A solver would find out, but slowly.
        """
        data, shared = self.problem.data, self.problem.data.queries_per_sequence
        names: dict[bytes, int] = {}
        asked: dict[tuple[int, int, int], int] = {}
        for index, place in enumerate(self.inputs.tolist()):
            tokens = data.tokens[place // shared]
            query = names.setdefault(data.queries[place].numpy().tobytes(), len(names))
            above = names.setdefault(tokens[self.problem.reference[place]].numpy().tobytes(), len(names))
            for token in torch.nonzero(self.problem.inequalities[place])[:, 0].tolist():
                below = names.setdefault(tokens[token].numpy().tobytes(), len(names))
                other = asked.get((query, below, above))
                if other is not None or below == above:
                    return (index if other is None else other), index
                asked[query, above, below] = index
        return None

    def query_margins(self, weights: Float[Tensor, "D E"]) -> Float[Tensor, " n"]:
        """Smallest margin of every query, in the units of `weights`; fixed biases included, over `asked`."""
        margins = (self.problem.margins(weights) - self.problem.right_hand_side) / self.asked + 1
        return margins.masked_fill(~self.problem.inequalities, torch.inf).amin(-1)[self.inputs]


def selection_problem(views: Views, drawn: Choices, form: HeadWeights | None = None) -> SelectionProblem:
    """Build the problem that asks for `drawn.selected` above every other candidate of its query.

    Where `form` has a fixed bias, logits do not scale with W: the problem asks for the smallest gap that the head
    itself has on these selections, if that is positive, and else for 1.
    """
    used, inverse = torch.unique(drawn.sentence, return_inverse=True)
    shared = int(torch.bincount(inverse).max())
    free = [itertools.count(place * shared) for place in range(len(used))]  # inputs of each sentence not taken yet
    inputs = torch.tensor([next(free[place]) for place in inverse.tolist()])
    tokens = pad_sequence([views[index].keys for index in used.tolist()], batch_first=True)
    n, length = len(used) * shared, tokens.shape[1]
    queries = torch.zeros(n, views[0].queries.shape[-1], dtype=torch.float64)
    mask = torch.zeros(n, length, dtype=torch.bool)
    mask[:, 0] = True
    for place, (index, position, _) in zip(inputs.tolist(), drawn.triples, strict=True):
        view = views[index]
        queries[place] = view.queries[position]
        mask[place, : len(view.sentence)] = view.allowed[position]
    selected = torch.zeros(n, dtype=torch.int64)
    selected[inputs] = drawn.selected
    asked, offsets = 1.0, None
    if form is not None and form.slope:
        offsets = form.fixed_logits(length)[0].expand(n, length)  # a constant for each query changes nothing
        logits = [(views[index].logits(form)[position], token) for index, position, token in drawn.triples]
        least = min(float(row[token] - torch.cat([row[:token], row[token + 1 :]]).max()) for row, token in logits)
        asked = least if least > 0 else 1.0
    data = TokenDataset(tokens, queries, torch.ones(n, dtype=torch.float64), mask=mask, queries_per_sequence=shared)
    problem = AttentionSVM(data, selected, right_hand_side=asked, offsets=offsets)
    return SelectionProblem(problem, inputs, drawn, asked)
