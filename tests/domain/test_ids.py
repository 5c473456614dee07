from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.ids import is_uuid, make_uuid7

MILLISECONDS = st.integers(0, 2**48 - 1)
RANDOMNESS = st.binary(min_size=10, max_size=10)


@given(MILLISECONDS, RANDOMNESS)
def test_an_id_is_a_version_7_uuid_that_carries_its_time(milliseconds, randomness):
    text = make_uuid7(milliseconds, randomness)
    parsed = uuid.UUID(text)
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == milliseconds
    assert str(parsed) == text
    assert is_uuid(text)


@given(MILLISECONDS, MILLISECONDS, RANDOMNESS, RANDOMNESS)
def test_ids_sort_by_time_as_text(first, second, one, other):
    if first < second:
        assert make_uuid7(first, one) < make_uuid7(second, other)


def test_randomness_makes_ids_of_one_millisecond_differ():
    assert make_uuid7(1, b"\0" * 10) != make_uuid7(1, b"\0" * 9 + b"\1")
    assert make_uuid7(1, b"\0" * 10) != make_uuid7(1, b"\1" + b"\0" * 9)


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("0190a6e0-7b5c-7def-8123-456789abcdef", True),
        ("0190A6E0-7B5C-7DEF-8123-456789ABCDEF", True),
        ("0190a6e07b5c7def8123456789abcdef", False),
        ("0190a6e0-7b5c-7def-8123-456789abcdeg", False),
        ("0190a6e0-7b5c-7def-8123-456789abcde", False),
        ("0190a6e0_7b5c_7def_8123_456789abcdef", False),
        ("0190a6e0-7b5c-7def-8123-45678-abcdef", False),
        ("", False),
        ("nightly", False),
    ],
)
def test_ids_are_told_from_names(text, is_id):
    assert is_uuid(text) is is_id
