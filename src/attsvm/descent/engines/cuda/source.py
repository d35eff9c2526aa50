"""The text of `step` made ready for a GPU: sizes become constants, small loops straight lines, arrays plain variables.

A compiler keeps numbers in registers only if it knows each by a name of its own. `Specializer` therefore works on the
syntax tree: ``shape.n`` becomes 6, ``for t in range(7)`` its body seven times, and ``load(work.logits, 3)``, where
``work.logits`` is to be kept in registers, the variable ``work_logits_3``. All other arrays are indexed as usual;
other loops are left to `data.kernel_text`. Sizes that are no constants become variables, ``shape.n`` is ``shape_n``.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping
from typing import Any

from attsvm.data.kernel_text import tree_of

_EVALUATED = (ast.BinOp, ast.Compare, ast.UnaryOp, ast.BoolOp)
SIZES = ("n", "length", "d", "dq", "rank", "width", "parts")
# The numbers of `shape` and `place` that may be no constants, and what else words of `lanes` are told on a GPU.
_NUMBERS = {"shape": SIZES, "place": ("first", "part", "worker", "workers")}
_TOLD = {"over_parts": ("parts",), "highest_over_parts": ("parts",), "run_sum": ("n", "parts"), "anywhere": ("n",)}


class Specializer(ast.NodeTransformer):
    """Rewrites expressions and statements of `step`.

    Arguments:
        constants: values of dotted names such as ``shape.n``, and of comparisons such as ``shape.rank > 0``.
        registers: how many of the first numbers of an array, by its name with ``_`` for the dot, become variables;
            empty leaves loops as they are.
        inlined: functions whose calls are replaced by their bodies, by name.
        helpers: names of functions that are called, without the constants among their arguments.
    """

    def __init__(
        self,
        constants: Mapping[str, float | None],
        registers: Mapping[str, int],
        inlined: Mapping[str, ast.FunctionDef],
        helpers: Iterable[str],
    ) -> None:
        self.constants, self.registers = constants, registers
        self.inlined, self.helpers = inlined, frozenset(helpers)
        self.known: dict[str, Any] = {}  # variables whose value is known here
        self.renamed: dict[str, str] = {}  # local variables of a function that is being inlined

    # ------------------------------------------------------------ expressions

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        name = ast.unparse(node)
        if name in self.constants:
            return ast.Constant(self.constants[name])
        if isinstance(node.value, ast.Name) and node.value.id in ("data", "work", "place", "shape"):
            return ast.Name(name.replace(".", "_"), node.ctx)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        name = ast.unparse(node)
        return ast.Constant(self.constants[name]) if name in self.constants else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and (node.id in self.known or node.id in self.constants):
            return ast.Constant(self.known.get(node.id, self.constants.get(node.id)))
        return ast.Name(self.renamed.get(node.id, node.id), node.ctx)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        base = ast.unparse(node.value)
        if base in ("memories", "work.gradients", "work.boards"):
            return ast.Name(f"{base}_{ast.unparse(node.slice)}".replace(".", "_"), node.ctx)
        return self._evaluated(super().generic_visit(node))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            chosen: ast.expr = self.visit(node.body if test.value else node.orelse)
            return chosen
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name, arguments = ast.unparse(node.func), [self.visit(each) for each in node.args]
        if name in ("splat", "float"):
            return arguments[0] if name == "splat" else ast.Constant(float(arguments[0].value))
        if name == "fma":  # the compiler makes one instruction of it again
            return ast.BinOp(ast.BinOp(arguments[0], ast.Mult(), arguments[1]), ast.Add(), arguments[2])
        if name == "somewhere_less":
            return ast.Compare(arguments[0], [ast.Lt()], [arguments[1]])
        if name == "load":
            return self._element(arguments[0], arguments[1], ast.Load())
        if name in self.helpers:
            arguments = _without_constants(arguments, self.constants)
        shape = ast.Name("shape", ast.Load())
        arguments += [self.visit_Attribute(ast.Attribute(shape, size, ast.Load())) for size in _TOLD.get(name, ())]
        return ast.Call(node.func, arguments, [])

    def generic_visit(self, node: ast.AST) -> Any:
        return self._evaluated(super().generic_visit(node))

    def _evaluated(self, node: Any) -> Any:
        """A constant instead of an expression of constants."""
        if isinstance(node, _EVALUATED):
            parts = [each for each in ast.walk(node) if isinstance(each, ast.expr) and not isinstance(each, _EVALUATED)]
            if all(isinstance(each, ast.Constant) for each in parts):
                return ast.Constant(eval(ast.unparse(node), {}))  # arithmetic of numbers
        return node

    def _element(self, array: ast.expr, index: ast.expr, context: ast.expr_context) -> ast.expr:
        if isinstance(array, ast.Name) and array.id in self.registers:
            assert isinstance(index, ast.Constant), f"{array.id}[{ast.unparse(index)}] has no place of its own"
            number, held = index.value, self.registers[array.id]
            assert isinstance(number, int)
            if number < held:
                return ast.Name(f"{array.id}_{number}", context)
            index = ast.Constant(number - held)
        return ast.Subscript(array, index, context)

    # -------------------------------------------------------------- statements

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements rewritten, docstrings left out."""
        return [made for each in statements for made in self._statement(copy.deepcopy(each))] or [ast.Pass()]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            test = self.visit(node.test)
            if isinstance(test, ast.Constant):
                chosen = node.body if test.value else node.orelse
                return self.body(chosen) if chosen else []
            return [ast.If(test, self.body(node.body), self.body(node.orelse) if node.orelse else [])]
        if isinstance(node, ast.For):
            return self._loop(node)
        if isinstance(node, ast.Expr):
            return self._call(node.value) if isinstance(node.value, ast.Call) else []
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value, target = self.visit(node.value), node.targets[0].id
            self.known.pop(target, None)
            if self.registers and isinstance(value, ast.Constant) and isinstance(value.value, int):
                self.known[target] = value.value
                return []
            return [ast.Assign([self.visit(node.targets[0])], value)]
        return [self.generic_visit(node)]

    def _loop(self, node: ast.For) -> list[ast.stmt]:
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        bounds, name = [self.visit(each) for each in node.iter.args], node.target.id
        if self.registers and all(isinstance(each, ast.Constant) for each in bounds):
            made = []
            for value in range(*(each.value for each in bounds)):
                self.known[name] = value
                made += self.body(node.body)
            self.known.pop(name, None)
            return made
        self.known.pop(name, None)
        return [ast.For(self.visit(node.target), ast.Call(node.iter.func, bounds, []), self.body(node.body), [])]

    def _call(self, node: ast.Call) -> list[ast.stmt]:
        name = ast.unparse(node.func)
        if name == "store":
            array, index, value = (self.visit(each) for each in node.args)
            return [ast.Assign([self._element(array, index, ast.Store())], value)]
        if name not in self.inlined:
            return [ast.Expr(self.visit(node))]
        function = self.inlined[name]
        given = {each.arg: self.visit(value) for each, value in zip(function.args.args, node.args, strict=True)}
        before = self.known, self.renamed
        own = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        renamed = {each: f"{name}_{each}" for each in (*own, *given)}
        made: list[ast.stmt] = [
            ast.Assign([ast.Name(renamed[each], ast.Store())], value)
            for each, value in given.items()
            if each not in ("shape", "data", "work") and not isinstance(value, ast.Constant)
        ]
        self.known = {each: value.value for each, value in given.items() if isinstance(value, ast.Constant)}
        self.renamed = renamed
        made += self.body(function.body)
        self.known, self.renamed = before
        return made


