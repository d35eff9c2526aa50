"""Why a head attends there: the gap between the token it chooses and another, as sums, and what would flip it.

For query i, the chosen token s and another token r the gap ``logit(s | i) - logit(r | i)`` is

- a sum over channels (`attsvm.heads.form`): each frequency of rotary positions, the coordinates that are not turned,
  and biases by distance. In a frequency content and position act together; content is what changes when the two tokens
  change places in content only, position the rest, each averaged over the two orders in which both can change;
- a sum over what earlier parts of the model put into the two keys, with the query as it is; and over what they put
  into the query, with the keys as they are (`attsvm.heads.explain.trace`: norms keep the scale of this run);
- under the max-margin weights W_mm, not under the head's own, a sum over support examples.

The smallest change of one state that flips the choice is a projection onto the nearest hyperplane of equal logits, in
the space that the layer reads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.files import write_atomically
from attsvm.heads.analysis.lifted import Pairs
from attsvm.heads.explain.max_margin import MaxMargin
from attsvm.heads.explain.trace import Parts, Trace, trace
from attsvm.heads.form import LayerStates
from attsvm.heads.model import HeadModel, Sentence, Text, counted, head_place, spaced
from attsvm.heads.report.html.page import why_page
from attsvm.sweep.manifest import to_plain

Asked = int | str | None  # a position, or a word that occurs once
FROZEN = "upstream parts: the scale of every normalization is frozen at its value in this run"


@dataclass(frozen=True)
class Share:
    """What one part adds to a gap."""

    name: str
    value: float


@dataclass(frozen=True)
class Channel:
    """What one channel adds to a gap, by content and by position."""

    name: str
    content: float
    position: float


@dataclass(frozen=True, eq=False)
class Flip:
    """The smallest change of one state, read by this layer, at which another token is chosen."""

    state: str  #: "query", "chosen key" or "other key"
    token: int  #: whose state is changed, its position
    towards: int  #: the token that draws level
    size: float  #: norm of the change
    relative: float  #: `size` over the norm of the state
    change: Float[Tensor, " d"] = field(repr=False)  #: 1.001 times it flips the choice


@dataclass(frozen=True, eq=False)
class Why:
    """One choice of a head, explained; the sums of `channels`, `keys` and `queries` are all `gap`."""

    model: str
    head: str
    tokens: tuple[str, ...]  #: of the text; `query`, `chosen` and `other` are positions among them
    query: int
    chosen: int
    other: int
    gap: float
    attention: tuple[float, ...]  #: of the query over all tokens
    others: tuple[tuple[int, float], ...]  #: every other candidate and the gap to it, smallest first
    channels: tuple[Channel, ...]
    keys: tuple[Share, ...]  #: what earlier parts of the model give the two keys; empty where it does not show them
    queries: tuple[Share, ...]  #: the same for the query
    support: tuple[Share, ...]  #: the gap under W_mm / ||W_mm|| by support examples, where some were given
    support_gap: float  #: its sum
    flips: tuple[Flip, ...]  #: smallest changes that flip the choice
    error: float  #: largest difference between `gap` and a sum of its parts, relative to the gap
    notes: tuple[str, ...] = ()  #: what a reader should know, one sentence each

    def named(self, position: int) -> str:
        """A token and its position, for a reader."""
        return f"{spaced(self.tokens[position])!r} ({position})"

    @property
    def sentence(self) -> str:
        """What was chosen, by how much over whom."""
        return (
            f"{self.head} of {self.model}: {self.named(self.query)} attends to {self.named(self.chosen)}"
            f" ({self.attention[self.chosen]:.0%}), by {self.gap:.4g} over {self.named(self.other)}"
        )

    @property
    def sums(self) -> dict[str, list[Share]]:
        """The sums that there are, by title."""
        kinds = ("content", "position")
        channels = [Share(f"{c.name}, {k}", getattr(c, k)) for c in self.channels for k in kinds if getattr(c, k)]
        both = [Share(k, math.fsum(getattr(c, k) for c in self.channels)) for k in kinds]
        found = {
            "By content and position": both if both[1].value else [],
            "By channel": channels if len(channels) > 1 else [],
            "By part of the model, in the two keys": list(self.keys),
            "By part of the model, in the query": list(self.queries),
            "Under W_mm / ||W_mm||, by support example": list(self.support),
        }
        return {title: shares for title, shares in found.items() if shares}

    def to_json(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers."""
        plain = {item.name: to_plain(getattr(self, item.name)) for item in fields(self) if item.name != "flips"}
        flips = [{k: v for k, v in vars(flip).items() if k != "change"} for flip in self.flips]
        return {"sentence": self.sentence, **plain, "flips": to_plain(flips)}

    def __str__(self) -> str:
        lines = [self.sentence]
        for title, shares in self.sums.items():
            lines.append(f"{title}: " + ", ".join(f"{s.name} {s.value:+.4g}" for s in largest(shares, 6)))
        lines += [str_flip(self, flip) for flip in self.flips]
        return "\n".join([*lines, f"parts add up to the gap to {self.error:.1e} of it", *self.notes])


