"""Parquet and CSV: the rows of the table, streamed, complete or absent."""

from __future__ import annotations

import asyncio
import csv
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from messager_pytest.recording_file import write_lines
from messager_store import EventLog, NewEvent, StoreError
from messager_store.formats import tables
from messager_store.formats.sharing import sharing
from messager_store.formats.tables import NONE, write
from messager_store.projection import query
from messager_store.projection.tables import table
from tests.store.projection.test_tables import hostile
from tests.support import messager
from tests.support.logs import filled, sent

BEGAN = 1_700_000_000_000_000_000
HOUR = 3_600_000_000_000
MARKS = ["day 1", "a/b\\c", "..", "", "x" * 400, "\u65e5" * 90, "day 1", NONE, "=%20", "messager.own", "CON:"]


async def phased(log: EventLog) -> None:
    """Record messages between marks with odd names."""
    events: list[NewEvent] = [sent(BEGAN, b"first")]
    for at, name in enumerate(MARKS, 1):
        mark = NewEvent("mark", BEGAN + at * HOUR, None, b"", meta={"name": name, "fields": {}})
        events += [mark, sent(BEGAN + at * HOUR + 1, b"%d" % at), sent(BEGAN + at * HOUR + 2, b"%d" % at)]
    await filled(log, events)


async def test_a_file_has_the_rows_of_the_table(log: EventLog, tmp_path: Path) -> None:
    of = await hostile(log)
    path = tmp_path / "x.parquet"
    for messages in (False, True):
        expected = await table(log, of, events=not messages)
        assert await write(log, "e1", path, messages=messages) == expected.num_rows
        assert pq.read_table(path).to_pylist() == expected.to_pylist()
    assert pq.read_schema(path).field("kind").type == expected.schema.field("kind").type


@pytest.mark.parametrize(("limit", "groups"), [({"GROUP": 20}, [21, 21, 21, 7]), ({"GROUP_BYTES": 1}, [7] * 10)])
async def test_a_file_is_written_in_groups_of_rows(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int], groups: list[int]
) -> None:
    monkeypatch.setattr(query, "BATCH", 7)
    for name, value in limit.items():
        monkeypatch.setattr(tables, name, value)
    await filled(log, [sent(at) for at in range(70)])
    await write(log, "e1", tmp_path / "x.parquet")
    data = pq.read_metadata(tmp_path / "x.parquet")
    assert [data.row_group(at).num_rows for at in range(data.num_row_groups)] == groups


