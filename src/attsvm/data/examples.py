"""The papers' hand-made examples by name, with the starting points of their runs, and one of our own."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import ArrayOrList, check_positive
from attsvm.data.counter import Numbers
from attsvm.data.dataset import TokenDataset
from attsvm.data.random import draw_dataset, unit
from attsvm.data.streams import Batch, Seed, draw_batch


def single_input(third_score: float) -> TokenDataset:
    """[MMTS, single input] one input of three tokens, of which the first scores highest.

    p_mm of token 0 is (-10, 100)/101, of token 1 (1, 0); token 2 is the only support of both. Globally (third score
    0.9) every start reaches the optimal token, since token 1 ties with its only neighbour; locally (third score 0)
    token 1 out-scores that neighbour, so that it is locally optimal.
    """
    return _scored([[[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, third_score]]])


def multi_input(*, batch: Batch = None, seed: Seed = 0) -> TokenDataset:
    """[MMTS, several inputs] n = 3, T = 7: noise 0.2 N around (1,0) for token 0, (-1,1) for 1..3, (-.5,-.5) for 4..6.

    Token 0 scores 1, all others 0.5.
    """
    centres = np.array([(1.0, 0.0)] + 3 * [(-1.0, 1.0)] + 3 * [(-0.5, -0.5)])
    scores = np.array([1.0] + 6 * [0.5])

    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        keys = centres + 0.2 * stream.standard_normal((3, 7, 2))
        return {"tokens": np.concatenate([keys, np.broadcast_to(scores[:, None], (len(keys), 3, 7, 1))], axis=-1)}

    return _scored(draw_batch(draw, batch, seed)["tokens"])


def joint_training(third_height: float) -> TokenDataset:
    """[MMTS, joint training] three inputs without a prediction head, which is trained from `starting_points`.

    v_mm = (0, 1). Tight (height 1): every selected token supports the label margin, p_mm = (4/3, 1/3). Relaxed (height
    1.5): the third input supports none, and p tends to (1, 0).
    """
    tokens = [[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, -1.0]], [[0.0, 0.0], [0.5, third_height]]]
    return TokenDataset.prompt(tokens, [1, -1, 1])


def loss_comparison(*, C: float = 1.0) -> TokenDataset:
    """[MMTS, losses] tokens (0,0)&(1,1) of score C > 0 and (0,0)&(1,-1) of score 1; p_mm = (1, 0) whatever C.

    The paper shows C = 1..10 and 100.
    """
    check_positive(C, "C")
    return _scored([[[0.0, 0.0, 0.0], [1.0, 1.0, float(C)]], [[0.0, 0.0, 0.0], [1.0, -1.0, 1.0]]])


def trajectories(*, batch: Batch = None, seed: Seed = 29) -> TokenDataset:
    """[TaSVM, trajectories] n = 2, d = 2, T = 3: 0.3 N around (-1,0) and (1,0); v and z_i random unit; labels +1.

    The default seed gives a clear picture: descent from zero reaches the optimal tokens, both queries map to one
    nuclear ray but to two Frobenius rays 52 degrees apart. Not every seed does; some runs end at local optima.
    """
    centres = np.array([(-1.0, 0.0), (1.0, 0.0)])

    return _two_in_the_plane(lambda stream: centres[:, None] + 0.3 * stream.standard_normal((2, 3, 2)), batch, seed)


def hyperplanes(*, batch: Batch = None, seed: Seed = 13) -> TokenDataset:
    """[TaSVM, separating lines] n = 2, d = 2, T = 5: first tokens (1,.5) and (1,-.5), the others 0.5 N around (-1,0).

    v and z_i are random unit vectors, labels +1; the optimal token is the one of largest v^T x, which is the first one
    in both inputs for the default seed, though not for every seed.
    """

    def tokens(stream: Numbers) -> np.ndarray:
        others = np.array([-1.0, 0.0]) + 0.5 * stream.standard_normal((2, 4, 2))
        first = np.broadcast_to(np.array([[(1.0, 0.5)], [(1.0, -0.5)]]), (len(others), 2, 1, 2))
        return np.concatenate([first, others], axis=2)

    return _two_in_the_plane(tokens, batch, seed)


def two_inputs() -> TokenDataset:
    """A picture-book example of our own: two inputs of four tokens in the plane, where the higher token scores more.

    v = (0, 1), both labels +1, queries unit and not parallel; in both inputs token 0 is optimal and can be separated.
    It is not typical: it was picked from a random search for data on which descent on W is close to the Frobenius
    solution, descent on (K, Q) close to the nuclear one, and the two are far apart.
    """
    first = [[-0.2, 0.9], [-0.6, 0.1], [-1.5, -0.4], [-0.2, -0.9]]
    second = [[0.4, 0.7], [1.9, 0.3], [1.4, -0.1], [1.3, -0.8]]
    return TokenDataset([first, second], [[1.0, 0.0], [0.28, 0.96]], [1, 1], head=[0.0, 1.0])


EXAMPLES: dict[str, Callable[..., TokenDataset]] = {
    "single-input-global": partial(single_input, 0.9),
    "single-input-local": partial(single_input, 0.0),
    "multi-input": multi_input,
    "joint-training-tight": partial(joint_training, 1.0),
    "joint-training-relaxed": partial(joint_training, 1.5),
    "loss-comparison": loss_comparison,
    "trajectories": trajectories,
    "hyperplanes": hyperplanes,
    "two-inputs": two_inputs,
}


def example(name: str, **options: object) -> TokenDataset:
    """The example of this name in `EXAMPLES`: `seed` and `batch` where it is random, `C` for the comparison of losses.

    >>> example("two-inputs")
    TokenDataset(n=2, T=4, d=2, dq=2, head, float64, cpu)
    """
    function = EXAMPLES[_known(name)]
    accepted = list(inspect.signature(function).parameters)
    if unknown := [option for option in options if option not in accepted]:
        raise ValueError(f"example {name!r} has no option {unknown[0]!r}; it takes {', '.join(accepted) or 'none'}")
    return function(**options)


@dataclass(frozen=True)
class StartingPoints:
    """Where the paper's runs on an example start, one row for each run."""

    weights: Float[Tensor, "starts d dq"]  #: W(0), or the prompt p(0) as a column
    head: Float[Tensor, "starts dv"] | None = None  #: v(0) where the prediction head is trained


