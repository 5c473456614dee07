"""Writes the API's OpenAPI document to docs/reference/openapi.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rota.api.app import make_api
from rota.engine.engine import Engine
from rota.store.database import Database, DatabaseOptions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "openapi.json"


def render_document() -> str:
    """The document as text; no database is opened for it."""
    database = Database(DatabaseOptions("sqlite+aiosqlite://"))
    return json.dumps(make_api(Engine(database), database).openapi(), indent=1, sort_keys=True) + "\n"


def main() -> int:
    PAGE.write_text(render_document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
