"""Parquet: one file with the columns of docs/analysis.md, or a folder of such files, as data lakes are kept.

A folder has a part for each hour or mark, with Hive's names: `hour=2026-11-23T10/part-0.parquet`. Values are
percent-encoded, and `__HIVE_DEFAULT_PARTITION__` stands for none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import OutputFailed, StoreError
from ..log.event_log import EventLog
from ..log.selection import Selection
from ..projection.schema import pyarrow
from ..projection.tables import columns
from .exporting import begin
from .output_file import mode_at, open_output
from .sharing import Sharing
from .temporary import temporary

GROUP = 65_536
"""Rows of a row group."""
GROUP_BYTES = 64 * 1024 * 1024
"""Bytes in memory after which a row group is written."""
COMPRESSION = "zstd"
NONE = "__HIVE_DEFAULT_PARTITION__"
MOST_NAME = 150
"""Maximum of characters of the name of a part; a longer one ends with its hash."""


async def write(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[..., None] | None = None,
    shared: Sharing | None = None,
    selection: Selection | None = None,
    messages: bool = False,
) -> int:
    """Export the selected events, or with `messages` each message once, to a file; return their number.

    The file appears when it is complete, and replaces an existing one.
    """
    pyarrow()
    export = await begin(log, exp_id, progress, shared)
    with open_output(path) as file, _Groups(file, columns()) as groups:
        async for batch in export.batches(selection, messages=messages):
            groups.add(batch)
    return export.count


async def write_parts(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    by: str,
    *,
    progress: Callable[..., None] | None = None,
    shared: Sharing | None = None,
    selection: Selection | None = None,
    messages: bool = False,
) -> int:
    """Export as `write` does to a folder, which appears when it is complete. `by` is one of `PARTITIONS`.

    Raises `StoreError` if there is such a folder that is not empty.
    """
    pyarrow()
    export = await begin(log, exp_id, progress, shared)
    with _new_folder(Path(path)) as folder, contextlib.closing(_Parts(folder, by)) as parts:
        async for batch in export.batches(selection, messages=messages):
            parts.add(batch)
    return export.count


class _Groups:
    """Writes a file in row groups of similar size."""

    def __init__(self, file: Any, of: Any) -> None:
        self._pa = pyarrow()
        self._schema = of
        self._writer = self._pa.parquet.ParquetWriter(file, of, compression=COMPRESSION)
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP or self._bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        table = self._pa.Table.from_batches(self._waiting, schema=self._schema).unify_dictionaries()
        self._writer.write_table(table, row_group_size=max(GROUP, self._rows))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def __enter__(self) -> _Groups:
        return self

    def __exit__(self, kind: type[BaseException] | None, *ignored: object) -> None:
        if kind is None and self._waiting:
            self._write()
        self._writer.close()


class _Parts:
    """Writes the files of a folder, one after another: batches are in order of time."""

    def __init__(self, folder: Path, by: str) -> None:
        self._folder = folder
        self._by = by
        self._files: Counter[str] = Counter()
        self._part: str | None = None
        self._open: Any = None
        self._stack = contextlib.ExitStack()

    def add(self, batch: Any) -> None:
        """Write a batch into the parts of its rows."""
        names = _hours(batch) if self._by == "hour" else batch["mark"].to_pylist()
        whole = batch.drop_columns(["mark"]) if self._by == "mark" else batch
        begin = 0
        for end in range(1, len(names) + 1):
            if end == len(names) or names[end] != names[begin]:
                self._file(_part_name(self._by, names[begin]), whole.schema).add(whole.slice(begin, end - begin))
                begin = end

    def _file(self, part: str, of: Any) -> Any:
        if part != self._part:
            self.close()
            folder = self._folder / part
            folder.mkdir(exist_ok=True)
            file = self._stack.enter_context((folder / f"part-{self._files[part]}.parquet").open("wb"))
            self._open = self._stack.enter_context(_Groups(file, of))
            self._files[part] += 1
            self._part = part
        return self._open

    def close(self) -> None:
        """Finish the open file."""
        self._part = None
        self._stack.close()


def _hours(batch: Any) -> list[str]:
    # whole hours since 1970, rounded down: a year has four digits between 1677 and 2262
    return [datetime.strftime(time, "%Y-%m-%dT%H") for time in batch["time"].to_pylist()]


def _part_name(by: str, value: str | None) -> str:
    """Return the name of a folder for a value, different for different values."""
    if value is None:
        return f"{by}={NONE}"
    name = quote(value, safe=" ")
    if len(name) > MOST_NAME or value == NONE:
        kept = value[:MOST_NAME]
        while len(quote(kept, safe=" ")) > MOST_NAME:  # readers refuse an escaped character that was cut
            kept = kept[:-1]
        name = f"{quote(kept, safe=' ')}-{hashlib.sha256(value.encode()).hexdigest()[:16]}"
    return f"{by}={name}"


@contextlib.contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Make a folder that appears under its name when the block ends without error."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} exists already, and is not an empty folder: name another folder with -o")
    with contextlib.ExitStack() as stack:
        try:
            _, made = stack.enter_context(temporary(target.absolute(), folder=True))
        except OSError as error:
            raise StoreError(
                f"cannot write {target}: {error.strerror or error}. Choose another folder with -o."
            ) from None
        try:
            yield made
            made.chmod(mode_at(target, 0o777))
            made.replace(target)
        except OSError as error:
            raise OutputFailed(str(target), error.strerror or str(error)) from None
