"""Redaction removes the selected payloads from the log and from every byte of the file, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.db.codes import SEQ_BITS
from messager_store.errors import ExperimentBusy, ScrubUnfinished, StoreError
from messager_store.formats.jsonl import export_jsonl
from messager_store.formats.pack import pack
from messager_store.maintenance.verify import verify
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter, find
from messager_store.privacy.scrubbing import scrub
from messager_store.recording.closing import close
from messager_store.testing import transaction
from tests.support import nightly_after, sql
from tests.support.logs import end_all, experiment, filled, listed, sent

SECRET = b"Marguerite Yourcenar"


def on_disk(store: str) -> bytes:
    """Return the bytes of the store and its journals, or of the tables and indexes on a server."""
    if "://" in store:
        where = "current_setting('data_directory') || '/' || pg_relation_filepath(oid)"
        query = f"SELECT {where} FROM pg_class WHERE relkind IN ('r', 'i', 't') AND pg_relation_filepath(oid) <> ''"
        return b"".join(Path(path).read_bytes() for (path,) in sql(store, "CHECKPOINT", query) if os.path.exists(path))
    return b"".join(Path(store + end).read_bytes() for end in ("", "-wal", "-shm") if os.path.exists(store + end))


async def secrets(log: EventLog, of: Experiment, size: int = 100, *, ended: bool = True) -> None:
    """Create two recorders with the secret in the payloads of seqs 3, 4 and 8 of the first and 2 of the second."""
    secret = json.dumps({"from": "Marguerite Yourcenar", "content": SECRET.decode() * (size // 20 + 1)}).encode()
    for ordinal in (1, 2):
        writer = await log.register(of, role="messager")
        for part in range(3):
            events = [sent(part * 10 + at, b'{"content": "plain"}', from_id=1, msg_id="m") for at in range(3)]
            if ordinal == 1 and part == 0:
                events[2] = sent(2, secret, from_id="Marguerite Yourcenar", flags=1, msg_id="m3")
            if ordinal == 1 and part == 1:
                events[0] = NewEvent("received", 10, "d", secret, to_id=9)
            if ordinal == 1 and part == 2:
                fields = {"note": SECRET.decode()}
                events[1] = NewEvent("mark", 21, None, b"", meta={"name": "tick", "fields": fields})
            if ordinal == 2 and part == 0:
                meta = {"outcome": "unknown", "error": f"no: {SECRET.decode()}"}
                events[1] = NewEvent("failed", 1, "c", b"", meta=meta)
            await log.append(writer, events)
        if ended:
            await log.touch(writer, ended_at=1)


WHERE = RedactionFilter(contains=(SECRET.decode(),))


@pytest.mark.databases
@pytest.mark.parametrize(
    ("size", "closed"), nightly_after(1, [(100_000, True), *itertools.product((100, 1_000_000), (True, False))])
)
async def test_what_is_redacted_is_in_no_byte_of_the_store_any_more(
    log: EventLog, store: str, size: int, closed: bool
) -> None:
    of = await experiment(log)
    await secrets(log, of, size)
    if closed:
        await close(log, of)
    assert SECRET in on_disk(store)
    old = (await verify(log, of)).head
    result = await redact(log, "e1", WHERE, who="me", why="asked to", ids=True)
    assert (result.events, result.kinds) == (4, {"sent": 1, "received": 1, "mark": 1, "failed": 1})
    assert SECRET not in on_disk(store)
    verdict = await verify(log, await log.experiment("e1"))
    assert verdict.problems == []
    assert verdict.head == result.head_after != result.head_before == old


@pytest.mark.databases
async def test_the_reason_for_which_an_interceptor_blocked_a_message_goes_with_it(
    log: EventLog, store: str, tmp_path: Path
) -> None:
    """It may quote the message, and no text that was searched for tells which part of it is private."""
    of = await experiment(log)
    writer = await log.register(of, role="messager")
    meta = {"interceptor": "Guard", "reason": f"not for 7: {SECRET.decode()}"}
    for at in range(0, 300, 50):
        payloads = [b'{"content": "' + SECRET + b' %d"}' % n for n in range(at, at + 50)]
        await log.append(writer, [NewEvent("blocked", at, "c", payload, 1, 7, meta=meta) for payload in payloads])
    await log.append(writer, [NewEvent("gap", 300, None, b"", meta={"reason": "outage", "since": 1, "until": 2})])
    await log.touch(writer, ended_at=1)
    await close(log, of)
    assert SECRET in on_disk(store)
    await redact(log, "e1", RedactionFilter(since=(0,)), who="me", why="asked to")
    await export_jsonl(log, "e1", tmp_path / "e1.jsonl")
    await pack(log, "e1", tmp_path / "e1.pack")
    copies = (tmp_path / "e1.jsonl").read_bytes(), (tmp_path / "e1.pack").read_bytes()
    assert [SECRET in copy for copy in (on_disk(store), *copies)] == [False] * 3
    *_, gap = await listed(log.read("e1"))
    assert gap.meta is not None and gap.meta["reason"] == "outage"


@pytest.mark.sqlite  # about its pages; a server writes its tables anew whatever they hold
async def test_copies_in_free_pages_and_in_split_pages_go_too(log: EventLog, store: str) -> None:
    of = await experiment(log)
    writers = [await log.register(of, role="tap") for _ in range(3)]
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("PRAGMA secure_delete=OFF")  # some builds of SQLite have it on
    for at in range(60):  # in between each other, so that pages are split
        for writer in writers:
            payload = SECRET + bytes(str(at), "ascii") * 40
            await log.append(writer, [sent(at, payload if writer is writers[0] else b"x" * 700)])
    for writer in writers:
        await log.touch(writer, ended_at=1)
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA secure_delete=OFF")
        connection.execute("CREATE TABLE was AS SELECT * FROM event")
        connection.execute("DROP TABLE was")
    connection.close()
    await redact(log, "e1", WHERE, who="me", why="asked to")
    assert SECRET not in on_disk(store)
    assert (await verify(log, of)).problems == []


@pytest.mark.sqlite  # a server overwrites nothing before its tables are rewritten
async def test_a_redaction_whose_rewrite_fails_has_overwritten_what_it_deleted(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rewrite(connection: object) -> str:
        return "the disk is full"

    await secrets(log, await experiment(log), 100_000)
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("PRAGMA secure_delete=OFF")  # some builds of SQLite have it on
    monkeypatch.setattr(log.database.dialect, "rewrite", rewrite)
    with pytest.raises(ScrubUnfinished):
        await redact(log, "e1", WHERE, who="me", why="asked to", ids=True)
    await log.close()  # which moves everything from the write-ahead log into the file
    assert SECRET not in on_disk(store)


async def test_the_rest_of_the_log_stays_as_it_is(log: EventLog) -> None:
    of = await experiment(log)
    await secrets(log, of)
    before = await listed(log.read("e1"))
    await redact(log, "e1", WHERE, who="me", why="asked to")
    after = await listed(log.read("e1"))
    assert len(after) == len(before) == 18
    for old, new in zip(before, after, strict=True):
        assert (old.cursor, old.kind, old.channel, old.to_id) == (new.cursor, new.kind, new.channel, new.to_id)
        if not new.redacted:
            assert old == new
            continue
        assert (new.payload, new.msg_id, new.from_id) == (b"", None, old.from_id)
        assert SECRET.decode() not in json.dumps(new.meta)
        assert new.meta is not None and new.meta.keys() <= {"name", "outcome", "redaction"}
    assert [entry.text for entry in after if entry.redacted] == [
        "[redacted]",
        "[redacted]",
        "[redacted]",
        "tick [redacted]",
    ]


@pytest.mark.databases
async def test_ids_go_when_asked_for_and_names_that_nobody_needs_with_them(log: EventLog, store: str) -> None:
    of = await experiment(log)
    await secrets(log, of)
    await redact(log, "e1", WHERE, who="me", why="asked to")
    assert SECRET in on_disk(store)  # the sender's name
    done = await redact(
        log, "e1", RedactionFilter(senders=(("Marguerite Yourcenar",),)), who="me", why="more", ids=True
    )
    assert done.events == 1
    assert SECRET not in on_disk(store)
    assert {entry.from_id for entry in await listed(log.read("e1"))} == {1, None}
    assert (await verify(log, of)).problems == []


async def test_a_secret_that_is_escaped_or_nested_is_found(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    nested = json.dumps({"content": json.dumps({"content": 'Zo\u00eb "Z"'})})
    await log.append(writer, [sent(1, nested.encode()), sent(2, '{"a": "Zo\u00eb"}'.encode()), sent(3, b"\xff Zoe")])
    await log.touch(writer, ended_at=1)
    for where, count in (
        (RedactionFilter(contains=("Zo\u00eb",)), 2),
        (RedactionFilter(contains=('Zo\u00eb "Z"',)), 1),
        (RedactionFilter(contains=("Zoe",)), 1),
        (RedactionFilter(matches=("^Zo.$",)), 1),
        (RedactionFilter(matches=("Zo.",), contains=("a",)), 1),
        (RedactionFilter(contains=("nobody",)), 0),
    ):
        assert (await redact(log, "e1", where, who="me", why="x", dry_run=True)).events == count, where


async def test_conditions_choose_and_all_of_them_must_hold(log: EventLog) -> None:
    of = await experiment(log)
    await secrets(log, of)
    for where, seqs in [
        (RedactionFilter(kinds=("mark",)), [(1, 8)]),
        (RedactionFilter(channels=("d",)), [(1, 4)]),
        (RedactionFilter(channels=("d", "c")), []),
        (RedactionFilter(agents=((9,),)), [(1, 4)]),
        (RedactionFilter(recipients=((9, "9"),)), [(1, 4)]),
        (RedactionFilter(senders=(("9",),)), []),
        (RedactionFilter(cursors=("10:2:4",)), [(2, 4)]),
        (RedactionFilter(cursors=("11:2:4",)), []),
        (RedactionFilter(cursors=("10:7:4",)), []),
        (RedactionFilter(since=("21:1:8",)), [(1, 8), (1, 9), (2, 8), (2, 9)]),
        (RedactionFilter(since=("21:2:8",)), [(1, 9), (2, 8), (2, 9)]),
        (RedactionFilter(until=("1:2:2",)), [(1, 1), (1, 2), (2, 1)]),
        (RedactionFilter(since=(20,), until=("mark:tick",), kinds=("sent",)), [(1, 7), (2, 7)]),
    ]:
        found = await find(log, of, where, await log.recorders(of))
        assert sorted(divmod(number, 1 << SEQ_BITS) for number in found.ids) == seqs, where


async def test_a_dry_run_changes_nothing(log: EventLog, store: str) -> None:
    of = await experiment(log)
    await secrets(log, of)
    before = await listed(log.read("e1"))
    result = await redact(log, "e1", WHERE, who="me", why="x", dry_run=True)
    assert (result.events, result.channels, result.dry_run) == (4, {"c": 2, "d": 1, "(no channel)": 1}, True)
    assert await listed(log.read("e1")) == before and (await verify(log, of)).head == result.head_before


async def test_the_same_redaction_again_does_nothing_but_finish(log: EventLog) -> None:
    of = await experiment(log)
    await secrets(log, of)
    where = RedactionFilter(kinds=("mark",))
    first = await redact(log, "e1", where, who="me", why="x")
    again = await redact(log, "e1", where, who="me", why="x")
    assert (again.events, again.done_before, again.head_after) == (0, 1, first.head_after)
    assert len((await verify(log, of)).notes) == 1


async def test_conditions_that_make_no_sense_are_refused(log: EventLog) -> None:
    await secrets(log, await experiment(log))
    for where in [
        RedactionFilter(),
        RedactionFilter(contains=("",)),
        RedactionFilter(matches=("(",)),
        RedactionFilter(kinds=("x",)),
        RedactionFilter(cursors=("x",)),
    ]:
        with pytest.raises(StoreError):
            await redact(log, "e1", where, who="me", why="x")
        with pytest.raises(StoreError, match="say who and why"):
            await redact(log, "e1", WHERE, who="me", why=" ")


async def test_nobody_redacts_under_a_recorder_that_is_alive(log: EventLog) -> None:
    of = await experiment(log)
    await secrets(log, of, ended=False)
    with pytest.raises(ExperimentBusy, match="recorder 1"):
        await redact(log, "e1", WHERE, who="me", why="x")
    assert not any(entry.redacted for entry in await listed(log.read("e1")))


async def test_what_waits_in_a_spool_is_drained_first(log: EventLog, tmp_path: Path) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="messager", spool=str(tmp_path / "spool"))
    await log.append(writer, [sent(1, SECRET)])
    await log.touch(writer, ended_at=1)
    (tmp_path / "spool").write_bytes(b"waiting")
    with pytest.raises(StoreError, match="messager drain"):
        await redact(log, "e1", WHERE, who="me", why="x")
    (tmp_path / "spool").unlink()
    assert (await redact(log, "e1", WHERE, who="me", why="x")).events == 1


async def test_a_spool_on_a_host_that_is_gone_may_hold_more(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="messager", spool="/nowhere/spool")
    await log.append(writer, [sent(1, SECRET)])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 1, host = 'elsewhere'")
    with pytest.raises(StoreError, match=r"elsewhere.*Drain it there"):
        await redact(log, "e1", WHERE, who="me", why="x")


@contextlib.contextmanager
def reading_an_old_state(store: str) -> Iterator[None]:
    """Context with an open read transaction, which still sees the former content."""
    if "://" in store:
        with transaction(store, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM event"):
            yield
        return
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM event").fetchone()
        yield


async def test_a_reader_of_an_old_state_keeps_the_file_and_is_told_of(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await secrets(log, await experiment(log), 100_000)
    monkeypatch.setattr("messager_store.db.sqlite.dialect.REWRITE_SECONDS", 0.0)
    monkeypatch.setattr("messager_store.db.postgres.dialect.REWRITE_SECONDS", 0.0)
    monkeypatch.setattr("messager_store.db.sqlite.dialect.BUSY_TIMEOUT_MS", 100)
    await log.close()
    await log.database.open()  # with the short time
    with reading_an_old_state(store):
        with pytest.raises(ScrubUnfinished, match=r"another program reads an old state .*messager redact --scrub"):
            await redact(log, "e1", WHERE, who="me", why="x", ids=True)
        assert SECRET in on_disk(store)
        assert len([entry for entry in await listed(log.read("e1")) if entry.redacted]) == 4
        assert await log.database.rewrite_wanted()
    await scrub(log)
    assert not await log.database.rewrite_wanted()
    assert SECRET not in on_disk(store)


@pytest.mark.parametrize("times", [1, 9])
async def test_what_is_written_while_events_are_looked_for_is_looked_at_too(
    log: EventLog, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    of = await experiment(log)
    await secrets(log, of)
    left = times

    async def slow(*arguments: Any, **more: Any) -> Any:
        nonlocal left
        found = await find(*arguments, **more)
        if left:
            left -= 1
            writer = await log.register(of, role="messager")
            await log.append(writer, [sent(99, SECRET)])
            await log.touch(writer, ended_at=1)
        return found

    monkeypatch.setattr("messager_store.privacy.redaction.find", slow)
    if times > 1:
        with pytest.raises(ExperimentBusy, match="no recorder writes"):
            await redact(log, "e1", WHERE, who="me", why="x")
        assert not any(entry.redacted for entry in await listed(log.read("e1")))
        return
    assert (await redact(log, "e1", WHERE, who="me", why="x")).events == 5
    assert (await verify(log, of)).problems == []


NAME = "Zo\u00eb Quinn"


ESCAPED = json.dumps({"content": NAME})


async def test_a_name_is_found_however_it_is_wrapped(log: EventLog) -> None:
    wrapped = [
        '{"content": "Zo\\u00eb Quinn", "content": "x"}',
        json.dumps({"content": '{"content": "Zo\\u00eb Quinn", "content": "x"}'}),
        '{"a": 1}\n' + ESCAPED + "\n",
        "data: " + ESCAPED,
        json.dumps("data: " + json.dumps("data: " + ESCAPED)),
        "[" * 5000 + '"Zo\\u00eb Quinn"' + "]" * 5000,
        "Zoe\u0308 Quinn",
        "data: " + json.dumps("Zoe\u0308 Quinn"),
    ]
    others = [sent(98, b"plain"), sent(99, "Zoe\u0301 Quinn".encode())]
    of = await filled(log, [*(sent(at, payload.encode()) for at, payload in enumerate(wrapped)), *others])
    for where in (RedactionFilter(contains=(NAME,)), RedactionFilter(matches=(NAME[:3] + r"\s",))):
        found = await find(log, of, where, await log.recorders(of))
        assert [number & 0xFF for number in found.ids] == [at + 1 for at in range(len(wrapped))]


async def test_a_pair_of_escapes_is_one_character(log: EventLog) -> None:
    of = await filled(log, [sent(1, b'data: "\\ud83d\\ude00!"')])
    where = RedactionFilter(contains=("\U0001f600!",))
    assert len((await find(log, of, where, await log.recorders(of))).ids) == 1


async def test_what_is_kept_of_a_mark_holds_none_of_several_texts(log: EventLog) -> None:
    meta = {"name": "Zoe's party", "fields": {"guest": "Quinn"}}
    await filled(log, [NewEvent("mark", 1, None, b"", meta=meta)])
    await end_all(log)
    where = RedactionFilter(contains=("Zoe", "Quinn"))
    assert (await redact(log, "e1", where, who="me", why="x")).events == 1
    assert "Zoe" not in str(await listed(log.read("e1")))


@pytest.mark.parametrize(
    "where", [RedactionFilter(contains=("Yourcenar", "x9")), RedactionFilter(matches=("Your.enar",))]
)
async def test_why_and_who_do_not_keep_what_is_taken_out(log: EventLog, where: RedactionFilter) -> None:
    await secrets(log, await experiment(log))
    for who, why, said in (("me", "Yourcenar asked", "why"), ("Yourcenar", "asked", "who")):
        with pytest.raises(StoreError, match=f"^{said} is kept"):
            await redact(log, "e1", where, who=who, why=why)
    await redact(log, "e1", where, who="me", why="Yourcenar asked", dry_run=True)


async def test_progress_is_told_in_events_that_were_looked_at(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messager_store.privacy.redaction_filter.PAGE", 4)
    await secrets(log, await experiment(log))
    seen: list[tuple[int, int]] = []
    where = RedactionFilter(kinds=("sent",))
    await redact(log, "e1", where, who="me", why="dry", dry_run=True, progress=lambda *told: seen.append(told))
    assert seen == [(5, 18), (14, 18), (18, 18)]  # every four that fit
