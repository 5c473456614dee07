"""What names, references and addresses in a definition may look like. Each check answers why not, or None."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from urllib.parse import urlsplit

from rota.domain.ids import is_uuid
from rota.domain.spec_read import check_pattern, is_template, show

LONGEST_NAME = 200
LONGEST_URL = 8_192
# These end a name in a URL's path, or change its meaning.
_RESERVED = frozenset('/\\?#%"<>')

check_task_pattern = check_pattern(
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    "letters, digits, underscores, dots and hyphens, not beginning with a dot or hyphen",
)
check_namespace = check_pattern(
    re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?"),
    "up to 63 of a-z, 0-9, hyphen and underscore, beginning and ending with a letter or digit",
)
check_key = check_pattern(
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}"),
    "up to 100 letters, digits, underscores, dots, slashes and hyphens, beginning with a letter or digit",
)
check_identifier = check_pattern(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "letters, digits and underscores, not beginning with a digit",
)
check_header_name = check_pattern(re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), "the name of an HTTP header")
check_method = check_pattern(
    re.compile(r"(?i:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)"),
    "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
check_python_reference = check_pattern(re.compile(rf"{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*"), '"module:function"')
check_status_class = check_pattern(re.compile(r"[1-5]xx"), 'a status (200) or a class of statuses ("2xx")')


def check_workflow_name(name: str) -> str | None:
    """Printable, usable as one part of a URL, never mistaken for an id, and of one spelling only."""
    if len(name) > LONGEST_NAME:
        return f"at most {LONGEST_NAME} characters are allowed, not {len(name):,}"
    if not name.isprintable():
        return "must not contain control characters, line breaks or invisible characters"
    if name != name.strip():
        return "must not begin or end with a space"
    found = sorted(_RESERVED.intersection(name))
    if found:
        return f"must not contain {' '.join(found)}"
    if name in (".", ".."):
        return "must not be a path"
    if is_uuid(name):
        return "must not look like an id (a UUID)"
    if not unicodedata.is_normalized("NFC", name):
        return "must be in Unicode normal form C (composed characters)"
    return None


def check_task_name(name: str) -> str | None:
    if len(name) > LONGEST_NAME:
        return f"at most {LONGEST_NAME} characters are allowed, not {len(name):,}"
    if is_uuid(name):
        return "must not look like an id (a UUID)"
    return check_task_pattern(name)


def check_tag(tag: str) -> str | None:
    if not tag.isprintable() or tag != tag.strip() or "," in tag:
        return f"expected printable characters without commas or spaces around them, not {show(tag)}"
    return None


def check_url(url: str) -> str | None:
    """An http or https address. What a template will make of it is checked when it is called."""
    if is_template(url):
        return None
    if any(character.isspace() or not character.isprintable() for character in url):
        return "must not contain spaces or control characters"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        return f"is not a valid address: {error}"
    if parts.scheme not in ("http", "https") or not has_host:
        return f"expected an address that begins with http:// or https:// and names a host, not {show(url)}"
    return None


def check_header_value(value: str) -> str | None:
    return "must not contain line breaks" if "\r" in value or "\n" in value else None


def check_printable(text: str) -> str | None:
    return None if text.isprintable() else "must not contain control characters or line breaks"


def check_instant(text: str) -> str | None:
    """An instant with its offset, as RFC 3339 writes it, or a template that will give one."""
    if is_template(text):
        return None
    try:
        has_offset = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_offset = False
    return None if has_offset else f"expected an instant such as 2030-01-31T08:00:00Z, not {show(text)}"
