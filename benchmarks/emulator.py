"""A GPU in NumPy: runs what NVIDIA's compiler made of a kernel, and watches every access to memory.

It stands in for a GPU where there is none. Unlike the text of a kernel in plain Python (`tests/lockstep.py`) it sees
what the compiler made of types, signs, layouts of memory and inlined functions. Threads that are at the same
instruction take it together, those that are behind first.

It refuses to go on at an access outside of what was given, or to a word that nobody has written; where two threads use
the same word, one of them writing another value there, with no barrier in between (a shuffle or a vote is none); and
where threads wait for each other for ever.

`Counts` tells how many instructions warps were given. That says nothing of caches, of the scheduler, or of what the
assembler does later: it compares two versions of a kernel, and does not foretell seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.ptx import SHARED, SPECIAL, Program, PtxError, stored

WARP = 32
_GAP = 4096  # bytes between arrays, which belong to nobody
_NOBODY, _SEVERAL = -1, -2


@dataclass
class Counts:
    """What warps were given: one for each instruction and each warp that has a thread there."""

    instructions: Counter[str] = field(default_factory=Counter)  #: by opcode
    places: Counter[str] = field(default_factory=Counter)  #: by file and line, if compiled with these

    @property
    def total(self) -> int:
        return sum(self.instructions.values())

    def by_kind(self) -> dict[str, int]:
        """Arithmetic of numbers, memory, barriers and shuffles; the rest are integers, addresses and branches."""
        kinds = {
            "float64": r"(add|sub|mul|div|fma|sqrt|rcp|abs|neg|min|max)\S*\.f64|cvt\S*\.f64",
            "global": r"(ld|st|atom)\.global|(ld|st)\.[fubs]\d",
            "shared": r"(ld|st)\.shared",
            "local": r"(ld|st)\.local",
            "together": r"bar|shfl|vote",
        }
        found = {
            kind: sum(count for name, count in self.instructions.items() if re.match(pattern, name))
            for kind, pattern in kinds.items()
        }
        return found | {"other": self.total - sum(found.values())}


def emulate(
    program: Program, arguments: Sequence[Any], threads: int, *, shared: int = 0, blocks: int = 1,
    fresh: Collection[int] = (),
) -> Counts:  # fmt: skip
    """Run all blocks of a launch, one after the other.

    Arguments:
        program: the kernel.
        arguments: arrays, which are changed as the kernel changes them, integers and floats.
        threads: of a block.
        shared: bytes of shared memory that the launch asks for.
        blocks: how many there are.
        fresh: numbers of arguments that nobody has written yet.

    Returns:
        What warps were given.

    Raises:
        PtxError: as the module says.
    """
    counts = Counts()
    for number in range(blocks):
        _Machine(program, arguments, threads, shared, number, blocks, fresh).run(counts)
    return counts


class _Registers(dict[str, Any]):
    """By name; 0 until somebody writes one."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __missing__(self, name: str) -> np.ndarray:
        made = self[name] = np.zeros(self._threads, dtype=stored(name))
        return made


@dataclass
class _Marks:
    """Who did something to each word last, and how many barriers had been passed then."""

    thread: np.ndarray
    warp: np.ndarray
    passed: np.ndarray
    passed_by_warp: np.ndarray

    @classmethod
    def none(cls, words: int) -> _Marks:
        return cls(*(np.full(words, _NOBODY, dtype=np.int64) for _ in range(4)))


