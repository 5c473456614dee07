"""A workflow's parameters: what may be declared, and what a run's values become.

A declaration is a small part of JSON Schema. Patterns are left out: a regular expression that one person
wrote and another one feeds can stop a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.domain.spec_names import check_identifier
from rota.domain.spec_read import Faults, Reader, has_template, show

MAX_PARAMS = 200
MAX_OPTIONS = 1_000
PARAM_FIELDS = (
    *("type", "default", "title", "description", "enum", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "items"),
)
_LARGE = 1e15
_LONG = 1_000_000


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}


def read_params(workflow: Reader) -> dict[str, dict[str, Any]]:
    """The declarations by name. A plain value instead of a declaration is a default without more rules."""
    found = {}
    for name, value in workflow.mapping("params", most=MAX_PARAMS).items():
        reason = check_identifier(name)
        if reason is not None:
            workflow.report(f"params.{show(name, quote=False)}", reason)
        elif isinstance(value, Mapping):
            found[name] = _read_param(Reader(value, workflow.locate(f"params.{name}"), workflow.faults))
        else:
            found[name] = {"default": value}
    return found


def _read_param(param: Reader) -> dict[str, Any]:
    param.refuse_unknown(PARAM_FIELDS)
    _check_type(param)
    param.text("title", longest=1_000)
    param.text("description", longest=10_000)
    param.items("enum", most=MAX_OPTIONS)
    if param.has("enum") and param.data["enum"] == []:
        param.report("enum", "must name at least one value")
    for name in ("minimum", "maximum"):
        param.number(name, 0.0, least=-_LARGE, most=_LARGE)
    for name in ("minLength", "maxLength", "minItems", "maxItems"):
        param.integer(name, 0, least=0, most=_LONG)
    items = param.child("items")
    items.refuse_unknown(("type",))
    _check_type(items)
    declared = {name: value for name, value in param.data.items() if value is not None or name == "default"}
    if "default" in declared and not param.faults.has_any_below(param.path):
        _check_default(param, declared)
    return declared


def _check_type(param: Reader) -> None:
    value = param.data.get("type")
    if isinstance(value, list | tuple):
        if not value:
            param.report("type", "must name at least one type")
        for index, word in enumerate(value):
            _check_type_word(param, f"type[{index}]", word)
    elif value is not None:
        _check_type_word(param, "type", value)


def _check_type_word(param: Reader, name: str, word: Any) -> None:
    if not isinstance(word, str) or word not in _TYPES:
        hint = param.faults.suggest(word, _TYPES)
        param.report(name, f"expected one of {', '.join(_TYPES)}, not {show(word)}{hint}")


def _check_default(param: Reader, declared: Mapping[str, Any]) -> None:
    default = declared["default"]
    # A template has no value yet.
    reason = None if has_template(default) else find_value_fault(declared, default)
    if reason is not None:
        param.report("default", reason)


def find_value_fault(declared: Mapping[str, Any], value: Any) -> str | None:
    """Why this value does not fit the declaration, or None."""
    reason = find_type_fault(declared.get("type"), value)
    if reason is not None:
        return reason
    options = declared.get("enum")
    if options is not None and not any(_is_same(value, option) for option in options):
        return f"expected one of {', '.join(show(option) for option in options[:20])}, not {show(value)}"
    if _is_number(value):
        return _find_range_fault(declared, value, "minimum", "maximum", "a number")
    if isinstance(value, str):
        return _find_range_fault(declared, len(value), "minLength", "maxLength", "a length")
    if isinstance(value, list | tuple):
        reason = _find_range_fault(declared, len(value), "minItems", "maxItems", "a number of items")
        return reason or _find_item_fault(declared, value)
    return None


def find_type_fault(wanted: Any, value: Any) -> str | None:
    """Why this value is of none of the wanted types, or None."""
    if wanted is None:
        return None
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    if any(_TYPES[word](value) for word in words):
        return None
    return f"expected type {' or '.join(words)}, not {show(value)}"


def _is_same(value: Any, option: Any) -> bool:
    # In Python True equals 1; in JSON it does not.
    return isinstance(value, bool) == isinstance(option, bool) and bool(value == option)


def _find_range_fault(
    declared: Mapping[str, Any], amount: float, low_name: str, high_name: str, what: str
) -> str | None:
    low, high = declared.get(low_name), declared.get(high_name)
    if low is not None and amount < low:
        return f"expected {what} of at least {low}, not {amount}"
    if high is not None and amount > high:
        return f"expected {what} of at most {high}, not {amount}"
    return None


def _find_item_fault(declared: Mapping[str, Any], values: list[Any] | tuple[Any, ...]) -> str | None:
    wanted = (declared.get("items") or {}).get("type")
    for index, value in enumerate(values):
        reason = find_type_fault(wanted, value)
        if reason is not None:
            return f"item {index}: {reason}"
    return None


def require_defaults(params: Mapping[str, Mapping[str, Any]], faults: Faults) -> None:
    """Reports the parameters without a default of something that also starts when nobody is there to give them."""
    for name, declared in params.items():
        if "default" not in declared:
            faults.add(f"params.{name}", "needs a default: what starts by itself is given no parameters")


def resolve_params(params: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run: what was given, checked, and defaults for the rest, their templates as they are.

    A workflow that declares no parameters takes whatever it is given. Raises InvalidInput.
    """
    if not params:
        return dict(given)
    faults = Faults()
    values: dict[str, Any] = {}
    for name in given:
        if name not in params:
            unknown = "there is no such parameter" + faults.suggest(name, params)
            faults.add(f"params.{show(name, quote=False)}", unknown)
    for name, declared in params.items():
        if name not in given and "default" not in declared:
            faults.add(f"params.{name}", "is required")
            continue
        values[name] = given.get(name, declared.get("default"))
        reason = find_value_fault(declared, values[name]) if name in given else None
        if reason is not None:
            faults.add(f"params.{name}", reason)
    faults.raise_if_any()
    return values
