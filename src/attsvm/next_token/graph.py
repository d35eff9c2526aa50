"""Token-priority graphs: which token is chosen before which, read off the data (arXiv 2403.08081).

For each last token k a directed graph G_k: a sample with last token k and label y gives an edge y -> x to every other
token x of its window. Tokens of one strongly connected component beat each other in different samples and come to share
probability; an edge between components means strict priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.next_token.data import NextTokenData
from attsvm.svm import AttentionSVM
from attsvm.theory.diagnosis.tables import printed, table

_SHOWN = 20  # last tokens in a printed table
_WIDE = 32  # tokens of an input of the condensed problem; longer lists of relations become several inputs


class Relations(NamedTuple):
    """The inputs of a Graph-SVM: tokens, the representative first and -1 where there is none; last token; equal."""

    ids: Int[Tensor, "inputs T"]
    last: Int[Tensor, " inputs"]
    kept: Bool[Tensor, "inputs T"]


@dataclass(frozen=True, eq=False, repr=False)
class PriorityGraph:
    """The graphs G_k of all last tokens k, their components, and the order between these.

    A node is a pair of a last token and a token that occurs in its windows; edges and nodes are sorted.
    """

    data: NextTokenData  #: the samples
    #: the edges, winner -> loser in the graph of `last`
    last: Int[np.ndarray, " edges"]
    winner: Int[np.ndarray, " edges"]
    loser: Int[np.ndarray, " edges"]
    count: Int[np.ndarray, " edges"]  #: samples behind each edge
    #: the nodes
    node_last: Int[np.ndarray, " nodes"]
    node_token: Int[np.ndarray, " nodes"]
    component: Int[np.ndarray, " nodes"]  #: of each node, numbered over all graphs
    level: Int[np.ndarray, " components"]  #: length of the longest chain of strict priorities that ends in it

    def _nodes(self, last: np.ndarray, token: np.ndarray) -> np.ndarray:
        """Places of nodes that are known to exist."""
        size = self.data.K
        return np.searchsorted(self.node_last * size + self.node_token, last * size + token)

    def component_of(self, last: int, token: int) -> int | None:
        """The component of a token in the graph of `last`; None where it never occurs in a window of it."""
        found = np.flatnonzero((self.node_last == last) & (self.node_token == token))
        return int(self.component[found[0]]) if found.size else None

    @cached_property
    def edge_components(self) -> tuple[np.ndarray, np.ndarray]:
        """The components of winner and loser of every edge."""
        return tuple(self.component[self._nodes(self.last, end)] for end in (self.winner, self.loser))

    @cached_property
    def strict(self) -> Bool[np.ndarray, " edges"]:
        """The edges between components: strict priority."""
        one, other = self.edge_components
        return one != other

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The tokens of every component."""
        order = np.argsort(self.component, kind="stable")
        return np.split(self.node_token[order], np.cumsum(np.bincount(self.component))[:-1])

    @cached_property
    def component_last(self) -> Int[np.ndarray, " components"]:
        """The last token to whose graph each component belongs."""
        return self.node_last[np.unique(self.component, return_index=True)[1]]

    @property
    def last_tokens(self) -> list[int]:
        """The last tokens that have a graph, those of most samples first."""
        counts = torch.bincount(self.data.last, minlength=self.data.K)
        return [token for token in torch.argsort(counts, descending=True, stable=True).tolist() if counts[token]]

    def components(self, last: int) -> list[tuple[int, ...]]:
        """The components of the graph of `last` in priority order: a component never precedes one that beats it."""
        own = np.flatnonzero(self.component_last == last)
        ordered = sorted(own, key=lambda each: (self.level[each], int(self.members[each][0])))
        return [tuple(self.members[each].tolist()) for each in ordered]

    def condensation(self, last: int) -> set[tuple[int, int]]:
        """Strict priorities in the graph of `last`, between components as `components` numbers them."""
        place = {component[0]: number for number, component in enumerate(self.components(last))}
        pairs = np.stack(self.edge_components, 1)[self.strict & (self.last == last)].tolist()
        return {(place[int(self.members[a][0])], place[int(self.members[b][0])]) for a, b in pairs}

    def below(self, last: int, top: set[Any]) -> set[Any]:
        """`top` and all components to which chains of strict priority lead from there in the graph of `last`."""
        above, beaten = (ends[self.last == last] for ends in self.edge_components)
        while True:
            further = top | set(beaten[np.isin(above, list(top))].tolist())
            if further == top:
                return top
            top = further

    def collapsed(self, last: int) -> tuple[list[list[tuple[int, ...]]], set[tuple[int, int]]]:
        """The order in the graph of `last` as small as it can be drawn.

        Single tokens that beat, and are beaten by, the same components stand together; of the strict priorities those
        that follow from others are left out. Groups of components in priority order, and priorities between groups; a
        group of several components holds single tokens that are not compared with each other.
        """
        components = self.components(last)
        reach = np.zeros((len(components), len(components)), dtype=bool)
        for one, other in self.condensation(last):
            reach[one, other] = True
        for middle in range(len(reach)):  # components stand in priority order, so that one pass finds all chains
            reach |= np.outer(reach[:, middle], reach[middle])
        alike: dict[tuple[bytes, bytes, int], list[int]] = {}
        for place, component in enumerate(components):
            single = -1 if len(component) == 1 else place
            alike.setdefault((reach[place].tobytes(), reach[:, place].tobytes(), single), []).append(place)
        groups = list(alike.values())
        first = [places[0] for places in groups]
        between = reach[np.ix_(first, first)]
        direct = between & ~(between @ between)  # the product of booleans: what follows from two others
        arrows = {(one, other) for one, other in np.argwhere(direct).tolist()}
        return [[components[place] for place in places] for places in groups], arrows

    @property
    def acyclic(self) -> bool:
        """Whether every component is a single token: then attention ends on one token in every window."""
        return len(self.level) == len(self.component)

    @cached_property
    def kept(self) -> Bool[Tensor, "n T"]:
        """The tokens of each sample that lie in its label's component: O_i, the set that keeps probability."""
        data = self.data
        mask, last = data.mask, data.last.numpy()
        own = self.component[self._nodes(last, data.labels.numpy())]
        nodes = self._nodes(last[:, None], data.ids.clamp(min=0).numpy()).clip(max=len(self.component) - 1)
        return torch.from_numpy(self.component[nodes] == own[:, None]) & mask

    @cached_property
    def problem(self) -> AttentionSVM:
        """The Graph-SVM: equal logits within components, a margin of 1 along strict priorities.

        It is ``AttentionSVM(data.dataset, selected_set=graph.kept)`` with each relation once. An input holds
        representative, members and beaten tokens of a component; `relations` says which tokens these are.
        """
        ids, last, kept = self.relations
        known, mask, table = ids.clamp(min=0), ids >= 0, self.data.embeddings
        tokens, queries = table[known] * mask[..., None], table[last]
        data = TokenDataset(tokens, queries, torch.ones(len(ids), dtype=torch.float64), mask)
        return AttentionSVM(data, selected_set=kept, rows=mask)

    @cached_property
    def relations(self) -> Relations:
        """What the inputs of `problem` hold."""
        beaten: dict[int, list[int]] = {}
        pairs = np.unique(np.stack([self.edge_components[0], self.loser])[:, self.strict], axis=1)
        for component, token in pairs.T.tolist():
            beaten.setdefault(component, []).append(token)
        rows: list[tuple[int, list[int], int]] = []  # last token, tokens with the representative first, how many equal
        width = min(_WIDE, max(len(self.members[c]) + len(beaten.get(c, ())) for c in range(len(self.level))))
        for component, tokens in enumerate(self.members):
            first, *equal = tokens.tolist()
            others = equal + beaten.get(component, [])
            for start in range(0, len(others), width - 1):
                part = others[start : start + width - 1]
                rows.append((int(self.component_last[component]), [first, *part], max(0, len(equal) - start)))
        ids = torch.tensor([held + [-1] * (width - len(held)) for _, held, _ in rows])
        equal_count = torch.tensor([equal for _, _, equal in rows])
        kept = (torch.arange(width) <= equal_count[:, None]) & (ids >= 0)
        return Relations(ids, torch.tensor([last for last, _, _ in rows]), kept)

    def named(self, tokens: Sequence[int]) -> str:
        """A component as its words."""
        return "{" + ", ".join(self.data.words[token] for token in tokens) + "}"

    def __repr__(self) -> str:
        shared = sum(len(each) > 1 for each in self.members)
        edges = f"{len(self.last)} edges, {int(self.strict.sum())} strict"
        components = f"{len(self.level)} components, {shared} of more than one token"
        return f"PriorityGraph({len(self.last_tokens)} last tokens, {edges}, {components})"

    def __str__(self) -> str:
        counted = ("samples", "relations", "strict")
        made = table("Priorities", ("last token", *counted, "order"), right=counted)
        counts = torch.bincount(self.data.last, minlength=self.data.K)
        for last in self.last_tokens[:_SHOWN]:
            own, order = self.last == last, " > ".join(self._levels(last))
            numbers = [int(counts[last]), int(own.sum()), int((own & self.strict).sum())]
            shown = order if len(order) <= 70 else f"{order[:69]}\u2026"
            made.add_row(self.data.words[last], *map(str, numbers), shown)
        rest, said = len(self.last_tokens) - _SHOWN, "components of one level, joined by |, need not be comparable"
        made.caption = f"{said}; {rest} more last tokens" if rest > 0 else said
        made.caption_justify = "left"
        return printed(made)

    def _levels(self, last: int) -> Iterator[str]:
        """The components of each level, those of several tokens in braces."""
        own = np.flatnonzero(self.component_last == last)
        for level in np.unique(self.level[own]):
            names = [self.members[each].tolist() for each in own[self.level[own] == level]]
            yield " | ".join(self.named(each) if len(each) > 1 else self.data.words[each[0]] for each in names)


