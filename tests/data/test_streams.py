"""Random streams: the same numbers everywhere, a batch equals its single runs, nothing global."""

from __future__ import annotations

import random as python_random

import numpy as np
import pytest
import torch

from attsvm.data import stream_keys, streams
from attsvm.data.compiled_streams import fill
from attsvm.data.counter import Numbers
from attsvm.data.streams import Purpose, Seed, _philox_keys, batch_shape, draw_batch

MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def seed_sequence_words(entropy: list[int], count: int) -> list[int]:
    """`count` 64-bit words of NumPy's SeedSequence(entropy), written out again (O'Neill's seed_seq hashing)."""

    def words(value: int) -> list[int]:
        return [value & MASK32, *(words(value >> 32) if value >> 32 else [])]

    constant = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal constant
        value = (value ^ constant) & MASK32
        constant = constant * 0x931E8875 & MASK32
        value = value * constant & MASK32
        return value ^ value >> 16

    def mixed(x: int, y: int) -> int:
        result = (x * 0xCA01F9DD - y * 0x4973F715) & MASK32
        return result ^ result >> 16

    given = [word for value in entropy for word in words(value)]
    pool = [hashed(given[k] if k < len(given) else 0) for k in range(4)]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    for extra in given[4:]:
        for target in range(4):
            pool[target] = mixed(pool[target], hashed(extra))

    constant, out = 0x8B51F9DD, []
    for k in range(2 * count):
        value = (pool[k % 4] ^ constant) & MASK32
        constant = constant * 0x58F38DED & MASK32
        value = value * constant & MASK32
        out.append(value ^ value >> 16)
    return [low | high << 32 for low, high in zip(out[::2], out[1::2], strict=True)]


