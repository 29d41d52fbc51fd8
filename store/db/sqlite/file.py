"""Checking and creating SQLite files without breaking locks of this process.

A process loses all its POSIX locks on a file when it closes any descriptor of it (https://sqlite.org/howtocorrupt.html,
2.2). Another process may then delete the write-ahead log in use. SQLite knows which of its connections share a file and
delays closing, so only SQLite opens a file that may be a database.
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
    """Return a path as an SQLite URI without options."""
    return f"file://{quote(os.fsencode(os.path.abspath(path)))}"


def is_database(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a database, damaged or not. Raises `OSError` if it cannot be read."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return False
    if not os.access(path, os.R_OK):
        raise PermissionError(13, "Permission denied", str(path))
    try:
        with contextlib.closing(sqlite3.connect(f"{uri(path)}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:  # opening it will report any other problem
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True


def store_of(target: Path) -> Path | None:
    """Return the store that a path is part of: the file itself, its write-ahead log or its spool folder."""
    stores = [target]
    for part, suffixes in ((target, ("-wal", "-shm", "-journal")), (target.parent, ("-spool",))):
        stores += [part.with_name(part.name[: -len(end)]) for end in suffixes if part.name[1:].endswith(end)]
    for store in stores:
        with contextlib.suppress(OSError):
            if is_database(store):
                return store
    return None


def make(path: str | os.PathLike[str]) -> None:
    """Create an empty file, which is an empty database, unless it exists. Raises `OSError`.

    Its mode is 0600, in a setgid folder 0660, for any umask. SQLite gives its journal the same one.
    """
    new = f"{os.fspath(path)}.{secrets.token_hex(4)}.new"
    _create(new)
    try:
        os.link(new, path)  # no process has it open under this name yet
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links
        with contextlib.suppress(FileExistsError):
            _create(path)
    finally:
        os.unlink(new)


def _create(path: str | os.PathLike[str]) -> None:
    shared = os.stat(os.path.dirname(os.path.abspath(path))).st_mode & stat.S_ISGID
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        if shared:
            os.chmod(path, 0o660)
    finally:
        os.close(handle)
