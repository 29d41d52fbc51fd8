"""Import and export of JSON Lines: exact, atomic and reproducible."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from messager import channels
from messager_store import EventLog, NewEvent
from messager_store.errors import BadFile, ExperimentExists, StoreError
from messager_store.experiments import lifecycle
from messager_store.formats.importing import publish_imports
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, sql
from tests.support.logs import filled, sent


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


async def everything(log: EventLog) -> None:
    """Create an experiment with two recorders, equal times, hostile values and every kind."""
    of = await log.create_experiment("e1", name="n\u00e4me", tags=["b", "a"], meta={"seed": 7, "\u65e5": [1]})
    for _ in range(2):
        writer = await log.register(of, role="messager", patterns=["exps:*"], meta={"versions": {"python": "3"}})
        await log.append(
            writer,
            [
                sent(
                    number % 4,
                    HOSTILE_PAYLOADS[number % len(HOSTILE_PAYLOADS)],
                    channels.decode(HOSTILE_CHANNELS[number % len(HOSTILE_CHANNELS)]),
                    from_id=HOSTILE_IDS[number % len(HOSTILE_IDS)],
                    flags=number % 4,
                    msg_id="m1" if number % 2 else None,
                    duration_ns=number * 7,
                    receivers=number,
                )
                for number in range(60)
            ]
            + [
                NewEvent("mark", 5, None, b"", meta={"name": "tick", "fields": {"t": 1.5}}),
                NewEvent("gap", 6, None, b"", meta={"reason": "x", "count": None}),
                NewEvent("blocked", 7, "c", b"no"),
                NewEvent("failed", 8, "c", b"no", meta={"outcome": "unknown"}),
                NewEvent("failed", 8, "c", b"no", meta={"outcome": "not_sent"}, cause=(1, 2)),
                NewEvent("received", 9, "c", b"r", to_id=4, flags=2),
            ],
        )


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
async def test_export_import_export_gives_the_same_file(log: EventLog, tmp_path: Path, ending: str) -> None:
    await everything(log)
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    assert await export_jsonl(log, "e1", first) == 132
    of = await import_jsonl(log, first, "copy")
    assert await export_jsonl(log, "copy", second) == 132
    assert first.read_bytes() == second.read_bytes()
    assert (of.name, of.tags, of.meta["seed"], of.status) == ("n\u00e4me", ["a", "b"], 7, "closed")
    assert (await verify(log, of)).problems == []
    async with EventLog.open(str(tmp_path / "elsewhere.db")) as other:
        await import_jsonl(other, second, "e1")
        await export_jsonl(other, "e1", tmp_path / f"third.{ending}")
    assert (tmp_path / f"third.{ending}").read_bytes() == first.read_bytes()
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


@pytest.mark.parametrize("packed", [False, True])
async def test_the_name_and_the_digest_of_the_file_are_kept(log: EventLog, tmp_path: Path, packed: bool) -> None:
    path = write(tmp_path / "a.jsonl", *({"ts": at, "channel": "c", "payload": "x" * 100} for at in range(9_000)))
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()) + bytes(9))
    of = await import_jsonl(log, path, "e1")
    assert of.meta["imported"] == {"file": "a.jsonl", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


async def test_export_takes_the_filters_of_read(log: EventLog, tmp_path: Path) -> None:
    await filled(log, [sent(1, channel="a"), sent(2, channel="b"), NewEvent("mark", 3, None, b"", meta={"name": "m"})])
    assert await export_jsonl(log, "e1", tmp_path / "a.jsonl", channels=["a"]) == 1
    header, line = [json.loads(text) for text in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert header["format"] == "messager/1"
    assert line == {"ts": 1, "kind": "sent", "channel": "a", "from_id": None, "to_id": None, "payload": "x"}


async def test_a_bare_line_is_enough_and_an_object_becomes_what_the_wire_would_carry(
    log: EventLog, tmp_path: Path
) -> None:
    lines = [
        {"ts": 2, "channel": "c", "payload": {"b": "h\u00e9", "a": [1.0]}},
        "",
        {"ts": 2, "kind": "sent", "channel": "c", "from_id": 5, "to_id": "5", "payload": "h\u00e9"},
        {"ts": 1, "channel_base64": "/w==", "payload_base64": "AP8="},
        {"ts": 3, "channel": "c", "payload": None},
        {"ts": 4, "channel": "c"},
    ]
    of = await import_jsonl(log, write(tmp_path / "a.jsonl", *lines), "e1", tags=("t",), meta={"k": "v"}, name="n")
    found = [(entry.ts, entry.payload) async for entry in log.read("e1")]
    wire = json.dumps({"b": "h\u00e9", "a": [1.0]}).encode()
    assert found == [(1, b"\x00\xff"), (2, wire), (2, "h\u00e9".encode()), (3, b"null"), (4, b"")]
    assert (of.name, of.tags, of.meta["k"]) == ("n", ["t"], "v")


async def test_a_broken_line_is_named_and_nothing_is_imported(log: EventLog, tmp_path: Path) -> None:
    for line, complaint in [
        ("not json", "not JSON"),
        ('{"ts": 1, "channel": "c", "payload": "x"', "not JSON"),
        ("[1]", "not a JSON object"),
        ({"ts": "1", "channel": "c"}, "ts is not an integer"),
        ({"ts": 1.5, "channel": "c"}, "ts is not an integer"),
        ({"ts": True, "channel": "c"}, "ts is not an integer"),
        ({"ts": 2**63, "channel": "c"}, "ts is not between"),
        ({"channel": "c"}, "no ts"),
        ({"ts": 1}, "no channel"),
        ({"ts": 1, "channel": 5}, "channel is not a string"),
        ({"ts": 1, "channel": "c", "kind": "shout"}, "kind 'shout' is none of"),
        ({"ts": 1, "channel": "c", "kind": ["sent"]}, "is none of"),
        ({"ts": 1, "channel": "c", "payload_base64": "@@"}, "payload_base64 is not base64"),
        ({"ts": 1, "channel": "c", "payload": "x", "payload_base64": "AA=="}, "both payload and"),
        ('{"ts": 1, "channel": "c", "payload": "\\ud800"}', "half a character"),
        ({"ts": 1, "channel": "c", "meta": 5}, "meta is not an object"),
        ({"ts": 1, "channel": "c", "recorder": 0}, "recorder is not between"),
        ({"ts": 1, "channel": "c", "recorder": 10**9}, "recorder is not between"),
        ({"ts": 1, "channel": "c", "derived": "from_id"}, "derived is not a list"),
        ({"ts": 1, "channel": "c", "derived": [["x"]]}, "derived is not a list"),
        ({"ts": 1, "channel": "c", "receivers": -1}, "receivers: -1 is not between"),
        ({"ts": 1, "channel": "c", "msg_id": 5}, "msg_id: 5 is not a string"),
        ({"ts": 1, "channel": "c", "colour": "red"}, "unknown field 'colour'"),
        ("[" * 100_000, "not JSON"),
    ]:
        good = {"ts": 1, "channel": "c", "payload": "x"}
        path = write(tmp_path / "a.jsonl", good, good, line, good)
        with pytest.raises(BadFile, match=complaint) as caught:
            await import_jsonl(log, path, "e1")
        assert caught.value.line == 3 and "line 3" in str(caught.value) and "Nothing was imported" in str(caught.value)
        async with log.database.reading() as connection:
            for table in ("experiment", "recorder", "event", "batch", "name"):
                rows = await connection.exec_driver_sql(f"SELECT count(*) FROM {table}")
                assert rows.scalar_one() == 0, table


async def test_a_header_that_is_wrong_is_named(log: EventLog, tmp_path: Path) -> None:
    for header, complaint in [
        ({"format": "messager/99"}, "format 'messager/99' is not known"),
        ({"tags": "a"}, "tags is not a list of strings"),
        ({"recorders": [1]}, "recorders is not a list of objects"),
        ({"meta": []}, "meta is not an object"),
        ({"name": 5}, "name is not a string"),
        ({"what": "ever"}, "neither an event"),
    ]:
        with pytest.raises(BadFile, match=complaint):
            await import_jsonl(log, write(tmp_path / "a.jsonl", header, {"ts": 1, "channel": "c"}), "e1")


async def test_damaged_gzip_and_missing_files_are_told(log: EventLog, tmp_path: Path) -> None:
    packed = gzip.compress(b'{"ts": 1, "channel": "c", "payload": "x"}\n' * 2000)
    for name, data in (("cut.gz", packed[: len(packed) // 2]), ("rot.gz", packed[:40] + b"\x00" * 20 + packed[60:])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadFile, match="gzip data is damaged"):
            await import_jsonl(log, tmp_path / name, "e1")
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(BadFile, match=r"No such file|Is a directory"):
            await import_jsonl(log, path, "e1")
    assert await log.experiments() == []


async def test_an_import_is_invisible_until_it_is_complete(log: EventLog, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"ts": at, "channel": "c"} for at in range(12_000)))
    seen: list[int] = []

    def look(count: int) -> None:
        seen.append(sql(log.location, "SELECT count(*) FROM event")[0][0])
        assert sql(log.location, "SELECT count(*) FROM event_view") == [(0,)]
        assert sql(log.location, "SELECT count(*) FROM experiment WHERE exp_id = 'e1'") == [(0,)]

    await import_jsonl(log, path, "e1", progress=look)
    assert seen == [5000, 10000]
    with pytest.raises(ExperimentExists, match="another --exp"):
        await import_jsonl(log, path, "e1")


async def test_what_a_killed_import_left_is_cleared_away_by_the_next(log: EventLog, tmp_path: Path) -> None:
    of = await lifecycle.create(log.database, "importing e1 0", name=None, tags=[], meta={}, status="importing")
    assert of is not None
    writer = await log.register(of, role="import")
    await log.append(writer, [sent(1)])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET pid = 4194305")  # a process that cannot be
    await import_jsonl(log, write(tmp_path / "a.jsonl", {"ts": 1, "channel": "c"}), "e1")
    async with log.database.reading() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM experiment")).scalar_one() == 1
        assert (await connection.exec_driver_sql("SELECT count(*) FROM event")).scalar_one() == 1


async def test_an_export_that_fails_leaves_the_old_file(log: EventLog, tmp_path: Path) -> None:
    await filled(log, [sent(1)])
    path = tmp_path / "a.jsonl"
    path.write_text("old")
    with pytest.raises(StoreError):
        await export_jsonl(log, "e1", path, since="whenever")
    assert path.read_text() == "old"
    assert [name for name in os.listdir(tmp_path) if "a.jsonl" in name] == ["a.jsonl"]


async def test_imports_at_the_same_time_leave_each_other_alone(tmp_path: Path) -> None:
    store = str(tmp_path / "log.db")
    path = write(tmp_path / "a.jsonl", *({"ts": at, "channel": "c"} for at in range(50)))

    async def one(number: int) -> None:
        async with EventLog.open(store) as log:
            await import_jsonl(log, path, f"e{number}")

    for round_ in range(3):
        await asyncio.gather(*(one(round_ * 8 + number) for number in range(8)))
    async with EventLog.open(store) as log:
        assert len(await log.experiments()) == 24


async def test_an_import_that_was_swept_away_says_so_and_a_published_one_cannot_be(log: EventLog) -> None:
    of = await lifecycle.create(log.database, "importing x", name=None, tags=[], meta={}, status="importing")
    assert of is not None
    writer = await log.register(of, role="import")
    await log.append(writer, [sent(1)])
    await publish_imports(log.database, {"e1": of})
    await remove(log, of)  # believes that it is still importing
    assert len([entry async for entry in log.read("e1")]) == 1
    with pytest.raises(StoreError, match="removed as unfinished"):
        await publish_imports(log.database, {"e2": of})


async def test_half_characters_where_text_is_needed_are_named(log: EventLog, tmp_path: Path) -> None:
    for line in ['{"ts": 1, "channel": "c", "msg_id": "\\ud800"}', '{"name": "\\ud800"}', '{"tags": ["\\ud800"]}']:
        with pytest.raises(BadFile, match=r"line 1: .*half a character"):
            await import_jsonl(log, write(tmp_path / "a.jsonl", line), "e1")


async def test_export_writes_through_links_and_into_pipes(log: EventLog, tmp_path: Path) -> None:
    await filled(log, [sent(1)])
    (tmp_path / "real.jsonl").write_text("old")
    os.symlink(tmp_path / "real.jsonl", tmp_path / "link.jsonl")
    await export_jsonl(log, "e1", tmp_path / "link.jsonl")
    assert os.readlink(tmp_path / "link.jsonl") == str(tmp_path / "real.jsonl")
    assert "messager/1" in (tmp_path / "real.jsonl").read_text()
    os.mkfifo(tmp_path / "pipe")
    reading = asyncio.create_task(asyncio.to_thread((tmp_path / "pipe").read_text))
    await asyncio.to_thread(asyncio.run, _export_from(log.location, tmp_path / "pipe"))
    assert await reading == (tmp_path / "real.jsonl").read_text()


async def _export_from(where: str, path: Path) -> None:
    async with EventLog.open(where) as log:
        await export_jsonl(log, "e1", path)
