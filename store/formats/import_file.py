"""Import of a file of any known format."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..errors import StoreError
from ..log.event_log import EventLog
from .foreign.source import Choices, import_foreign
from .foreign.times import timezone_of
from .importing import Imported, Split
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
    by: str | None = None,
) -> Imported:
    """Import a file (`-` for standard input) as a new, closed experiment.

    `form` is a name of `INPUT_FORMATS`; without it, the suffix or the first bytes of the file decide. `timezone` is
    that of times that name none, by default UTC; `channel` that of messages whose format names none. The experiment is
    visible only when it is complete. Raise `BadFile` with the number of the wrong line, and `ExperimentExists`.

    With `by`, the file becomes one experiment for each value of a property of its events (`splitting.py`) or of a
    column of CSV. Each has the exp_id `exp_id-VALUE`, and VALUE at the end of its name, if it has one. All of them are
    visible, or none.
    """
    from .splitting import is_property, split_by

    chosen = input_format(path, form)
    column = by if by is not None and chosen.name == "csv" and not is_property(by) else None
    split = None if by is None or column is not None else split_by(by)
    if chosen.name != JSONL:
        source = chosen.load().Source(path, Choices(timezone_of(timezone) if timezone else None, channel, column))
        if column is not None:
            split = Split(column, lambda _: source.value or None)
        return await import_foreign(
            log, source, exp_id, name=name, tags=tags, meta=meta, progress=progress, split=split
        )
    if timezone or channel:
        raise StoreError(f"{path}: JSON Lines have times in UTC and channels. Leave out --timezone and --channel.")
    done: Imported = await chosen.load().read(
        log, path, exp_id, name=name, tags=tags, meta=meta, progress=progress, split=split
    )
    return done
