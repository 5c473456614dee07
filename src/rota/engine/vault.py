"""The keys that secrets are encrypted with: AES-256-GCM, bound to the place where the secret is kept."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rota.domain.errors import Conflict

KEY_BYTES = 32
NONCE_BYTES = 12
HOW_TO_NAME = "ROTA_SECRET_KEY or the file that ROTA_SECRET_KEY_FILE names"
WANTED = f"expected keys of {KEY_BYTES} bytes in base64, with commas or line breaks between; the first one encrypts"


class Sealed(NamedTuple):
    """An encrypted value, and the key that opens it."""

    key_id: str
    ciphertext: str


class CannotOpen(Exception):
    """A sealed value stays closed; says why."""


class Vault:
    """Encrypts with the first of its keys and decrypts with all. Without any, there are no secrets."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers: Mapping[str, AESGCM] = {name_key(key): AESGCM(key) for key in keys}
        self._first = name_key(keys[0]) if keys else None

    def __repr__(self) -> str:
        return f"Vault({', '.join(self._ciphers)})"

    @property
    def key_id(self) -> str:
        """The key that encrypts. Raises Conflict where there is none."""
        if self._first is None:
            raise Conflict(
                f"this server has no key to encrypt secrets with: give all nodes the same one in {HOW_TO_NAME} "
                "(`rota secret new-key` makes one)",
                code="no_secret_key",
            )
        return self._first

    def seal(self, namespace: str, name: str, value: str) -> Sealed:
        """Raises Conflict where there is no key."""
        key_id = self.key_id
        nonce = os.urandom(NONCE_BYTES)
        closed = self._ciphers[key_id].encrypt(nonce, value.encode(), _place(namespace, name))
        return Sealed(key_id, base64.b64encode(nonce + closed).decode())

    def open(self, namespace: str, name: str, sealed: Sealed) -> str:
        """The value. Raises CannotOpen."""
        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            raise CannotOpen(
                f"secret {name} is encrypted with the key {sealed.key_id}, which this server does not have: add that "
                f"key to {HOW_TO_NAME}"
            )
        try:
            content = base64.b64decode(sealed.ciphertext, validate=True)
            return cipher.decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], _place(namespace, name)).decode()
        except (InvalidTag, binascii.Error, ValueError) as error:
            raise CannotOpen(f"secret {name} was changed or moved in the database: put it again") from error


def name_key(key: bytes) -> str:
    """A key's id, which says nothing about the key."""
    return hashlib.sha256(b"rota secret key " + key).hexdigest()[:16]


def read_keys(text: str) -> tuple[bytes, ...]:
    """The keys in a setting or a file. Raises ValueError, which does not repeat what was given."""
    try:
        keys = tuple(base64.b64decode(word, altchars=b"-_", validate=True) for word in text.replace(",", " ").split())
    except (binascii.Error, ValueError):
        raise ValueError(WANTED) from None
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(WANTED)
    return keys


def write_new_key() -> str:
    """A fresh key, as `read_keys` takes it."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def _place(namespace: str, name: str) -> bytes:
    return f"{namespace}/{name}".encode()