class _Machine:
    """One block: its registers, all memory, and who has touched it."""

    def __init__(
        self, program: Program, arguments: Sequence[Any], threads: int, shared: int, number: int, blocks: int,
        fresh: Collection[int],
    ) -> None:  # fmt: skip
        self.program, self.threads = program, threads
        lanes = np.arange(threads, dtype=np.uint32)
        self.warps = (lanes // WARP).astype(np.int64)
        values = (lanes, number, threads, blocks, lanes % WARP, shared)
        self.special = {
            name: np.broadcast_to(np.asarray(value, dtype=np.uint32), (threads,))
            for name, value in zip(SPECIAL, values, strict=True)
        }
        end = SHARED + shared + program.shared
        self.local_begin = -(-(end + _GAP) // 256) * 256
        own = -(-program.local // 256) * 256
        self.own_local = lanes.astype(np.uint64) * np.uint64(own)
        at = self.local_begin + own * threads + _GAP
        parameters: list[int] = []
        self._places: dict[int, tuple[int, np.ndarray, bool]] = {}  # by the address outside
        for k, given in enumerate(arguments):
            if isinstance(given, np.ndarray):
                outside = given.__array_interface__["data"][0]
                if outside not in self._places or given.nbytes == 0:
                    self._places[outside if given.nbytes else -k - 1] = at, given, k in fresh
                    here, at = at, at + -(-given.nbytes // 16) * 16 + _GAP
                else:
                    here = self._places[outside][0]  # the same memory once more
                parameters += [0, 0, given.size, given.itemsize, here, *given.shape, *given.strides]
            else:
                bits = int(np.float64(given).view("uint64")) if isinstance(given, float) else given % 2**64
                parameters.append(bits)
        if len(parameters) != len(program.parameters):
            raise PtxError(f"the kernel takes {len(program.parameters)} parameters; got {len(parameters)}")
        self.parameters = np.array(parameters, dtype=np.uint64)[:, None]
        words = at // 8 + 1
        self.memory = np.full(8 * words, 0xFF, dtype=np.uint8)  # NaN
        self.given, self.written = np.zeros(words, dtype=bool), np.zeros(words, dtype=bool)
        self.given[SHARED // 8 : -(-end // 8)] = True
        self.given[self.local_begin // 8 : (self.local_begin + own * threads) // 8] = True
        for place, array, unwritten in self._places.values():
            last = -(-(place + array.nbytes) // 8)
            self.memory[place : place + array.nbytes] = np.frombuffer(array.tobytes(), dtype=np.uint8)
            self.given[place // 8 : last], self.written[place // 8 : last] = True, not unwritten
        self.writers, self.readers = _Marks.none(words), _Marks.none(words)
        self.passed, self.passed_by_warp = 0, np.zeros(self.warps[-1] + 1, dtype=np.int64)

    def each(self, value: Any) -> np.ndarray:
        """A number for each thread."""
        return value if np.ndim(value) else np.full(self.threads, value)

    # ---------------------------------------------------------------- memory

    def _found(self, address: Any, m: np.ndarray, size: int, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The threads that are there, their addresses, and the words of these."""
        who = np.flatnonzero(m)
        places = np.broadcast_to(address, (self.threads,))[who]
        words = (places >> np.uint64(3)).astype(np.int64)
        wrong = (words >= len(self.given)) | (places % np.uint64(size) != 0)
        wrong |= ~self.given[np.where(wrong, 0, words)]
        self._refuse(wrong, who, number, "uses memory outside of what was given")
        return who, places, words

    def _refuse(self, wrong: np.ndarray, who: np.ndarray, number: int, what: str) -> None:
        if wrong.any():
            raise PtxError(f"thread {who[wrong][0]} {what}: {self.program.instructions[number]}")

    def _unordered(self, marks: _Marks, who: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Where another thread did something, with no barrier in between."""
        others, mine = marks.thread[words], self.warps[who]
        ordered = (others == who) | (others == _NOBODY) | (marks.passed[words] < self.passed)
        ordered |= (marks.warp[words] == mine) & (marks.passed_by_warp[words] < self.passed_by_warp[mine])
        return ~ordered

    def _mark(self, marks: _Marks, who: np.ndarray, words: np.ndarray) -> None:
        """Remember who did something, together with those who did it since the last barrier."""
        mine = self.warps[who]
        threads, warps = who.astype(np.int64), mine.copy()
        others = self._unordered(marks, who, words)
        warps[others & (marks.warp[words] != mine)] = _SEVERAL
        threads[others] = _SEVERAL
        for values, kept in ((threads, marks.thread), (warps, marks.warp)):
            kept[words] = values
            kept[words[kept[words] != values]] = _SEVERAL  # several threads at once
        marks.passed[words], marks.passed_by_warp[words] = self.passed, self.passed_by_warp[mine]

    def load(self, address: Any, m: np.ndarray, kind: str, number: int) -> np.ndarray:
        """What each thread reads; 0 where it is not there."""
        found = np.zeros(self.threads, dtype=kind)
        if m.any():
            who, places, words = self._found(address, m, found.itemsize, number)
            self._refuse(~self.written[words], who, number, "reads what nobody has written")
            race = self._unordered(self.writers, who, words)
            self._refuse(race, who, number, "reads what another one wrote since the last barrier")
            self._mark(self.readers, who, words)
            found[who] = self.memory.view(kind)[places // np.uint64(found.itemsize)]
        return found

    def store(self, address: Any, value: Any, m: np.ndarray, kind: str, number: int) -> None:
        """Write what each thread gives; the same value as is there may be written by everybody."""
        if not m.any():
            return
        size = np.dtype(kind).itemsize
        who, places, words = self._found(address, m, size, number)
        values = np.broadcast_to(value, (self.threads,))[who].astype(kind).view(f"uint{8 * size}")
        memory, at = self.memory.view(values.dtype), places // np.uint64(size)
        changed = memory[at] != values
        race = changed & self._unordered(self.writers, who, words) & self.written[words]
        race |= changed & self._unordered(self.readers, who, words)
        memory[at] = values
        race |= memory[at] != values
        self._refuse(race, who, number, "writes where another one read or wrote since the last barrier")
        self.written[words] = True
        self._mark(self.writers, who[changed], words[changed])

    def added(self, address: Any, value: Any, m: np.ndarray, number: int) -> np.ndarray:
        """What was there before each thread added its number."""
        found = np.zeros(self.threads, dtype=np.uint64)
        who, _, words = self._found(address, m, 8, number)
        values, memory = np.broadcast_to(value, (self.threads,)), self.memory.view("uint64")
        for thread, word in zip(who, words, strict=True):
            found[thread] = memory[word]
            memory[word] += values[thread]
        return found

    # ---------------------------------------------------------------- threads

    def run(self, counts: Counts) -> None:
        """From the first instruction until all threads have returned; arrays get what was written to them."""
        program, blocks, registers = self.program, self.program.blocks, _Registers(self.threads)
        place, live = np.zeros(self.threads, dtype=np.int64), np.ones(self.threads, dtype=bool)
        waits, visits = np.zeros(self.threads, dtype=bool), Counter[int]()
        with np.errstate(all="ignore"):
            while live.any():
                ready = live & ~waits
                if not ready.any():
                    self._release(place, live, waits, registers)
                    continue
                number = int(place[ready].min())
                block, m = blocks[number], ready & (place == number)
                visits[number] += len(np.unique(self.warps[m]))
                if block.end in ("barrier", "together"):
                    waits |= m
                    continue
                if block.whole is None or block.part is None:
                    block.whole, block.part = program.code(block, True), program.code(block, False)
                (block.whole if (m == live).all() else block.part)(registers, self, m)
                place[m] = number + 1
                if block.end == "return":
                    live &= ~m
                elif block.end == "branch":
                    if block.condition:
                        m = m & (registers[block.condition.lstrip("!")] ^ block.condition.startswith("!"))
                    place[m] = program.labels[block.target]
        for number, count in visits.items():
            for each in program.instructions[blocks[number].first : blocks[number].last]:
                counts.instructions[each.opcode] += count
                counts.places[each.place] += count
        for at, array, _ in self._places.values():
            found = self.memory[at : at + array.nbytes].tobytes()
            array[...] = np.frombuffer(found, dtype=array.dtype).reshape(array.shape)

    def _release(self, place: np.ndarray, live: np.ndarray, waits: np.ndarray, registers: _Registers) -> None:
        """Let threads go on that have all come where they wait for each other."""
        at_barrier = np.array([self.program.blocks[number].end == "barrier" for number in place]) & live
        if (at_barrier == live).all():
            self.passed += 1
            waits[live] = False
            place[live] += 1
            return
        went = False
        for warp in np.unique(self.warps[live]):
            lanes = live & (self.warps == warp)
            for number in np.unique(place[lanes & ~at_barrier]):
                there = lanes & (place == number)
                for group in self._met(int(number), there, lanes, registers):
                    waits[group], place[group], went = False, number + 1, True
        if not went:
            at = (self.program.instructions[self.program.blocks[number].first] for number in np.unique(place[live]))
            raise PtxError(f"threads wait for each other for ever: {'; '.join(map(str, at))}")

    def _met(self, number: int, there: np.ndarray, lanes: np.ndarray, registers: _Registers) -> list[np.ndarray]:
        """Groups of one warp that are complete, after their shuffle, vote or barrier."""
        at = self.program.blocks[number].first
        opcode, given, _ = self.program.instructions[at]
        world = {"np": np, "R": registers, "machine": self}

        def value(word: str, kind: str) -> np.ndarray:
            return np.broadcast_to(eval(self.program.value(word, kind), world), (self.threads,))

        def keep(register: str, group: np.ndarray, found: Any) -> None:
            if register and register != "_":
                registers[register] = np.where(group, found, registers[register])

        masks, complete = value(given[-1], "u32"), []
        numbers = np.arange(self.threads)
        for mask in np.unique(masks[there]):
            group = there & (masks == mask)
            if not (group == lanes & (int(mask) >> numbers % WARP & 1 == 1)).all():
                continue
            if opcode.startswith("shfl.sync.bfly"):
                partner = np.minimum(numbers ^ value(given[2], "u32"), self.threads - 1)
                self._refuse(group & ~group[partner], numbers, at, "asks one that is not there")
                target, _, inside = given[0].partition("|")
                told = value(given[1], "u32")[partner]
                keep(target, group, told)
                keep(inside, group, True)
            elif opcode == "vote.sync.any.pred":
                keep(given[0], group, value(given[1], "pred")[group].any())
            elif opcode.startswith("bar.warp.sync"):
                if mask == 2**WARP - 1:
                    self.passed_by_warp[self.warps[group][0]] += 1
            else:
                raise PtxError(f"no meaning for the instruction {opcode!r}")
            complete.append(group)
        return complete
