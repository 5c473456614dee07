"""Connecting to PostgreSQL: to the one server, or to that of several which leads at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Dialect, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rota.store.refusals import is_passing

# A server that is down refuses at once; one whose machine is gone says nothing at all.
CONNECT_SECONDS = 5.0


class Hosts:
    """The servers of one address, beginning with the one that was right the last time.

    The driver would do this too, but it gives up at the first server that is just starting.
    """

    def __init__(self) -> None:
        self._first = 0

    def connect(self, dialect: Dialect, _record: Any, arguments: Any, parameters: dict[str, Any]) -> Any:
        """A connection to the server that is as the address asks for; None leaves a single server to SQLAlchemy."""
        hosts, ports = parameters.get("host"), parameters.get("port")
        if not isinstance(hosts, list) or not isinstance(ports, list) or dialect.loaded_dbapi is None:
            return None
        refusals: list[Exception] = []
        for step in range(len(hosts)):
            number = (self._first + step) % len(hosts)
            try:
                connection = dialect.connect(*arguments, **{**parameters, "host": hosts[number], "port": ports[number]})
            except (dialect.loaded_dbapi.Error, OSError) as error:
                refusals.append(error)
            else:
                self._first = number
                return connection
        raise _choose(refusals, [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)])


def _choose(refusals: list[Exception], names: list[str]) -> Exception:
    """What is wrong for good counts more than that nobody leads just now."""
    lasting = next((error for error in refusals if not is_passing(error)), None)
    reasons = "; ".join(f"{name}: {str(error)[:100]}" for name, error in zip(names, refusals, strict=False))
    return lasting or ConnectionError(f"none of the database servers can be used now ({reasons})")


def open_engine(url: str, settings: Mapping[str, str], **options: Any) -> AsyncEngine:
    """An engine for the servers of this address."""
    engine = create_async_engine(
        url,
        # What is stored is the users': it has no place in an error or a log.
        hide_parameters=True,
        connect_args={"server_settings": dict(settings), "timeout": CONNECT_SECONDS},
        **options,
    )
    event.listen(engine.sync_engine, "do_connect", Hosts().connect)
    return engine