def _without_constants(arguments: list[ast.expr], constants: Mapping[str, float | None]) -> list[ast.expr]:
    """Arguments of a call, with the numbers of `shape` and `place` that are no constants in their stead."""
    made: list[ast.expr] = []
    for each in arguments:
        name = each.id if isinstance(each, ast.Name) else ""
        parts = [part for part in _NUMBERS.get(name, ()) if f"{name}.{part}" not in constants]
        made += [ast.Name(f"{name}_{part}", ast.Load()) for part in parts] if name in _NUMBERS else [each]
    return made


def helper_text(function: Any, constants: Mapping[str, float | None], helpers: Iterable[str]) -> list[str]:
    """The lines of a function for the GPU, its loops as they are; the first is not indented."""
    tree = tree_of(function)
    arguments = _without_constants([ast.Name(each.arg, ast.Load()) for each in tree.args.args], constants)
    body = Specializer(constants, {}, {}, helpers).body(tree.body)
    return [f"def {tree.name}({', '.join(map(ast.unparse, arguments))}):", *_lines(body)]


def body_text(
    function: Any,
    constants: Mapping[str, float | None],
    registers: Mapping[str, int],
    inlined: Iterable[Any],
    helpers: Iterable[str],
) -> list[str]:
    """The lines of the body of a function for the GPU."""
    trees = {tree.name: tree for tree in map(tree_of, inlined)}
    return _lines(Specializer(constants, registers, trees, helpers).body(tree_of(function).body))


def _lines(body: list[ast.stmt]) -> list[str]:
    return "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in body).splitlines()