def philox(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox4x64 with ten rounds, after Salmon et al. 2011."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [right >> 64 ^ c[1] ^ k[0], right & MASK64, left >> 64 ^ c[3] ^ k[1], left & MASK64]
        k = [k[0] + 0x9E3779B97F4A7C15 & MASK64, k[1] + 0xBB67AE8584CAA73B & MASK64]
    return c


def first_uniforms(seed: int, element: int) -> list[float]:
    key = seed_sequence_words([seed, element], 2)
    words = [word for block in (1, 2) for word in philox([block, 0, 0, 0], key)]
    return [(word >> 11) * 2.0**-53 for word in words]


@pytest.mark.parametrize(("seed", "element"), [(0, 0), (0, 1), (7, 3), (2**40 + 5, 2), (2**63 - 1, 99)])
def test_first_numbers_against_a_second_implementation(seed: int, element: int) -> None:
    stream = streams([(seed, element)], ())[0]
    assert stream.random(8).tolist() == first_uniforms(seed, element)


def first(found: list[np.random.Generator]) -> list[float]:
    return [float(stream.random()) for stream in found]


def test_element_b_draws_from_stream_seed_b() -> None:
    expected = first([s for b in range(6) for s in streams([(5, b)], ())])
    assert first(streams(5, (6,))) == expected
    assert first(streams(5, (2, 3))) == expected
    assert len(set(expected)) == 6


def test_an_unbatched_run_is_element_zero() -> None:
    assert first(streams(5, ())) == first(streams(5, (3,)))[:1]


def test_one_seed_an_element() -> None:
    assert first(streams([3, 8], (2,))) == first(streams(3, ())) + first(streams(8, ()))
    assert first(streams([(3, 1), 8], (2,))) == first(streams(3, (2,)))[1:] + first(streams(8, ()))
    assert first(streams(range(4), (2, 2))) == first([s for seed in range(4) for s in streams(seed, ())])
    assert first(streams([np.int64(3)], ())) == first(streams(np.int32(3), ()))


def test_torch_generator() -> None:
    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(4)

    drawn = int(torch.randint(2**63 - 1, (), generator=generator()))
    assert first(streams(generator(), (3,))) == first(streams(drawn, (3,)))
    going_on = generator()
    assert first(streams(going_on, ())) != first(streams(going_on, ()))


def test_keys_are_the_lasting_form_of_a_seed() -> None:
    generator = torch.Generator().manual_seed(4)
    keys = stream_keys(generator, (3,))
    assert [element for _, element in keys] == [0, 1, 2]
    assert first(streams(keys, (3,))) == first(streams(torch.Generator().manual_seed(4), (3,)))
    assert stream_keys([3, (8, 2)], (2,)) == [(3, 0), (8, 2)]


def test_purposes_do_not_share_numbers() -> None:
    drawn = [first(streams(5, (2,), purpose=purpose)) for purpose in (None, 0, 1, 2)]
    assert len({number for numbers in drawn for number in numbers}) == 8
    assert drawn[2] == first(streams([(5, 0), (5, 1)], (2,), purpose=1))


def test_every_purpose_draws_what_it_always_drew() -> None:
    expected = {
        Purpose.STARTING_POINT: ["0x1.8dd3dd7efb7ecp-3", "0x1.ee681de8a2da8p-4"],
        Purpose.PLANE_START: ["0x1.147120e5cdaa0p-3", "0x1.8fa43e575b983p-1"],
        Purpose.PATH_START: ["0x1.a6cdbef0dbf16p-2", "0x1.35d0c0b43bbf8p-2"],
        Purpose.SAMPLED_SELECTIONS: ["0x1.1e8c13428601cp-1", "0x1.fa8a6f44530a6p-1"],
        Purpose.CONE_DIRECTIONS: ["0x1.30f11c69af980p-6", "0x1.595cfc17cb174p-2"],
        Purpose.MIXTURES: ["0x1.fdf0cac161078p-3", "0x1.d07f84cf8a2f0p-2"],
    }
    assert set(expected) == set(Purpose)
    for purpose, numbers in expected.items():
        assert [stream.random().hex() for stream in streams(11, (2,), purpose=purpose)] == numbers
    orders = [
        [stream.permutation(6).tolist() for stream in streams(11, (2,), purpose=Purpose.INPUT_ORDER, number=number)]
        for number in range(2)
    ]
    assert orders[0] == [[2, 0, 1, 3, 4, 5], [4, 1, 3, 2, 0, 5]]
    assert [order[:2] for order in orders[1]] == [[4, 1], [3, 4]]


def test_no_global_state_is_read_or_changed() -> None:
    before = np.random.get_state()[1].copy(), torch.get_rng_state().clone(), python_random.getstate()  # noqa: NPY002
    drawn = first(streams(5, (3,)))
    streams(torch.Generator().manual_seed(1), (3,))
    after = np.random.get_state()[1], torch.get_rng_state(), python_random.getstate()  # noqa: NPY002
    assert np.array_equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert before[2] == after[2]
    try:
        np.random.seed(99)  # noqa: NPY002
        torch.manual_seed(99)
        assert first(streams(5, (3,))) == drawn
    finally:
        np.random.seed(None)  # noqa: NPY002
        torch.set_rng_state(before[1])


@pytest.mark.parametrize("bad", [-1, True, 1.0, "1", b"1", None, np.float64(2), {1}])
def test_seeds_that_are_none(bad: object) -> None:
    with pytest.raises(ValueError, match="seed"):
        streams(bad, ())  # type: ignore[arg-type]


def test_sentences() -> None:
    with pytest.raises(ValueError, match=r"^seed must be an integer of at least 0, .*; got -1$"):
        streams(-1, ())
    with pytest.raises(ValueError, match=r"^seed must be an integer of at least 0, .*; got True$"):
        streams(True, ())
    with pytest.raises(ValueError, match=r"^seed must have one entry for each element, 3 in all; got 2$"):
        streams([1, 2], (3,))
    with pytest.raises(ValueError, match=r"1 in all; got 2; the stream \(0, 7\) of a single data set is written \[\("):
        streams((0, 7), ())
    with pytest.raises(ValueError, match=r"^seed\[1\] must be an integer of at least 0; got -2$"):
        streams([1, -2], (2,))
    with pytest.raises(ValueError, match=r"^seed\[0\] must be an integer of at least 0; got -2$"):
        streams([(1, -2)], ())
    with pytest.raises(ValueError, match=r"^purpose must be an integer of at least 0; got -1$"):
        streams(1, (), purpose=-1)


@pytest.mark.parametrize("bad", [[1, 2.0], [1, True], [1, (1, 2, 3)], [1, "2"], [1, (1, 0.5)], [1, None]])
def test_entries_that_are_none(bad: object) -> None:
    with pytest.raises(ValueError, match="seed"):
        streams(bad, (2,))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, (2, 0), "3", (1.5,)])
