"""Packs: an experiment with its chain, restored row for row, and invisible until it is complete."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Experiment
from messager_store.errors import BadFile, ExperimentExists, RecorderExists, StoreError
from messager_store.experiments.seal import seal_of
from messager_store.formats import chain_loader
from messager_store.formats.fields import InvalidEntry
from messager_store.formats.gather import GatheredExperiment, gather
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.pack import event_lines, layout, pack, reader, unpack
from messager_store.formats.pack import writer as packing
from messager_store.log import chain_walk
from messager_store.log.chain import head as chain_head
from messager_store.log.chain import head_of
from messager_store.maintenance.removal import remove, sweep_unfinished
from messager_store.maintenance.verify import verify, verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording.closing import close
from tests.store.formats.test_jsonl import everything
from tests.support import ROOT, Stores, nightly_after, sql, until
from tests.support.logs import end_all, filled, sent

TABLES = ("experiment", "tag", "recorder", "name", "batch", "event", "redaction")


async def ended(log: EventLog, exp_id: str = "e1") -> Experiment:
    """End the recorders of an experiment, and close it."""
    of = await log.experiment(exp_id)
    await end_all(log)
    await close(log, of)
    return await log.experiment(exp_id)


async def head(log: EventLog, exp_id: str = "e1") -> str:
    of = await log.experiment(exp_id)
    return head_of(await log.recorders(of))


def rows(store: str) -> dict[str, list[Any]]:
    """Return all rows of a store, with ids replaced so that stores can be compared."""
    ordinal = "(SELECT ordinal FROM recorder WHERE id = {} >> 40)".format
    queries = {
        "experiment": "SELECT exp_id, name, status, created_at, closed_at, meta, recorders FROM experiment",
        "tag": "SELECT tag FROM tag ORDER BY tag",
        "recorder": f"SELECT {', '.join(layout.RECORDER)} FROM recorder ORDER BY ordinal",
        "batch": f"SELECT {ordinal('recorder_id << 40')}, {', '.join(layout.BATCH)} FROM batch ORDER BY 1, first_seq",
        "name": "SELECT what, value, hash, text FROM name ORDER BY 1, 2",
        "event": f"SELECT {ordinal('e.id')}, e.id & 1099511627775, ts, kind, c.value, f.value, t.value, flags, "
        "attributes, payload FROM event e "
        "LEFT JOIN name c ON c.id = channel_id LEFT JOIN name f ON f.id = from_id LEFT JOIN name t ON t.id = to_id "
        "ORDER BY 1, 2",
        "redaction": f"SELECT {', '.join(layout.REDACTION)} FROM redaction ORDER BY at",
    }
    return {table: sql(store, query) for table, query in queries.items()}


async def nothing_is_in(log: EventLog) -> None:
    async with log.database.reading() as connection:
        for table in TABLES:
            count = await connection.exec_driver_sql(f"SELECT count(*) FROM {table}")
            assert count.scalar_one() == 0, table


async def test_more_names_than_are_kept_are_looked_up_again(
    log: EventLog, store: str, other: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (chain_walk, chain_loader, event_lines):
        monkeypatch.setattr(module, "MOST_NAMES", 1)
    monkeypatch.setattr(reader, "_MOST_NAMES", 1)
    monkeypatch.setattr(chain_loader, "FLUSH_EVENTS", 3)
    monkeypatch.setattr(chain_walk, "PAGE", 8)  # so that the events are read in more than one
    await filled(log, [sent(at, b"payload", f"c{at % 7}", from_id=at % 5, to_id=str(at % 3)) for at in range(200)])
    await end_all(log)
    packed = await pack(log, "e1", tmp_path / "e1.pack")
    of = await unpack(other, tmp_path / "e1.pack", head=packed.head)
    assert rows(store) == rows(other.location)
    assert (await verify(other, of, packed.head)).ok


@pytest.mark.parametrize("ending", nightly_after(1, ["pack", "pack.gz"]))
@pytest.mark.parametrize("close", [True, False])
async def test_an_unpacked_experiment_is_the_same_row_for_row(
    log: EventLog, store: str, other: EventLog, tmp_path: Path, ending: str, close: bool
) -> None:
    await everything(log)
    await end_all(log)
    assert (await redact(log, "e1", RedactionFilter(channels=("plain",)), who="me", why="asked")).events
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET spool = '/etc/passwd'")
    if close:
        await ended(log)
    path = tmp_path / f"e1.{ending}"
    packed = await pack(log, "e1", path)
    of = await unpack(other, path, head=packed.head)
    assert (packed.events, packed.recorders, packed.recording) == (132, 2, 0)
    assert of.status == ("closed" if close else "open")
    assert rows(store) == rows(other.location)
    assert (await verify(other, of, await head(log))).problems == []
    assert [verdict.problems for verdict in [v async for v in verify_all(other)]] == [[]]
    await pack(other, "e1", tmp_path / f"again.{ending}")
    assert (tmp_path / f"again.{ending}").read_bytes() == path.read_bytes()
    async with other.database.reading() as connection:
        spools = await connection.exec_driver_sql("SELECT DISTINCT spool FROM recorder")
        assert spools.all() == [(None,)], "a path of another machine is nobody's business here"
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


async def test_an_imported_experiment_keeps_its_head_in_a_pack(
    log: EventLog, store: str, other: EventLog, tmp_path: Path
) -> None:
    await everything(log)
    await export_jsonl(log, "e1", tmp_path / "a.jsonl")
    await import_jsonl(log, tmp_path / "a.jsonl", "copy")
    await pack(log, "copy", tmp_path / "a.pack")
    of = await unpack(other, tmp_path / "a.pack", exp_id="here")
    assert (await verify(other, of, await head(log, "copy"))).problems == []
    assert of.exp_id == "here"


async def test_a_gathered_experiment_can_be_packed_and_its_recorders_are_not_gathered_ones_in_the_other_store(
    log: EventLog, stores: Stores, other: EventLog, tmp_path: Path
) -> None:
    part = stores.fresh()
    async with EventLog.open(part) as there:
        of = await there.create_experiment("e1")
        for number, ended_at in ((1, 5), (2, None)):
            writer = await there.register(of, role="tap", row={"started_at": 1, "host": "elsewhere"})
            await there.append(writer, [sent(number)])
            await there.touch(writer, heartbeat_at=5, **({} if ended_at is None else {"ended_at": ended_at}))
    assert [done.status async for done in gather(log, [part]) if isinstance(done, GatheredExperiment)] == ["open"]
    assert [row.state for row in await log.recorders()] == ["ended", "incomplete"]
    packed = await pack(log, "e1", tmp_path / "a.pack")
    of = await unpack(other, tmp_path / "a.pack", head=packed.head)
    assert [(row.state, row.gathered) for row in await other.recorders(of)] == [("ended", False), ("unclean", False)]
    [problem] = (await verify(other, of, await head(log))).problems
    assert problem.startswith("recorder 2: ended uncleanly")
    async with EventLog.open(part) as there:
        await there.append(writer := await there.take_over(writer.uuid), [sent(3)])
        await there.touch(writer, heartbeat_at=6, ended_at=6)
    assert [isinstance(done, GatheredExperiment) async for done in gather(other, [part])] == [True]
    assert [entry.ts async for entry in other.read("e1")] == [1, 2, 3]
    assert (await verify(other, await other.experiment("e1"))).problems == []


async def test_an_empty_experiment_can_be_packed(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await log.create_experiment("e1", name="nothing yet", tags=[], meta={})
    await pack(log, "e1", tmp_path / "a.pack")
    of = await unpack(other, tmp_path / "a.pack")
    assert (of.name, of.status, of.recorders) == ("nothing yet", "open", 0)


async def test_a_running_experiment_is_packed_as_it_was_when_packing_began(
    log: EventLog, other: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = await log.create_experiment("e1")
    writers = [await log.register(of, role="tap") for _ in range(2)]
    for writer in writers:
        await log.append(writer, [sent(at) for at in range(1500)])
    before = [row.head_hash for row in await log.recorders(of)]

    async def record() -> None:
        for number in range(20):
            for writer in writers:
                await log.append(writer, [sent(number)])

    async def overtaken(*arguments: Any) -> Any:
        taken = await snapshot(*arguments)
        await record()
        return taken

    snapshot = packing._snapshot
    monkeypatch.setattr(packing, "_snapshot", overtaken)
    packed = await pack(log, "e1", tmp_path / "a.pack")
    assert packed.recording == 2
    made = await unpack(other, tmp_path / "a.pack")
    verdict = await verify(other, made, packed.head)
    assert (verdict.problems, verdict.events, made.status) == ([], 3000, "open")
    rows = await other.recorders(made)
    assert [row.head_hash for row in rows] == before != [row.head_hash for row in await log.recorders(of)]
    assert [row.state for row in rows] == ["ended"] * 2, "nobody records into the copy"


async def test_what_cannot_be_unpacked_is_not_packed(log: EventLog, store: str, tmp_path: Path) -> None:
    await filled(log, [sent(at, b"payload") for at in range(5)])
    await end_all(log)
    sql(store, "UPDATE recorder SET role = 'messager'")
    with pytest.raises(StoreError, match=r"cannot be packed: recorder 1: its row was changed"):
        await pack(log, "e1", tmp_path / "a.pack")
    sql(store, "UPDATE recorder SET role = 'tap'", "UPDATE event SET payload = x'70' WHERE id & 255 = 3")
    with pytest.raises(StoreError, match=r"cannot be packed: .*the event of seq 3 was changed.*messager verify"):
        await pack(log, "e1", tmp_path / "a.pack")
    for change in ("DELETE FROM event WHERE id & 255 = 4", "DELETE FROM batch", "UPDATE event SET payload = x'00'"):
        sql(store, change)
        with pytest.raises(StoreError, match="cannot be packed"):
            await pack(log, "e1", tmp_path / "a.pack")
    assert os.listdir(tmp_path) == [name for name in os.listdir(tmp_path) if name.startswith("log.db")]


async def test_a_store_holds_a_recording_once(log: EventLog, tmp_path: Path) -> None:
    await everything(log)
    known = (await pack(log, "e1", tmp_path / "a.pack")).head
    before = rows(log.location)
    for exp_id in (None, "twice"):
        with pytest.raises(RecorderExists, match="is here already, in the experiment 'e1'; a store holds"):
            await unpack(log, tmp_path / "a.pack", exp_id=exp_id)
    assert rows(log.location) == before
    of = await log.experiment("e1")
    await remove(log, of)
    assert (await verify(log, await unpack(log, tmp_path / "a.pack"), known)).problems == []


async def test_a_recording_does_not_go_into_another_of_its_name(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await everything(log)
    await pack(log, "e1", tmp_path / "a.pack")
    await filled(other, [sent(1)])
    before = rows(other.location)
    with pytest.raises(ExperimentExists, match="another --exp"):
        await unpack(other, tmp_path / "a.pack")
    assert rows(other.location) == before


async def test_another_head_is_refused(log: EventLog, other: EventLog, tmp_path: Path) -> None:
    await everything(log)
    await pack(log, "e1", tmp_path / "a.pack")
    with pytest.raises(BadFile, match=r"its head is [0-9a-f]{64}, not 00000000"):
        await unpack(other, tmp_path / "a.pack", head="00000000")
    await nothing_is_in(other)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def seal(path: Path, lines: list[dict[str, Any]], *, rows: bool = True) -> Path:
    """Write a pack with a correct last line, and with `rows` with correct seals and head, as a forger would."""
    import hashlib

    if rows:
        _seal_rows(lines)
    data = "".join(json.dumps(line) + "\n" for line in lines[:-1]).encode()
    path.write_bytes(data + json.dumps({"end": hashlib.sha256(data).hexdigest()}).encode() + b"\n")
    return path


def _seal_rows(lines: list[dict[str, Any]]) -> None:
    heads, changed = [], False
    for line in lines:
        if isinstance(data := line.get("recorder"), dict):
            try:
                row = layout.row_from_json(layout.RECORDER, data)
            except InvalidEntry:
                return
            fits = seal_of(row)
            changed |= row["seal"] != fits
            data["seal"] = fits and fits.hex()
            heads.append((row["uuid"], fits or row["head_hash"]))
    if changed:
        lines[1]["head"] = chain_head(heads)


async def test_unpacking_is_invisible_until_it_is_complete_and_nobody_sweeps_it_meanwhile(
    log: EventLog, other: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_loader, "FLUSH_EVENTS", 50)
    await everything(log)
    await pack(log, "e1", tmp_path / "a.pack")
    seen: list[int] = []
    swept: list[asyncio.Task[int]] = []

    def look(done: int, total: int) -> None:
        seen.append(sql(other.location, "SELECT count(*) FROM event")[0][0])
        assert sql(other.location, "SELECT count(*) FROM event_view") == [(0,)]
        assert sql(other.location, "SELECT count(*) FROM experiment WHERE exp_id = 'e1'") == [(0,)]
        swept.append(asyncio.create_task(sweep_unfinished(other)))

    await unpack(other, tmp_path / "a.pack", progress=look)
    assert seen == [50, 100]
    assert await asyncio.gather(*swept) == [0, 0]
    assert (await verify(other, await other.experiment("e1"))).problems == []


KILLED = """
import asyncio, sys
from messager_store import EventLog
from messager_store.formats import chain_loader
from messager_store.formats.pack import unpack
chain_loader.FLUSH_EVENTS = 50
def look(done, total):
    print(done, flush=True)
    sys.stdin.read()
async def main():
    async with EventLog.open(sys.argv[1]) as log:
        await unpack(log, sys.argv[2], progress=look)
asyncio.run(main())
"""


async def test_what_a_killed_unpacking_left_is_invisible_and_cleared_away_by_the_next(
    log: EventLog, other: EventLog, tmp_path: Path
) -> None:
    await everything(log)
    await pack(log, "e1", tmp_path / "a.pack")
    lines = lines_of(tmp_path / "a.pack")
    lines[2]["recorder"].update(ended_at=None)  # as if it still ran, in this very process
    seal(tmp_path / "a.pack", lines)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, other.location, str(tmp_path / "a.pack")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None and process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == b"50\n"
    with pytest.raises(RecorderExists, match="being unpacked, or removed, right now"):
        await unpack(other, tmp_path / "a.pack")
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    process.stdin.close()
    process.stdout.close()
    await until(lambda: process.poll() is not None)
    assert await other.experiments() == []
    of = await unpack(other, tmp_path / "a.pack")
    assert rows(other.location)["event"] == rows(log.location)["event"]
    assert (await verify(other, of, lines[1]["head"])).problems == []
    assert [verdict.ok async for verdict in verify_all(other)] == [True]
