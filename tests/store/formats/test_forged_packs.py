"""Forged, truncated and oversized packs are refused, and leave nothing in the store."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, limits
from messager_store.errors import BadFile, StoreError
from messager_store.formats.jsonl import import_jsonl
from messager_store.formats.pack import pack, unpack
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify, verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from tests.store.formats.test_jsonl import everything, write
from tests.store.formats.test_pack import lines_of, nothing_is_in, rows, seal
from tests.support import nightly_after
from tests.support.logs import end_all, filled, sent


async def test_any_flipped_byte_is_refused_and_leaves_nothing(
    log: EventLog, other: EventLog, tmp_path: Path, nightly: bool
) -> None:
    await everything(log)
    await end_all(log)
    dice = random.Random(7)
    for ending, flips in (("pack", 600), ("pack.gz", 240)) if nightly else (("pack", 30), ("pack.gz", 12)):
        await pack(log, "e1", tmp_path / f"a.{ending}")
        data = (tmp_path / f"a.{ending}").read_bytes()
        for _ in range(flips):
            changed = bytearray(data)
            changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            (tmp_path / "flipped").write_bytes(changed)
            try:
                await unpack(other, tmp_path / "flipped")
            except BadFile:
                continue
            # gzip has bytes that say nothing of the content
            assert ending == "pack.gz" and rows(other.location) == rows(log.location)
            await remove(other, await other.experiment("e1"))
    await nothing_is_in(other)


Change = Callable[[list[dict[str, Any]]], Any]


UNSEALED = "its row was changed: it does not have its seal"

FORGERIES: dict[str, tuple[Change, str]] = {
    "another payload": (lambda p: p[5].update(payload="other"), "line 8: .*the event of seq 1 was changed"),
    "another time": (lambda p: p[5].update(ts=99), "the event of seq 1 was changed"),
    "events in another order": (lambda p: p.insert(5, p.pop(6)), "the event of seq 1 was changed"),
    "an event left out": (lambda p: p.pop(5), "batch"),
    "an event too many": (lambda p: p.insert(5, p[5]), "was changed"),
    "a batch left out": (lambda p: p.__delitem__(slice(4, 8)), "the batch after seq 0 starts at 4"),
    "a digest": (lambda p: p[4]["batch"].update(digest="00"), "do not have its digest"),
    "a commit time": (lambda p: p[4]["batch"].update(committed_at=5), "the chain does not continue"),
    "the checks": (lambda p: p[4]["batch"].update(checks="00" * 12), "the event of seq 1 was changed"),
    "too few checks": (lambda p: p[4]["batch"].update(checks="00"), "1 bytes of checks for 3 events"),
    "the times of a batch": (lambda p: p[4]["batch"].update(min_ts=-5), "do not have its times"),
    "no events in a batch": (lambda p: p[4]["batch"].update(count=0), "count is not between"),
    "a batch of too many": (lambda p: p[4]["batch"].update(count=2_000_000), "count is not between"),
    "a counter": (lambda p: p[2]["recorder"].update(sent_count=1), "its row says sent_count 1, it is 3"),
    "fewer bytes": (lambda p: p[2]["recorder"].update(payload_bytes=1), "more bytes of payload than its row"),
    "more bytes": (lambda p: p[2]["recorder"].update(payload_bytes=99), "its row says payload_bytes 99"),
    "more bytes than any disk": (lambda p: p[2]["recorder"].update(payload_bytes=2**62), "are free beside"),
    "more events than any": (
        lambda p: p[2]["recorder"].update(last_seq=2**40),
        "last_seq is not between",
    ),
    "more events than any disk": (lambda p: p[2]["recorder"].update(last_seq=2**36), "are free beside"),
    "a recorder's head": (lambda p: p[2]["recorder"].update(head_hash="00" * 32), "its row says head_hash 0000"),
    "a fact of a recorder": (lambda p: p[2]["recorder"].update(started_at=1), f"line 3: recorder 1: {UNSEALED}"),
    "a recorder that goes on": (lambda p: p[2]["recorder"].update(ended_at=None), f"line 3: recorder 1: {UNSEALED}"),
    "a recorder without seal": (lambda p: p[3]["recorder"].update(seal=None), f"line 4: recorder 2: {UNSEALED}"),
    "the head": (lambda p: p[1].update(head="00" * 32), "it names 0000"),
    "two recorders of one name": (lambda p: p[3]["recorder"].update(uuid=p[2]["recorder"]["uuid"]), "the same uuid"),
    "a recorder named like a path": (lambda p: p[2]["recorder"].update(uuid="../../x"), "not a uuid of a recorder"),
    "recorders in another order": (lambda p: p.insert(2, p.pop(3)), "recorder 2 is in the place of recorder 1"),
    "patterns that are no list": (lambda p: p[2]["recorder"].update(patterns="{}"), "patterns is not a JSON list"),
    "meta that is no JSON": (lambda p: p[2]["recorder"].update(meta="[" * 9999), "meta is not JSON"),
    "a type": (lambda p: p[2]["recorder"].update(epoch=True), "epoch is not an integer"),
    "a gathered recorder": (lambda p: p[2]["recorder"].update(epoch=-1), "line 3: epoch is not between 1 and"),
    "an epoch that cannot be raised": (
        lambda p: p[2]["recorder"].update(epoch=2**31 - 1),
        "line 3: epoch is not between 1 and",
    ),
    "a parent without cursor": (
        lambda p: p[1]["experiment"].update(parent_exp_id="p", parent_head="00" * 32),
        "line 2: parent_exp_id, parent_head and parent_cursor are not all given",
    ),
    "a cursor without parent": (
        lambda p: p[1]["experiment"].update(parent_cursor="1:u:1"),
        "line 2: parent_exp_id, parent_head and parent_cursor are not all given",
    ),
    "a parent's head that is none": (
        lambda p: p[1]["experiment"].update(parent_exp_id="p", parent_head="00", parent_cursor="1:u:1"),
        "line 2: parent_head is not a SHA-256",
    ),
    "a number too large": (lambda p: p[2]["recorder"].update(pid=2**40), "pid is not between"),
    "half a character": (lambda p: p[2]["recorder"].update(host="\ud800"), "lone surrogate"),
    "a field nobody knows": (lambda p: p[2]["recorder"].update(colour="red"), "unknown field 'colour'"),
    "a spool of its own": (lambda p: p[2]["recorder"].update(spool="/etc/passwd"), "unknown field 'spool'"),
    "a missing field": (lambda p: p[2]["recorder"].pop("role"), "role is not a string"),
    "a status there is not": (lambda p: p[1]["experiment"].update(status="importing"), "the status 'importing'"),
    "an older format": (lambda p: p[0].update(format="messager-pack/2"), "begin with the format 'messager-pack/1'"),
    "more recorders than any": (lambda p: p[1]["experiment"].update(recorders=10**6), "recorders is not between"),
    "an exp_id that nobody can type": (lambda p: p[1]["experiment"].update(exp_id="@x"), "cannot be an exp_id"),
    "a tag that cannot be printed": (lambda p: p[1].update(tags=["\x1b[31m"]), "cannot be a tag"),
    "tags that are none": (lambda p: p[1].update(tags=[5]), "a tag is not a string"),
    "another line in between": (lambda p: p.insert(3, {"recorder": 1, "x": 2}), "line 4: expected recorder"),
    "a kind there is not": (lambda p: p[5].update(kind=["sent"]), "is none of sent"),
    "no channel": (lambda p: p[5].pop("channel"), "has no channel"),
    "an id that is no JSON": (lambda p: p[5].update(from_id="{"), "an id is not JSON"),
    "an id that is not UTF-8": (
        lambda p: (p[5].pop("from_id"), p[5].update(from_id_base64="Iv8i")),
        "an id is not UTF-8",
    ),
    "an id that is kept in another way": (lambda p: p[5].update(from_id=" 1"), "not JSON in its canonical form"),
    "an id that is nested": (lambda p: p[5].update(from_id="[" * 101 + "]" * 101), "an id is nested deeper than 100"),
    "meta that is nested": (
        lambda p: p[5].update(attributes='{"m":{"a":' + "[" * 100 + "]" * 100 + "}}"),
        "meta is nested deeper than 100",
    ),
    "meta of a recorder that is nested": (
        lambda p: p[2]["recorder"].update(meta='{"a":' + "[" * 100 + "]" * 100 + "}"),
        "meta is nested deeper than 100",
    ),
    "meta of an experiment that is nested": (
        lambda p: p[1]["experiment"].update(meta='{"a":' + "[" * 100 + "]" * 100 + "}"),
        "meta is nested deeper than 100",
    ),
    "a name longer than a page": (lambda p: p[1]["experiment"].update(name="n" * 1001), "cannot be a name"),
    "more redactions than any": (lambda p: p[1].update(redactions=5001), "redactions is not between 0 and 5000"),
    "meta of an event": (lambda p: p[5].update(attributes='{"m":[]}'), "meta: it is not a JSON object"),
    "a cause in a recorder that is not": (
        lambda p: p[6].update(attributes='{"c":["x",1]}'),
        "a recorder that the pack does not have",
    ),
    "a payload twice": (lambda p: p[5].update(payload_base64="AA=="), "both payload and"),
    "no base64": (lambda p: (p[5].pop("payload"), p[5].update(payload_base64="@")), "is not base64"),
    "bytes that claim to be text": (
        lambda p: (p[5].pop("payload"), p[5].update(payload_base64="/w==")),
        "not marked as such",
    ),
    "something behind the end": (lambda p: p.append({"more": 1}), "line 29: something follows the end"),
    "nothing": (lambda p: p.clear() or p.append({}), "not a pack"),
    "an export": (lambda p: p.insert(0, {"format": "messager/1"}), "messager import"),
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the lines of a pack, parsed."""
    from tests.store.maintenance.test_verify import small_log

    async def make() -> None:
        async with EventLog.open(":memory:") as log:
            await small_log(log)
            await pack(log, "e1", path)

    path = tmp_path_factory.mktemp("packed") / "a.pack"
    asyncio.run(make())
    return json.dumps(lines_of(path))