def test_batches_that_are_none(bad: object) -> None:
    with pytest.raises(ValueError, match="batch"):
        batch_shape(bad)  # type: ignore[arg-type]


def test_draw_batch_stacks_in_row_major_order() -> None:
    drawn = draw_batch(lambda stream: {"x": stream.random((2, 2)), "y": stream.random(())}, (2, 3), 1)
    assert drawn["x"].shape == (2, 3, 2, 2)
    assert drawn["y"].shape == (2, 3)
    assert drawn["x"].dtype == torch.float64
    fifth = streams([(1, 4)], ())[0]
    assert np.array_equal(drawn["x"][1, 1], fifth.random((2, 2)))
    assert float(drawn["y"][1, 1]) == fifth.random()


@pytest.mark.parametrize("purpose", [None, Purpose.CONE_DIRECTIONS])
@pytest.mark.parametrize(
    "seed", [0, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1, [(5, 0), (2**32, 7), (1, 2**40), (2**50, 2**33)], [2**64, 3]]
)
def test_draw_batch_gives_the_numbers_of_the_streams(seed: Seed, purpose: Purpose | None) -> None:
    """Many streams at once, their seeds hashed together, against one generator for each."""
    count = len(seed) if isinstance(seed, list) else 3

    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        normal = np.concatenate([stream.standard_normal(5), stream.standard_normal((2, 3)).reshape(-1, 6)], axis=1)
        return {"normal": normal, "uniform": stream.uniform(-1.0, 1.0, 4), "last": stream.random(2)}

    drawn = draw_batch(draw, count, seed, purpose=purpose)
    for element, stream in enumerate(streams(seed, (count,), purpose=purpose)):
        assert drawn["normal"][element].tolist() == stream.standard_normal(11).tolist()
        assert drawn["uniform"][element].tolist() == stream.uniform(-1.0, 1.0, 4).tolist()
        assert drawn["last"][element].tolist() == stream.random(2).tolist()


def test_draw_batch_works_through_many_groups_of_streams() -> None:
    drawn = draw_batch(lambda stream: {"x": stream.standard_normal(50_000)}, 7, 3)["x"]
    for element, stream in enumerate(streams(3, (7,))):
        assert np.array_equal(drawn[element], stream.standard_normal(50_000))


def test_normal_numbers_come_before_uniform_ones() -> None:
    with pytest.raises(ValueError, match="before uniform"):
        draw_batch(lambda stream: {"x": stream.random(2) + stream.standard_normal(2)}, 1, 0)


@pytest.mark.parametrize("purpose", [(), (1,)])
def test_compiled_streams_are_those_of_numpy(purpose: tuple[int, ...]) -> None:
    """Bit for bit, the tail of the normal distribution and numbers at the edge of a layer included."""
    keys = [(seed, element) for seed in (0, 7, 2**40) for element in range(100)]
    words = _philox_keys(keys, purpose)
    normals, uniforms = np.empty((len(keys), 401)), np.empty((len(keys), 7))
    fill(words, normals, uniforms)
    assert np.abs(normals).max() > 3.66  # where the tail begins
    for row, key in enumerate(keys):
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(key), spawn_key=purpose)))
        assert (normals[row] == generator.standard_normal(401)).all()
        assert (uniforms[row] == generator.random(7)).all()
