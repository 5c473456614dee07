"""Every setting: its name, what it takes and where it may be given. Flags over environment over file over defaults."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from rota.domain.errors import FieldError, InvalidInput
from rota.settings.addresses import normalize_database_url
from rota.settings.capacity import CapacitySettings
from rota.settings.values import (
    describe,
    read_choice,
    read_count,
    read_duration,
    read_folders,
    read_labels,
    read_networks,
    read_path,
    read_port,
    read_servers,
    read_share,
    read_some,
    read_text,
    read_words,
)

PREFIX = "ROTA_"
FILE_NAME = "rota.toml"
LOG_LEVELS = ("debug", "info", "warning", "error")
KINDS = ("shell", "http", "python", "container")
LOG_FORMATS = ("auto", "json", "console")


def find_data_directory() -> Path:
    """Where data lie when nothing is said: the user's own place for data."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "share") / "rota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CapacitySettings):
    """What one process goes by."""

    host: str = field(default="127.0.0.1", metadata=describe(read_text, "address that the API listens on"))
    port: int = field(
        default=8080, metadata=describe(read_port, "port of the API; 0 takes a free one", "HTTP_PORT", "PORT")
    )
    data_dir: Path = field(
        default_factory=find_data_directory, metadata=describe(read_path, "folder of the SQLite file", "DATA_DIR")
    )
    database_url: str = field(
        default="",
        metadata=describe(
            read_text, "PostgreSQL, or another SQLite file; empty: `rota.db` in the data folder", "DATABASE_URL"
        ),
    )
    db_max_open_conns: int = field(
        default=10,
        metadata=describe(read_count(2, 1000), "most connections to PostgreSQL of one process", "DB_MAX_OPEN_CONNS"),
    )
    workflows: Path | None = field(
        default=None, metadata=describe(read_path, "folder of definitions to apply and to watch")
    )
    workers: int = field(default=1, metadata=describe(read_count(0, 64), "workers inside `rota up`; 0: none"))
    server: tuple[str, ...] = field(
        default=("http://127.0.0.1:8080",),
        metadata=describe(read_servers, "addresses of API nodes, for workers and the command line"),
    )
    join: tuple[str, ...] = field(
        default=(),
        metadata=describe(read_servers, "addresses of nodes that a starting node tells of itself"),
    )
    discovery: str = field(
        default="static",
        metadata=describe(
            read_choice(("static", "dns", "kubernetes", "gossip")),
            "how workers, the command line and joining nodes find API nodes: `static` goes by `server`",
            "DISCOVERY_STRATEGY",
        ),
    )
    discovery_name: str = field(
        default="rota",
        metadata=describe(
            read_text, "DNS name (SRV if it begins with `_`), Kubernetes service, or value of the Serf tag `role`"
        ),
    )
    discovery_port: int = field(
        default=8080, metadata=describe(read_port, "port of the API nodes that are found, where nothing tells it")
    )
    discovery_address: str = field(
        default="",
        metadata=describe(read_text, "`host:port` of the resolver or the Serf agent that is asked; empty: the usual"),
    )
    discovery_key: str = field(default="", metadata=describe(read_text, "what the Serf agent wants to be shown"))
    health_failure_threshold: float = field(
        default=0.1,
        metadata=describe(
            read_share,
            "share of failed tasks of the last minutes above which `/health` says 503; 1: never",
            "HEALTH_FAILURE_THRESHOLD",
        ),
    )
    token: str = field(
        default="",
        repr=False,
        metadata=describe(read_text, "key that the API asks for, and that workers and the command line show"),
    )
    secret_key: str = field(
        default="", repr=False, metadata=describe(read_text, "keys that encrypt secrets; the first one is for new ones")
    )
    secret_key_file: Path | None = field(
        default=None,
        metadata=describe(
            read_path, "file with these keys; default: `secret.key` beside a SQLite file, made when it is missing"
        ),
    )
    worker_id: str = field(
        default_factory=socket.gethostname, metadata=describe(read_text, "name of a worker", "WORKER_ID")
    )
    concurrency: int = field(
        default=16, metadata=describe(read_count(1, 100_000), "tasks that one worker executes at once")
    )
    queues: tuple[str, ...] = field(
        default=("default",), metadata=describe(read_words, "queues that a worker takes from")
    )
    labels: Mapping[str, str] = field(
        default_factory=dict,
        metadata=describe(read_labels, "what a worker offers, as `name=value` with commas between"),
    )
    grace_seconds: float = field(
        default=10.0, metadata=describe(read_duration(0, 3600), "between TERM and KILL of a task's processes")
    )
    drain_seconds: float = field(
        default=30.0, metadata=describe(read_duration(0, 86_400), "how long a stopping worker lets its tasks go on")
    )
    http_allow: tuple[str, ...] = field(
        default=(),
        metadata=describe(
            read_networks, "private address ranges that HTTP tasks and waits for HTTP may reach, such as `10.0.0.0/8`"
        ),
    )
    kinds: tuple[str, ...] = field(
        default=(),
        metadata=describe(read_some(KINDS), "kinds of tasks that a worker takes; empty: all that it can"),
    )
    python_path: tuple[str, ...] = field(
        default=(".",),
        metadata=describe(read_folders, "folders with the modules of Python tasks, with colons between"),
    )
    python_processes: int = field(
        default=0,
        metadata=describe(read_count(0, 10_000), "most warm Python processes of a worker; 0: as many as `concurrency`"),
    )
    log_head_kb: int = field(
        default=1024, metadata=describe(read_count(0, 1_048_576), "KB kept of the beginning of an attempt's log")
    )
    log_tail_kb: int = field(
        default=1024, metadata=describe(read_count(0, 1_048_576), "KB kept of the end of an attempt's log")
    )
    container_socket: str = field(
        default="",
        metadata=describe(
            read_text, "socket of Docker or Podman, such as `/run/podman/podman.sock`; empty: no container tasks"
        ),
    )
    kubernetes_url: str = field(
        default="",
        metadata=describe(
            read_text, "Kubernetes API that container tasks run in, such as `https://kubernetes.default`"
        ),
    )
    kubernetes_namespace: str = field(
        default="default", metadata=describe(read_text, "Kubernetes namespace of the Jobs")
    )
    kubernetes_token_file: str = field(
        default="",
        metadata=describe(
            read_text, "file with the token for Kubernetes, read anew for each request; empty: the pod's"
        ),
    )
    kubernetes_ca_file: str = field(
        default="", metadata=describe(read_text, "file with the authority of Kubernetes' certificate; empty: the pod's")
    )
    lease_seconds: float = field(
        default=30.0,
        metadata=describe(
            read_duration(3, 3600),
            "how long the work of a worker that fell silent is still its own",
            "JOB_INPROGRESS_TIMEOUT",
        ),
    )
    slot_gap_seconds: float = field(
        default=10.0,
        metadata=describe(read_duration(0.1, 60), "longest time between two looks at the schedules", "SLOT_GAP"),
    )
    retention_seconds: float = field(
        default=30 * 86_400.0,
        metadata=describe(
            read_duration(60, 100 * 366 * 86_400),
            "how long runs and their logs are kept after their end",
            "EXECUTION_HISTORY_RETENTION",
        ),
    )
    redis_url: str = field(
        default="", metadata=describe(read_text, "Redis that gets all events, such as `redis://127.0.0.1:6379/0`")
    )
    event_webhooks: tuple[str, ...] = field(
        default=(), metadata=describe(read_servers, "addresses that get all events, signed, with commas between")
    )
    event_webhook_secret: str = field(
        default="",
        repr=False,
        metadata=describe(read_text, "what events to `event_webhooks` are signed with: `whsec_…`"),
    )
    audit_retention_seconds: float = field(
        default=366 * 86_400.0,
        metadata=describe(read_duration(60, 100 * 366 * 86_400), "how long entries of the audit log are kept"),
    )
    rate_limit: int | None = field(
        default=None,
        metadata=describe(
            read_count(0, 1_000_000),
            "requests a second of one key, and of one address; 0: no limit; default: none on loopback, 200 elsewhere",
        ),
    )
    tls_cert: Path | None = field(
        default=None, metadata=describe(read_path, "file with the certificate, and those above it, for HTTPS")
    )
    tls_key: Path | None = field(default=None, metadata=describe(read_path, "file with the key of `tls_cert`"))
    oidc_issuer: str = field(
        default="", metadata=describe(read_text, "address of an OIDC issuer whose tokens are accepted")
    )
    oidc_audience: str = field(default="rota", metadata=describe(read_text, "audience that such a token must name"))
    oidc_name_claim: str = field(default="sub", metadata=describe(read_text, "claim with the name of the caller"))
    oidc_role_claim: str = field(
        default="rota_role", metadata=describe(read_text, "claim with the role, or with groups; dots lead inside")
    )
    oidc_roles: Mapping[str, str] = field(
        default_factory=dict,
        metadata=describe(read_labels, "roles of groups, as `group=role` with commas between; empty: groups are roles"),
    )
    oidc_namespaces_claim: str = field(
        default="", metadata=describe(read_text, "claim with the namespaces; empty: everywhere")
    )
    node_id: str = field(
        default_factory=socket.gethostname, metadata=describe(read_text, "name of this node in its logs", "NODE_ID")
    )
    metrics_port: int | None = field(
        default=None,
        metadata=describe(
            read_port,
            "port of `/metrics` and `/healthz`; 0: none; default: 9090 of a scheduler and 9091 of a worker, if free",
            "METRICS_PORT",
        ),
    )
    log_level: str = field(
        default="info", metadata=describe(read_choice(LOG_LEVELS), "least urgent line that is logged", "LOG_LEVEL")
    )
    log_format: str = field(
        default="auto", metadata=describe(read_choice(LOG_FORMATS), "`auto`: console on a terminal, JSON elsewhere")
    )


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting as the user meets it."""

    name: str
    field_name: str
    about: str
    aliases: tuple[str, ...]
    read: Callable[[object], Any]
    # It is not shown, not even when it is wrong.
    is_hidden: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables, the one that counts first."""
        return (PREFIX + self.name.upper(), *self.aliases)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def list_settings() -> tuple[SettingInfo, ...]:
    """Every setting there is."""
    return tuple(_describe(item) for item in fields(Settings))


