"""Redacted logs: new chain and redaction records, detection of later changes, and kills."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import pytest

from messager_store import EventLog
from messager_store.errors import DamagedStore, RecorderFenced, StoreError
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.maintenance.verify import verify
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries.comparison.compare import compare
from messager_store.queries.status import status
from messager_store.recording.closing import close
from tests.store.privacy.test_redaction import SECRET, WHERE, on_disk, secrets
from tests.support import Stores, messager, sql
from tests.support.logs import experiment, listed, sent


async def test_a_recorder_that_was_taken_for_dead_cannot_go_on_from_the_old_chain(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(1, SECRET)])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 1")
    await redact(log, "e1", WHERE, who="me", why="x")
    with pytest.raises(RecorderFenced):
        await log.append(writer, [sent(2)])
    writer = await log.take_over(writer.uuid)
    await log.append(writer, [sent(2)])
    await log.touch(writer, ended_at=1)
    assert (await verify(log, of)).problems == []


@pytest.mark.parametrize(
    "change",
    [
        """UPDATE event SET attributes = '{"r":9}' WHERE id = (1 << 40 | 1)""",
        "UPDATE batch SET chain_hash = x'00' WHERE recorder_id = 1 AND first_seq = 4",
        "UPDATE batch SET min_ts = 1 WHERE recorder_id = 1 AND first_seq = 4",
        "UPDATE recorder SET head_hash = x'00' WHERE id = 1",
        "UPDATE recorder SET started_at = 1 WHERE id = 1",
    ],
)
async def test_a_log_that_was_tampered_with_is_not_sealed_again(log: EventLog, store: str, change: str) -> None:
    of = await experiment(log)
    await secrets(log, of)
    assert len(sql(store, f"{change} RETURNING 1")) == 1
    with pytest.raises(DamagedStore, match="nothing was redacted"):
        await redact(log, "e1", RedactionFilter(cursors=("2:1:3",)), who="me", why="x")
    assert not any(entry.redacted for entry in await listed(log.read("e1")))


TAMPERED = {
    "DELETE FROM redaction WHERE id = 1": "no redaction record matches",
    "DELETE FROM redaction WHERE id = 2": "no redaction record matches",
    "UPDATE redaction SET who = 'another' WHERE id = 1": "no redaction record matches",
    "UPDATE redaction SET why = 'another' WHERE id = 2": "no redaction record matches",
    "UPDATE redaction SET at = at + 1 WHERE id = 2": "no redaction record matches",
    "UPDATE redaction SET at = 2.5 WHERE id = 2": "redaction",  # PostgreSQL makes it an integer
    "UPDATE redaction SET head_before = x'00' WHERE id = 1": "no redaction record matches",
    "UPDATE redaction SET head_after = x'00' WHERE id = 1": "no redaction record matches",
    "UPDATE redaction SET head_after = x'00' WHERE id = 2": "is not the recorded one",
    "UPDATE batch SET chain_hash = 'x' WHERE recorder_id = 1 AND first_seq = "
    "(SELECT max(first_seq) FROM batch WHERE recorder_id = 1)": "is not the recorded one",
    "UPDATE redaction SET events = '{}' WHERE id = 2": "a row of table redaction was changed",
    "UPDATE redaction SET events = 'x' WHERE id = 2": "a row of table redaction was changed",
    'UPDATE redaction SET events = \'{"ranges": [["\' || origin || \'", 1, 1]], "recorders": {}}\' WHERE id = 2': (
        "was not redacted"
    ),
    'UPDATE redaction SET events = \'{"ranges": [[1, 1, 1]], "recorders": [9, 9]}\' WHERE id = 2': "was changed",
    "UPDATE redaction SET origin = 'x' WHERE id = 2": "no redaction record matches",
    "INSERT INTO redaction SELECT 3, experiment_id, who, at, why, events, head_before, head_after, origin "
    "FROM redaction WHERE id = 2": "no redaction record matches",
    'INSERT INTO redaction SELECT 3, experiment_id, who, at, why, \'{"ranges": [], "recorders": {}}\', '
    "head_before, head_after, origin FROM redaction WHERE id = 2": "names 0 events",
    "UPDATE event SET flags = flags - 8 WHERE id = (1 << 40 | 8)": "was not redacted",
    "UPDATE event SET payload = x'20' WHERE id = (1 << 40 | 8)": "redacted, but has a payload",
    "UPDATE event SET flags = flags + 8 WHERE id = (1 << 40 | 1)": "redacted, but has a payload",
}


async def test_a_redaction_that_was_removed_added_or_changed_is_found(stores: Stores) -> None:
    store = stores.fresh()
    async with EventLog.open(store) as log:
        of = await experiment(log)
        await secrets(log, of)
        await redact(log, "e1", RedactionFilter(kinds=("mark",)), who="me", why="first")
        await redact(log, "e1", RedactionFilter(channels=("d",)), who="me", why="second")
        assert (await verify(log, of)).problems == []
    for change, found in TAMPERED.items():
        copy = stores.copy(store)
        assert len(sql(copy, f"{change} RETURNING 1")) == 1
        async with EventLog.open(copy) as log:
            problems = (await verify(log, of)).problems
        assert any(found in problem for problem in problems), (change, problems)


async def test_an_open_experiment_goes_on_after_a_redaction_and_still_verifies(log: EventLog) -> None:
    of = await experiment(log)
    await secrets(log, of)
    await redact(log, "e1", RedactionFilter(kinds=("mark",)), who="me", why="first")
    await secrets(log, of)
    await redact(log, "e1", WHERE, who="me", why="second")
    await secrets(log, of)
    await close(log, of)
    await redact(log, "e1", RedactionFilter(kinds=("received",)), who="me", why="third")
    verdict = await verify(log, await log.experiment("e1"))
    assert verdict.problems == [] and verdict.events == 54
    assert len([note for note in verdict.notes if "redacted on" in note]) == 3


async def test_an_old_head_is_recognised(log: EventLog) -> None:
    of = await experiment(log)
    await secrets(log, of)
    result = await redact(log, "e1", WHERE, who="me", why="asked to")
    (problem,) = (await verify(log, of, result.head_before[:12])).problems
    assert "that was its head before the redaction of 20" in problem and "by me (asked to)" in problem
    assert (await verify(log, of, result.head_after)).ok
    (problem,) = (await verify(log, of, "0" * 64)).problems
    assert "redaction" not in problem


async def test_a_copy_carries_the_flag_and_can_be_redacted_itself(log: EventLog, tmp_path: Path) -> None:
    await secrets(log, await experiment(log))
    await redact(log, "e1", RedactionFilter(kinds=("mark",)), who="me", why="x")
    await export_jsonl(log, "e1", tmp_path / "a.jsonl")
    of = await import_jsonl(log, tmp_path / "a.jsonl", "copy")
    verdict = await verify(log, of)
    assert verdict.problems == [] and "1 event had been redacted before they were imported" in verdict.notes
    await export_jsonl(log, "copy", tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (await redact(log, "copy", WHERE, who="me", why="x")).events == 3
    assert (await verify(log, of)).problems == []
    assert (await compare(log, "e1", "copy")).redacted == 2


async def test_an_import_refuses_a_redaction_that_is_none(log: EventLog, tmp_path: Path) -> None:
    for more in [{"redacted": 1}, {"redacted": True, "payload": "x"}, {"redacted": True, "meta": {"redaction": "00"}}]:
        (tmp_path / "a.jsonl").write_text(json.dumps({"ts": 1, "channel": "c", **more}) + "\n")
        with pytest.raises(StoreError, match="line 1"):
            await import_jsonl(log, tmp_path / "a.jsonl", "e1")


KILLED = """
import asyncio, os, signal, sys
from messager_store import EventLog
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter

async def main():
    async with EventLog.open(sys.argv[1]) as log:
        await redact(log, "e1", RedactionFilter(kinds=("sent",)), who="me", why="x")

import messager_store.privacy.redaction as room
if sys.argv[2] == "inside":
    room.insert = lambda table: os.kill(os.getpid(), signal.SIGKILL)
else:
    from messager_store.db.database import Database
    Database.rewrite = lambda self: os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.parametrize(("place", "redacted"), [("inside", 0), ("before the scrub", 15)])
async def test_a_kill_leaves_the_old_log_or_the_new_one(log: EventLog, store: str, place: str, redacted: int) -> None:
    of = await experiment(log)
    await secrets(log, of)
    call = [sys.executable, "-c", KILLED, store, place]
    died = await asyncio.to_thread(subprocess.run, call, capture_output=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    verdict = await verify(log, of)
    assert verdict.problems == []
    assert len([entry for entry in await listed(log.read("e1")) if entry.redacted]) == redacted
    told = [str((await status(log, min_free=0)).problems), str(verdict.notes)]
    assert [("messager redact --scrub" in text) for text in told] == [redacted > 0] * 2
    nothing = await redact(log, "e1", RedactionFilter(contains=("nobody said this",)), who="me", why="x")
    assert (nothing.events, nothing.done_before) == (0, 0)
    told = [str((await status(log, min_free=0)).problems), str((await verify(log, of)).notes)]
    assert "--scrub" not in "".join(told)


async def test_what_was_redacted_and_not_scrubbed_goes_with_the_next_redaction(
    log: EventLog, store: str, tmp_path: Path
) -> None:
    of = await experiment(log)
    await secrets(log, of)
    call = [sys.executable, "-c", KILLED.replace('kinds=("sent",)', f"contains=({SECRET.decode()!r},)"), store, ""]
    died = await asyncio.to_thread(subprocess.run, call, capture_output=True, timeout=60)
    assert died.returncode == -signal.SIGKILL and await log.database.rewrite_wanted()
    assert SECRET + SECRET in on_disk(store)
    call = ["redact", "e1", "--where", f"contains={SECRET.decode()}", "--why", "x", "--yes", "--store", store]
    again = await asyncio.to_thread(messager, *call, cwd=tmp_path)
    assert again.returncode == 1 and "interrupted" in again.stderr, again.stderr
    assert SECRET + SECRET not in on_disk(store) and not await log.database.rewrite_wanted()


async def test_a_rewrite_leaves_the_mark_of_a_redaction_that_came_meanwhile(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file, on_server = aiosqlite.Connection.execute_fetchall, asyncpg.Connection.execute

    async def then_in_file(self: Any, statement: str, *more: Any) -> Any:
        rows = await in_file(self, statement, *more)
        if statement == "VACUUM":
            await in_file(self, "PRAGMA user_version=77")
        return rows

    async def then_on_server(self: Any, statement: str, *given: Any, **more: Any) -> Any:
        done = await on_server(self, statement, *given, **more)
        if statement == "VACUUM (FULL) event":
            sql(store, "COMMENT ON INDEX ix_event_replay IS 'another'")
        return done

    async with log.database.writing() as connection:
        await log.database.dialect.want_rewrite(connection)
    with monkeypatch.context() as patched:
        patched.setattr(aiosqlite.Connection, "execute_fetchall", then_in_file)
        patched.setattr(asyncpg.Connection, "execute", then_on_server)
        assert await log.database.rewrite() is None
    assert await log.database.rewrite_wanted()
    assert await log.database.rewrite() is None and not await log.database.rewrite_wanted()
