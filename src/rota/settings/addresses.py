"""Addresses of databases, as people write them and as the driver takes them."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode

from rota.domain.errors import FieldError, InvalidInput

DEFAULT_PORT = "5432"
# Among several servers the one that can be written to is meant.
LEADING = "read-write"


def normalize_database_url(url: str) -> str:
    """The URL with the driver that Rota uses, whichever the common spellings say."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidInput.of(
            [FieldError("database_url", f"{url!r} is not allowed; send postgresql://user:password@host/name")]
        )
    drivers = {
        **dict.fromkeys(("postgres", "postgresql", "postgresql+asyncpg"), "postgresql+asyncpg"),
        **dict.fromkeys(("sqlite", "sqlite+aiosqlite"), "sqlite"),
    }
    if scheme not in drivers:
        raise InvalidInput.of(
            [
                FieldError(
                    "database_url", f"{scheme!r} is not a database that Rota knows; use postgresql:// or sqlite://"
                )
            ]
        )
    if drivers[scheme] == "sqlite":
        return f"sqlite://{rest}"
    try:
        return f"{drivers[scheme]}://{spread_hosts(rest)}"
    except ValueError as problem:
        raise InvalidInput.of([FieldError("database_url", f"the address is not allowed; {problem}")]) from None


def spread_hosts(rest: str) -> str:
    """What follows `postgresql://`: `user@h1:5432,h2/db` in the form that names each host apart, and the driver's own
    word for `sslmode`. Raises ValueError, saying what to send, for a port that is none."""
    place, question, query = rest.partition("?")
    before, at, where = place.rpartition("@")
    hosts, slash, name = where.partition("/")
    options = [("ssl" if key == "sslmode" else key, value) for key, value in parse_qsl(query)]
    if "," in hosts:
        pairs = [_split(host) for host in hosts.split(",")]
        options += [("host", ",".join(host for host, _ in pairs)), ("port", ",".join(port for _, port in pairs))]
        if "target_session_attrs" not in dict(options):
            options.append(("target_session_attrs", LEADING))
        hosts = ""
    elif not question:
        return rest
    return f"{before}{at}{hosts}{slash}{name}?{urlencode(options, safe=',:/', quote_via=quote)}"


def _split(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, DEFAULT_PORT
    if not name or not port.isdigit():
        raise ValueError("send several servers as postgresql://user:password@host1:5432,host2:5432/name")
    return name.strip("[]"), port
