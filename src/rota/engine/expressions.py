"""Expressions: what `when` and its like compute from parameters and from what upstream tasks left.

The same sandboxed language as in templates, without the braces (which may be there).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateSyntaxError, Undefined
from jinja2.meta import find_undeclared_variables

from rota.domain.errors import FieldError
from rota.engine.templates import (
    COMPILE_ERRORS,
    EVALUATION_ERRORS,
    TYPED,
    check_task,
    compile_values,
    explain_refusal,
    find_upstreams,
    is_one_expression,
    refuse_strangers,
)

# What an expression may name. There are no secrets among these: what is computed is seen by everybody.
KNOWN_NAMES = frozenset({"params", "logical_date", "ds", "ds_nodash", "tasks", "run", "workflow", "task"})


class ExpressionFailed(Exception):
    """An expression has no value; says why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One compiled expression, the names it uses, and the tasks whose outputs it reads."""

    text: str
    names: frozenset[str]
    upstreams: frozenset[str]
    compute: Callable[..., Any]

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Its value. Raises ExpressionFailed."""
        try:
            value = self.compute(**values)
            if isinstance(value, Undefined):
                # Says what is missing.
                str(value)
        except EVALUATION_ERRORS as error:
            raise ExpressionFailed(f"{self.text}: {error}") from error
        return value


def compile_expression(text: str) -> Expression:
    """The expression in this text. Raises one of COMPILE_ERRORS."""
    inner = text.strip()
    if inner.startswith("{{") and inner.endswith("}}"):
        inner = inner[2:-2].strip()
    tree = TYPED.parse("{{ " + inner + " }}")
    if not is_one_expression(tree):
        raise TemplateSyntaxError("expected one expression, such as params.day == 'monday'", 1)
    return Expression(
        text,
        frozenset(find_undeclared_variables(tree)),
        frozenset(find_upstreams(tree)),
        TYPED.compile_expression(inner, undefined_to_none=False),
    )


def compile_mapping(map_over: str | list[Any]) -> Expression:
    """What `map_over` stands for: an expression, or a list in which there may be templates."""
    if isinstance(map_over, str):
        return compile_expression(map_over)
    compute, upstreams = compile_values(map_over)
    return Expression("the list", frozenset(), upstreams, compute)


def find_expressions(document: Mapping[str, Any]) -> dict[str, str]:
    """The expressions in a task's definition, by field."""
    return {field: text for field in ("when", "map_over") if isinstance(text := document.get(field), str)}


def check_texts(document: Mapping[str, Any], path: str, upstreams: Set[str]) -> list[FieldError]:
    """What is wrong with the templates and expressions of a task that runs after `upstreams`."""
    faults = check_task(document, path, upstreams)
    for field, text in find_expressions(document).items():
        faults += check_expression(text, f"{path}.{field}", upstreams)
    if isinstance(document.get("map_over"), list):
        faults += _check_list(document["map_over"], f"{path}.map_over", upstreams)
    return faults


def _check_list(items: list[Any], path: str, upstreams: Set[str]) -> list[FieldError]:
    try:
        mapping = compile_mapping(items)
    except COMPILE_ERRORS as error:
        return [FieldError(path, f"the template {explain_refusal(error)}")]
    return refuse_strangers(mapping.upstreams, path, upstreams)


def check_expression(text: str, path: str, upstreams: Set[str]) -> list[FieldError]:
    """What is wrong with an expression of a task that runs after `upstreams`, found before it is saved."""
    try:
        expression = compile_expression(text)
    except COMPILE_ERRORS as error:
        return [FieldError(path, f"the expression {explain_refusal(error)}")]
    unknown = sorted(expression.names - KNOWN_NAMES)
    if unknown:
        known = ", ".join(sorted(KNOWN_NAMES))
        return [FieldError(path, f"there is no {unknown[0]}: an expression may use {known}")]
    return refuse_strangers(expression.upstreams, path, upstreams)
