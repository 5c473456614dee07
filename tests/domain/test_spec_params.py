from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.domain.errors import InvalidInput
from rota.domain.spec_params import resolve_params
from rota.domain.spec_parse import parse_workflow

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DECLARED: dict[str, dict] = {
    "day": {"type": "string", "default": "{{ ds }}"},
    "size": {"type": "integer", "minimum": 1, "maximum": 10},
    "mode": {"enum": ["fast", "safe", 1], "default": "safe"},
    "names": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "default": []},
    "note": {"type": ["string", "null"], "maxLength": 3, "default": None},
}


def read_params(params):
    return parse_workflow({"name": "w", "params": params}, now=NOW, allow_empty=True).params


def find_faults(call, *args):
    with pytest.raises(InvalidInput) as caught:
        call(*args)
    return {fault.field: fault.reason for fault in caught.value.errors}


def test_declarations_are_kept_as_they_are_and_plain_values_are_defaults():
    assert read_params(DECLARED) == DECLARED
    assert read_params({"size": 3, "list": [1], "none": None}) == {
        "size": {"default": 3},
        "list": {"default": [1]},
        "none": {"default": None},
    }


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("type", {"type": "int"}),
        ("type", {"type": []}),
        ("type[1]", {"type": ["string", "text"]}),
        ("pattern", {"type": "string", "pattern": "(a+)+$"}),
        ("default", {"type": "integer", "default": "3"}),
        ("default", {"type": "integer", "default": True}),
        ("default", {"type": "integer", "default": None}),
        ("default", {"type": "number", "minimum": 3, "default": 2.5}),
        ("default", {"enum": ["a", "b"], "default": "c"}),
        ("default", {"type": "array", "items": {"type": "string"}, "default": ["a", 1]}),
        ("enum", {"enum": []}),
        ("minimum", {"minimum": "3"}),
        ("minLength", {"minLength": -1}),
        ("items.type", {"items": {"type": "str"}}),
        ("items.enum", {"items": {"enum": [1]}}),
    ],
)
def test_a_faulty_declaration_is_named(path, declared):
    assert set(find_faults(read_params, {"p": declared})) == {f"params.p.{path}"}


def test_a_run_gets_defaults_for_what_is_not_given():
    assert resolve_params(DECLARED, {"size": 5}) == {
        "day": "{{ ds }}",
        "size": 5,
        "mode": "safe",
        "names": [],
        "note": None,
    }
    given = {"size": 1, "day": "2030-01-01", "mode": 1, "names": ["a"], "note": "abc"}
    assert resolve_params(DECLARED, given) == given


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("size", {}),
        ("size", {"size": 0}),
        ("size", {"size": 11}),
        ("size", {"size": 5.0}),
        ("size", {"size": True}),
        ("size", {"size": None}),
        ("mode", {"size": 1, "mode": True}),
        ("mode", {"size": 1, "mode": "slow"}),
        ("names", {"size": 1, "names": ["a", "b", "c"]}),
        ("names", {"size": 1, "names": ["a", 2]}),
        ("note", {"size": 1, "note": "abcd"}),
        ("sise", {"size": 1, "sise": 2}),
    ],
)
def test_a_faulty_value_is_named(name, given):
    assert set(find_faults(resolve_params, DECLARED, given)) == {f"params.{name}"}


def test_an_unknown_value_gets_a_suggestion_and_all_faults_come_at_once():
    faults = find_faults(resolve_params, DECLARED, {"sise": 5, "mode": "slow"})
    assert set(faults) == {"params.sise", "params.size", "params.mode"}
    assert 'did you mean "size"?' in faults["params.sise"]


def test_a_workflow_that_declares_nothing_takes_anything():
    assert resolve_params({}, {"x": [1]}) == {"x": [1]}