def _describe(item: Field[Any]) -> SettingInfo:
    meta = item.metadata
    name = item.name.removesuffix("_seconds")
    return SettingInfo(name, item.name, meta["about"], meta["aliases"], meta["read"], not item.repr)


def load_settings(flags: Mapping[str, object], environment: Mapping[str, str], *, file: Path | None = None) -> Settings:
    """Reads all sources; one InvalidInput names every wrong value with its source. A flag of None was not given."""
    path = file or _find_file(environment)
    document = _read_file(path) if path else {}
    known = {info.name: info for info in list_settings()}
    errors = [
        FieldError(f"{path}: {name}", f"is not a setting; known are {', '.join(sorted(known))}")
        for name in document
        if name not in known
    ]
    values: dict[str, Any] = {}
    for info in known.values():
        found = next(_find_given(info, flags, environment, document, path), None)
        if found is None:
            continue
        source, given = found
        try:
            values[info.field_name] = info.read(given)
        except ValueError as problem:
            shown = "what was given" if info.is_hidden else repr(given)
            errors.append(FieldError(source, f"{shown} is not allowed; {problem}"))
    if errors:
        raise InvalidInput.of(errors)
    return Settings(**values)


def _find_given(
    info: SettingInfo,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    document: Mapping[str, object],
    path: Path | None,
) -> Iterator[tuple[str, object]]:
    """Where the setting is given, the source that counts most first."""
    if flags.get(info.name) not in (None, ()):
        yield info.flag, flags[info.name]
    for variable in info.variables:
        if environment.get(variable, "") != "":
            yield variable, environment[variable]
    if info.name in document:
        yield f"{path}: {info.name}", document[info.name]


def _find_file(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(PREFIX + "CONFIG", "")
    if named:
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME", "") or str(Path.home() / ".config")
    places = (Path(FILE_NAME), Path(home) / "rota" / FILE_NAME)
    return next((place for place in places if place.is_file()), None)


def _read_file(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidInput.of([FieldError(str(path), f"cannot be read: {problem.strerror}")]) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidInput.of([FieldError(str(path), f"is not TOML: {problem}")]) from problem


def choose_database_url(settings: Settings) -> str:
    """The database that these settings mean."""
    if settings.database_url:
        return normalize_database_url(settings.database_url)
    return f"sqlite:///{(settings.data_dir / 'rota.db').absolute()}"


def find_database_file(url: str) -> Path | None:
    """The file of a database that is one; None for a server."""
    scheme, _, path = url.partition(":///")
    return Path(path.partition("?")[0]) if scheme.startswith("sqlite") and path and path != ":memory:" else None


def hide_password(url: str) -> str:
    """The database's address as it may be shown."""
    file = find_database_file(url)
    if file is not None:
        return str(file)
    scheme, _, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    return f"{scheme.partition('+')[0]}://{credentials.partition(':')[0]}{at}{place}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    return host in ("localhost", "::1") or host.startswith("127.")
