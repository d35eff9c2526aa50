"""Change what a head attends to: the smallest change of its query projection that meets demands and keeps the rest.

With the keys k_j of a head fixed, the logit ``(R_{j-i} k_j)^T Q z_i`` is linear in its query projection Q, whatever
rotary positions, shared keys and biases by distance it has: a max-margin problem with tokens ``R_{j-i} k_j`` of the
width of the head, as any other `AttentionSVM`. The change Delta Q of least norm solves

    min N(Delta Q)   s.t.   (k_token - k_t)^T (Q + Delta Q) z >= b        for every other candidate t of a demand,
                            (k_chosen - k_t)^T (Q + Delta Q) z >= eps     for every other candidate t of a kept choice,

and the edited model has the same architecture. Where there is no such change, a ray of multipliers says so; it does not
depend on Q, and rules out every change of this head's queries. What a layer reads does not depend on its own queries,
so that demands on one head hold exactly in the edited model.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from safetensors.torch import save_file
from torch import Tensor, nn

from attsvm.data import TokenDataset
from attsvm.data.checks import check_not_negative, check_positive
from attsvm.heads.analysis.selections import SentenceView, choices
from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.loading.folder import quiet
from attsvm.heads.loading.tokenizers import HuggingFaceTokenizer
from attsvm.heads.loading.transformers_model import TransformersModel
from attsvm.heads.model import HeadModel, Sentence, Text, counted, head_place, plain_word
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, BlockDescent, SVMSolution, solve

Demand = tuple[Text, int | str, int | str]
"""A text, a query in it, and the token that the query is to choose, both as `why` takes them."""
_LISTED = 8  # choices named in a sentence


@dataclass(frozen=True, eq=False)
class Choice:
    """A query and the token that it is to choose."""

    sentence: Sentence
    query: int
    token: int

    def __str__(self) -> str:
        names = [plain_word(self.sentence.tokens[place]) for place in (self.query, self.token)]
        text = self.sentence.text if len(self.sentence.text) <= 60 else self.sentence.text[:57] + "..."
        return f"{names[0]!r} ({self.query}) to {names[1]!r} ({self.token}) in {text!r}"


@dataclass(frozen=True, eq=False)
class Edit:
    """The change of a head's queries, or the proof that there is none; `apply` makes the edited model."""

    head: str
    solution: SVMSolution  #: of the max-margin problem, with its certificate
    change: Float[Tensor, "E m"]  #: Delta Q as `HeadWeights.query` holds Q, scale inside; NaN where there is none
    demands: tuple[Choice, ...]
    kept: tuple[Choice, ...]  #: choices that the problem asked to keep
    binding: tuple[Choice, ...]  #: demands and kept choices that hold the solution in place
    moved: tuple[Choice, ...]  #: choices given up, each the heaviest of a ray of which one choice at least had to move
    clash: tuple[Choice, ...]  #: demands that no change can meet together; empty where there is a change

    @property
    def possible(self) -> bool:
        """Whether there is a change that meets all demands."""
        return bool(self.solution.separable)

    @property
    def rank(self) -> int:
        """Of the change."""
        return int(self.solution.rank(1e-6))

    @property
    def sentence(self) -> str:
        """What came of it."""
        listed = "; ".join(map(str, self.clash[:_LISTED])) + ("; ..." if len(self.clash) > _LISTED else "")
        none = f"no change of the queries of {self.head}"
        if self.clash and bool(self.solution.infeasible):
            return f"{none} can do this, because these demands clash: {listed}"
        if self.clash:
            bound = f"of a norm below {0.994 * float(self.solution.certificate.dual_value):.3g}"
            return f"{none} {bound} can do this; whether a larger one can is not known. These demands clash: {listed}"
        if not self.possible:
            return f"no change was found: {self.solution.sentences}"
        norm, gap = self.solution.norm, float(self.solution.certificate.relative_gap)
        return (
            f"{counted(len(self.demands), 'demand')} on {self.head} met by a change of {norm.name} norm"
            f" {float(norm.value(self.solution.weights)):.4g} and rank {self.rank}, certified to a gap of"
            f" {abs(gap):.1e}; {counted(len(self.kept), 'choice')} kept, {len(self.moved)} had to move"
        )

    def __str__(self) -> str:
        lines = [self.sentence]
        for title, named in (("binds", self.binding), ("had to move", self.moved)):
            lines += [f"- {title}: {choice}" for choice in named[:_LISTED]]
            lines += [f"- {title}: {len(named) - _LISTED} more"] if len(named) > _LISTED else []
        return "\n".join(lines)

    def apply(self, model: HeadModel) -> TransformersModel:
        """A copy of `model` with the edited head.

        Raises:
            ValueError: if there is no change, or `model` is not one whose weights can be written.
        """
        layer, number, own = _editable(model, self.head)
        if not self.possible:
            raise ValueError(self.sentence)
        core = copy.deepcopy(own._core)
        made = list(own._architecture.layers(core))[layer]
        module, size = made.query.module, made.size
        places = torch.arange(number * size, (number + 1) * size)
        places = places if made.query.columns is None else made.query.columns[places]
        width = made.query.weight.shape[0]
        step = (self.change / made.scale).to(module.weight)
        with torch.no_grad():
            whole = module.weight.T if isinstance(module, nn.Linear) else module.weight  # views of the same numbers
            whole[:, places] += step[:width]
            if module.bias is not None:
                module.bias[places] += step[width]
        return own._with_core(core, f"{own.name}, {self.head} edited")

    def save(self, model: HeadModel, folder: str | os.PathLike[str]) -> Path:
        """Write the edited model as safetensors, with its settings and its tokenizer, to a new folder for `load`.

        Raises:
            ValueError: as `apply`; or if the folder holds files.
        """
        path, edited = new_folder(folder), self.apply(model)
        staging = path.with_name(f".{path.name}.partial")  # complete, or not there
        staging.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().clone().contiguous() for name, tensor in edited._core.state_dict().items()}
        with quiet():
            save_file(state, staging / "model.safetensors", {"format": "pt"})
            edited._core.config.save_pretrained(staging)
            if isinstance(edited._tokenizer, HuggingFaceTokenizer):
                edited._tokenizer._tokenizer.save_pretrained(staging)
        if path.exists():
            path.rmdir()
        return staging.rename(path)


