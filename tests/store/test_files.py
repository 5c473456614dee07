"""SQLite files that cannot be used, and servers that cannot be reached: a clear error, and not a byte is changed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.domain.errors import Unavailable
from rota.store import migrate

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.fixture
def database_file(tmp_path: Path, sqlite_template: Path) -> Path:
    shutil.copytree(sqlite_template, tmp_path / "data")
    return tmp_path / "data" / "rota.db"


@pytest.mark.parametrize("verb", [migrate.check, migrate.upgrade, migrate.read_version])
@pytest.mark.parametrize(
    "content",
    [b"This is a letter to my grandmother.\n" * 500, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 8000],
    ids=["letter", "zeros", "header only"],
)
def test_a_file_that_is_no_database(tmp_path: Path, verb, content: bytes):
    path = tmp_path / "rota.db"
    path.write_bytes(content)
    with pytest.raises(Unavailable) as caught:
        verb(_url(path))
    assert caught.value.code == "database_unusable"
    assert str(path) in caught.value.detail
    assert _bytes(tmp_path) == {"rota.db": content}


@pytest.mark.parametrize("verb", [migrate.check, migrate.upgrade])
def test_a_damaged_database(database_file: Path, verb):
    """The first page is lost: nothing can be known of the rest."""
    content = database_file.read_bytes()
    database_file.write_bytes(b"\xde\xad\xbe\xef" * 1024 + content[4096:])
    before = _bytes(database_file.parent)
    with pytest.raises(Unavailable) as caught:
        verb(_url(database_file))
    assert caught.value.code == "database_unusable"
    assert _bytes(database_file.parent) == before


def test_a_database_whose_tables_are_damaged(database_file: Path):
    """The schema itself is damaged behind a header that is fine."""
    content = database_file.read_bytes()
    database_file.write_bytes(content[:100] + b"\xff" * 3000 + content[3100:])
    before = _bytes(database_file.parent)
    with pytest.raises(Unavailable) as caught:
        migrate.check(_url(database_file))
    assert caught.value.code == "database_unusable"
    assert _bytes(database_file.parent) == before


def test_looking_at_a_missing_file_does_not_make_it(tmp_path: Path):
    path = tmp_path / "rota.db"
    with pytest.raises(Unavailable) as caught:
        migrate.check(_url(path))
    assert caught.value.code == "database_older"
    assert not path.exists()


def test_a_folder_that_does_not_exist(tmp_path: Path):
    path = tmp_path / "missing" / "rota.db"
    with pytest.raises(Unavailable, match="folder") as caught:
        migrate.upgrade(_url(path))
    assert caught.value.code == "database_unusable"
    assert not path.parent.exists()


CODE = """
import asyncio, os, sys
from sqlalchemy import text
from rota.domain.errors import Unavailable
from rota.store import migrate
from rota.store.database import Database, DatabaseOptions

async def write(url):
    database = Database(DatabaseOptions(url))
    try:
        await database.transact(lambda tx: tx.run(text("DELETE FROM pools")))
    finally:
        await database.close()

target, warm_up, nobody = sys.argv[1], sys.argv[2], int(sys.argv[3])
# Everything is loaded while this may still be read.
migrate.upgrade(warm_up)
asyncio.run(write(warm_up))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(nobody)
    os.setuid(nobody)
try:
    migrate.upgrade(target)
    asyncio.run(write(target))
except Unavailable as error:
    print(error.code, error.detail)
else:
    print("fine")
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter: root may write everything, so these tests step down."""
    with tempfile.TemporaryDirectory(prefix="rota-read-only-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _upgrade_as_nobody(path: Path, warm_up: Path) -> str:
    command = [sys.executable, "-c", CODE, _url(path), _url(warm_up), str(NOBODY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("state", ["migrated", "empty"])
def test_a_read_only_file(open_folder: Path, tmp_path: Path, database_file: Path, state: str):
    path = open_folder / "rota.db"
    shutil.copy(database_file, path)
    if state == "empty":
        migrate.downgrade(_url(path), "base")
    path.chmod(0o444)
    open_folder.chmod(0o555)
    before = _bytes(open_folder)
    answer = _upgrade_as_nobody(path, tmp_path / "other.db")
    assert answer.startswith("database_unusable "), answer
    assert "read-only" in answer or "may write" in answer
    assert str(path) in answer
    assert _bytes(open_folder) == before
    open_folder.chmod(0o755)


def test_a_folder_that_may_not_be_written(open_folder: Path, tmp_path: Path):
    open_folder.chmod(0o555)
    answer = _upgrade_as_nobody(open_folder / "rota.db", tmp_path / "other.db")
    assert answer.startswith("database_unusable "), answer
    assert "may write" in answer
    assert _bytes(open_folder) == {}
    open_folder.chmod(0o755)


def test_a_server_that_cannot_be_reached():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable) as caught:
            migrate.check(f"postgresql+asyncpg://nobody:secret-word@127.0.0.1:{port}/rota")
    assert caught.value.code == "database_unusable"
    assert "secret-word" not in caught.value.detail


@pytest.mark.parametrize("part", ["password", "database"])
def test_a_server_that_refuses(postgres, part: str):
    url = postgres.url("postgres") if part == "password" else postgres.url("missing_database")
    if part == "password":
        url = url.replace(postgres.password, "wrong-word")
    with pytest.raises(Unavailable) as caught:
        migrate.check(url)
    assert caught.value.code == "database_unusable"
    assert postgres.password not in caught.value.detail
