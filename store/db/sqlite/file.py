"""Files that may be SQLite databases, looked at and made without harm to whoever has them open in this process.

A process loses all its POSIX locks on a file when it closes any descriptor of it
(https://sqlite.org/howtocorrupt.html, 2.2). Another process takes itself for the last one then, and deletes the
write-ahead log in use. SQLite knows which of its connections share a file, and waits with closing: so a file that may
be a database is opened by SQLite alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
from pathlib import Path
from urllib.parse import quote


def uri(path: str | os.PathLike[str]) -> str:
    """The path as SQLite's URIs have it, without options."""
    return f"file://{quote(os.fsencode(os.path.abspath(path)))}"


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file that is a database, damaged or not. Raises `OSError` where it cannot be looked at."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return False
    if not os.access(path, os.R_OK):
        raise PermissionError(13, "Permission denied", str(path))
    try:
        with contextlib.closing(sqlite3.connect(f"{uri(path)}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:  # what else is wrong with it, or that it is gone by now, opening it will tell
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True


def make(path: str | os.PathLike[str]) -> None:
    """Make an empty file, which is an empty database, where there is none. Raises `OSError`."""
    new = Path(f"{os.fspath(path)}.{secrets.token_hex(4)}.new")
    new.touch()
    try:
        os.link(new, path)  # nobody has it open by this name when its descriptor is closed
    except FileExistsError:
        pass
    except OSError:  # not on every file system
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    finally:
        new.unlink()