PROGRAMS: dict[str, Callable[[Any, Path], Any]] = {
    "pandas": lambda pandas, path: pa.Table.from_pandas(pandas.read_parquet(path, dtype_backend="pyarrow")),
    "polars": lambda polars, path: polars.read_parquet(path).to_arrow(),
    "duckdb": lambda duckdb, path: duckdb.read_parquet(str(path)).to_arrow_table(),
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_each_program_reads_every_value_of_a_file(log: EventLog, tmp_path: Path, program: str) -> None:
    of = await hostile(log)
    path = tmp_path / "x.parquet"
    await write(log, "e1", path)
    found = PROGRAMS[program](import_module(program), path)
    assert found.to_pylist() == (await table(log, of, events=True)).to_pylist()
    assert pa.types.is_timestamp(found.schema.field("time").type)


READERS: dict[str, Callable[[Any, Path], Any]] = {
    "pandas": lambda pandas, path: pandas.read_csv(path, dtype_backend="pyarrow")["payload"].to_list(),
    "polars": lambda polars, path: polars.read_csv(path)["payload"].to_list(),
    "duckdb": lambda duckdb, path: [row[0] for row in duckdb.read_csv(str(path)).project("payload").fetchall()],
}


@pytest.mark.parametrize("program", READERS)
async def test_each_program_reads_the_texts_of_a_csv_file(log: EventLog, tmp_path: Path, program: str) -> None:
    said = ["one, two", 'a "quoted" word', "two\nlines", "\u65e5\u672c", '{"content": "x"}', " spaces "]
    await filled(log, [sent(at, text.encode()) for at, text in enumerate(said)])
    await write(log, "e1", tmp_path / "x.csv")
    assert READERS[program](import_module(program), tmp_path / "x.csv") == said


async def test_csv_has_the_same_values_as_text(log: EventLog, tmp_path: Path) -> None:
    of = await hostile(log)
    path = tmp_path / "x.csv"
    expected = (await table(log, of, events=True)).to_pylist()
    assert await write(log, "e1", path) == len(expected)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert row["ts"] == str(wanted["ts"])
        for column in ("kind", "channel", "from_id", "from_type", "text", "meta", "mark"):
            assert row[column] == (wanted[column] or "")
        try:
            assert row["payload"] == wanted["payload"].decode()
        except UnicodeDecodeError:
            assert row["payload"] == "" and row["payload_base64"]


async def test_a_copy_to_share_has_no_agent_and_no_erased_value(log: EventLog, tmp_path: Path) -> None:
    payload = b'{"from": "Alexander", "content": "I am Alexander", "secret": "s3cret"}'
    mark = NewEvent("mark", BEGAN - 1, None, b"", meta={"name": "Alexander speaks", "fields": {"who": "Alexander"}})
    await filled(log, [mark, *(sent(BEGAN + at, payload, from_id="Alexander") for at in range(3))])
    for name in ("x.parquet", "x.csv"):
        path = tmp_path / name
        await write(log, "e1", path, shared=sharing(["secret"], pseudonymise=True))
        data: Any = pq.read_table(path).to_pylist() if name.endswith("t") else path.read_text()
        assert "Alexander" not in str(data) and "s3cret" not in str(data)
        assert "I am agent-" in str(data)
    await write(log, "e1", tmp_path / "lake", by="mark", shared=sharing([], pseudonymise=True))
    assert not any("Alexander" in str(path) for path in (tmp_path / "lake").rglob("*"))


@pytest.mark.parametrize("by", ["mark", "hour"])
async def test_a_folder_has_each_row_once_under_its_value(log: EventLog, tmp_path: Path, by: str) -> None:
    await phased(log)
    of = await log.experiment("e1")
    lake = tmp_path / "lake"
    assert await write(log, "e1", lake, by=by) == len(MARKS) * 3 + 1
    assert all(path.parent.parent == lake for path in lake.rglob("*.parquet"))
    hive = ds.partitioning(pa.schema([(by, pa.string())]), flavor="hive")
    found = ds.dataset(lake, partitioning=hive).to_table().to_pylist()
    expected = (await table(log, of, events=True)).to_pylist()
    assert len(found) == len(expected)
    by_place = {(row["recorder"], row["seq"]): row for row in found}
    for row in expected:
        there = by_place[row["recorder"], row["seq"]]
        if by == "hour":
            assert there[by] == f"{row['time']:%Y-%m-%dT%H}"
        elif row["mark"] == "" or len((row["mark"] or "").encode() * 3) > 150 or row["mark"] == NONE:
            pass  # shortened, or what Hive takes for none
        else:
            assert there[by] == row["mark"]
        assert {key: there[key] for key in row if key != "mark"} == {key: row[key] for key in row if key != "mark"}
    if by == "mark":  # a mark that comes again is another phase
        assert len(list((lake / "mark=day%201").iterdir())) == len(list((lake / "mark=day%201%232").iterdir())) == 1


async def test_a_folder_written_in_groups_has_every_row_of_many_parts(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "BATCH", 1500)
    monkeypatch.setattr(tables, "GROUP", 1500)
    phases = 1100  # pyarrow refuses more than 1,024 at a time, unless it is told otherwise
    marks = [NewEvent("mark", BEGAN + at, None, b"", meta={"name": f"{at}", "fields": {}}) for at in range(phases)]
    await filled(log, [*marks, *(sent(BEGAN + phases + at) for at in range(2000))])
    assert await write(log, "e1", tmp_path / "lake", by="mark") == phases + 2000
    assert ds.dataset(tmp_path / "lake").count_rows() == phases + 2000


async def test_duckdb_reads_a_folder_by_its_marks(log: EventLog, tmp_path: Path) -> None:
    import duckdb

    await phased(log)
    await write(log, "e1", tmp_path / "lake", by="mark", messages=True)
    query = f"SELECT count(*) FROM read_parquet('{tmp_path}/lake/**/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        for mark in ("day 1", "day 1#2"):
            assert connection.execute(f"{query} WHERE mark = '{mark}'").fetchone() == (2,)
        assert connection.execute(query).fetchone() == (len(MARKS) * 2 + 1,)


async def test_nothing_is_left_of_an_export_that_fails(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await phased(log)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "x.parquet").write_text("before")

    written = 0

    async def full(batches: Any) -> AsyncIterator[Any]:
        nonlocal written
        async for batch in batches:
            yield pa.Table.from_batches([batch])
            written += 1
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_tables", full)
    for write_file in (write(log, "e1", folder / "x.parquet"), write(log, "e1", folder / "lake", by="hour")):
        with pytest.raises(StoreError, match="No space left"):
            await write_file
    assert written == 2 and [path.name for path in folder.iterdir()] == ["x.parquet"]
    assert (folder / "x.parquet").read_text() == "before"


async def test_a_folder_that_is_not_empty_is_not_replaced(log: EventLog, tmp_path: Path) -> None:
    await phased(log)
    (tmp_path / "note.txt").touch()
    with pytest.raises(StoreError, match="not an empty folder"):
        await write(log, "e1", tmp_path, by="hour")
    assert [path.name for path in tmp_path.iterdir() if path.name == "note.txt"]


async def test_the_command_writes_each_form(log: EventLog, store: str, tmp_path: Path) -> None:
    await phased(log)
    selected = ["--grep", "3", "--store", store]
    for name, more in (("x.parquet", []), ("x.csv", ["--messages"]), ("lake", ["--partition-by", "hour"])):
        done = await asyncio.to_thread(messager, "export", "e1", "-o", name, *more, *selected, cwd=tmp_path)
        assert done.returncode == 0 and "exported 2 events" in done.stderr, done
    assert pq.read_table(tmp_path / "x.parquet")["payload"].to_pylist() == [b"3", b"3"]
    for wrong in (["-o", "x.csv", "--partition-by", "mark"], ["-o", "x.jsonl", "--messages"]):
        done = await asyncio.to_thread(messager, "export", "e1", *wrong, "--store", store, cwd=tmp_path)
        assert done.returncode == 2


async def test_without_pyarrow_one_line_says_what_to_install(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(log, [sent(1)])
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    writes = (write(log, "e1", folder / "x.parquet"), write(log, "e1", folder / "x.csv"))
    for written in (*writes, write(log, "e1", folder / "lake", by="hour")):
        with pytest.raises(StoreError, match=r"^[^\n]*`pip install 'duckdb>=2' 'pyarrow>=21'`$"):
            await written
    assert not list(folder.iterdir())


async def test_files_to_share_follow_the_umask_and_what_exists_keeps_its_mode(log: EventLog, tmp_path: Path) -> None:
    await phased(log)
    lake, file = tmp_path / "lake", tmp_path / "x.csv"
    before = os.umask(0o027)
    try:
        for mode in (0o640, 0o604):
            await write(log, "e1", file)
            write_lines(tmp_path / "e.jsonl", [b"{}"])
            assert {stat.S_IMODE(path.stat().st_mode) for path in (file, tmp_path / "e.jsonl")} == {mode}
            file.chmod(0o604)
            (tmp_path / "e.jsonl").chmod(0o604)
        lake.mkdir(0o700)
        await write(log, "e1", lake, by="mark")
        assert stat.S_IMODE(lake.stat().st_mode) == 0o700
    finally:
        os.umask(before)
