"""Templates: values put into a task's definition when it is handed to a worker.

Jinja in its sandbox, expressions and `{% if %}` only: a template cannot loop, call into Python, or grow without bound.
In a command for the shell every value is quoted; `| raw` leaves it as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rota.domain.errors import FieldError
from rota.domain.spec import ACTION_FIELDS, WORKER_KINDS
from rota.domain.spec_read import has_template
from rota.store.encoding import encode_json

# The parts of a task that may hold templates.
RENDERED_FIELDS = (
    *("command", "stdin", "http", "args", "container", "env", "working_directory"),
    *("wait", "approval", "params"),
)
# Rendered when the task is ready, not when a worker gets it.
KEY_FIELD = "concurrency_key"
_ALLOWED_STATEMENTS = (nodes.Output, nodes.If, nodes.TemplateData)
# Those that make much out of little are left out.
_FILTERS = (
    *("abs", "count", "d", "default", "first", "float", "int", "join", "last", "length", "list", "lower", "max", "min"),
    *("round", "string", "sum", "title", "trim", "unique", "upper", "urlencode", "e"),
)
_GROWING_METHODS = frozenset({"format", "format_map", "center", "ljust", "rjust", "zfill", "expandtabs", "replace"})
# What a template or an expression that could be compiled may raise for the values that it gets.
EVALUATION_ERRORS = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
# What compiling may raise. Python's own compiler has its limits, too.
COMPILE_ERRORS = (TemplateError, RecursionError, SyntaxError, MemoryError)
# Whose values keep their types: they become JSON, not text.
_TYPED_FIELDS = ("args", "http", "params")


class Raw(str):
    """Text that is put in as it is."""

    __slots__ = ()


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("powers are not allowed")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("% is for numbers: put text together with ~")
        sizes = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
        if operator == "*" and sizes:
            raise SecurityError("* is for numbers")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _GROWING_METHODS and super().is_safe_attribute(obj, attr, value)


def _to_text(value: Any) -> str:
    # An undefined value raises when it is made text.
    return str(value) if isinstance(value, str | Undefined) else encode_json(value)


def _quote(value: Any) -> Any:
    return value if isinstance(value, Raw) else shlex.quote(_to_text(value))


def _make_environment(finalize: Callable[[Any], Any]) -> _Environment:
    environment = _Environment(undefined=StrictUndefined, finalize=finalize, autoescape=False, cache_size=0)
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters["raw"] = lambda value: Raw(_to_text(value))
    environment.filters["shell"] = lambda value: Raw(shlex.quote(_to_text(value)))
    environment.filters["json"] = lambda value: Raw(encode_json(value))
    environment.globals = {}
    return environment


_PLAIN = _make_environment(_to_text)
TYPED = _make_environment(_to_text)
_SHELL = _make_environment(_quote)


@dataclass(frozen=True, slots=True)
class Expression:
    """A string that is nothing but one expression: its value keeps its type."""

    evaluate: Callable[..., Any]


@dataclass(slots=True)
class _Named:
    """What templates name."""

    upstreams: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)


Compiled = Expression | Template | list[Any] | dict[str, Any] | Any


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """The templates of one task, and what they name: tasks, for their outputs, and secrets."""

    fields: Mapping[str, Compiled]
    upstreams: frozenset[str]
    secrets: frozenset[str] = frozenset()

    def render(self, document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """The document with every template rendered. Raises TemplateError."""
        return {**document, **{name: render_value(compiled, values) for name, compiled in self.fields.items()}}


def compile_task(document: Mapping[str, Any]) -> TaskTemplate | None:
    """The templates of a task's definition, or None if it has none. Raises TemplateError."""
    return compile_fields(document, RENDERED_FIELDS)


def compile_fields(document: Mapping[str, Any], names: Iterable[str]) -> TaskTemplate | None:
    """The templates in these fields, or None if there are none. Raises TemplateError."""
    found = {name: document[name] for name in names if name in document and has_template(document[name])}
    if not found:
        return None
    named = _Named()
    compiled = {name: _compile(value, _choose(name, value), named) for name, value in found.items()}
    return TaskTemplate(compiled, frozenset(named.upstreams), frozenset(named.secrets))


def compile_value(value: Any) -> Compiled:
    """The templates anywhere in a value, which keeps its types. Raises one of COMPILE_ERRORS."""
    return _compile(value, TYPED, _Named())


def compile_values(value: Any) -> tuple[Callable[..., Any], frozenset[str]]:
    """What renders the templates anywhere in this, each to a value with its type, and the tasks that they name."""
    named = _Named()
    compiled = _compile(value, TYPED, named)
    return lambda **values: render_value(compiled, values), frozenset(named.upstreams)


