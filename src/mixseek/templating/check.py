"""What can be known to be wrong with a template before anything is rendered."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from jinja2 import TemplateError, meta, nodes
from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from mixseek.records import EvaluationResult, Record, Standing, SubmissionRecord
from mixseek.templating.access import SEQUENCE_METHODS, TEXT_METHODS
from mixseek.templating.failures import ERROR_PREFIX, TemplateWorkError
from mixseek.templating.hooks import FORBIDDEN_NAMES, find_refusals, walk
from mixseek.templating.purse import MAX_WORK, Purse
from mixseek.templating.sandbox import compile_template, compile_tree, parse_template, refuse, template_globals
from mixseek.templating.variables import PROMPT_FILTERS, VARIABLES_BY_TEMPLATE

__all__ = ["TemplateFault", "check_template"]

_RECORDS: dict[str, type[Record]] = {
    "SubmissionRecord": SubmissionRecord,
    "EvaluationResult": EvaluationResult,
    "LeaderboardEntry": Standing,
}
_KEEP_ITEM_TYPE = frozenset({"reverse", "sort", "list", "unique"})
_OPERATIONS = (nodes.BinExpr, nodes.Filter, nodes.Call, nodes.Concat)
_CONSTANT_FUNCTIONS = frozenset({"range", "dict"})
# A trial is only meant to find what is refused at once.
_TRIAL_WORK = MAX_WORK // 20
_TRIAL_SECONDS = 0.1
# Of each sort; nobody reads more, and looking for the nearest name takes time.
_MAX_FAULTS = 20
_MAX_LISTED = 10


@dataclass(frozen=True)
class TemplateFault:
    """One mistake in a template; the line is None where the template as a whole is at fault."""

    lineno: int | None
    message: str


def check_template(source: str, name: str) -> list[TemplateFault]:
    """All mistakes that can be found in the template of a setting or file, such as ``team_user_prompt``."""
    variables = VARIABLES_BY_TEMPLATE[name]
    try:
        tree = parse_template(source, name)
    except TemplateError as error:
        return [_fault(error)]
    faults = set(_faults_of(tree, name, variables))
    return sorted(faults, key=lambda fault: (fault.lineno or 0, fault.message)) or _compile_faults(source, name)


def _faults_of(tree: nodes.Template, name: str, variables: Mapping[str, str]) -> Iterator[TemplateFault]:
    refusals = list(islice(find_refusals(tree), _MAX_FAULTS))
    yield from (_fault(refuse(refusal, name)) for refusal in refusals)
    if not any(refusal.is_limit for refusal in refusals):
        yield from islice(_unknown_helpers(tree), _MAX_FAULTS)
        yield from islice(_unknown_variables(tree, variables), _MAX_FAULTS)
        yield from islice(_unknown_attributes(tree, variables), _MAX_FAULTS)
        yield from islice(_impossible_constants(tree, name), _MAX_FAULTS)


def _fault(error: TemplateError) -> TemplateFault:
    return TemplateFault(getattr(error, "lineno", None), str(error))


def _found(node: nodes.Node, message: str) -> TemplateFault:
    return TemplateFault(node.lineno, ERROR_PREFIX + message)


def _compile_faults(source: str, name: str) -> list[TemplateFault]:
    try:
        compile_template(source, name)
    except TemplateError as error:
        return [_fault(error)]
    return []


def _hint(name: str, known: Mapping[str, object] | frozenset[str]) -> str:
    nearest = get_close_matches(name[:100], sorted(known), n=1)
    if nearest:
        return f"; did you mean {nearest[0]!r}?"
    return f"; known are {', '.join(sorted(known))}" if 0 < len(known) <= _MAX_LISTED else ""


# --- names ----------------------------------------------------------------------------------------------------------


def _unknown_helpers(tree: nodes.Template) -> Iterator[TemplateFault]:
    for node in walk(tree):
        if isinstance(node, nodes.Filter) and node.name not in _KNOWN_FILTERS:
            yield _found(node, f"no filter named {node.name!r}{_hint(node.name, _KNOWN_FILTERS)}")
            node.name = "string"  # so that the search for variables, which compiles, can go on
        elif isinstance(node, nodes.Test) and node.name not in TESTS:
            yield _found(node, f"no test named {node.name!r}{_hint(node.name, frozenset(TESTS))}")
            node.name = "defined"


_KNOWN_FILTERS = frozenset(FILTERS) | frozenset(PROMPT_FILTERS)


def _unknown_variables(tree: nodes.Template, variables: Mapping[str, str]) -> Iterator[TemplateFault]:
    try:
        unknown = meta.find_undeclared_variables(tree) - variables.keys() - template_globals() - FORBIDDEN_NAMES
    except (TemplateError, RecursionError):
        return  # compiling will tell
    for node in walk(tree):
        if isinstance(node, nodes.Name) and node.ctx == "load" and node.name in unknown:
            yield _found(node, f"{node.name!r} is undefined{_hint(node.name, variables)}")


# --- attributes -----------------------------------------------------------------------------------------------------


def _unknown_attributes(tree: nodes.Template, variables: Mapping[str, str]) -> Iterator[TemplateFault]:
    types = _types_of_names(tree, variables)
    for node in walk(tree):
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name in types:
            known = _attributes_of(types[node.node.name])
            if node.attr not in known and not node.attr.startswith("_"):
                name = node.node.name
                yield _found(node, f"{name!r} has no attribute {node.attr!r} for templates{_hint(node.attr, known)}")


def _types_of_names(tree: nodes.Template, variables: Mapping[str, str]) -> dict[str, str]:
    """Variables and loop targets whose type is certain: nothing else in the template assigns to the name."""
    stored = Counter(node.name for node in walk(tree) if isinstance(node, nodes.Name) and node.ctx != "load")
    types = {name: kind for name, kind in variables.items() if not stored[name]}
    for loop in walk(tree):
        if isinstance(loop, nodes.For) and isinstance(loop.target, nodes.Name) and stored[loop.target.name] == 1:
            listed = types.get(_listed_variable(loop.iter), "")
            if listed.startswith("list[") and loop.target.name not in variables:
                types[loop.target.name] = listed[len("list[") : -1]
    return types


def _listed_variable(node: nodes.Node | None) -> str:
    while isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        node = node.node
    while isinstance(node, nodes.Filter) and node.name in _KEEP_ITEM_TYPE:
        node = node.node
    return node.name if isinstance(node, nodes.Name) else ""


def _attributes_of(kind: str) -> frozenset[str]:
    if kind in _RECORDS:
        record = _RECORDS[kind]
        return frozenset(record.model_fields) | record.template_properties
    if kind == "str":
        return TEXT_METHODS
    return SEQUENCE_METHODS if kind.startswith("list[") else frozenset()


# --- constants ------------------------------------------------------------------------------------------------------


def _impossible_constants(tree: nodes.Template, name: str) -> Iterator[TemplateFault]:
    """Expressions without variables, tried in the sandbox; what only takes long is left to the rendering."""
    deadline = time.thread_time() + _TRIAL_SECONDS
    for expression in list(_constant_expressions(tree)):
        if time.thread_time() > deadline:
            return
        trial = nodes.Template([nodes.Output([expression], lineno=expression.lineno)], lineno=1)
        try:
            compile_tree(trial, name).render_within(Purse(_TRIAL_WORK), {})
        except TemplateWorkError:
            continue
        except TemplateError as error:
            yield TemplateFault(expression.lineno, str(error))


def _constant_expressions(tree: nodes.Template) -> Iterator[nodes.Expr]:
    waiting: list[nodes.Node] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _OPERATIONS) and _is_constant(node):
            yield node
        else:
            waiting.extend(node.iter_child_nodes())


def _is_constant(expression: nodes.Expr) -> bool:
    for node in walk(expression):
        if isinstance(node, nodes.Name) and node.name not in _CONSTANT_FUNCTIONS:
            return False
        if isinstance(node, nodes.Filter) and node.node is None:
            return False
    return True