_SIX = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
_PROMPTS = {
    **{key: [(0.0, c) for c in _SIX] for key in ("single-input-global", "single-input-local")},
    "multi-input": [(c, 0.0) for c in _SIX],
    **{key: [(0.0, -1.0)] for key in ("joint-training-tight", "joint-training-relaxed")},
    "loss-comparison": [(0.0, 0.0)],
}


def starting_points(name: str) -> StartingPoints:
    """The starting points of the papers' runs on the example `name`, in float64.

    p(0) = (0, c) for the single input and (c, 0) for several, c = 1, .5, 0, -.5, -1, -1.5; p(0) = (0, -1) and
    v(0) = (-1, 0) for joint training; zero for the others.

    >>> starting_points("joint-training-tight").head
    tensor([[-1.,  0.]], dtype=torch.float64)
    """
    if _known(name) not in _PROMPTS:
        return StartingPoints(torch.zeros(1, 2, 2, dtype=torch.float64))
    head = torch.tensor([[-1.0, 0.0]], dtype=torch.float64) if name.startswith("joint-training") else None
    return StartingPoints(torch.tensor(_PROMPTS[name], dtype=torch.float64)[..., None], head)


def _known(name: str) -> str:
    if name in EXAMPLES:
        return name
    near = difflib.get_close_matches(str(name), EXAMPLES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(EXAMPLES)}"
    raise ValueError(f"no example is called {name!r}; {hint}")


def _two_in_the_plane(tokens: Callable[[Numbers], np.ndarray], batch: Batch, seed: Seed) -> TokenDataset:
    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        drawn = {"head": unit(stream, 2), "tokens": tokens(stream), "queries": unit(stream, 2, 2)}
        return {**drawn, "labels": np.ones((len(drawn["head"]), 2))}

    return draw_dataset(draw, batch, seed)


def _scored(tokens: ArrayOrList) -> TokenDataset:
    """Keys are the first two coordinates; the third one carries the score (v = e3)."""
    values = torch.as_tensor(tokens, dtype=torch.float64)
    head = torch.eye(3, dtype=torch.float64)[2].expand(*values.shape[:-3], 3).clone()
    return TokenDataset.prompt(values, torch.ones(values.shape[:-2]), torch.eye(2, 3, dtype=torch.float64), head=head)