async def test_a_forged_pack_is_refused_with_the_line_and_leaves_nothing(
    log: EventLog, packed: str, tmp_path: Path
) -> None:
    for what in FORGERIES:
        lines: list[dict[str, Any]] = json.loads(packed)
        change, complaint = FORGERIES[what]
        change(lines)
        if complaint == "are free beside" and log.database.dialect.free_bytes() is None:
            complaint = "its row says payload_bytes|the batch after seq 9"  # nobody can tell: found on the way
        with pytest.raises(StoreError, match=complaint):
            await unpack(log, seal(tmp_path / "forged.pack", lines, rows=UNSEALED not in complaint))
        await nothing_is_in(log)
        assert [verdict async for verdict in verify_all(log)] == []


def redacted_events(pack_lines: list[Any], ranges: list[list[int]]) -> str:
    """Return the column `events` of a redaction of these ranges of the only recorder."""
    uuid = pack_lines[2]["recorder"]["uuid"]
    return json.dumps({"ranges": [[uuid, *each] for each in ranges], "recorders": {uuid: 2}})


FORGED_REDACTIONS: dict[str, tuple[Change, str]] = {
    "who": (lambda p: p[3]["redaction"].update(who="somebody else"), "no redaction record matches"),
    "which events": (
        lambda p: p[3]["redaction"].update(events=redacted_events(p, [[1, 2]])),
        "no redaction record matches",
    ),
    "events that cannot be read": (lambda p: p[3]["redaction"].update(events="[]"), "table redaction was changed"),
    "more events than there are": (
        lambda p: p[3]["redaction"].update(events=redacted_events(p, [[1, 1], [7, 7]])),
        "no redaction record matches",
    ),
    "one dropped": (lambda p: (p.pop(3), p[1].update(redactions=0)), "no redaction record matches"),
    "the head it left": (lambda p: p[3]["redaction"].update(head_after="00" * 32), "is not the recorded one"),
    "one added": (
        lambda p: (
            p.insert(4, {"redaction": {**p[3]["redaction"], "events": redacted_events(p, [])}}),
            p[1].update(redactions=2),
        ),
        "names 0 events",
    ),
}


