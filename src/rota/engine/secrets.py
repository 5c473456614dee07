"""put_secret, rotate_secrets: values that only tasks see."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec_names import check_identifier
from rota.engine.core import Core
from rota.engine.vault import CannotOpen, Sealed
from rota.store import secrets
from rota.store.database import Transaction
from rota.store.secrets import SealedRow

LONGEST_NAME = 100
LONGEST_VALUE = 65_536
ROTATED_AT_ONCE = 500
# Shorter lines of a value with many, such as a lone bracket, are no secret.
SHORTEST_MASKED_LINE = 8
# By namespace and name.
SecretPlace = tuple[str, str]
FIRST_PLACE: SecretPlace = ("", "")


@dataclass(frozen=True, slots=True)
class RotateReport:
    """What became of one batch; those that no key opens stay as they are."""

    rotated: int
    unreadable: tuple[SecretPlace, ...]
    # Where the next batch begins.
    after: SecretPlace | None = None


async def put_secret(core: Core, transaction: Transaction, namespace: str, name: str, value: str) -> bool:
    """Keeps a secret; True if it is new. Raises InvalidInput, or Conflict where there is no key to encrypt it with."""
    errors = list(check_secret(name, value))
    if errors:
        raise InvalidInput.of(errors)
    sealed = core.vault.seal(namespace, name, value)
    return await secrets.put_secret(transaction, SealedRow(namespace, name, *sealed))


def check_secret(name: str, value: str) -> Iterable[FieldError]:
    """What is wrong with a secret; no reason repeats the value."""
    fault = check_identifier(name)
    if len(name) > LONGEST_NAME:
        fault = f"at most {LONGEST_NAME} characters are allowed, not {len(name):,}"
    if fault is not None:
        yield FieldError("name", fault)
    if not 0 < len(value.encode()) <= LONGEST_VALUE:
        yield FieldError("value", f"expected 1 to {LONGEST_VALUE:,} bytes")
    if "\0" in value:
        yield FieldError("value", "must not contain a NUL character")


async def rotate_secrets(core: Core, transaction: Transaction, after: SecretPlace = FIRST_PLACE) -> RotateReport:
    """Encrypts with the first key what is encrypted with another, one batch of it."""
    key_id = core.vault.key_id
    rows = await secrets.find_stale(transaction, key_id, after=after, limit=ROTATED_AT_ONCE)
    renewed: list[SealedRow] = []
    unreadable: list[SecretPlace] = []
    for row in rows:
        try:
            value = core.vault.open(row.namespace, row.name, Sealed(row.key_id, row.ciphertext))
        except CannotOpen:
            unreadable.append((row.namespace, row.name))
            continue
        renewed.append(SealedRow(row.namespace, row.name, *core.vault.seal(row.namespace, row.name, value)))
    await secrets.reseal(transaction, renewed)
    last = rows[-1] if len(rows) == ROTATED_AT_ONCE else None
    return RotateReport(len(renewed), tuple(unreadable), None if last is None else (last.namespace, last.name))


async def read_secrets(
    core: Core, transaction: Transaction, places: Collection[SecretPlace]
) -> dict[SecretPlace, str | CannotOpen]:
    """The values of these secrets as they are now, or why one cannot be read; what is missing is left out."""
    found: dict[SecretPlace, str | CannotOpen] = {}
    for row in await secrets.read_sealed(transaction, sorted(places)):
        place = (row.namespace, row.name)
        try:
            found[place] = core.vault.open(*place, Sealed(row.key_id, row.ciphertext))
        except CannotOpen as error:
            found[place] = error
    return found


def choose_secrets(
    namespace: str, names: Iterable[str], known: Mapping[SecretPlace, str | CannotOpen]
) -> dict[str, str]:
    """The values of the secrets that a task names. Raises LookupError with the reason for one that it cannot have."""
    chosen = {}
    for name in sorted(names):
        value = known.get((namespace, name))
        if value is None:
            raise LookupError(f"there is no secret {name} in namespace {namespace}: put it, then try again")
        if isinstance(value, CannotOpen):
            raise LookupError(str(value))
        chosen[name] = value
    return chosen


def list_masks(values: Iterable[str]) -> tuple[str, ...]:
    """What must not be seen in a log: the values, as JSON writes them, too, and the lines of those with many."""
    masks: dict[str, None] = {}
    for value in values:
        lines = value.splitlines() if "\n" in value.strip() else ()
        written = json.dumps(value, ensure_ascii=False)[1:-1]
        masks |= dict.fromkeys((value, written, *(line for line in lines if len(line) >= SHORTEST_MASKED_LINE)))
        # A value from a file has a line break at its end, which a program that prints it may leave out.
        masks |= dict.fromkeys(part for part in (value.rstrip("\r\n"),) if part)
    return tuple(masks)


def mask(text: str, masks: Iterable[str]) -> str:
    """The text without these."""
    for hidden in sorted(masks, key=len, reverse=True):
        text = text.replace(hidden, "***")
    return text
