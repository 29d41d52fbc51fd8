"""Exports and packs hold the schedule and the parent."""

from __future__ import annotations

import json
from pathlib import Path

from messager_store import EventLog, NewEvent
from messager_store.experiments import lifecycle
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.pack import pack, unpack
from messager_store.formats.sharing import Sharing
from messager_store.maintenance.verify import verify
from tests.support.logs import listed, sent

PARENT = {"exp_id": "p", "head": "ab" * 32, "cursor": "5:0123456789abcdef:7"}


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


async def test_an_export_holds_the_schedule_and_the_parent(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await fork(log)
    await export_jsonl(log, "e1", tmp_path / "a.jsonl")
    header, first, *_ = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert (header["format"], header["parent"]) == ("messager/1", PARENT)
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
    assert json.loads((tmp_path / "a.pack").read_text().splitlines()[0]) == {"format": "messager-pack/1"}


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