def priority_graph(data: NextTokenData) -> PriorityGraph:
    """The token-priority graph of every last token of the data, with its components and their order.

    >>> from attsvm.next_token import from_ids
    >>> data = from_ids([[0, 1, 2], [1, 0, 2], [0, 2]], [0, 1, 0], np.eye(3), names="abc")
    >>> graph = priority_graph(data)
    >>> [graph.named(component) for component in graph.components(2)], graph.condensation(2)
    (['{a, b}', '{c}'], {(0, 1)})
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not isinstance(data, NextTokenData):
        raise ValueError(f"data must come from next_token.from_text or from_ids; got {type(data).__name__}")
    size, ids, labels, last = data.K, data.ids.numpy(), data.labels.numpy(), data.last.numpy()
    sample, place = np.nonzero((ids >= 0) & (ids != labels[:, None]))
    # A token that a window repeats gives one relation.
    each = np.unique(np.stack([sample, ids[sample, place]]), axis=1)
    keys = (last[each[0]] * size + labels[each[0]]) * size + each[1]
    edges, count = np.unique(keys, return_counts=True)
    edge_last, winner, loser = edges // size**2, edges // size % size, edges % size
    present = np.unique((last[:, None] * size + ids)[ids >= 0])
    ends = [np.searchsorted(present, edge_last * size + end) for end in (winner, loser)]
    links = coo_array((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(present), len(present)))
    number, component = connected_components(links, directed=True, connection="strong")
    component = component.astype(np.int64)
    return PriorityGraph(
        data, edge_last, winner, loser, count, present // size, present % size, component,
        _levels(component[ends[0]], component[ends[1]], number),
    )  # fmt: skip


def _levels(above: np.ndarray, below: np.ndarray, count: int) -> np.ndarray:
    """The longest chain of strict edges that ends in each component; the condensation has no cycle, so this ends."""
    level = np.zeros(count, dtype=np.int64)
    across = above != below
    above, below = above[across], below[across]
    while True:
        raised = level.copy()
        np.maximum.at(raised, below, level[above] + 1)
        if (raised == level).all():
            return level
        level = raised
