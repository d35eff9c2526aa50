"""What NVIDIA's compiler makes of a kernel (PTX), in Python: a register is a NumPy array with a number for each thread.

Instructions come in blocks that are taken in one go, by all threads that are there. `benchmarks.emulator` runs them.
``fma`` rounds twice here, and approximate reciprocals are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

SHARED = 4096  #: the address at which shared memory begins
SPECIAL = ("%tid.x", "%ctaid.x", "%ntid.x", "%nctaid.x", "%laneid", "%dynamic_smem_size")
_STORED = {"p": "bool", "rs": "uint16", "r": "uint32", "rd": "uint64", "f": "float32", "fd": "float64",
           "SP": "uint64", "SPL": "uint64"}  # fmt: skip
_ENDS = {"bra": "branch", "ret": "return", "exit": "return", "bar": "barrier", "shfl": "together", "vote": "together"}


class PtxError(AssertionError):
    """What a GPU would not forgive, or what has no meaning here."""


class Instruction(NamedTuple):
    """One statement."""

    opcode: str
    operands: list[str]
    place: str  #: file and line that it came from, if compiled with these

    def __str__(self) -> str:
        came = f", from {self.place}" if self.place else ""
        return f"{self.opcode} {', '.join(self.operands)}{came}"


@dataclass
class Block:
    """Instructions from number `first` to before `last`, and how they end."""

    first: int
    last: int
    end: str = "fall"  #: or "branch", "return", "barrier", "together"
    target: str = ""  #: label of a branch
    condition: str = ""  #: register of a branch, with ! where it is denied; "" where the branch is always taken
    whole: Callable[..., None] | None = None  #: for all threads that are left
    part: Callable[..., None] | None = None  #: for some of them


# -------------------------------------------------------------------------------------------------- types


def dtype(kind: str) -> str:
    """NumPy's name of a PTX type.

    >>> dtype("s64"), dtype("b32"), dtype("pred")
    ('int64', 'uint32', 'bool')
    """
    return "bool" if kind == "pred" else {"b": "uint", "u": "uint", "s": "int", "f": "float"}[kind[0]] + kind[1:]


def stored(register: str) -> str:
    """How the numbers of a register are kept."""
    found = _STORED.get(re.sub(r"\d+$", "", register[1:]))
    if found is None:
        raise PtxError(f"no meaning for the operand {register!r}")
    return found


def _as(value: str, kind: str, wanted: str) -> str:
    """An expression with the same bits in another type; more or fewer bits where that has another size."""
    if kind == wanted:
        return value
    same = re.sub(r"\D", "", kind) == re.sub(r"\D", "", wanted)
    return f"{value}.{'view' if same else 'astype'}('{wanted}')"


# -------------------------------------------------------------------------------------------------- operations


def _left(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    return np.where(b < bits, a << np.minimum(b, bits - 1).astype(a.dtype), a.dtype.type(0))


def _right(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    moved = a >> np.minimum(b, bits - 1).astype(a.dtype)
    return moved if a.dtype.kind == "i" else np.where(b < bits, moved, a.dtype.type(0))


def _quotient(a: Any, b: Any) -> Any:
    """Towards zero; whatever where b is 0."""
    b = np.where(b == 0, b.dtype.type(1), b)
    found = a // b
    return found if a.dtype.kind == "u" else found + ((found < 0) & (found * b != a))


def _remainder(a: Any, b: Any) -> Any:
    return a - _quotient(a, b) * b


def _insert(a: Any, b: Any, position: Any, length: Any) -> Any:
    """The lowest `length` bits of a, in b from `position` on."""
    mask = (np.uint64(1) << length.astype(np.uint64)) - np.uint64(1)
    at = position.astype(np.uint64)
    return (b & ~(mask << at)) | ((a & mask) << at)


def _high(a: Any, b: Any) -> Any:
    """The upper half of a product."""
    kind = np.result_type(a, b)
    pairs = zip(*(each.tolist() for each in np.broadcast_arrays(a, b)), strict=True)
    return np.array([(x * y) >> (8 * kind.itemsize) for x, y in pairs], dtype=kind)


def _truncated(a: Any) -> Any:
    """A float64 as an int64, towards zero, at the end of the range where it is outside; 0 for NaN."""
    return np.clip(np.nan_to_num(np.trunc(a)), -(2.0**63), 2.0**63 - 1024).astype(np.int64)


_WORLD = {"np": np, "left": _left, "right": _right, "quotient": _quotient, "remainder": _remainder,
          "insert": _insert, "high": _high, "truncated": _truncated}  # fmt: skip
_FORMS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "mul.lo": "{} * {}", "mul.hi": "high({}, {})",
    "mad.lo": "{} * {} + {}", "fma.rn": "{} * {} + {}", "div.rn": "{} / {}", "div": "quotient({}, {})",
    "rem": "remainder({}, {})", "and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}", "not": "~{}", "neg": "-{}",
    "abs": "np.abs({})", "sqrt.rn": "np.sqrt({})", "rcp.rn": "1.0 / {}", "rcp.approx.ftz": "1.0 / {}",
    "shl": "left({}, {})", "shr": "right({}, {})", "mov": "{}",
    "min": "np.minimum({}, {})", "max": "np.maximum({}, {})",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=",
                "hi": ">", "hs": ">="}  # fmt: skip
_DENIED = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _compared(test: str, kind: str, x: str, y: str) -> str:
    """A comparison; of floating-point numbers it is false where one of them is no number, or true if it ends with u."""
    if kind[0] != "f":
        return f"({x} {_COMPARISONS[test]} {y})"
    if test in ("nan", "num"):
        return f"{'~' if test == 'num' else ''}(np.isnan({x}) | np.isnan({y}))"
    if test.endswith("u"):
        return f"~{_compared(_DENIED[test[:-1]], kind, x, y)}"
    return f"(({x} < {y}) | ({x} > {y}))" if test == "ne" else f"({x} {_COMPARISONS[test]} {y})"


# -------------------------------------------------------------------------------------------------- the program


class Program:
    """A kernel in PTX.

    Arguments:
        text: a module with one entry.
    """

    def __init__(self, text: str) -> None:
        text = re.sub(r"//[^\n]*", "", text)
        head, body = text[text.index(".entry") :].split("{", 1)
        body = re.split(r"^}", body, maxsplit=1, flags=re.MULTILINE)[0]
        self.parameters = re.findall(r"\.param \.\w+ (\w+)", head)
        self.shared = sum(int(size) for size in re.findall(r"\.shared[^;]*?\.b8\s+\w+\[(\d+)\]", text))
        self._symbols = dict.fromkeys(re.findall(r"\.shared[^;]*?(\w+)\[\w*\];", text), str(SHARED))
        self.local = 0  #: bytes of a thread
        for name, size in re.findall(r"\.local[^;]*?(\w+)\[(\d+)\];", body):
            self._symbols[name], self.local = "machine.local_begin", int(size)
        self.instructions: list[Instruction] = []
        self.blocks = [Block(0, 0)]
        self.labels: dict[str, int] = {}
        self._files = dict(re.findall(r'\.file\s+(\d+) "(?:[^"]*/)?([^"]*)"', text))
        self._place = ""
        body = re.sub(r"(\.loc\s+\d+ \d+)[^\n]*", r"\1;", body)
        body = re.sub(r"^\s*[{}]\s*$|^\s*\{(?=\s*\.reg)", "", body, flags=re.MULTILINE)  # scopes
        for line in re.split(r";|(?<=:)\s*\n", body):
            self._take(line.strip())
        self.blocks[-1].end = "return"

    def _take(self, line: str) -> None:
        """One statement into the blocks."""
        block, at = self.blocks[-1], len(self.instructions)
        if not line or line.startswith((".reg", ".local", ".shared", ".pragma")):
            return
        if line.startswith(".loc"):
            _, file, number = line.split()
            self._place = f"{self._files[file]}:{number}"
            return
        if line.endswith(":"):
            if block.last > block.first:
                self.blocks.append(Block(at, at))
            self.labels[line[:-1]] = len(self.blocks) - 1
            return
        guard, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        opcode, words = [*rest.split(maxsplit=1), ""][:2]
        found = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]]+", words)
        self.instructions.append(Instruction(opcode, [each.strip() for each in found if each.strip()], self._place))
        end = "together" if opcode.startswith("bar.warp") else _ENDS.get(opcode.split(".")[0], "")
        if guard and end != "branch":
            raise PtxError(f"no meaning for a condition before {line!r}")
        if end in ("barrier", "together") and at > block.first:  # it stands alone, so that threads can wait there
            block = Block(at, at)
            self.blocks.append(block)
        block.last = at + 1
        if end:
            block.end, block.condition = end, guard[1:]
            block.target = self.instructions[-1].operands[-1] if end == "branch" else ""
            self.blocks.append(Block(at + 1, at + 1))

    def value(self, word: str, kind: str) -> str:
        """An operand of a PTX type as an expression."""
        wanted = dtype(kind)
        if word in SPECIAL:
            return f"machine.special[{word!r}].astype('{wanted}')"
        if word.startswith("%"):
            return _as(f"R[{word!r}]", stored(word), wanted)
        if word[:2].lower() == "0d":
            return f"np.uint64(0x{word[2:]}).view('float64')"
        if word[:2].lower() == "0f":
            return f"np.uint32(0x{word[2:]}).view('float32').astype('{wanted}')"
        if re.fullmatch(r"-?(\d+|0x[0-9a-fA-F]+)", word):
            if wanted == "bool":
                return f"np.bool_({int(word, 0) != 0})"
            bits = int(kind[1:])
            return f"np.uint{bits}({int(word, 0) % 2**bits}).view('{wanted}')"
        if word in self._symbols:
            return f"np.uint64({self._symbols[word]})"
        raise PtxError(f"no meaning for the operand {word!r}")

    def _result(self, opcode: str, given: list[str]) -> tuple[str, str]:
        """What an instruction computes that changes nothing but registers, and its type."""
        name, *rest = opcode.split(".")
        kind = rest[-1]
        if name == "setp":
            found = _compared(rest[0], kind, self.value(given[1], kind), self.value(given[2], kind))
            if len(given) > 3:
                sign = "~" if given[3].startswith("!") else ""
                joined = {"and": "&", "or": "|", "xor": "^"}[rest[1]]
                found = f"({found} {joined} {sign}{self.value(given[3].lstrip('!'), 'pred')})"
            return found, "pred"
        if name == "selp":
            first, second = (self.value(each, kind) for each in given[1:3])
            return f"np.where({self.value(given[3], 'pred')}, {first}, {second})", kind
        if name == "cvta":
            found, space = self.value(given[1], kind), rest[-2]
            sign = "-" if rest[0] == "to" else "+"
            return (f"{found} {sign} machine.own_local" if space == "local" else found), kind
        if name == "cvt":
            found, to = self.value(given[1], kind), rest[-2]
            whole = to[0] in "us" and kind[0] == "f"
            if whole and rest[:-2] != ["rzi"]:
                raise PtxError(f"no meaning for the instruction {opcode!r}")
            return f"({f'truncated({found})' if whole else found}).astype('{dtype(to)}')", to
        if name == "bfi":
            words = zip(given[1:], ("u64", "u64", "u32", "u32"), strict=True)
            return f"insert({', '.join(self.value(*word) for word in words)})", "u64"
        if name == "mov" and given[1].startswith("{"):
            low, high = (self.value(each.strip(), "u32") for each in given[1][1:-1].split(","))
            return f"({low}.astype('uint64') | {high}.astype('uint64') << np.uint64(32))", "u64"
        if name == "mul" and rest[0] == "wide":
            wide = kind[0] + str(2 * int(kind[1:]))
            return " * ".join(f"{self.value(each, kind)}.astype('{dtype(wide)}')" for each in given[1:3]), wide
        if name in ("min", "max") and kind[0] == "f":  # the other one where one is no number
            return f"np.f{name}({', '.join(self.value(each, kind) for each in given[1:])})", kind
        form = _FORMS.get(".".join([name, *rest[:-1]]))
        if form is None:
            raise PtxError(f"no meaning for the instruction {opcode!r}")
        kinds = [kind, "u32" if name in ("shl", "shr") else kind, kind]
        return form.format(*(self.value(each, one) for each, one in zip(given[1:], kinds, strict=False))), kind

    def _statements(self, block: Block, whole: bool) -> list[str]:
        """The lines of Python for a block, for all threads that are left or for some of them (m)."""
        made: list[str] = []

        def keep(register: str, found: str, kind: str) -> None:
            if register == "_" or register.startswith("%temp"):
                return
            found, place = _as(f"({found})", dtype(kind), stored(register)), f"R[{register!r}]"
            made.append(f"{place} = machine.each({found})" if whole else f"{place} = np.where(m, {found}, {place})")

        for number in range(block.first, block.last):
            opcode, given, _ = self.instructions[number]
            name = opcode.partition(".")[0]
            if name in _ENDS:
                continue
            if name in ("ld", "st", "atom"):
                self._memory(made, keep, number)
            elif name == "mov" and given[0].startswith("{"):
                found = self.value(given[1], "u64")
                for k, part in enumerate(given[0][1:-1].split(",")):
                    keep(part.strip(), f"({found} >> np.uint64({32 * k})).astype('uint32')", "u32")
            else:
                keep(given[0], *self._result(opcode, given))
        return made

    def _memory(self, made: list[str], keep: Callable[[str, str, str], None], number: int) -> None:
        """A load, a store, or an addition that nobody interrupts."""
        opcode, given, _ = self.instructions[number]
        name, *rest = opcode.split(".")
        kind, size = rest[-1], int(rest[-1][1:]) // 8
        if name == "ld" and rest[0] == "param":
            place = self.parameters.index(given[1][1:-1])
            keep(given[0], f"machine.parameters[{place}].view('{dtype(kind)}')[0]", kind)
            return
        base, _, offset = given[0 if name == "st" else 1][1:-1].partition("+")
        address = f"{self.value(base.strip(), 'u64')} + np.uint64({int(offset or 0) % 2**64})"
        if "local" in rest:
            address = f"{address} + machine.own_local"
        if name == "atom":
            if rest[-2:] != ["add", "u64"]:
                raise PtxError(f"no meaning for the instruction {opcode!r}")
            keep(given[0], f"machine.added({address}, {self.value(given[2], 'u64')}, m, {number})", kind)
            return
        for k, register in enumerate(given[name == "st"].strip("{}").split(",")):
            place = f"{address} + np.uint64({k * size}), "
            if name == "ld":
                keep(register.strip(), f"machine.load({place} m, '{dtype(kind)}', {number})", kind)
            else:
                made.append(f"machine.store({place}{self.value(register.strip(), kind)}, m, '{dtype(kind)}', {number})")

    def code(self, block: Block, whole: bool) -> Callable[..., None]:
        """A block as a function of the registers, the machine and the threads that are there."""
        lines = self._statements(block, whole) or ["pass"]
        world: dict[str, Any] = dict(_WORLD)
        exec("def run(R, machine, m):\n " + "\n ".join(lines), world)
        made: Callable[..., None] = world["run"]
        return made
