"""The container: construction, views, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset
from attsvm.data.dataset import replace_unchecked

from .helpers import FIELDS, assert_same, make, parts, same_bits

FLOATS = ("tokens", "queries", "values", "head")


# ------------------------------------------------------------------- construction


@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_shapes(batch: tuple[int, ...]) -> None:
    data = make(*batch, n=2, T=4, d=3, dq=2)
    assert (data.batch_shape, data.n, data.T, data.d, data.dq, data.dv) == (batch, 2, 4, 3, 2, 4)
    assert (data.sequences, data.dtype, data.device) == (2, torch.float64, torch.device("cpu"))


def test_only_the_first_three_fields_are_needed() -> None:
    given = parts()
    data = TokenDataset(given["tokens"], given["queries"], given["labels"])
    assert data.mask is None
    assert data.head is None
    assert data.values is data.tokens


def test_numpy_lists_and_tensors_give_the_same() -> None:
    given = parts(3)
    as_numpy = TokenDataset(**given)
    assert_same(as_numpy, TokenDataset(**{name: torch.from_numpy(value) for name, value in given.items()}))
    assert_same(as_numpy, TokenDataset(**{name: value.tolist() for name, value in given.items()}))


def test_integer_labels_become_floats() -> None:
    given = parts()
    data = TokenDataset(given["tokens"], given["queries"], [1, -1])
    assert same_bits(data.labels, torch.tensor([1.0, -1.0], dtype=torch.float64))


@pytest.mark.parametrize("change", ["reversed", "read-only", "big-endian"])
def test_odd_numpy_layouts(change: str) -> None:
    given = parts()
    tokens = given["tokens"]
    if change == "reversed":
        given["tokens"] = tokens[:, ::-1]
        tokens = np.ascontiguousarray(given["tokens"])
    elif change == "read-only":
        given["tokens"] = np.broadcast_to(tokens[:1], tokens.shape)
        tokens = given["tokens"].copy()
    else:
        given["tokens"] = tokens.astype(">f8")
    assert same_bits(TokenDataset(**given).tokens, torch.from_numpy(tokens))


def test_one_token_zero_query_and_one_input_are_allowed() -> None:
    data = TokenDataset(np.ones((1, 1, 1)), np.zeros((1, 1)), [1])
    assert (data.n, data.T, data.d, data.dq) == (1, 1, 1, 1)


def test_passing_the_tokens_as_values_stores_them_once() -> None:
    tokens, labels = parts()["tokens"], [1, -1]
    for data in (
        TokenDataset(tokens, parts()["queries"], labels, values=tokens),
        TokenDataset.self_attention(tokens, labels, values=tokens),
        TokenDataset.causal(tokens, np.ones((2, 4)), values=tokens),
        TokenDataset.sequence(tokens, np.ones((2, 4)), values=tokens),
    ):
        assert data.values is data.tokens


def test_gradients_are_cut() -> None:
    tokens = torch.ones(1, 2, 3, requires_grad=True)
    assert not TokenDataset(tokens, torch.ones(1, 2), [1]).tokens.requires_grad


def test_frozen() -> None:
    data = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.tokens = torch.zeros(1)  # type: ignore[misc]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_copies_and_pickles(duplicate: object) -> None:
    for data in (make(3), TokenDataset.causal(np.ones((2, 3, 4)), np.ones((2, 3)))):
        assert_same(data, duplicate(data))  # type: ignore[operator]


def test_repr_names_what_is_there() -> None:
    assert repr(make(2)) == "TokenDataset(batch=[2], n=2, T=4, d=3, dq=2, dv=4, mask, head, float64, cpu)"
    causal = TokenDataset.causal(np.ones((1, 3, 4), np.float32), np.ones((1, 3)))
    assert repr(causal) == "TokenDataset(n=3, T=3, d=4, dq=4, queries_per_sequence=3, mask, float32, cpu)"


def test_the_comparison_can_fail() -> None:
    data = make()
    for name in FIELDS:
        changed = getattr(data, name).clone()
        changed.view(-1)[0] = ~changed.view(-1)[0] if name == "mask" else changed.view(-1)[0] + 1e-15
        with pytest.raises(AssertionError, match=name):
            assert_same(data, replace_unchecked(data, **{name: changed}))


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("tokens", (1, 3, 2), "input 1, token 3, coordinate 2"),
        ("queries", (1, 0), "input 1, coordinate 0"),
        ("values", (0, 2, 3), "input 0, token 2, coordinate 3"),
        ("head", (3,), "coordinate 3"),
    ],
)
def test_non_finite(name: str, at: tuple[int, ...], words: str, bad: float) -> None:
    given = parts()
    given[name][at] = bad
    with pytest.raises(ValueError, match=f"^{name} must be finite; got {bad} at {words}$"):
        TokenDataset(**given)


def test_non_finite_in_a_batch_names_the_element() -> None:
    given = parts(2, 3)
    given["tokens"][1, 2, 0, 1, 2] = np.nan
    with pytest.raises(ValueError, match=r"got nan at element \(1, 2\), input 0, token 1, coordinate 2$"):
        TokenDataset(**given)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("tokens", (4, 3), r"tokens must have shape \[\*batch, n, T, d\]; got \[4, 3\]"),
        ("queries", (3, 2), r"queries must have shape \[2, dq\] .*for tokens \[2, 4, 3\]\); got \[3, 2\]"),
        ("queries", (2,), r"queries must have shape \[2, dq\] .*got \[2\]"),
        ("queries", (), r"queries must have shape \[2, dq\] .*got \[\]"),
        ("queries", (1, 2, 2), r"queries must have shape \[2, dq\] .*got \[1, 2, 2\]"),
        ("labels", (3,), r"labels must have shape \[2\] \(batch, n\); got \[3\]"),
        ("labels", (2, 1), r"labels must have shape \[2\] \(batch, n\); got \[2, 1\]"),
        ("values", (2, 3, 4), r"values must have shape \[2, 4, dv\] \(batch, n, T, dv\); got \[2, 3, 4\]"),
        ("values", (), r"values must have shape \[2, 4, dv\] .*got \[\]"),
        ("values", (2, 4, 0), r"values must have shape \[2, 4, dv\] .*got \[2, 4, 0\]"),
        ("head", (3,), r"head must have shape \[4\] \(batch, dv\); got \[3\]"),
        ("head", (1, 4), r"head must have shape \[4\] \(batch, dv\); got \[1, 4\]"),
    ],
)
def test_shapes_that_do_not_fit(name: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        TokenDataset(**{**parts(), name: np.ones(shape)})


def test_a_mask_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"^mask must have shape \[2, 4\] \(batch, n, T\); got \[2, 3\]$"):
        TokenDataset(**{**parts(), "mask": np.ones((2, 3), bool)})


@pytest.mark.parametrize(
    ("shape", "what"), [((0, 4, 3), r"input \(n\)"), ((2, 0, 3), r"token \(T\)"), ((2, 4, 0), r"coordinate \(d\)")]
)
def test_empty(shape: tuple[int, ...], what: str) -> None:
    with pytest.raises(ValueError, match=f"^tokens must have at least one {what}; got shape"):
        TokenDataset(np.ones(shape), np.ones((shape[0], 2)), np.ones(shape[0]))


def test_queries_without_coordinates() -> None:
    with pytest.raises(ValueError, match=r"^queries must have shape \[2, dq\] \(batch, n, dq >= 1, .*; got \[2, 0\]$"):
        TokenDataset(np.ones((2, 4, 3)), np.ones((2, 0)), [1, 1])


@pytest.mark.parametrize("bad", [0.0, 2.0, np.nan])
def test_labels_outside_plus_minus_one(bad: float) -> None:
    given = parts(3)
    given["labels"][2, 1] = bad
    with pytest.raises(ValueError, match=rf"^labels must be \+1 or -1; got {bad} at element 2, input 1$"):
        TokenDataset(**given)


def test_a_mask_that_hides_a_whole_input() -> None:
    given = parts()
    given["mask"][1] = False
    with pytest.raises(ValueError, match=r"^mask must leave a token in every input; it hides all of input 1$"):
        TokenDataset(**given)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float64])
def test_a_mask_of_the_wrong_type(kind: type) -> None:
    given = parts()
    with pytest.raises(ValueError, match=rf"^mask must be a boolean mask; got {np.dtype(kind).name}$"):
        TokenDataset(**{**given, "mask": given["mask"].astype(kind)})


@pytest.mark.parametrize("name", ["queries", "values", "head"])
def test_mixed_precision(name: str) -> None:
    given = parts()
    with pytest.raises(ValueError, match=f"^{name} must be float64 on cpu, like the tokens; got float32 on cpu$"):
        TokenDataset(**{**given, name: given[name].astype(np.float32)})


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("kind", [np.int64, np.float16, np.complex128])
def test_types_that_are_not_real_numbers_of_a_good_precision(name: str, kind: type) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be float32 or float64; got {np.dtype(kind).name}$"):
        TokenDataset(**{**parts(), name: np.ones(parts()[name].shape, kind)})


@pytest.mark.parametrize("name", ["queries", "labels", "mask", "values", "head"])
def test_another_device(name: str) -> None:
    given = {key: torch.from_numpy(value) for key, value in parts().items()}
    given[name] = given[name].to("meta")
    with pytest.raises(
        ValueError, match=f"^{name} must be (float64 )?on cpu, like the tokens; got (float64 on )?meta$"
    ):
        TokenDataset(**given)


@pytest.mark.parametrize("bad", ["words", None, [[1.0], [1.0, 2.0]], [object()]])
def test_no_arrays_at_all(bad: object) -> None:
    with pytest.raises(ValueError, match="tokens"):
        TokenDataset(bad, np.ones((1, 2)), [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^tokens must be a tensor or an array of numbers; got list"):
        TokenDataset([["a", "b"]], np.ones((1, 2)), [1])


def test_sparse() -> None:
    with pytest.raises(ValueError, match=r"^tokens must be a dense tensor; got layout sparse_coo$"):
        TokenDataset(torch.ones(1, 2, 3).to_sparse(), torch.ones(1, 2), [1])


@pytest.mark.parametrize("bad", [0, -1, True, 1.5])
def test_queries_per_sequence(bad: int) -> None:
    with pytest.raises(ValueError, match="queries_per_sequence"):
        TokenDataset(**parts(), queries_per_sequence=bad)


# ------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        np.int64(2),
        slice(1, 4),
        slice(None, None, 2),
        [3, 0],
        [True, False, True, False, True],
        None,
        ...,
        torch.tensor([4, 4]),
        torch.arange(5) > 2,
        np.arange(5) > 2,
        np.array([0, 2]),
        slice(0, 0),
    ],
)
def test_index_one_batch_axis(index: object) -> None:
    data = make(5)
    taken = data[index]
    for name in FIELDS:
        assert same_bits(getattr(taken, name), getattr(data, name)[index])


@pytest.mark.parametrize(
    ("index", "flat"),
    [
        (1, [3, 4, 5]),
        ((1, 2), 5),
        ((slice(None), 0), [0, 3]),
        ((..., 1), [1, 4]),
        ((1, ...), [3, 4, 5]),
        ((..., 1, 2), 5),
        ((0, ..., 2), 2),
        ((..., torch.tensor([2, 0])), [[2, 0], [5, 3]]),
        ([[0, 1], [1, 1]], [[[0, 1, 2], [3, 4, 5]], [[3, 4, 5], [3, 4, 5]]]),
        ((..., [2, 0]), [[2, 0], [5, 3]]),
        (torch.tensor([[True, False, False], [False, False, True]]), [0, 5]),
        ((np.array([[True, False, False], [False, False, True]]), ...), [0, 5]),
        ((torch.tensor([0, 1]), torch.tensor([2, 0])), [2, 3]),
    ],
)
def test_index_two_batch_axes(index: object, flat: object) -> None:
    data = make(2, 3)
    taken = data[index]
    for name in FIELDS:
        assert same_bits(getattr(taken, name), getattr(data, name).flatten(0, 1)[torch.tensor(flat)])


def test_an_index_keeps_shared_values_shared() -> None:
    given = parts(3)
    data = TokenDataset(given["tokens"], given["queries"], given["labels"])[1]
    assert data.values is data.tokens


@pytest.mark.parametrize("index", [5, -6, (0, 0), (slice(None), 0), "first", 1.0, torch.tensor([5]), (..., 0, 0)])
def test_an_index_outside_the_batch(index: object) -> None:
    with pytest.raises(IndexError, match=r"does not fit the batch of shape \[5\]"):
        make(5)[index]


def test_a_single_data_set_has_no_batch() -> None:
    with pytest.raises(TypeError, match="cannot be indexed"):
        make()[0]
    with pytest.raises(TypeError, match="has no length"):
        len(make())


def test_a_batch_is_a_sequence() -> None:
    data = make(4)
    assert len(data) == 4
    assert [element.batch_shape for element in data] == [()] * 4
    assert_same(list(data)[2], data[2])


def test_to_changes_precision_of_every_float() -> None:
    data = make(2).to(dtype=torch.float32)
    assert {getattr(data, name).dtype for name in (*FLOATS, "labels")} == {torch.float32}
    assert data.mask is not None
    assert data.mask.dtype == torch.bool
    assert_same(data, make(2).to(dtype=torch.float32).to(dtype=torch.float64).to(dtype=torch.float32))
    assert_same(make(2), make(2).to("cpu"))


def test_to_moves_everything() -> None:
    moved = make(2).to("meta", torch.float32)
    assert {getattr(moved, name).device.type for name in FIELDS} == {"meta"}
    assert moved.dtype == torch.float32


def test_to_refuses_what_would_not_be_a_data_set() -> None:
    with pytest.raises(ValueError, match=r"^dtype must be torch.float32 or torch.float64; got torch.float16$"):
        make().to(dtype=torch.float16)
    given = parts()
    given["tokens"][0, 1, 2] = 1e300
    with pytest.raises(ValueError, match=r"^tokens must be finite; got inf at input 0, token 1, coordinate 2$"):
        TokenDataset(**given).to(dtype=torch.float32)


def test_flatten() -> None:
    data = make(2, 3)
    flat = data.flatten()
    assert flat.batch_shape == (6,)
    assert_same(flat[4], data[1, 1])
    assert flat.tokens.data_ptr() == data.tokens.data_ptr()
    assert flat.flatten() is flat
    assert_same(make().flatten()[0], make())


def test_real_is_the_mask_or_all_true_without_memory() -> None:
    data = make(3)
    assert data.real is data.mask
    plain = replace_unchecked(data, mask=None)
    assert plain.real.shape == (3, data.n, data.T)
    assert bool(plain.real.all())
    assert plain.real.stride() == (0, 0, 0)


def test_tokens_and_values_of_inputs() -> None:
    data = make(3)
    assert data.input_tokens is data.tokens
    assert data.input_values is data.values
    shared = TokenDataset.sequence(parts(5)["tokens"], np.ones((5, 2, 4)), values=parts(5)["values"])
    for i in range(8):
        assert same_bits(shared.input_tokens[:, i], shared.tokens[:, i // 4])
        assert same_bits(shared.input_values[:, i], shared.values[:, i // 4])


def test_fill_masked() -> None:
    data = make(3)
    numbers = torch.arange(2 * 3 * data.n * data.T).double().reshape(2, 3, data.n, data.T)
    assert same_bits(data.fill_masked(numbers, -1.0), torch.where(data.real, numbers, -1.0))
    assert replace_unchecked(data, mask=None).fill_masked(numbers, -1.0) is numbers


def test_take_inputs() -> None:
    data, index = make(3, n=4), torch.tensor([[0, 0], [3, 1], [2, 3]])
    taken = data.take_inputs(index)
    assert (taken.n, taken.batch_shape) == (2, (3,))
    for b in range(3):
        for k in range(2):
            for name in ("tokens", "queries", "labels", "mask", "values"):
                assert same_bits(getattr(taken, name)[b, k], getattr(data, name)[b, index[b, k]])
    assert same_bits(taken.head, data.head)  # type: ignore[arg-type]


def test_take_inputs_of_shared_sequences() -> None:
    data = TokenDataset.causal(parts(n=3)["tokens"], np.ones((3, 4)))
    taken = data.take_inputs([5, 0])
    assert taken.queries_per_sequence == 1
    assert same_bits(taken.tokens, data.tokens[[1, 0]])
    assert same_bits(taken.queries, torch.stack([data.tokens[1, 1], data.tokens[0, 0]]))
    assert taken.mask is not None
    assert taken.mask.tolist() == [[True, True, False, False], [True, False, False, False]]


def test_tokens_of() -> None:
    data, index = make(2, 3), torch.randint(4, (2, 3, 2), generator=torch.Generator().manual_seed(0))
    found = data.tokens_of(index)
    for a, b, i in np.ndindex(2, 3, 2):
        assert same_bits(found[a, b, i], data.tokens[a, b, i, index[a, b, i]])
    assert same_bits(found, data.tokens_of(index.to(torch.int32)))
    assert same_bits(found, data.tokens_of(index.numpy()))


def test_tokens_of_shared_sequences() -> None:
    data = TokenDataset.sequence(parts()["tokens"], np.ones((2, 4)))
    index = torch.tensor([3, 2, 1, 0, 0, 0, 1, 3])
    expected = torch.stack([data.tokens[i // 4, index[i]] for i in range(8)])
    assert same_bits(data.tokens_of(index), expected)


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ([[0, 4]], r"index must lie in 0..3; got 4 at element 0, position 1"),
        ([[-1, 0]], r"index must lie in 0..3; got -1 at element 0, position 0"),
        ([0, 1], r"index must have shape \[1, 2\] .*got \[2\]"),
        ([[0]], r"index must have shape \[1, 2\] .*got \[1, 1\]"),
        ([[0.0, 1.0]], r"index must hold integers; got float64"),
        ([[True, False]], r"index must hold integers; got bool"),
    ],
)
def test_tokens_of_refuses(index: list[object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make(1).tokens_of(index)


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ([2], r"index must lie in 0..1; got 2 at position 0"),
        ([], r"index must"),
        (torch.tensor(0), r"index must have shape \[k\] \(.* at least one entry\); got \[\]"),
        ([[0]], r"index must have shape \[k\] .*got \[1, 1\]"),
    ],
)
def test_take_inputs_refuses(index: list[object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make().take_inputs(index)


def test_with_head() -> None:
    data = make(2)
    changed = data.with_head(np.zeros((2, 4)))
    assert changed.head is not None
    assert not changed.head.any()
    assert changed.tokens.data_ptr() == data.tokens.data_ptr()
    assert data.with_head(None).head is None
    with pytest.raises(ValueError, match=r"^head must have shape \[2, 4\]"):
        data.with_head(np.zeros(4))
