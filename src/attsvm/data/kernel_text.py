"""The text of a kernel in the form that NVIDIA's compiler makes short code of.

Numba lets an index count from the end, and a loop go in either direction: on a GPU, a sum of products is then ten parts
integers to one part numbers. Here loops count by themselves, and indices have no sign.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType
from typing import Any


def tree_of(function: Any) -> ast.FunctionDef:
    """The definition of a function, plain or compiled by Numba, without decorators; it knows its lines."""
    plain = getattr(function, "py_func", function)
    found = ast.parse(textwrap.dedent(inspect.getsource(plain))).body[0]
    assert isinstance(found, ast.FunctionDef)
    found.decorator_list = []
    return ast.increment_lineno(found, plain.__code__.co_firstlineno - 1)


class Counting(ast.NodeTransformer):
    """``for i in range(a, b): x[i]`` becomes ``i = a``, ``while i < b: x[uint64(i)]; i += 1``.

    A step is positive unless it is written with a minus. What is left of a loop after ``if …: continue`` becomes the
    body of the opposite condition. Loops of constant bounds stay as they are, and so do constant indices and slices.
    """

    def visit_For(self, node: ast.For) -> Any:
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        node.body = _without_continue(node.body)
        self.generic_visit(node)
        if all(isinstance(bound, ast.Constant) for bound in node.iter.args):
            return node
        bounds = [ast.unparse(bound) for bound in node.iter.args]
        begin, end, step = ["0", *bounds, "1"][-3:] if len(bounds) < 3 else bounds
        at, sign = node.target.id, ">" if step.startswith("-") else "<"
        made = ast.parse(f"{at}_end = {end}\n{at} = {begin}\nwhile {at} {sign} {at}_end:\n {at} += {step}").body
        for each in made:
            for part in ast.walk(each):
                ast.copy_location(part, node)
        loop = made[-1]
        assert isinstance(loop, ast.While)
        loop.body = [*node.body, *loop.body]
        return made

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        self.generic_visit(node)
        several = isinstance(node.slice, ast.Tuple)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kept = (ast.Slice, ast.Constant, ast.UnaryOp)  # -1 is an operation on 1
        parts = [part if isinstance(part, kept) else _unsigned(part) for part in parts]
        node.slice = ast.copy_location(ast.Tuple(parts, ast.Load()), node) if several else parts[0]
        return node


def _unsigned(index: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name("uint64", ast.Load()), [index], [])
    return ast.fix_missing_locations(ast.copy_location(call, index))


def _without_continue(body: list[ast.stmt]) -> list[ast.stmt]:
    """The same without `continue`, where that is all that is done under a condition."""
    for k, each in enumerate(body):
        if isinstance(each, ast.If) and len(each.body) == 1 and isinstance(each.body[0], ast.Continue):
            opposite = ast.copy_location(ast.UnaryOp(ast.Not(), each.test), each)
            rest = _without_continue(body[k + 1 :])
            return [*body[:k], ast.copy_location(ast.If(opposite, rest, []), each)]
    return body


def counting_text(text: str) -> str:
    """A text in this form."""
    return ast.unparse(ast.fix_missing_locations(Counting().visit(ast.parse(text))))


def counting(function: Any, words: dict[str, Any]) -> FunctionType:
    """A function in this form, its names looked up in `words`, where ``uint64`` must be Numba's."""
    tree = ast.Module([Counting().visit(tree_of(function))], [])
    plain = getattr(function, "py_func", function)
    exec(compile(ast.fix_missing_locations(tree), plain.__code__.co_filename, "exec"), words)
    made: FunctionType = words[plain.__name__]
    return made
