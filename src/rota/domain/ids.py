"""Identifiers: UUIDv7, ordered by time, so that new rows go to the right edge of every index."""

from __future__ import annotations


def make_uuid7(milliseconds: int, randomness: bytes) -> str:
    """The UUIDv7 (RFC 9562) for a Unix time in milliseconds and ten random bytes."""
    value = milliseconds & ((1 << 48) - 1)
    tail = int.from_bytes(randomness[:10], "big")
    number = (value << 80) | (0x7 << 76) | (((tail >> 62) & 0xFFF) << 64) | (0b10 << 62) | (tail & ((1 << 62) - 1))
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_uuid(text: str) -> bool:
    """Whether this is an identifier in its canonical form (and so not a name)."""
    if len(text) != 36 or text[8] != "-" or text[13] != "-" or text[18] != "-" or text[23] != "-":
        return False
    digits = text.replace("-", "")
    return len(digits) == 32 and all(character in "0123456789abcdefABCDEF" for character in digits)