def str_flip(why: Why, flip: Flip) -> str:
    """A flip in words."""
    whose = f"the key of {why.named(flip.token)}" if flip.state == "other key" else f"the {flip.state}"
    return f"{why.named(flip.towards)} wins when {whose} changes by {flip.relative:.3g} of its norm"


def largest(shares: Sequence[Share], count: int) -> list[Share]:
    """The `count` largest by size, and the sum of the rest as one."""
    order = sorted(shares, key=lambda share: -abs(share.value))
    rest = order[count:]
    left = [Share(f"the other {len(rest)}", math.fsum(share.value for share in rest))] if rest else []
    return order[:count] + left


def why(
    model: HeadModel,
    text: Text | Sentence,
    head: str,
    query: int | str | None = None,
    *,
    over: int | str | None = None,
    support: MaxMargin | None = None,
    upstream: bool = True,
) -> Why:
    """Explain one choice of a head: which token wins, by how much over whom, because of what, and what would flip it.

    Arguments:
        model: from `load` or `from_arrays`.
        text: to read; a `Sentence` of the model where it has its own.
        head: such as ``"L3H7"``, layers and heads counted from 0.
        query: position of the query, or a word that occurs once (its last token asks); None means the last token that
            is not special.
        over: the token to compare with, likewise; None means the runner-up.
        support: W_mm of this head, from `max_margin`, whose support examples are asked too.
        upstream: whether earlier parts of the model are followed, which takes a second run.

    Raises:
        ValueError: if there is no such head, word or position, the query has nothing to choose, or `over` is not
            among its candidates.
    """
    return Reading(model, text, head, support=support, upstream=upstream).why(query, over)