@pytest.mark.parametrize("what", nightly_after(3, FORGED_REDACTIONS))
async def test_a_pack_with_a_forged_redaction_is_refused(
    log: EventLog, other: EventLog, tmp_path: Path, what: str
) -> None:
    await filled(log, [sent(1, b"secret"), sent(2, b"plain")])
    await end_all(log)
    await redact(log, "e1", RedactionFilter(contains=("secret",)), who="me", why="asked to")
    await pack(log, "e1", tmp_path / "a.pack")
    lines = lines_of(tmp_path / "a.pack")
    await unpack(other, seal(tmp_path / "same.pack", lines))
    assert (await verify(other, await other.experiment("e1"))).ok
    await remove(other, await other.experiment("e1"))
    change, complaint = FORGED_REDACTIONS[what]
    change(lines)
    with pytest.raises(BadFile, match=complaint):
        await unpack(other, seal(tmp_path / "forged.pack", lines))
    await nothing_is_in(other)


async def test_a_pack_that_was_cut_is_refused(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await everything(log)
    for ending in ("pack", "pack.gz"):
        await pack(log, "e1", tmp_path / f"a.{ending}")
        data = (tmp_path / f"a.{ending}").read_bytes()
        for length in (0, 1, 30, len(data) // 2, len(data) - 1):
            (tmp_path / "cut").write_bytes(data[:length])
            with pytest.raises(BadFile, match="Nothing was imported"):
                await unpack(other, tmp_path / "cut")
    (tmp_path / "cut").write_bytes(gzip.decompress(data) + b"x")
    with pytest.raises(BadFile, match="something follows the end"):
        await unpack(other, tmp_path / "cut")
    await nothing_is_in(other)


async def test_a_line_without_end_does_not_fill_the_memory(
    log: EventLog, other: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(log, [sent(1, b"x" * 20_000)])
    await pack(log, "e1", tmp_path / "a.pack")
    monkeypatch.setattr(limits, "MOST_LINE", 10_000)
    with pytest.raises(StoreError, match="an event has a line that is longer than 10,000 bytes"):
        await pack(log, "e1", tmp_path / "b.pack")
    with pytest.raises(BadFile, match="longer than 10,000 bytes"):
        await unpack(other, tmp_path / "a.pack")
    await nothing_is_in(other)


async def test_a_recorder_from_the_future_is_not_alive_for_ever(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    from tests.store.maintenance.test_verify import small_log

    await small_log(log)
    await pack(log, "e1", tmp_path / "a.pack")
    lines = lines_of(tmp_path / "a.pack")
    lines[2]["recorder"].update(ended_at=None, heartbeat_at=2**62, host="elsewhere")
    of = await unpack(other, seal(tmp_path / "b.pack", lines))
    row = (await other.recorders(of))[0]
    assert row.heartbeat_at < 2**62


async def test_an_import_tells_that_a_file_is_a_pack(log: EventLog, tmp_path: Path) -> None:
    await everything(log)
    await pack(log, "e1", tmp_path / "a.pack")
    with pytest.raises(BadFile, match="this is a pack, not an export; read it with"):
        await import_jsonl(log, tmp_path / "a.pack", "e2")
    with pytest.raises(BadFile, match="read it with `messager import`"):
        await unpack(log, write(tmp_path / "a.jsonl", {"ts": 1, "channel": "c"}))


async def test_a_line_of_very_many_values_is_refused_before_it_fills_the_memory(log: EventLog, tmp_path: Path) -> None:
    for text, mark in (("[],", "]}"), ('"",', '""]}')):
        line = '{"format": "messager-pack/1", "a": [' + text * 1_100_000 + mark
        (tmp_path / "a").write_text(line + "\n")
        for reading in (unpack(log, tmp_path / "a"), import_jsonl(log, tmp_path / "a", "e1")):
            with pytest.raises(BadFile, match="made of more than 1,000,000 values"):
                await reading


async def test_a_payload_that_holds_very_many_values_is_one_string(log: EventLog, tmp_path: Path) -> None:
    payload = json.dumps({"a": ["\\", '"'] * 600_000})
    (tmp_path / "a.jsonl").write_text(json.dumps({"ts": 1, "channel": "c", "payload": payload}) + "\n")
    await import_jsonl(log, tmp_path / "a.jsonl", "e1")
    assert [entry.payload async for entry in log.read("e1")] == [payload.encode()]
