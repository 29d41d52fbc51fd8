"""Files that are computed from the events of an experiment, for questions. They are not part of the log.

They lie in `STORE-projection` beside an SQLite file, else in the cache of the user: `MESSAGER_CACHE`, or
`~/.cache/messager`, which has a limit. A redaction or removal deletes the folder of its experiment without knowing its
content.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from pathlib import Path
from uuid import uuid4

from ..errors import StoreError
from .database import Database
from .state_folder import cache

_DELETED = ".deleted"
_OWN = re.compile(r"[0-9a-f]{16}/[0-9]+", re.A)
"""Folders of projections in the cache: the store (`cache_folder`), and the id of the experiment."""
LIMIT_MB = 10_000
"""Megabytes of the cache of the user, unless `MESSAGER_CACHE_MB` says otherwise."""


def folders(database: Database, experiment_id: int) -> list[Path]:
    """Return the folders in which files of an experiment may be; the first one that can be written is used."""
    return [Path(folder, str(experiment_id)) for folder in database.dialect.derived_folders]


def mode_of(database: Database) -> int:
    """Return the mode of files: that of the store, so that who may read it may read them."""
    path = database.dialect.one_host_file
    try:
        return 0o600 if path is None else stat.S_IMODE(os.stat(path).st_mode) & 0o666
    except OSError:
        return 0o600


def delete(database: Database, experiment_id: int) -> None:
    """Delete what was computed from an experiment. Raises `StoreError` if that is not possible.

    A process that writes there fails and begins anew.
    """
    for folder in folders(database, experiment_id):
        try:
            _delete(folder)
        except OSError as error:
            raise StoreError(
                f"{folder}, which is computed from the experiment, cannot be deleted: {error.strerror or error}. "
                "Delete it as its owner."
            ) from None


def _delete(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        folder.rename(folder.with_name(f"{folder.name}.{uuid4().hex}{_DELETED}"))
    for old in folder.parent.glob(f"{folder.name}.*{_DELETED}"):  # also those of a process that was killed
        while old.exists():
            try:
                shutil.rmtree(old)
            except OSError as error:  # another process deletes it too, or goes on writing there
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it was deleted meanwhile
            found += path.stat().st_size
    return found


def used(folder: Path) -> None:
    """Note that a folder is used now, and delete folders of the cache that were not used for long, above its limit.

    Folders beside a store are not limited, and whatever else is in the folder that MESSAGER_CACHE names does not count
    and stays. Raises `StoreError` for a limit that is no number.
    """
    root = Path(cache())
    if root not in folder.parents:
        return
    with contextlib.suppress(OSError):
        os.utime(folder)
    left = _limit() - size_of(folder)
    others: list[tuple[float, Path]] = []
    for path in root.glob("*/*"):
        if path != folder and _OWN.fullmatch(path.relative_to(root).as_posix()):
            with contextlib.suppress(OSError):  # another process deletes it
                others.append((path.stat().st_mtime, path))
    for _, path in sorted(others, reverse=True):
        left -= size_of(path)
        if left < 0:
            with contextlib.suppress(OSError):  # the same, or it is another user's
                _delete(path)


def _limit() -> int:
    text = os.environ.get("MESSAGER_CACHE_MB") or str(LIMIT_MB)
    try:
        return int(text) * 1_000_000
    except ValueError:
        raise StoreError(f"MESSAGER_CACHE_MB={text!r} is no number: give megabytes, such as {LIMIT_MB}") from None