def new_folder(folder: str | os.PathLike[str], name: str = "folder") -> Path:
    """The path of a folder that is new or empty; else a ValueError."""
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{name} must be new or empty; {path} is not")
    return path


def edit(
    model: HeadModel,
    head: str,
    demands: Sequence[Demand],
    *,
    keep: Sequence[Text] = (),
    norm: Norm | None = None,
    margin: float = 1.0,
    keep_margin: float = 0.1,
) -> Edit:
    """The smallest change of a head's query projection with which it makes the choices demanded.

    Arguments:
        model: from `load`; not one that normalizes queries inside the head, nor one whose layers share weights.
        head: such as ``"L3H7"``.
        demands: triples (text, query, token): positions, or words that occur once.
        keep: texts on which every other choice of this head is to stay.
        norm: of the change; `Nuclear()` asks for low rank. `Frobenius()` by default.
        margin: by how much the logit of a demanded token must exceed the others.
        keep_margin: the same for kept choices, or half of what they have now where that is less.

    Returns:
        An `Edit`; where there is no change, it names the demands that clash. Kept choices never stand in the way of
        demands: those that a ray proves incompatible with them, and with the other kept ones, are given up one by one,
        the heaviest of the ray first, and listed in `Edit.moved` if the change moves them.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    layer, number, own = _editable(model, head)
    check_positive(margin, "margin")
    check_not_negative(keep_margin, "keep_margin")
    if len(demands) == 0:
        raise ValueError("demands must hold at least one (text, query, token); got none")
    reader = _Reader(own, layer, own.weights(layer, number))
    wanted = [reader.demand(demand, index) for index, demand in enumerate(demands)]
    kept = {(choice.sentence, choice.query): choice for text in keep for choice in reader.choices(text)}
    for choice in wanted:
        kept.pop((choice.sentence, choice.query), None)
    asked = [reader.asked(choice, margin) for choice in wanted]
    asked += [reader.asked(choice, keep_margin) for choice in kept.values()]
    few = len(wanted)
    for one in asked[few:]:
        one.margin = min(one.margin, one.gap() / 2)
    solution = _solved(asked[:few], norm)  # demands alone first: where they clash, no kept choice is to blame
    if bool(solution.barred):
        asked, solution = _irreducible(asked[:few], solution, norm)
    given_up = []
    while len(asked) > few:
        solution = _solved(asked, norm)
        weight = solution.duals[few:].clamp(min=0.0).sum(-1)
        if not bool(solution.barred) or not bool((weight > 0).any()):
            break
        given_up.append(asked.pop(few + int(weight.argmax())))
    weights, barred = solution.weights, bool(solution.barred)
    named = tuple(one.choice for one in _binding(asked, solution))
    return Edit(
        head=f"L{layer}H{number}",
        solution=solution,
        change=nn.functional.pad(weights.T, (0, 0, 0, len(reader.form.query) - weights.shape[1])),
        demands=tuple(wanted),
        kept=tuple(one.choice for one in asked[few:]),
        binding=() if barred else named,
        moved=() if barred else tuple(one.choice for one in given_up if one.gap(weights) <= 0),
        clash=named if barred else (),
    )


def _editable(model: HeadModel, head: str) -> tuple[int, int, TransformersModel]:
    """Layer and head, and a model whose query projection can be written."""
    layer, number = head_place(model, head)
    if not isinstance(model, TransformersModel):
        why = "was not loaded from weights of the transformers library"
    elif model._layers[layer].norms is not None:
        why = "normalizes queries inside the head, so that its logits are not linear in the query projection"
    elif sum(other.query.module is model._layers[layer].query.module for other in model._layers) > 1:
        why = "shares the weights of several layers, so that no head can be changed alone"
    else:
        return layer, number, model
    raise ValueError(f"{model.name} {why}; its heads cannot be edited")


@dataclass(eq=False)
class _Asked:
    """A choice and the gap that it is asked for: the query, the keys of its candidates as it sees them, its logits."""

    choice: Choice
    margin: float
    query: Float[Tensor, " E"]
    tokens: Float[Tensor, "c m"]
    logits: Float[Tensor, " c"]  # that the head gives the candidates now
    chosen: Bool[Tensor, " c"]  # True for the token to be chosen

    def gap(self, change: Float[Tensor, "m E"] | None = None) -> float:
        """Of the token to be chosen over the best other candidate, now or with a change of Q."""
        logits = self.logits if change is None else self.logits + self.tokens @ (change @ self.query)
        return float(logits[self.chosen].max() - logits[~self.chosen].max())


class _Reader:
    """What one head of a model sees in texts, each read once."""

    def __init__(self, model: TransformersModel, layer: int, form: HeadWeights) -> None:
        self.model, self.layer, self.form = model, layer, form
        # A constant coordinate that only the keys need is no part of the query projection.
        read = model._layers[layer].query
        self._width = read.weight.shape[0] + (read.bias is not None)
        self._sentences: dict[tuple[int, ...], Sentence] = {}
        self._seen: dict[Sentence, tuple[LayerStates, Tensor]] = {}

    def sentence(self, text: Text) -> Sentence:
        (made,) = self.model.encode([text])
        found = self._sentences.setdefault(tuple(made.ids.tolist()), made)
        if found not in self._seen:
            seen = self.model.states(found, [self.layer]).layer(0)
            self._seen[found] = seen, self.form.logits(seen)
        return found

    def demand(self, demand: Demand, index: int) -> Choice:
        if len(demand) != 3:
            raise ValueError(f"demands must be triples (text, query, token); demands[{index}] is {demand!r}")
        text, query, token = demand
        sentence = self.sentence(text)
        where = f"demands[{index}]"
        made = Choice(sentence, sentence.place(query, f"{where}: query"), sentence.place(token, f"{where}: token"))
        candidates = self._seen[sentence][0].allowed[made.query]
        if not bool(candidates[made.token]) or int(candidates.sum()) < 2:
            why = "sees one token only" if int(candidates.sum()) < 2 else "does not see that token"
            raise ValueError(f"{where}: {made} cannot be asked for, because this query {why}")
        return made

    def choices(self, text: Text) -> list[Choice]:
        """What the head chooses on a text, ties left out."""
        sentence = self.sentence(text)
        found = choices([SentenceView(**vars(self._seen[sentence][0]), sentence=sentence)], self.form)
        return [Choice(sentence, query, token) for _, query, token in found[~found.tied].triples]

    def asked(self, choice: Choice, margin: float) -> _Asked:
        (seen, logits), i = self._seen[choice.sentence], choice.query
        places = torch.nonzero(seen.allowed[i])[:, 0]
        turn = None if seen.phases is None else seen.phases[places] * seen.phases[i].conj()
        keys = self.form.turned(seen.keys[places] @ self.form.key, turn)
        return _Asked(choice, margin, seen.queries[i, : self._width], keys, logits[i, places], places == choice.token)


def _irreducible(asked: list[_Asked], solution: SVMSolution, norm: Norm | None) -> tuple[list[_Asked], SVMSolution]:
    """Demands that clash, of which none can be left out, and the ray that proves it."""
    left = _binding(asked, solution)
    for one in [None, *left]:  # first all of the ray alone
        fewer = [other for other in left if other is not one]
        tried = _solved(fewer, norm) if fewer else solution
        if fewer and bool(tried.barred) and bool(tried.infeasible | ~solution.infeasible):
            left, asked, solution = fewer, fewer, tried
    return asked, solution


def _binding(asked: Sequence[_Asked], solution: SVMSolution) -> list[_Asked]:
    """Those with a multiplier above 0."""
    return [one for one, duals in zip(asked, solution.duals, strict=True) if bool((duals > 0).any())]


def _solved(asked: Sequence[_Asked], norm: Norm | None) -> SVMSolution:
    """The problem of these queries, each with the gap that its choice is asked for."""
    tokens, logits, chosen = (
        nn.utils.rnn.pad_sequence([getattr(one, name) for one in asked], batch_first=True)
        for name in ("tokens", "logits", "chosen")
    )
    mask = torch.arange(tokens.shape[1]) < torch.tensor([[len(one.tokens)] for one in asked])
    queries, ones = torch.stack([one.query for one in asked]), torch.ones(len(asked), dtype=torch.float64)
    sides = torch.tensor([one.margin for one in asked], dtype=torch.float64)
    data = TokenDataset(tokens, queries, ones, mask=mask)
    problem = AttentionSVM(data, chosen.int().argmax(-1), right_hand_side=sides, offsets=logits)
    solution = solve(problem, norm or Frobenius())
    if not bool(solution.solved | solution.barred) and isinstance(solution.norm, Frobenius):
        # Rows of any sign cannot be met by scaling W; what block descent misses by a little is certified to a little.
        return solve(problem, solver=BlockDescent(accuracy=1e-6), initial=solution)
    return solution
