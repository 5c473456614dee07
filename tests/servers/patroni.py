"""A private PostgreSQL cluster of three members: Patroni elects the leader through etcd, commits are synchronous."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.worker import proc
from tests.servers.postgres import SUPERUSER, PostgresMissing, as_server_user, find_programs, free_port, server_user

MEMBERS = 3
START_SECONDS = 90.0
# Everything that a failover waits for, as short as Patroni takes it.
TTL_SECONDS = 5
LOOK_SECONDS = 0.1
_PAUSE = threading.Event()


@dataclass
class Member:
    """One machine: Patroni, and the PostgreSQL that it looks after."""

    name: str
    folder: Path
    port: int
    api_port: int
    patroni: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def read_status(self) -> dict[str, Any]:
        """What its Patroni says of it; empty if that is silent."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api_port}/patroni", timeout=2) as answer:
                status: dict[str, Any] = json.loads(answer.read())
                return status
        except (OSError, ValueError):
            return {}

    def find_postmaster(self) -> int | None:
        """The process id of its PostgreSQL, if that is alive."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n")[0])
        except (OSError, ValueError):
            return None
        stat = proc.read_stat(pid)
        return pid if stat is not None and stat[0] != "Z" else None

    def is_gone(self) -> bool:
        return self.find_postmaster() is None

    def kill_postgres(self) -> None:
        """Ends PostgreSQL as a crash would. Its children see that it is gone, and go."""
        pid = self.find_postmaster()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """The machine is gone: nobody says good-bye to anybody."""
        if self.patroni is not None and self.patroni.poll() is None:
            self.patroni.kill()
            self.patroni.wait(10)
        self.kill_postgres()


@dataclass
class PatroniCluster:
    """Three members and an etcd; their data are gone when it is stopped."""

    members: list[Member] = field(default_factory=list)
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    _folder: Path | None = field(default=None, init=False)
    _etcd: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _etcd_port: int = field(default=0, init=False)

    def start(self) -> None:
        """Starts everything and waits until a leader and a synchronous standby are there."""
        if not can_start():
            raise PostgresMissing("there is no Patroni, etcd or PostgreSQL to start: `make failover` installs them")
        atexit.register(self.stop)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="rota-patroni-", dir="/tmp"))
            self._give_away(self._folder)
            self._start_etcd()
            for number in range(1, MEMBERS + 1):
                self.members.append(self._make_member(number))
            for member in self.members:
                self.start_member(member)
            wait_until(self.is_healthy, "a leader and two standbys", START_SECONDS, self.show_logs)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends everything at once, and removes the data."""
        atexit.unregister(self.stop)
        for member in self.members:
            member.kill_all()
        for member in self.members:
            wait_until(member.is_gone, "the end of a server", 20)
        if self._etcd is not None and self._etcd.poll() is None:
            self._etcd.kill()
            self._etcd.wait(10)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def url(self, database: str) -> str:
        """All members; whoever connects looks for the leader."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql://{SUPERUSER}:{self.password}@{hosts}/{database}"

    def find_leader(self) -> Member | None:
        """The member that may write, as its own Patroni has it."""
        for member in self.members:
            status = member.read_status()
            if status.get("role") in ("master", "primary") and status.get("state") == "running":
                return member
        return None

    def is_healthy(self) -> bool:
        """One leads, all others follow, and one of them confirms each commit."""
        leader = self.find_leader()
        if leader is None:
            return False
        followers = [row for row in leader.read_status().get("replication", ()) if row.get("state") == "streaming"]
        return len(followers) == MEMBERS - 1 and any(row.get("sync_state") == "sync" for row in followers)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Runs one statement on the leader, outside any transaction; what psql prints."""
        leader = self.find_leader()
        assert leader is not None
        programs = find_programs()
        assert programs is not None
        command = [str(programs / "psql"), "--host", str(leader.folder), "--port", str(leader.port)]
        command += ["--username", SUPERUSER, "--dbname", database, "--no-psqlrc", "-At", "--set", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [*command, "--command", statement], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def show_logs(self) -> str:
        """The ends of the members' logs."""
        logs = [member.folder / "log" for member in self.members]
        return "\n".join(
            f"--- {log.parent.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs if log.exists()
        )

    def start_member(self, member: Member) -> None:
        """Starts a member, or starts it again: it then follows whoever leads."""
        with (member.folder / "log").open("ab") as log:
            member.patroni = subprocess.Popen(
                as_server_user(["patroni", str(member.folder / "patroni.json")]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=member.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(member.folder)},
                start_new_session=True,
            )

    def _start_etcd(self) -> None:
        assert self._folder is not None
        self._etcd_port = free_port()
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        command = ["etcd", "--name", "one", "--data-dir", str(self._folder / "etcd"), "--logger", "zap"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"]
        with (self._folder / "etcd.log").open("wb") as log:
            self._etcd = subprocess.Popen(
                as_server_user(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )

        def is_up() -> bool:
            try:
                with urllib.request.urlopen(f"{client}/health", timeout=2) as answer:
                    return b"true" in answer.read()
            except OSError:
                return False

        wait_until(is_up, "etcd", START_SECONDS)

    def _make_member(self, number: int) -> Member:
        assert self._folder is not None
        folder = self._folder / f"member{number}"
        folder.mkdir()
        member = Member(f"member{number}", folder, free_port(), free_port())
        file = folder / "patroni.json"
        file.write_text(json.dumps(self._configure(member)))
        self._give_away(folder)
        self._give_away(file)
        return member

    def _configure(self, member: Member) -> dict[str, Any]:
        users = {
            "superuser": {"username": SUPERUSER, "password": self.password},
            "replication": {"username": "follower", "password": self.password},
        }
        parameters = {
            "unix_socket_directories": str(member.folder),
            "max_connections": 100,
            "shared_buffers": "32MB",
            "wal_log_hints": "on",
            # Processes are killed here, no machine loses its power.
            "fsync": "off",
        }
        timing = {"ttl": TTL_SECONDS, "loop_wait": 1, "retry_timeout": 2, "maximum_lag_on_failover": 100_000_000}
        return {
            "scope": "rota",
            "name": member.name,
            "restapi": {"listen": f"127.0.0.1:{member.api_port}", "connect_address": f"127.0.0.1:{member.api_port}"},
            "etcd3": {"host": f"127.0.0.1:{self._etcd_port}"},
            "bootstrap": {
                # A leader that crashed gives way at once, instead of trying to recover first.
                "dcs": {
                    **timing,
                    "primary_start_timeout": 0,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": parameters | {"max_wal_senders": 10}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{member.port}",
                "connect_address": f"127.0.0.1:{member.port}",
                "data_dir": str(member.data),
                "bin_dir": str(find_programs()),
                "authentication": users,
                "parameters": parameters,
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 scram-sha-256",
                    "host replication all 127.0.0.1/32 scram-sha-256",
                ],
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "pgpass": str(member.folder / "pgpass"),
            },
        }

    def _give_away(self, path: Path) -> None:
        user = server_user()
        if user is not None:
            shutil.chown(path, user.pw_uid, user.pw_gid)


def can_start() -> bool:
    """Whether the programs are here."""
    return all(shutil.which(program) for program in ("patroni", "etcd")) and find_programs() is not None


def wait_until(look: Callable[[], bool], what: str, seconds: float, explain: Callable[[], str] = str) -> float:
    """How long it took until `look` said yes; fails after the time, with what `explain` says."""
    began_at = time.monotonic()
    while not look():
        if time.monotonic() - began_at > seconds:
            raise RuntimeError(f"waited {seconds:.0f} s in vain for {what}\n{explain()}")
        _PAUSE.wait(LOOK_SECONDS)
    return time.monotonic() - began_at
