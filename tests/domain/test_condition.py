"""What the value of a condition means."""

from __future__ import annotations

import pytest

from rota.domain.condition import read_condition


@pytest.mark.parametrize("value", [True, 1, -1, 0.5, [0], {"a": None}])
def test_yes(value: object):
    assert read_condition(value) is True


@pytest.mark.parametrize("value", [False, None, 0, 0.0, [], {}])
def test_no(value: object):
    assert read_condition(value) is False


@pytest.mark.parametrize("value", ["", "true", "false", "0"])
def test_text_says_neither(value: str):
    with pytest.raises(ValueError, match="not the text"):
        read_condition(value)


def test_a_long_text_is_shown_in_part():
    with pytest.raises(ValueError, match="x…") as caught:
        read_condition("x" * 1000)
    assert len(str(caught.value)) < 150
