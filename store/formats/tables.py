"""Parquet and CSV with the columns of docs/analysis.md, which also describes folders of Parquet files by mark or hour.

In CSV, a payload that is not UTF-8 is in the column `payload_base64` instead.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import OutputFailed, StoreError
from ..log.event_log import EventLog
from ..log.selection import Selection
from ..projection.schema import pyarrow
from ..projection.tables import columns
from . import output_format
from .exporting import begin
from .output_file import mode_at, open_output
from .sharing import Sharing

GROUP = 65_536
"""Rows that are written together, or a few more."""
GROUP_BYTES = 64 * 1024 * 1024
"""Bytes in memory after which fewer are."""
NONE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive takes for no value."""
MOST_NAME = 150
"""Characters of the name of a part, at most; a longer one ends with its hash."""


async def write(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    by: str | None = None,
    progress: Callable[..., None] | None = None,
    shared: Sharing | None = None,
    selection: Selection | None = None,
    messages: bool = False,
) -> int:
    """Export the selected events, or with `messages` each message once; return their number.

    The file appears when it is complete, and replaces an existing one. With `by`, one of `PARTITIONS`, so does a
    folder; raises `StoreError` if there is such a folder that is not empty.
    """
    pa = pyarrow()
    export = await begin(log, exp_id, progress, shared)
    async with aclosing(_tables(export.batches(selection, messages=messages))) as tables:
        if by is not None:
            with _new_folder(Path(path)) as folder:
                number = count()
                async for table in tables:
                    _write_parts(table, folder, by, next(number))
        elif output_format(path, "export").name == "CSV":
            with open_output(path) as file, pa.csv.CSVWriter(file, _texts(columns().empty_table()).schema) as writer:
                async for table in tables:
                    writer.write_table(_texts(table))
        else:
            with open_output(path) as file, pa.parquet.ParquetWriter(file, columns(), compression="zstd") as writer:
                async for table in tables:
                    writer.write_table(table)
    return export.count


async def _tables(batches: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Yield record batches as tables of similar size."""
    waiting: list[Any] = []
    async with aclosing(batches):
        async for batch in batches:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= GROUP or sum(one.nbytes for one in waiting) >= GROUP_BYTES:
                yield pyarrow().Table.from_batches(waiting).unify_dictionaries()
                waiting = []
    if waiting:
        yield pyarrow().Table.from_batches(waiting).unify_dictionaries()


def _texts(table: Any) -> Any:
    """Return a table with texts in the place of dictionaries and bytes, which CSV has not."""
    pa = pyarrow()
    texts: list[str | None] = []
    others: list[str | None] = []
    for payload in table["payload"].to_pylist():
        try:
            text, other = payload.decode(), None
        except UnicodeDecodeError:
            text, other = None, base64.b64encode(payload).decode()
        texts.append(text)
        others.append(other)
    table = _with(table, "payload", texts).append_column("payload_base64", pa.array(others, pa.string()))
    plain = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(zip(table.schema.names, plain, strict=True)))


def _write_parts(table: Any, folder: Path, by: str, number: int) -> None:
    """Write the parts of a folder that a table has."""
    import pyarrow.dataset as dataset

    if by == "hour":
        values = pyarrow().compute.strftime(table["time"], "%Y-%m-%dT%H")
        table = table.append_column(by, values)
    else:
        table = _with(table, by, [None if mark is None else _part_value(mark) for mark in table[by].to_pylist()])
    format_ = dataset.ParquetFileFormat()
    dataset.write_dataset(
        table,
        folder,
        basename_template=f"part-{number}-{{i}}.parquet",
        format=format_,
        file_options=format_.make_write_options(compression="zstd"),
        partitioning=[by],
        partitioning_flavor="hive",
        use_threads=False,  # keeps the order of the rows
        max_partitions=table.num_rows + 1,
        existing_data_behavior="overwrite_or_ignore",
    )


def _with(table: Any, name: str, values: list[str | None]) -> Any:
    """Return a table with other values of a column."""
    return table.set_column(table.schema.get_field_index(name), name, pyarrow().array(values, pyarrow().string()))


def _part_value(value: str) -> str:
    """Return a value that fits into the name of a folder, different for different values."""
    if len(quote(value, safe="")) <= MOST_NAME and value != NONE:
        return value
    kept = value[:MOST_NAME]
    while len(quote(kept, safe="")) > MOST_NAME:
        kept = kept[:-1]
    return f"{kept}-{hashlib.sha256(value.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Make a folder that appears under its name when the block ends without error."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} exists already, and is not an empty folder: name another folder with -o")
    with contextlib.ExitStack() as stack:
        try:
            parent = target.absolute().parent
            made = Path(stack.enter_context(tempfile.TemporaryDirectory(".part", f".{target.name[:30]}.", parent)))
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
