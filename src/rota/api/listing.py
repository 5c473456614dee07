"""The page at /docs: what can be called, from the OpenAPI document, without anything from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td {{ border-top: 1px solid #8884; padding: .3rem .6rem; vertical-align: top }}
code {{ white-space: nowrap }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #ddd }} a {{ color: #8bf }} }}
</style>
<h1>{title}</h1>
<p>All of it in one document: <a href="openapi.json">openapi.json</a>.</p>
{sections}
</html>
"""


def write_listing(document: dict[str, Any]) -> str:
    """The operations of an OpenAPI document as HTML, by tag."""
    sections: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            summary = operation.get("description") or operation.get("summary", "")
            row = f"<tr><td><code>{method.upper()} {escape(path)}</code><td>{escape(summary.splitlines()[0])}"
            sections.setdefault(operation["tags"][0], []).append(row)
    written = [f"<h2>{escape(tag)}</h2><table>{''.join(rows)}</table>" for tag, rows in sections.items()]
    return _PAGE.format(title=escape(document["info"]["title"]), sections="\n".join(written))
