"""The reference pages name everything that can be met."""

from __future__ import annotations

import re

import pytest

from rota.domain import errors
from tests.architecture.source import ROOT

REFERENCE = ROOT / "docs" / "reference"


def _error_codes() -> set[str]:
    found = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RotaError) and kind is not errors.RotaError
    }
    assert found, "rota.domain.errors defines no errors: has it moved?"
    return found


def test_every_error_code_is_documented():
    rows = re.findall(r"^\| `([a-z_]+)` \|", (REFERENCE / "errors.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(rows) == _error_codes()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    broken = [target for target in local if not (page.parent / target).exists()]
    assert not broken


@pytest.mark.parametrize("folder", ["how-to", "reference", "explanation"])
def test_every_page_is_in_its_index(folder):
    directory = ROOT / "docs" / folder
    index = (directory / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in directory.glob("*.md")} - {"index.md"}
    assert pages == set(re.findall(r"\]\(([^/)#]+\.md)\)", index))
