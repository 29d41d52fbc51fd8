"""Files that are computed from the events of an experiment, for questions. They are not part of the log.

They lie in `STORE-projection` beside an SQLite file, else in the cache of the user: `MESSAGER_CACHE`, or
`~/.cache/messager`, which has a limit. A redaction or removal deletes the folder of its experiment without knowing its
content.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path
from uuid import uuid4

from ..errors import StoreError
from .database import Database

_DELETED = ".deleted"


def folders(database: Database, experiment_id: int) -> list[Path]:
    """Return the folders in which files of an experiment may be; the first one that can be written is used."""
    return [Path(folder, str(experiment_id)) for folder in database.dialect.derived_folders]


def delete(database: Database, experiment_id: int) -> None:
    """Delete what was computed from an experiment. Raises `StoreError` if that is not possible.

    A process that writes there fails and begins anew.
    """
    for folder in folders(database, experiment_id):
        try:
            delete_folder(folder)
        except OSError as error:
            raise StoreError(
                f"{folder}, which is computed from the experiment, cannot be deleted: {error.strerror or error}. "
                "Delete it as its owner."
            ) from None


def delete_folder(folder: Path) -> None:
    """Delete a folder at once for its readers. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        folder.rename(folder.with_name(f"{folder.name}.{uuid4().hex}{_DELETED}"))
    for old in folder.parent.glob(f"{folder.name}.*{_DELETED}"):  # also those of a process that was killed
        while old.exists():
            try:
                shutil.rmtree(old)
            except OSError as error:  # another process deletes it too, or goes on writing there
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise
