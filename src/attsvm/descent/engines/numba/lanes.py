"""Eight float64 numbers as one value inside Numba code: the vector register that LLVM will not find by itself.

Numba turns a short loop over lanes into scalar instructions. `Lanes` is a Numba type backed by an LLVM vector, with the
few operations that the descent kernel needs; LLVM maps it to whatever registers the processor has.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import float64, int64, njit, types
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 8
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(64), LANES)


class LanesType(types.Type):  # type: ignore[misc]
    """Numba's name for eight float64 numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes_type = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, front_end: Any) -> None:
        super().__init__(manager, front_end, _VECTOR)


def _splat(builder: Any, value: Any) -> Any:
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), zeros)


def _place(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> Any:
    data = context.make_array(array_type)(context, builder, value=array).data
    base = builder.bitcast(data, _VECTOR.as_pointer())
    return builder.gep(base, [row], source_etype=_VECTOR)


@intrinsic
def load(typing_context, array, row):  # type: ignore[no-untyped-def]
    """Row `row` of a contiguous float64 array whose last axis has length LANES."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        loaded = builder.load(_place(context, builder, signature.args[0], *arguments), typ=_VECTOR)
        loaded.align = 8
        return loaded

    return lanes_type(array, int64), generate


@intrinsic
def store(typing_context, array, row, value):  # type: ignore[no-untyped-def]
    """Write `value` to row `row` of a contiguous array."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kept = builder.store(arguments[2], _place(context, builder, signature.args[0], *arguments[:2]))
        kept.align = 8
        return context.get_dummy_value()

    return types.void(array, int64, lanes_type), generate


@intrinsic
def splat(typing_context, value):  # type: ignore[no-untyped-def]
    """The same number in every lane."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _splat(builder, arguments[0])

    return lanes_type(float64), generate


def _call(builder: Any, name: str, *arguments: Any) -> Any:
    function = ir.FunctionType(_VECTOR, [_VECTOR] * len(arguments))
    known = builder.module.globals.get(name)
    return builder.call(known or ir.Function(builder.module, function, name), arguments)


def _elementwise(count: int, emit: Any, result: Any = lanes_type) -> Any:
    """An intrinsic of `count` lanes arguments whose code is ``emit(builder, *arguments)``."""

    def typed() -> Any:
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return emit(builder, *arguments)

        return result(*(lanes_type,) * count), generate

    # Numba reads the number of arguments off the function, so each needs its own.
    makers = {
        1: lambda typing_context, a: typed(),
        2: lambda typing_context, a, b: typed(),
        3: lambda typing_context, a, b, c: typed(),
        4: lambda typing_context, a, b, c, d: typed(),
    }
    return intrinsic(makers[count])


fma = _elementwise(3, lambda builder, a, b, c: _call(builder, f"llvm.fma.v{LANES}f64", a, b, c))
root = _elementwise(1, lambda builder, a: _call(builder, f"llvm.sqrt.v{LANES}f64", a))
absolute = _elementwise(1, lambda builder, a: _call(builder, f"llvm.fabs.v{LANES}f64", a))
where_greater = _elementwise(4, lambda builder, a, b, x, y: builder.select(builder.fcmp_ordered(">", a, b), x, y))
where_equal = _elementwise(4, lambda builder, a, b, x, y: builder.select(builder.fcmp_ordered("==", a, b), x, y))


def _emit_somewhere_less(builder: Any, a: Any, b: Any) -> Any:
    bits = builder.bitcast(builder.fcmp_ordered("<", a, b), ir.IntType(LANES))
    return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))


def _emit_power_of_two(builder: Any, shifted: Any) -> Any:
    bits = builder.bitcast(shifted, _INTEGERS)
    exponent = builder.add(bits, ir.Constant(_INTEGERS, [1023] * LANES))
    return builder.bitcast(builder.shl(exponent, ir.Constant(_INTEGERS, [52] * LANES)), _VECTOR)


somewhere_less = _elementwise(2, _emit_somewhere_less, types.boolean)  # whether a < b in at least one lane
power_of_two = _elementwise(1, _emit_power_of_two)


def _operator(function: Any, instruction: str) -> None:
    """Teach Numba ``function(lanes, lanes)``: one instruction."""

    class Typed(ConcreteTemplate):  # type: ignore[misc]
        cases = (lanes_type(lanes_type, lanes_type),)

    infer_global(function)(Typed)

    @lower_builtin(function, lanes_type, lanes_type)
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return getattr(builder, instruction)(*arguments)


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_function, _instruction)

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which then sits in the low bits


HELPER = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Of q, the highest first: exp(r) = 1 + r + r^2 q(r) to 1.6e-17 on [-log(2) / 2, log(2) / 2], q interpolates at
# Chebyshev's points.
_C = (
    2.5100375924709717e-08, 2.762007599981065e-07, 2.7557268480116333e-06, 2.4801521322116825e-05,
    0.0001984126986304067, 0.0013888888917196881, 0.008333333333330065, 0.041666666666624164, 0.16666666666666669,
    0.5000000000000001,
)  # fmt: skip


@njit(**HELPER)
def exponential(x):  # type: ignore[no-untyped-def]
    """exp(x) for x <= 708, within about one unit in the last place; 0 below -708."""
    low = splat(-708.0)
    y = where_greater(x, low, x, low)
    shifted = fma(y, splat(_LOG2E), splat(_ROUND))
    k = shifted - splat(_ROUND)
    r = fma(k, splat(-_LN2_LOW), fma(k, splat(-_LN2_HIGH), y))
    p = fma(splat(_C[0]), r, splat(_C[1]))
    p = fma(fma(p, r, splat(_C[2])), r, splat(_C[3]))
    p = fma(fma(p, r, splat(_C[4])), r, splat(_C[5]))
    p = fma(fma(p, r, splat(_C[6])), r, splat(_C[7]))
    p = fma(fma(p, r, splat(_C[8])), r, splat(_C[9]))
    p = fma(fma(p, r, splat(1.0)), r, splat(1.0))
    return where_greater(x, low, p * power_of_two(shifted), splat(0.0))


# What several workers of a run would do together; here one worker does all of it.
@njit(**HELPER)
def barrier():  # type: ignore[no-untyped-def]
    """Wait for the other workers."""


@njit(**HELPER)
def anywhere(x, board, i):  # type: ignore[no-untyped-def]
    """Whether a number is positive in some run that goes the same way; `board` as in `run_sum`."""
    return somewhere_less(splat(0.0), x)


@njit(**HELPER)
def over_parts(x):  # type: ignore[no-untyped-def]
    """The sum over the workers of an input."""
    return x


highest_over_parts = over_parts


@njit(**HELPER)
def run_sum(x, board, i):  # type: ignore[no-untyped-def]
    """The sum over the workers of a run."""
    return x
