"""annotate: changes what people have written on a run, its note and its labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.domain.errors import InvalidInput, NotFound
from rota.domain.run_labels import find_label_faults
from rota.engine.core import Core
from rota.engine.record import note_run, record
from rota.store import run_labels
from rota.store.database import Transaction
from rota.store.encoding import clean_text


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is to change: the note, unless None; the labels that are named, where None removes one."""

    note: str | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)


async def annotate_run(core: Core, transaction: Transaction, run_id: str, wanted: Annotation, by: str = "") -> None:
    """Changes note and labels of a run in whatever state; the history says who did."""
    row = await run_labels.lock_annotations(transaction, run_id)
    if row is None:
        raise NotFound(f"there is no workflow run {run_id}")
    labels = {**(row.labels or {}), **wanted.labels}
    kept = {key: value for key, value in labels.items() if value is not None}
    faults = find_label_faults(kept)
    if faults:
        raise InvalidInput.of(faults)
    note = row.note if wanted.note is None else clean_text(wanted.note)
    if (note, kept) == (row.note, row.labels or {}):
        return
    await run_labels.annotate(transaction, run_id, row.namespace, note=note, labels=kept)
    details: dict[str, Any] = {"event": "annotated", "note": note, "labels": kept}
    if by:
        details["by"] = by
    await record(core, transaction, [note_run(run_id, row.namespace, row.status, row.status, details)])
