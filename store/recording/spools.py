"""List the spools of a folder, and choose the folder of a recorder's spool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..db.dialect import Dialect
from ..errors import SpoolDamaged, StoreError
from .spool import ENDING, Spool


@dataclass(slots=True)
class SpoolInfo:
    """A spool on disk. Times are ns UTC."""

    path: str
    recorder: str
    """UUID of the recorder."""
    exp_id: str
    store: str
    events: int
    bytes: int
    oldest_at: int | None
    """Timestamp of its first event."""
    held: bool
    """True if its recorder is running, and drains it itself."""
    damage: str | None
    """Description of the damage, or None."""
    registered: bool
    """True if its recorder is registered in the store; otherwise a drain registers it and creates its experiment."""


def spool_folder(dialect: Dialect, chosen: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for new spools: `chosen`, else `MESSAGER_SPOOL`, else the first one of the store that can be
    written. Raises `StoreError` for an empty name."""
    if chosen is not None and not os.fspath(chosen):
        raise StoreError("the name of the spool folder is empty: name a folder, or leave it out")
    if chosen or (chosen := os.environ.get("MESSAGER_SPOOL")):
        return Path(chosen).absolute()
    folders = [Path(folder) for folder in dialect.spool_folders]
    return next(filter(_is_writable, folders), folders[0])


def default_folders(dialect: Dialect) -> set[Path]:
    """Return the folders in which recorders of this user make spools by default."""
    return {*map(Path, dialect.spool_folders), spool_folder(dialect)}


def _is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, which may have to be made first."""
    for each in (folder, *folder.parents):
        try:
            os.stat(each)
        except FileNotFoundError:
            continue
        except OSError:
            return False
        return os.access(each, os.W_OK | os.X_OK)
    return False


def left_in(folder: Path) -> list[Path]:
    """Return the spool files of a folder, in order of their names; none if there is no such folder, or no right to
    read it. Raises `SpoolDamaged` if it cannot be read for another reason."""
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(ENDING))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as error:
        raise SpoolDamaged(str(folder), error.strerror or str(error)) from None


def spools(folder: Path) -> Iterator[SpoolInfo]:
    """Yield the spools of a folder, in order of their names. Reads each file completely and changes nothing."""
    for path in left_in(folder):
        try:
            seen = Spool.seen(path)
            if seen is None:
                continue
            spool, held = seen
            oldest = spool.read(spool.first_seq, 1, 1)[0].ts if spool.first_seq else None
        except FileNotFoundError:  # drained meanwhile
            continue
        except Exception as error:  # of any kind: one bad file must not hide the others
            yield SpoolInfo(str(path), path.stem, "", "", 0, 0, None, False, str(error) or repr(error), True)
            continue
        damage = None if spool.damaged_at is None else f"it is damaged from byte {spool.damaged_at:,} on"
        exp_id, store = (str(spool.facts.get(key, "")) for key in ("exp_id", "store"))
        yield SpoolInfo(
            str(path),
            spool.facts["recorder"],
            exp_id,
            store,
            len(spool),
            spool.size,
            oldest,
            held,
            damage,
            spool.registration is None,
        )
