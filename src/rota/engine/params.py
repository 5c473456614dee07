"""Parameters: what a run is given, held against what its version declares, and defaults for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec_params import find_type_fault, find_value_fault, resolve_params
from rota.domain.spec_read import has_template
from rota.engine.templates import (
    COMPILE_ERRORS,
    EVALUATION_ERRORS,
    Compiled,
    compile_value,
    explain_refusal,
    render_value,
)
from rota.store.encoding import encode_json

Declared = Mapping[str, Mapping[str, Any]]
# Defaults are tried with these before they are saved.
_SAMPLE_RUN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
_SAMPLE_MOMENT = datetime(2030, 1, 31, 8, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The parameters of a version, ready for use."""

    params: Declared
    # Defaults that are known only when a run is made.
    templates: Mapping[str, Compiled]

    def resolve(self, given: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a run: what was given, and defaults with their templates filled in from `values`.

        What was given is taken as it is. Raises InvalidInput, with `params.NAME` for each fault.
        """
        found = resolve_params(self.params, given)
        errors = []
        for name, template in self.templates.items():
            if name in given:
                continue
            try:
                found[name] = _render(template, values)
                reason = find_value_fault(self.params[name], found[name])
            except EVALUATION_ERRORS as error:
                reason = str(error)
            if reason is not None:
                errors.append(FieldError(f"params.{name}", f"its default does not fit: {reason}"))
        if errors:
            raise InvalidInput.of(errors)
        return found


def declare(params: Declared) -> Declaration:
    """What a version declares. Raises one of COMPILE_ERRORS; what was saved has been checked."""
    templates = {name: compile_value(declared["default"]) for name, declared in _find_templated(params)}
    return Declaration(params, templates)


def _render(template: Compiled, values: Mapping[str, Any]) -> Any:
    value = render_value(template, values)
    # What is no JSON cannot be kept. Raises TypeError.
    encode_json(value)
    return value


def _find_templated(params: Declared) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, declared) for name, declared in params.items() if has_template(declared.get("default"))]


def describe_run(run_id: str, moment: datetime, workflow: str, namespace: str) -> dict[str, Any]:
    """What every template of a run may use, whatever its task."""
    return {
        "logical_date": moment.isoformat(),
        "ds": moment.strftime("%Y-%m-%d"),
        "ds_nodash": moment.strftime("%Y%m%d"),
        "run": {"id": run_id, "logical_date": moment.isoformat()},
        "workflow": {"name": workflow, "namespace": namespace},
    }


def check_defaults(params: Declared, path: str = "params") -> list[FieldError]:
    """What is wrong with the templates of defaults, found before they are saved: each is tried once."""
    values = describe_run(_SAMPLE_RUN_ID, _SAMPLE_MOMENT, "workflow", "default")
    errors = []
    for name, declared in _find_templated(params):
        reason = _find_template_fault(declared, values)
        if reason is not None:
            errors.append(FieldError(f"{path}.{name}.default", reason))
    return errors


def _find_template_fault(declared: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    try:
        template = compile_value(declared["default"])
    except COMPILE_ERRORS as error:
        return f"the template {explain_refusal(error)}"
    try:
        # Only the type: whether the value itself fits may be another matter on another day.
        return find_type_fault(declared.get("type"), _render(template, values))
    except EVALUATION_ERRORS as error:
        return f"the template has no value: {error}; a default may use {', '.join(values)}"
