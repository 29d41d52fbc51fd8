"""List the spools of a folder, and choose the folder of a recorder's spool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SpoolDamaged
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


def spool_folder(store: str, chosen: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for spools: `chosen`, else `MESSAGER_SPOOL`, else `store`, the folder beside the store."""
    return Path(chosen or os.environ.get("MESSAGER_SPOOL") or store).absolute()


def left_in(folder: Path) -> list[Path]:
    """Return the spool files of a folder, in order of their names."""
    return sorted(folder.glob(f"*{ENDING}"))


def spools(folder: Path) -> Iterator[SpoolInfo]:
    """Yield the spools of a folder, in order of their names. Reads each file completely and changes nothing."""
    for path in left_in(folder):
        try:
            seen = Spool.seen(path)
        except FileNotFoundError:  # drained meanwhile
            continue
        except (OSError, SpoolDamaged) as error:
            yield SpoolInfo(str(path), path.stem, "", "", 0, 0, None, False, str(error), True)
            continue
        if seen is None:
            continue
        spool, held = seen
        oldest = None
        if spool.first_seq:
            try:
                oldest = spool.read(spool.first_seq, 1, 1)[0].ts
            except (OSError, SpoolDamaged):
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
