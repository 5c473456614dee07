"""Labels: what people write on a run to find it by."""

from __future__ import annotations

from collections.abc import Mapping

from rota.domain.errors import FieldError

MAX_LABELS = 50
MAX_KEY = 63
MAX_VALUE = 200


def find_label_faults(labels: Mapping[str, str]) -> list[FieldError]:
    """What is wrong with these labels, one fault for each."""
    faults = []
    if len(labels) > MAX_LABELS:
        faults.append(FieldError("labels", f"at most {MAX_LABELS} labels are allowed, not {len(labels)}"))
    for key, value in list(labels.items())[:MAX_LABELS]:
        reason = find_key_fault(key) or _find_value_fault(value)
        if reason is not None:
            shown = "".join(character if character.isprintable() else "\ufffd" for character in key[:MAX_KEY])
            faults.append(FieldError(f"labels.{shown}", reason))
    return faults


def find_key_fault(key: str) -> str | None:
    """Why this cannot be the key of a label, or None."""
    if not 0 < len(key) <= MAX_KEY or key != key.strip() or ":" in key or not key.isprintable():
        return f"a key has 1 to {MAX_KEY} printable characters, no colon, and no space at either end"
    return None


def _find_value_fault(value: str) -> str | None:
    if len(value) > MAX_VALUE or not value.isprintable():
        return f"a value has at most {MAX_VALUE} printable characters"
    return None
