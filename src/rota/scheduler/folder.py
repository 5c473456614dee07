"""A folder of definitions that is applied at the start and watched for changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from rota.authoring.files import Definition, find_files, read_definitions
from rota.domain.errors import InvalidInput, RotaError, Unavailable
from rota.domain.spec import WorkflowSpec
from rota.engine.engine import Engine
from rota.store.audit import Entry, insert_entries
from rota.store.definitions import find_workflow

log = structlog.get_logger(__name__)

WATCH_SECONDS = 2.0
Stamp = tuple[int, int, int]


class FolderDuty:
    """Applies every file that is new or has changed. A broken one is logged, and breaks no other."""

    name = "workflows"
    interval_seconds = WATCH_SECONDS

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._stamps: dict[Path, Stamp] = {}
        self._owners: dict[tuple[str, str], Path] = {}
        # Files that could not be read or applied, with the reasons: shown until they are mended.
        self.import_errors: dict[Path, RotaError] = {}

    async def run_once(self) -> int:
        """How many definitions were new or different."""
        changed = await asyncio.to_thread(self._find_changed)
        return sum([await self._import(path) for path in changed])

    def _find_changed(self) -> list[Path]:
        found = {path: stamp for path in find_files(self._folder) if (stamp := _read_stamp(path)) is not None}
        changed = [path for path, stamp in found.items() if self._stamps.get(path) != stamp]
        for path in self._stamps.keys() - found.keys():
            self._forget(path)
        self._stamps = found
        return changed

    def _forget(self, path: Path) -> None:
        """A file went away; what it defined stays until it is deleted on purpose."""
        self.import_errors.pop(path, None)
        names = [key for key, owner in self._owners.items() if owner == path]
        for key in names:
            del self._owners[key]
        log.info("workflow_file_gone", file=str(path), still_defined=[name for _, name in names])

    async def _import(self, path: Path) -> int:
        try:
            definitions = await asyncio.to_thread(read_definitions, path, now=datetime.now(UTC))
            changed = sum([await self._apply(definition) for definition in definitions])
        except Unavailable:
            # The database is away: this file is taken again in the next round.
            del self._stamps[path]
            raise
        except RotaError as error:
            self._note_failure(path, error)
            return 0
        self.import_errors.pop(path, None)
        return changed

    async def _apply(self, definition: Definition) -> int:
        spec = definition.spec
        owner = self._owners.setdefault((spec.namespace, spec.name), definition.path)
        if owner != definition.path:
            raise InvalidInput(f"workflow {spec.name} is defined in {owner} already: choose another name")
        if "is_active" not in definition.document:
            spec = replace(spec, is_active=await self._is_active(spec))
        defined = await self._engine.apply_workflow(spec)
        if defined.is_new or defined.is_changed:
            entry = Entry(spec.namespace, self._folder.name, "folder", "", "apply_workflow", "workflows", spec.name)
            await self._engine.database.transact(lambda tx: insert_entries(tx, [entry]))
            log.info("workflow_applied", workflow=spec.name, version=defined.version, file=str(definition.path))
        return int(defined.is_new or defined.is_changed)

    async def _is_active(self, spec: WorkflowSpec) -> bool:
        """A file that does not say whether the workflow is active leaves it as it is: a paused one stays paused."""
        found = await self._engine.database.read(
            lambda transaction: find_workflow(transaction, spec.namespace, name=spec.name)
        )
        return found is None or found.is_active

    def _note_failure(self, path: Path, error: RotaError) -> None:
        self.import_errors[path] = error
        for fault in error.errors:
            log.error("import_error", place=fault.field, reason=fault.reason)
        if not error.errors:
            log.error("import_error", place=str(path), reason=error.detail)


def _read_stamp(path: Path) -> Stamp | None:
    """Changes whenever the file does; None if it has just gone."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
