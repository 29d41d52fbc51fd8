"""Exports and packs of version 2 hold the schedule and the parent; those of version 1 are read as they always were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import BadFile
from messager_store.experiments import lifecycle
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.pack import pack, unpack
from messager_store.formats.sharing import Sharing
from messager_store.maintenance.verify import verify
from tests.store.formats.test_forged_packs import seal
from tests.store.formats.test_jsonl import write
from tests.support.logs import listed, sent

PARENT = {"exp_id": "p", "head": "ab" * 32, "cursor": "5:0123456789abcdef:7"}
OLD_KINDS = ("sent", "received", "blocked", "failed", "gap", "mark")
NEW = [("messager", "m1"), ("arrival", 3), ("origin", ["u1", 7]), ("kind", "asked")]
"""Fields and a kind that version 1 does not have."""


async def fork(log: EventLog) -> None:
    """Create an experiment with a parent, and with every field of an event."""
    of = await lifecycle.create(log.database, "e1", name=None, tags=(), meta={}, parent=PARENT)
    assert of is not None
    writer = await log.register(of, role="messager")
    await log.append(
        writer,
        [
            sent(1, b"copied", from_id=1, messager="m1", arrival=0, origin=("u1", 7)),
            NewEvent("received", 2, "c", b"\xff", 1, messager="m\u00e9", arrival=2**40),
            NewEvent("asked", 3, None, b"question", messager="m1"),
            NewEvent("answered", 4, None, b"answer", cause=(1, 3)),
        ],
    )
    await log.touch(writer, ended_at=1)


async def old(log: EventLog) -> None:
    """Create an experiment as it was before revision 0003."""
    of = await log.create_experiment("e1")
    of.schema_version = 2
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE experiment SET schema_version = 2")
    for _ in range(2):
        writer = await log.register(of, role="tap", row={"chain_version": 2})
        writer.chain_version = 2
        await log.append(writer, [sent(1, b"one"), NewEvent("failed", 2, "c", b"two", cause=(1, 1))])
        await log.touch(writer, ended_at=1)


def as_version_1(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a pack in version 1; the last is not valid."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["format"] = "messager-pack/1"
    for line in lines:
        for row in line.values():
            for key in ("chain_version", "asked_count", "answered_count", "origin", *(f"parent_{k}" for k in PARENT)):
                if isinstance(row, dict):
                    row.pop(key, None)
    return lines


async def test_an_export_holds_the_schedule_and_the_parent(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await fork(log)
    await export_jsonl(log, "e1", tmp_path / "a.jsonl")
    header, first, *_ = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert (header["format"], header["parent"]) == ("messager/2", PARENT)
    assert (first["messager"], first["arrival"], first["origin"]) == ("m1", 0, ["u1", 7])
    of = await import_jsonl(other, tmp_path / "a.jsonl", "e1")
    assert (of.parent_exp_id, of.parent_cursor) == (PARENT["exp_id"], PARENT["cursor"])
    assert await listed(other.read("e1")) == await listed(log.read("e1"))
    assert (await verify(other, of)).problems == []
    await export_jsonl(other, "e1", tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


async def test_a_pack_holds_the_schedule_and_the_parent(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await fork(log)
    packed = await pack(log, "e1", tmp_path / "a.pack")
    of = await unpack(other, tmp_path / "a.pack", head=packed.head)
    assert (of.parent_exp_id, of.parent_cursor) == (PARENT["exp_id"], PARENT["cursor"])
    assert await listed(other.read("e1")) == await listed(log.read("e1"))
    assert (await verify(other, of, packed.head)).problems == []
    await pack(other, "e1", tmp_path / "b.pack")
    assert (tmp_path / "a.pack").read_bytes() == (tmp_path / "b.pack").read_bytes()
    assert json.loads((tmp_path / "a.pack").read_text().splitlines()[0]) == {"format": "messager-pack/2"}


@pytest.mark.parametrize("header", [{"format": "messager/1"}, {"name": "n"}])
async def test_an_export_of_version_1_is_read_without_new_fields(
    log: EventLog, tmp_path: Path, header: dict[str, Any]
) -> None:
    line = {"ts": 1, "kind": "sent", "channel": "c", "payload": "x"}
    of = await import_jsonl(log, write(tmp_path / "old", header, line), "e1")
    assert (await verify(log, of)).problems == []
    for key, value in NEW:
        with pytest.raises(BadFile, match=f"unknown field '{key}'|kind 'asked' is none of {', '.join(OLD_KINDS)}"):
            await import_jsonl(log, write(tmp_path / "new", header, {**line, key: value}), "e2")
    with pytest.raises(BadFile, match="unknown field 'parent'"):
        await import_jsonl(log, write(tmp_path / "new", {**header, "parent": PARENT}, line), "e2")


async def test_a_pack_of_version_1_keeps_its_head(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await old(log)
    packed = await pack(log, "e1", tmp_path / "a.pack")
    lines = as_version_1(tmp_path / "a.pack")
    of = await unpack(other, seal(tmp_path / "old.pack", lines), head=packed.head)
    assert (of.schema_version, {row.chain_version for row in await other.recorders(of)}) == (2, {2})
    assert (await verify(other, of, packed.head)).problems == []


@pytest.mark.parametrize(
    ("at", "key", "value"),
    [
        *((5, key, value) for key, value in NEW),
        (1, "parent_exp_id", "p"),
        (2, "chain_version", 2),
        (2, "asked_count", 0),
    ],
)
async def test_a_pack_of_version_1_has_no_new_fields(
    log: EventLog, other: EventLog, tmp_path: Path, at: int, key: str, value: Any
) -> None:
    await old(log)
    await pack(log, "e1", tmp_path / "a.pack")
    lines = as_version_1(tmp_path / "a.pack")
    row = lines[at]["experiment"] if at == 1 else lines[at]["recorder"] if at == 2 else lines[at]
    row[key] = value
    with pytest.raises(BadFile, match=f"unknown field '{key}'|kind 'asked' is none of {', '.join(OLD_KINDS)}\\."):
        await unpack(other, seal(tmp_path / "new.pack", lines))


async def test_a_pseudonymised_export_names_no_messager_recorder_or_parent(log: EventLog, tmp_path: Path) -> None:
    await fork(log)
    await export_jsonl(log, "e1", tmp_path / "a.jsonl", shared=Sharing(pseudonymise=True))
    text = (tmp_path / "a.jsonl").read_text()
    header, *lines = [json.loads(line) for line in text.splitlines()]
    assert "parent" not in header and all("origin" not in line for line in lines)
    assert [line.get("arrival") for line in lines] == [0, 2**40, None, None]
    names = [line.get("messager") for line in lines]
    assert names[0] == names[2] != names[1] and "m1" not in names and "m\u00e9" not in names


async def test_a_redacted_export_keeps_the_schedule(log: EventLog, tmp_path: Path) -> None:
    await fork(log)
    await export_jsonl(log, "e1", tmp_path / "a.jsonl", shared=Sharing(["content"]))
    line = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[1])
    assert (line["messager"], line["arrival"]) == ("m1", 0)
