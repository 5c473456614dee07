"""What a branch's output means: names in every form, and what goes on with them."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.fork import build_fork, read_choice
from rota.domain.graph import build_graph


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("a", ["a"]),
        ("  a\n", ["a"]),
        ("a b", ["a", "b"]),
        ("a\nb\n", ["a", "b"]),
        ("a, b", ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('"a"', ["a"]),
        ("[]", []),
        ([], []),
        (["a"], ["a"]),
        (("a", "b"), ["a", "b"]),
    ],
)
def test_names_are_read_in_every_form(output: Any, names: list[str]):
    assert list(read_choice(output)) == names


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        (None, "not null"),
        (True, "not true"),
        (3, "not 3"),
        ({"a": 1}, "not an object"),
        (["a", 3], "it holds 3"),
        ([["a"]], "it holds a list"),
        ('["a"', "expected the names"),
        ("[1]", "it holds 1"),
        ("[" * 100_000, "expected the names"),
    ],
)
def test_what_names_nobody_is_refused_with_the_reason(output: Any, reason: str):
    with pytest.raises(ValueError, match=reason):
        read_choice(output)


def _fork(**depends_on: list[str]):
    names = ["choose", *depends_on]
    return build_fork(build_graph(names, depends_on), "choose", frozenset({"clean"}))


def test_those_not_named_are_left_out():
    fork = _fork(a=["choose"], b=["choose"], c=["choose"], below=["a"])
    assert fork.leave_out("a") == {"b", "c"}
    assert fork.leave_out(["a", "c", "a"]) == {"b"}
    assert fork.leave_out([]) == {"a", "b", "c"}


def test_what_comes_after_a_chosen_one_goes_on():
    fork = _fork(a=["choose"], middle=["a"], join=["choose", "middle"], b=["choose"])
    assert fork.leave_out("a") == {"b"}
    assert fork.leave_out("b") == {"a", "join"}
    assert fork.leave_out("join") == {"a", "b"}


def test_clean_up_is_never_left_out():
    fork = _fork(a=["choose"], clean=["choose", "a"])
    assert fork.leave_out([]) == {"a"}
    assert fork.leave_out("clean") == {"a"}


def test_a_stranger_is_refused():
    fork = _fork(a=["choose"], below=["a"])
    for name in ("below", "choose", "nobody", "A"):
        with pytest.raises(ValueError, match=f'"{name}" is no task right below choose: expected some of a'):
            fork.leave_out(["a", name])
