"""Import of a file of any known format."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..errors import StoreError
from ..log.event_log import EventLog
from .foreign.source import Choices, import_foreign
from .foreign.times import timezone_of
from .importing import Imported
from .input_formats import JSONL, input_format


async def import_file(
    log: EventLog,
    path: str | os.PathLike[str],
    exp_id: str,
    *,
    form: str | None = None,
    timezone: str | None = None,
    channel: str | None = None,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Import a file (`-` for standard input) as a new, closed experiment.

    `form` is a name of `INPUT_FORMATS`; without it, the suffix or the first bytes of the file decide. `timezone` is
    that of times that name none, by default UTC; `channel` that of messages whose format names none. The experiment is
    visible only when it is complete. Raise `BadFile` with the number of the wrong line, and `ExperimentExists`.
    """
    chosen = input_format(path, form)
    if chosen.name != JSONL:
        source = chosen.load().Source(path, Choices(timezone_of(timezone) if timezone else None, channel))
        return await import_foreign(log, source, exp_id, name=name, tags=tags, meta=meta, progress=progress)
    if timezone or channel:
        raise StoreError(f"{path}: JSON Lines have times in UTC and channels. Leave out --timezone and --channel.")
    read = chosen.load().read
    return Imported(await read(log, path, exp_id, name=name, tags=tags, meta=meta, progress=progress))
