"""Files and folders that are written beside a target, and renamed to it when they are complete.

A process holds a lock on what it writes; the system takes it away when the process ends, also by SIGKILL. Whoever
writes to the same target next removes what nobody holds a lock on, if this user made it on this host.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

_HOST = sha256(socket.gethostname().encode()).hexdigest()[:8]
_NAME_BYTES = 150
"""Bytes of the target's name that are kept, as file systems allow 255."""


@contextlib.contextmanager
def temporary(target: Path, *, folder: bool = False) -> Iterator[tuple[int, Path]]:
    """Make a file, or a folder, beside a target; yield a descriptor of it and its path.

    It is removed at the end, unless it was renamed. Raises `OSError`.
    """
    kept = os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES])
    prefix = f".{kept}.{_HOST}-"
    _remove_left(target.parent, prefix)
    handle, path = _made(target.parent, prefix, folder)
    try:
        yield handle, path
    finally:
        _remove(path)
        os.close(handle)


def _made(parent: Path, prefix: str, folder: bool) -> tuple[int, Path]:
    while True:
        path = parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}.part"
        if folder:
            path.mkdir(0o700)
        flags = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # no locks on this file system: then nobody removes it either
            fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle, path
        os.close(handle)  # another process has removed it, before it was locked


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove what processes that were killed have left."""
    try:
        left = [Path(entry) for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:  # a folder that may be written but not listed
        return
    for path in left:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)
            finally:
                os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
