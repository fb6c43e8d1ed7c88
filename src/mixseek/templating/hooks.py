"""The pass over a parsed template: refuse what is never allowed, and put the hooks in.

Between two hooks a template runs straight ahead, so what lies between them is bounded by the template's length. Hooks
stand where it could go round or blow up: at the head of every body that can run more than once (its nodes, literals and
text are paid for together), in tests of loops, at ``~``, attributes, items, slices, comparisons and keys of
dictionaries. Filters, tests, calls, output and arithmetic are hooks already, since the environment does them. A hook is
a filter with a name that no template can spell.
"""

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from mixseek.templating.purse import MAX_INTEGER_BITS, char_width

__all__ = [
    "ATTRIBUTE",
    "CONCAT",
    "FORBIDDEN_NAMES",
    "ITEM",
    "SLICE",
    "SPEND",
    "WEIGH",
    "Refusal",
    "add_hooks",
    "find_refusals",
    "walk",
]

ATTRIBUTE, CONCAT, ITEM, SLICE, SPEND, WEIGH = "<attribute>", "<concat>", "<item>", "<slice>", "<spend>", "<weigh>"

FORBIDDEN_NAMES = frozenset({"cycler", "joiner", "lipsum", "self", "super"})
_FORBIDDEN_STATEMENTS: dict[type[nodes.Node], str] = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from ... import",
    nodes.Extends: "extends",
    nodes.ScopedEvalContextModifier: "autoescape",
    nodes.EvalContextModifier: "autoescape",
}
_MAX_PARTS = 4_000
# Compiled to functions of their own, which takes longer than anything else.
_PARTS: dict[type[nodes.Node], int] = {nodes.Block: 5, nodes.Macro: 4, nodes.CallBlock: 4, nodes.For: 2}
_WORK: dict[type[nodes.Node], int] = {
    nodes.Assign: 3,
    nodes.AssignBlock: 8,
    nodes.Block: 15,
    nodes.Call: 15,
    nodes.CallBlock: 20,
    nodes.Compare: 6,
    nodes.Concat: 8,
    nodes.Dict: 4,
    nodes.Filter: 10,
    nodes.FilterBlock: 8,
    nodes.For: 15,
    nodes.Getattr: 10,
    nodes.Getitem: 10,
    nodes.List: 4,
    nodes.Macro: 15,
    nodes.NSRef: 4,
    nodes.Output: 3,
    nodes.Test: 10,
    nodes.Tuple: 4,
}
_ARITHMETIC_WORK = 8
_TOLL_WORK = 6
_HUGE_NUMBER = 600
_OBJECT, _PAIR, _ITEM, _LOOP_VALUE = 80, 110, 8, 32


@dataclass(frozen=True)
class Refusal:
    """Something in a template that is never allowed, wherever it stands."""

    lineno: int
    message: str
    is_limit: bool = False


# --- what is never allowed ------------------------------------------------------------------------------------------


def find_refusals(tree: nodes.Template) -> Iterator[Refusal]:
    """Everything in a template that is refused before it is compiled."""
    parts = 0
    for node in walk(tree):
        parts += _PARTS.get(type(node), 1)
        if parts > _MAX_PARTS:
            yield Refusal(node.lineno, f"the template has more than {_MAX_PARTS:,} parts", is_limit=True)
            return
        yield from _refusals_of(node)


def walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    """A node and all beneath it, in the order of the source, however deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(node.iter_child_nodes())))


def _refusals_of(node: nodes.Node) -> Iterator[Refusal]:
    statement = _FORBIDDEN_STATEMENTS.get(type(node))
    if statement is not None:
        yield Refusal(node.lineno, f"{statement!r} cannot be used in a prompt template")
    if isinstance(node, nodes.Name) and node.ctx == "load" and node.name in FORBIDDEN_NAMES:
        yield Refusal(node.lineno, f"{node.name!r} cannot be used in a prompt template")
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        yield Refusal(node.lineno, f"access to attribute {node.attr!r} is unsafe")
    if isinstance(node, nodes.Getitem) and _is_private_key(node.arg):
        yield Refusal(node.lineno, f"access to item {node.arg.value!r} is unsafe")  # type: ignore[attr-defined]
    if isinstance(node, nodes.Const) and not _is_bounded(node.value):
        yield Refusal(node.lineno, "a number is too large", is_limit=True)
    for name in _identifiers(node):
        if unicodedata.normalize("NFKC", name) != name:
            # Python would silently take it for another name.
            yield Refusal(node.lineno, f"the name {name!r} has characters that stand for others")


def _is_private_key(key: nodes.Expr) -> bool:
    return isinstance(key, nodes.Const) and isinstance(key.value, str) and key.value.startswith("__")


def _is_bounded(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= MAX_INTEGER_BITS
    return not isinstance(value, float) or math.isfinite(value)


def _identifiers(node: nodes.Node) -> Iterator[str]:
    for field in ("name", "attr", "key"):
        name = getattr(node, field, None)
        if isinstance(name, str):
            yield name


# --- hooks ----------------------------------------------------------------------------------------------------------


def add_hooks(tree: nodes.Template) -> nodes.Template:
    """The same template with hooks in it."""
    _Hooks().visit(tree)
    return tree


class _Hooks(NodeTransformer):
    def visit_Template(self, node: nodes.Template) -> nodes.Node:  # noqa: N802  # Jinja's visitor names its methods so
        return self._with_toll(node)

    visit_Macro = visit_CallBlock = visit_Block = visit_Template  # noqa: N815

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        test_toll = _toll([node.test], node.lineno) if node.test is not None else None
        self._with_toll(node)
        if node.test is not None and test_toll is not None:
            node.test = nodes.And(test_toll, node.test, lineno=node.lineno)
        return node

    def _with_toll(self, node: Any) -> nodes.Node:
        toll = _toll(node.body, node.lineno)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(toll, lineno=node.lineno))
        return node  # type: ignore[no-any-return]

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _hook(CONCAT, nodes.Tuple(node.nodes, "load", lineno=node.lineno), [], node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return _hook(ITEM, node.node, [node.arg], node.lineno)
        bounds = [
            part or nodes.Const(None, lineno=node.lineno) for part in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        return _hook(SLICE, node.node, bounds, node.lineno)

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _hook(ATTRIBUTE, node.node, [nodes.Const(node.attr, lineno=node.lineno)], node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _weighed(node.key)
        return node


def _hook(name: str, value: nodes.Expr, args: list[nodes.Expr], lineno: int) -> nodes.Filter:
    return nodes.Filter(value, name, args, [], None, None, lineno=lineno)


def _weighed(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _hook(WEIGH, node, [], node.lineno)


def _toll(body: list[Any], lineno: int) -> nodes.Expr:
    work, memory, chars, width = _TOLL_WORK, _LOOP_VALUE, 0, 1
    for node in _straight(body):
        work += _ARITHMETIC_WORK if isinstance(node, nodes.BinExpr) else _WORK.get(type(node), 1)
        memory += _memory_of(node)
        if isinstance(node, nodes.TemplateData):
            chars += len(node.data)
            width = max(width, char_width(node.data)) if node.data else width
    prices = [nodes.Const(price, lineno=lineno) for price in (memory, chars, width)]
    return _hook(SPEND, nodes.Const(work + (chars >> 10), lineno=lineno), list(prices), lineno)


def _straight(body: list[Any]) -> Iterator[nodes.Node]:
    """The nodes that run once when this body runs once; bodies with a toll of their own are left out."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, nodes.For):
            waiting.extend([node.target, node.iter, *node.else_])
        elif isinstance(node, nodes.Macro | nodes.CallBlock):
            waiting.extend(node.defaults + ([node.call] if isinstance(node, nodes.CallBlock) else []))
        elif not isinstance(node, nodes.Block):
            waiting.extend(node.iter_child_nodes())


def _memory_of(node: nodes.Node) -> int:
    if isinstance(node, nodes.List | nodes.Tuple):
        return _OBJECT + _ITEM * len(node.items)
    if isinstance(node, nodes.Dict):
        return 2 * _OBJECT + _PAIR * len(node.items)
    if isinstance(node, nodes.Neg | nodes.Pos):
        return _HUGE_NUMBER
    if isinstance(node, nodes.Call | nodes.Getattr | nodes.Getitem | nodes.BinExpr | nodes.Output):
        return _OBJECT
    return 0
