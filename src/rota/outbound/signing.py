"""Signatures of outgoing requests after the Standard Webhooks specification."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix of every such secret


def decode_secret(secret: str) -> bytes:
    """The key of a secret: base64 behind `whsec_`; a secret that is not base64 is taken as it stands."""
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = text.encode()
    if not key:
        raise ValueError("http.secret: must not be empty")
    return key


def sign(secrets: str, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers. Several secrets, separated by blanks, sign side by side while one replaces another."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = [
        "v1," + base64.b64encode(hmac.new(decode_secret(secret), signed, hashlib.sha256).digest()).decode()
        for secret in secrets.split()
    ]
    if not signatures:
        raise ValueError("http.secret: must not be empty")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