def _choose(field: str, value: Any) -> _Environment:
    if field == "command" and isinstance(value, str):
        return _SHELL
    return TYPED if field in _TYPED_FIELDS else _PLAIN


def check_task(document: Mapping[str, Any], path: str, upstreams: Set[str]) -> list[FieldError]:
    """What is wrong with the templates of a task that runs after `upstreams`, found before it is saved."""
    try:
        template = compile_fields(document, (*RENDERED_FIELDS, KEY_FIELD))
    except COMPILE_ERRORS as error:
        return [FieldError(path, f"the template {explain_refusal(error)}")]
    if template is None:
        return []
    faults = refuse_strangers(template.upstreams, path, upstreams)
    if template.secrets and _keeps_secrets(document):
        faults.append(FieldError(path, "a secret is only for what a worker executes: here it would be kept, and seen"))
    return faults


def _keeps_secrets(document: Mapping[str, Any]) -> bool:
    """Whether the engine itself makes something of secrets, which is no secret then."""
    key = compile_fields(document, (KEY_FIELD,))
    is_for_workers = any(kind in WORKER_KINDS for name, kind in ACTION_FIELDS.items() if name in document)
    return not is_for_workers or bool(key and key.secrets)


def explain_refusal(error: Exception) -> str:
    """Why a template or an expression cannot be compiled."""
    if isinstance(error, TemplateSyntaxError):
        return f"cannot be read: {error.message}"
    if isinstance(error, TemplateError):
        return f"is refused: {error}"
    return "is refused: it is nested too deeply"


def refuse_strangers(named: Set[str], path: str, upstreams: Set[str]) -> list[FieldError]:
    """A fault for each task that is named and does not come before."""
    return [
        FieldError(path, f"tasks.{name} is not known there: only tasks that come before it have an output (depends_on)")
        for name in sorted(named - upstreams)
    ]


def _compile(value: Any, environment: _Environment, named: _Named) -> Compiled:
    if isinstance(value, Mapping):
        return {key: _compile(item, environment, named) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_compile(item, environment, named) for item in value]
    if not isinstance(value, str) or not has_template(value):
        return value
    tree = environment.parse(value)
    _refuse_statements(tree.body)
    named.upstreams |= find_upstreams(tree)
    named.secrets |= _find_secrets(tree)
    if environment is TYPED and is_one_expression(tree):
        return Expression(environment.compile_expression(value.strip()[2:-2].strip(" -+"), undefined_to_none=False))
    return environment.from_string(tree)


def is_one_expression(tree: nodes.Template) -> bool:
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return False
    parts = tree.body[0].nodes
    return len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData)


def _refuse_statements(body: Iterable[nodes.Node]) -> None:
    for node in body:
        if not isinstance(node, _ALLOWED_STATEMENTS):
            raise SecurityError(f"only expressions and if are allowed, not {type(node).__name__.lower()}")
        if isinstance(node, nodes.If):
            _refuse_statements([*node.body, *node.elif_, *node.else_])


def find_upstreams(tree: nodes.Template) -> set[str]:
    """The names after `tasks.`, or in `tasks["…"]`."""
    return set(_find_members(tree, "tasks"))


def _find_secrets(tree: nodes.Template) -> set[str]:
    """The names after `secrets.`. Only what is named is read, so there is no other way to use them."""
    members = _find_members(tree, "secrets")
    if len(members) < sum(1 for node in tree.find_all(nodes.Name) if node.name == "secrets"):
        raise SecurityError("a secret is named where it is used: secrets.NAME")
    return set(members)


def _find_members(tree: nodes.Template, name: str) -> list[str]:
    """What stands after `name.`, or in `name["…"]`."""

    def is_meant(node: nodes.Node) -> bool:
        return isinstance(node, nodes.Name) and node.name == name

    by_attribute = [node.attr for node in tree.find_all(nodes.Getattr) if is_meant(node.node)]
    items = [node.arg for node in tree.find_all(nodes.Getitem) if is_meant(node.node)]
    return by_attribute + [str(item.value) for item in items if isinstance(item, nodes.Const)]


def render_value(compiled: Compiled, values: Mapping[str, Any]) -> Any:
    """What was compiled, with these values. Raises one of EVALUATION_ERRORS."""
    if isinstance(compiled, Expression):
        value = compiled.evaluate(**values)
        return str(value) if isinstance(value, Undefined) else value
    if isinstance(compiled, Template):
        return compiled.render(**values)
    if isinstance(compiled, dict):
        return {key: render_value(item, values) for key, item in compiled.items()}
    if isinstance(compiled, list):
        return [render_value(item, values) for item in compiled]
    return compiled