class Reading:
    """A text as one head reads it, to explain choices of several queries; arguments as those of `why`."""

    def __init__(
        self,
        model: HeadModel,
        text: Text | Sentence,
        head: str,
        *,
        support: MaxMargin | None = None,
        upstream: bool = True,
        traced: Trace | None = None,
    ) -> None:
        self.layer, self.number = head_place(model, head)
        self.model, self.head, self.support = model, f"L{self.layer}H{self.number}", support
        if support is not None and (support.head != self.head or not support.solved):
            why = f"of {support.head}" if support.head != self.head else f"unsolved ({support.solution.status})"
            raise ValueError(f"support must be the solved W_mm of {self.head}; got one that is {why}")
        self.sentence = text if isinstance(text, Sentence) else model.encode([text])[0]
        self.trace = traced or trace(model, self.sentence, upstream)
        self.form = model.weights(self.layer, self.number)
        self.seen: LayerStates = self.trace.seen[self.layer].of(self.form)
        self._wide = self.form.part is None and self.seen.keys.shape[1] > model.width  # with a constant coordinate

    @cached_property
    def logits(self) -> Float[Tensor, "T T"]:
        """Of every query over its candidates, -inf elsewhere."""
        return self.form.logits(self.seen).masked_fill(~self.seen.allowed, -torch.inf)

    @cached_property
    def parts(self) -> Parts | None:
        """Keys and queries by part of the model."""
        return self.trace.parts(self.layer, self.form)

    @cached_property
    def _sides(self) -> tuple[Tensor, Tensor]:
        """Keys and queries in head space, turned."""
        return self.form.sides(self.seen)

    @property
    def choosing(self) -> list[int]:
        """Positions of the queries that have something to choose."""
        return [i for i, options in enumerate(self.seen.allowed.sum(-1).tolist()) if options > 1]

    def why(self, query: Asked = None, over: Asked = None) -> Why:
        """The choice of `query` against `over`, or the runner-up."""
        i = self.sentence.place(query)
        logits = self.logits[i]
        candidates = torch.nonzero(self.seen.allowed[i])[:, 0].tolist()
        if len(candidates) < 2:
            raise ValueError(
                f"query {self.sentence.tokens[i]!r} (token {i}) has nothing to choose: it sees"
                f" {counted(len(candidates), 'token')}; ask a later one"
            )
        s = int(logits.argmax())
        gaps = sorted(((t, float(logits[s] - logits[t])) for t in candidates if t != s), key=lambda pair: pair[1])
        r = gaps[0][0] if over is None else self.sentence.place(over, "over")
        if r == s or r not in candidates:
            what = "is the chosen token" if r == s else "is not seen by this query"
            raise ValueError(f"over must be another candidate of the query; token {r} {what}")
        gap = float(logits[s] - logits[r])
        channels, keys, queries = self._channels(i, s, r), *self._upstream(i, s, r)
        sums = [sum((c.content + c.position for c in channels), 0.0)]
        sums += [math.fsum(share.value for share in side) for side in (keys, queries) if side]
        error = max(abs(total - gap) for total in sums)
        support, support_gap = self._support(i, s, r)
        notes = [FROZEN] if keys else ["earlier parts of this model were not followed"]
        if gap <= 1e-9 * float(logits[torch.tensor(candidates)].abs().max()):
            notes.append("a tie to round-off: nothing is chosen")
        if self._wide:
            notes.append("changes leave the constant coordinate of biases alone")
        return Why(
            self.model.name, self.head, self.sentence.tokens, i, s, r, gap,
            tuple(self.form.log_attention(logits).exp().tolist()), tuple(gaps), channels, keys, queries, support,
            support_gap, self._flips(i, s, gaps), error / abs(gap) if gap else error, tuple(notes),
        )  # fmt: skip

    def _channels(self, i: int, s: int, r: int) -> tuple[Channel, ...]:
        form, seen, found = self.form, self.seen, []
        keys, query, kept = seen.keys[[s, r]] @ form.key, seen.queries[i] @ form.query, form.unturned
        if form.pairs is not None and seen.phases is not None:
            first, second = form.pairs.unbind(1)
            held = torch.complex(keys[:, first], keys[:, second])  # content of the chosen token and the other
            asked = (torch.complex(query[first], query[second]) * seen.phases[i]).conj()
            mixed = (held[:, None] * seen.phases[[s, r]][None] * asked).real  # [content, position, frequency]
            content = ((mixed[0] - mixed[1]).sum(0) / 2).tolist()
            position = ((mixed[:, 0] - mixed[:, 1]).sum(0) / 2).tolist()
            for number, angle in enumerate((seen.phases[1] * seen.phases[0].conj()).angle().abs().tolist()):
                period = f"period {2 * math.pi / angle:,.{1 if angle > 0.1 else 0}f}" if angle > 0 else "not turning"
                found.append(Channel(f"frequency {number} ({period})", content[number], position[number]))
        if bool(kept.any()):
            name = "key times query" if form.pairs is None else "coordinates not turned"
            found.append(Channel(name, float((keys[0] - keys[1])[kept] @ query[kept]), 0.0))
        if form.relative is not None and seen.buckets is not None:
            bias = form.relative[seen.buckets[i]]
            found.append(Channel("bias by distance", 0.0, float(bias[s] - bias[r])))
        if form.slope:
            found.append(Channel("fixed bias by distance", 0.0, form.slope * (s - r)))
        return tuple(found)

    def _upstream(self, i: int, s: int, r: int) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
        if self.parts is None:
            return (), ()
        keys, queries = self._sides
        rest = float(self.logits[i, s] - self.logits[i, r] - (keys[s] - keys[r]) @ queries[i])
        biased = [Share("biases by distance", rest)] if self.form.relative is not None or self.form.slope else []
        by_key = (self.parts.keys[:, s] - self.parts.keys[:, r]) @ queries[i]
        by_query = self.parts.queries[:, i] @ (keys[s] - keys[r])
        named = (zip(self.parts.names, side.tolist(), strict=True) for side in (by_key, by_query))
        key, query = ([Share(name, value) for name, value in side if value] for side in named)
        return (*key, *biased), (*query, *biased)

    def double_sum(self, query: Asked = None) -> tuple[tuple[str, ...], Float[Tensor, "P P"]]:
        """The gap by part of the two keys (row) and part of the query (column), and the names of the parts.

        Raises:
            ValueError: if earlier parts were not followed; and as `why`.
        """
        found = self.why(query)
        if self.parts is None:
            raise ValueError(f"earlier parts of {self.model.name} were not followed, so that there is no double sum")
        keys = self.parts.keys[:, found.chosen] - self.parts.keys[:, found.other]
        return self.parts.names, keys @ self.parts.queries[:, found.query].T

    def _support(self, i: int, s: int, r: int) -> tuple[tuple[Share, ...], float]:
        if self.support is None:
            return (), math.nan
        here = Pairs.of(self.form, [self.seen], [(0, i, s)])
        here = here[torch.cat([torch.nonzero(here.token == t)[:, 0] for t in (s, r)])]
        solution = self.support.solution
        pairs, lam = solution.pairs, solution.multipliers
        kernel = here.kernel(pairs)
        rows = kernel[:, solution.selected[pairs.query]] - kernel
        values = lam * (rows[0] - rows[1])
        totals = torch.zeros(len(pairs.queries), dtype=torch.float64).index_add_(0, pairs.query, values)
        found = [Share(*one) for one in zip(self.support.examples, totals.tolist(), strict=True) if one[1]]
        return tuple(largest(found, len(found))), float(values.sum())

    def _flips(self, i: int, s: int, gaps: Sequence[tuple[int, float]]) -> tuple[Flip, ...]:
        """Smallest changes of the query, of the chosen key, and of one other key."""
        form, seen = self.form, self.seen
        keys, queries = self._sides
        read = slice(0, seen.keys.shape[1] - 1 if self._wide else None)
        back = None if seen.phases is None else seen.phases.conj()

        def into_states(side: Tensor, factor: Tensor, position: int) -> Tensor:
            """A vector of head space at `position`, as a slope in the states that `factor` reads."""
            return factor[read] @ form.turned(side[None], None if back is None else back[position][None])[0]

        def flip(state: str, token: int, towards: int, gap: float, slope: Tensor, own: Tensor) -> Flip | None:
            square = float(slope @ slope)
            if not square > 0:
                return None
            change = slope * (-gap / square)
            size = float(change.norm())
            return Flip(state, token, towards, size, size / float(own[read].norm()), change)

        asked = queries[i]
        near, least = gaps[0]
        tried = [
            [flip("query", i, t, gap, into_states(keys[s] - keys[t], form.query, i), seen.queries[i])
             for t, gap in gaps],
            [flip("chosen key", s, near, least, into_states(asked, form.key, s), seen.keys[s])],
            [flip("other key", t, t, gap, -into_states(asked, form.key, t), seen.keys[t]) for t, gap in gaps],
        ]  # fmt: skip
        kept = [list(filter(None, kind)) for kind in tried]
        return tuple(min(kind, key=lambda found: found.size) for kind in kept if kind)

    def save_html(self, path: str | os.PathLike[str], query: Asked = None, over: Asked = None) -> Path:
        """Write one self-contained page: the text, and for the token one clicks at the parts of its gap.

        `query` is the token that is shown first, compared with `over`; all others are compared with the runner-up.
        """
        first = self.sentence.place(query)
        chosen = [self.why(i, over if i == first else None) for i in self.choosing]
        shown = {
            found.query: {
                "sentence": found.sentence, "chosen": found.chosen, "other": found.other,
                "attention": [round(value, 4) for value in found.attention],
                "panels": {title: to_plain(largest(shares, 10)) for title, shares in found.sums.items()},
                "flips": [str_flip(found, flip) for flip in found.flips],
            } for found in chosen
        }  # fmt: skip
        data = {"first": first, "tokens": self.sentence.tokens, "queries": shown}
        error = max((found.error for found in chosen), default=0.0)
        notes = [*dict.fromkeys(note for found in chosen for note in found.notes), *self.model.notes]
        notes.append(f"parts add up to their gaps to {error:.1e} of each")
        return write_atomically(Path(path), why_page(f"{self.head} of {self.model.name}", data, notes).encode())
