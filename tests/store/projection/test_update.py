"""A projection that is brought up to date is that of the whole log, in whatever order events arrive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from messager.record import SUBSCRIBED
from messager_store import EventLog, NewEvent, StoreError
from messager_store.db import derived_files
from messager_store.experiments.records import Experiment
from messager_store.maintenance.removal import remove
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.projection import layout, update
from messager_store.projection.layout import EVENTS, Manifest
from messager_store.projection.query import projected as asking
from messager_store.projection.update import Updater

S = 1_000_000_000
START = 1_700_000_000 * S


async def projected(log: EventLog, of: Experiment, folder: Path) -> list[dict[str, Any]]:
    """Bring a projection up to date, and return the rows of its parts and of its tail in replay order."""
    updater = Updater(log.database, of, folder)
    tail = await updater.update()
    parts = [pq.read_table(folder / f"{part.name}.{EVENTS}") for part in updater.manifest.parts]
    rows = [row for table in (*parts, tail) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["ts"], row["id"]))


@pytest.mark.parametrize("seed", range(6))
async def test_it_has_what_a_new_one_has_after_each_of_many_late_and_early_batches(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(update, "PAGE", 7)
    monkeypatch.setattr(update, "PART", 40)
    monkeypatch.setattr(update, "TAIL", 10)
    dice = random.Random(seed)
    of = await log.create_experiment("e1")
    writers = [await log.register(of, role="tap", row={"started_at": START}) for _ in range(3)]
    clock = [0.0, 0.0, 0.0]
    made: set[str] = set()
    for turn in range(12):
        at = dice.randrange(3)
        events = []
        for number in range(dice.randrange(1, 60)):
            clock[at] += dice.choice([0.01, 1.0, 30.0])
            ts, payload = START + int(clock[at] * S), dice.choice([b"same", b"%d" % number, b"%d-%d" % (turn, number)])
            kind = dice.choice(["sent", "received", "received"]) if dice.random() < 0.95 else "gap"
            if kind == "gap":
                events.append(NewEvent("gap", ts, None, b"", meta={"reason": "test", "since": ts - S, "until": ts}))
            else:
                events.append(NewEvent(kind, ts, dice.choice("ab"), payload))
        if dice.random() < 0.3:
            sent = range(1, writers[at].last_seq + 1)
            if sent:
                ts = START + int(clock[at] * S)
                meta = {"outcome": "not_sent", "error": "test"}
                events.append(
                    NewEvent("failed", ts, "a", b"x", cause=(writers[at].ordinal, dice.choice(sent)), meta=meta)
                )
        await log.append(writers[at], events)
        whole = await projected(log, of, tmp_path / f"new{turn}")
        assert await projected(log, of, tmp_path / "kept") == whole
        made |= {part.name for part in Manifest.read(tmp_path / "kept").parts}
        assert len({row["id"] for row in whole}) == len(whole) == sum(writer.last_seq for writer in writers)
    assert len(made) > 2


async def test_a_question_is_answered_from_parts_and_tail(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "TAIL", 100)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    for first, last in ((0, 200), (200, 250)):
        numbers = range(first, last)
        await log.append(writer, [NewEvent("sent", START + at, "c", b"%d" % at, from_id=at % 2) for at in numbers])
        async with asking(log, of) as here:
            counts = here.connection.execute("SELECT from_id, count(*) FROM messages GROUP BY ALL ORDER BY ALL")
            assert counts.fetchall() == [(str(agent), len(range(agent, last, 2))) for agent in (0, 1)]
            assert len(here.files.paths) == 1 and here.files.tail.num_rows == last - 200


async def test_a_listener_with_two_patterns_that_match_receives_copies(log: EventLog, tmp_path: Path) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager", row={"broker": "redis://somewhere"})

    def subscribed(ts: int, **fields: Any) -> NewEvent:
        meta = {"name": SUBSCRIBED, "fields": fields}
        return NewEvent("mark", START + ts, None, b"", messager="m", meta=meta)

    def heard(ts: int, payload: bytes) -> NewEvent:
        return NewEvent("received", START + ts, "ab", payload, messager="m")

    await log.append(
        writer,
        [
            subscribed(1, patterns=["a*"]),
            *(heard(2, b"yes"), heard(3, b"yes")),
            subscribed(4, patterns=["*b", "c"], added=True),
            *(heard(5, b"no"), heard(6, b"no"), heard(7, b"no")),
        ],
    )
    found = await projected(log, of, tmp_path / "projection")
    assert [row["ts"] - START for row in found if row["message_id"] == row["id"]] == [2, 3, 5, 7]
    assert [row["ts"] - START for row in found if row["is_copy"]] == [6]


async def test_a_late_mark_changes_the_phase_of_everything_behind_it(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "PAGE", 3)
    monkeypatch.setattr(update, "PART", 6)
    monkeypatch.setattr(update, "TAIL", 2)
    of = await log.create_experiment("e1")
    one, other = [await log.register(of, role="messager") for _ in range(2)]

    def mark(ts: int, name: str) -> NewEvent:
        return NewEvent("mark", START + ts * S, None, b"", meta={"name": name, "fields": {}})

    says = [NewEvent("sent", START + at * S + 1, "c", b"%d" % at) for at in range(40)]
    await log.append(one, sorted([*says, mark(10, "a"), mark(30, "a")], key=lambda entry: entry.ts))
    await projected(log, of, tmp_path / "kept")
    await log.append(other, [mark(5, "a"), mark(20, "b")])
    kept = await projected(log, of, tmp_path / "kept")
    assert kept == await projected(log, of, tmp_path / "new")
    labels = {row["ts"]: row["mark"] for row in kept if row["kind"] == "sent"}
    expected = [None] * 5 + ["a"] * 5 + ["a#2"] * 10 + ["b"] * 10 + ["a#3"] * 10
    assert [labels[said.ts] for said in says] == expected


async def test_a_redaction_deletes_it_and_an_old_copy_is_made_anew(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "TAIL", 5)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, [NewEvent("sent", START + at, "c", b"the secret %d" % at) for at in range(20)])
    await log.touch(writer, ended_at=START + 100)
    async with asking(log, of) as here:
        folder = here.files.paths[0].parent
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    await redact(log, of, RedactionFilter(channels=["c"]), who="me", why="test")
    assert not folder.exists()
    shutil.copytree(copy, folder)  # another host had made it
    async with asking(log, of) as here:
        assert here.connection.execute("SELECT count(*) FROM events WHERE NOT redacted").fetchall() == [(0,)]
        named = Manifest.read(folder).files | {layout.LOCK, layout.MANIFEST}
    assert {path.name for path in folder.iterdir()} == named
    await remove(log, of)
    assert not folder.exists()


async def test_its_files_have_the_mode_of_the_store(log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "TAIL", 5)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, [NewEvent("sent", START + at, "c", b"x") for at in range(20)])
    for mode in (0o600, 0o640, 0o660) if "://" not in store else (0o600,):
        if "://" not in store:
            Path(store).chmod(mode)
        async with asking(log, of) as here:
            folder = here.files.paths[0].parent
        modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        folders = {stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)}
        assert modes == {mode} and folders == {mode | (mode & 0o444) >> 2}
        shutil.rmtree(folder.parent)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make parts small."""
    monkeypatch.setattr(update, "PAGE", 7)
    monkeypatch.setattr(update, "PART", 20)
    monkeypatch.setattr(update, "TAIL", 10)


def said(first: int, number: int) -> list[NewEvent]:
    return [NewEvent("sent", START + at, "c", b"%d" % at) for at in range(first, first + number)]


class Died(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("step", ["write_part", "digest", "replace", "unlink"])
async def test_an_update_that_is_killed_anywhere_is_completed_by_the_next_one(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    small(monkeypatch)
    monkeypatch.setattr(layout, "KEPT_S", -1.0)
    of = await log.create_experiment("e1")
    writers = [await log.register(of, role="messager") for _ in range(2)]
    module = {"replace": os, "unlink": Path}.get(step, layout if step == "digest" else update)
    original, steps = getattr(module, step), 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == survived:
            raise Died
        return original(*arguments, **options)

    for survived in range(1, 9):
        late = 1000 * (9 - survived)
        await log.append(writers[survived % 2], said(late, 35))
        steps = 0
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            patched.setattr(module, step, dying)
            await projected(log, of, tmp_path / "kept")
        assert await projected(log, of, tmp_path / "kept") == await projected(log, of, tmp_path / f"new{survived}")


async def test_of_several_that_ask_at_once_one_writes(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    written: list[str] = []

    def write_part(*arguments: Any) -> tuple[str, dict[str, str]]:
        made = layout.write_part(*arguments)
        written.append(made[0])
        return made

    monkeypatch.setattr(update, "write_part", write_part)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    for turn in range(4):
        await log.append(writer, said(turn * 100, 90))
        found = await asyncio.gather(*(projected(log, of, tmp_path / "kept") for _ in range(4)))
        assert [len(rows) for rows in found] == [(turn + 1) * 90] * 4
        names = [part.name for part in Manifest.read(tmp_path / "kept").parts]
        assert written[-1:] == names[-1:] and len(written) <= len(names) + turn  # the last one is made again


async def test_a_reader_keeps_what_it_has_opened_while_a_late_event_replaces_parts(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, said(1000, 90))
    async with asking(log, of) as before:
        await log.append(writer, said(0, 5))
        async with asking(log, of) as after:
            assert set(before.files.paths) != set(after.files.paths)
            assert after.connection.execute("SELECT count(*) FROM events").fetchall() == [(95,)]
        assert before.connection.execute("SELECT count(*) FROM events").fetchall() == [(90,)]


async def test_where_the_folder_beside_the_store_cannot_be_written_the_cache_is_used(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    monkeypatch.setenv("MESSAGER_CACHE", str(tmp_path / "cache"))
    async with EventLog.open(str(tmp_path / "log.db")) as log:
        of = await log.create_experiment("e1")
        writer = await log.register(of, role="messager")
        await log.append(writer, said(0, 90))
        (tmp_path / "log.db-projection").touch()  # no folder can be made there
        async with asking(log, of) as here:
            assert here.files.paths and all((tmp_path / "cache") in path.parents for path in here.files.paths)
        (tmp_path / "cache").rename(tmp_path / "old")
        (tmp_path / "cache").touch()
        with pytest.raises(StoreError, match=r"no folder for the projection of e1 can be written.*MESSAGER_CACHE"):
            async with asking(log, of):
                pass


async def test_an_update_whose_folder_is_deleted_meanwhile_begins_anew(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, said(0, 90))
    deleted = False

    def write_part(*arguments: Any) -> tuple[str, dict[str, str]]:
        nonlocal deleted
        if not deleted:
            deleted = True
            derived_files.delete(log.database, of.id)
        return layout.write_part(*arguments)

    monkeypatch.setattr(update, "write_part", write_part)
    async with asking(log, of) as here:
        assert here.connection.execute("SELECT count(*) FROM events").fetchall() == [(90,)]
        assert here.files.paths[0].parent == derived_files.folders(log.database, of.id)[0]


async def test_a_writer_whose_folder_was_made_again_meanwhile_writes_nothing_there(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, said(0, 90))
    folder = derived_files.folders(log.database, of.id)[0]
    before, made = set[str](), False

    def write_part(*arguments: Any) -> tuple[str, dict[str, str]]:
        nonlocal made
        if not made:
            made = True
            derived_files.delete(log.database, of.id)
            asyncio.run(asked_elsewhere(log.database.location, of))
            before.update(path.name for path in folder.iterdir())
            with pytest.raises(FileNotFoundError):
                layout.write_part(*arguments)
            assert before == {path.name for path in folder.iterdir()}
        return layout.write_part(*arguments)

    monkeypatch.setattr(update, "write_part", write_part)
    async with asking(log, of) as here:
        assert here.connection.execute("SELECT count(*) FROM events").fetchall() == [(90,)]
    assert before


async def asked_elsewhere(store: str, of: Experiment) -> None:
    """Bring the projection up to date from another event loop."""
    async with EventLog.open(store) as log, asking(log, of):
        pass


async def test_a_projection_that_is_deleted_while_it_is_read_is_an_error_in_one_line(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    of = await log.create_experiment("e1")
    await log.append(await log.register(of, role="messager"), said(0, 90))

    async def ask() -> None:
        async with asking(log, of) as here:
            derived_files.delete(log.database, of.id)
            here.rows("SELECT count(*) FROM events")

    with pytest.raises(StoreError, match=r"\.parquet was deleted while it was read, as by a redaction\. Ask again\.$"):
        await ask()


async def test_it_is_deleted_also_while_somebody_writes_there(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    of = await log.create_experiment("e1")
    await log.append(await log.register(of, role="messager"), said(0, 9))
    async with asking(log, of):
        pass
    folder, original, late = derived_files.folders(log.database, of.id)[0], os.rmdir, True

    def rmdir(path: Any, **options: Any) -> None:
        nonlocal late
        if late:
            late = False
            next(folder.parent.glob("*.deleted")).joinpath("late").touch()
        original(path, **options)

    monkeypatch.setattr(os, "rmdir", rmdir)
    derived_files.delete(log.database, of.id)
    assert not list(folder.parent.iterdir()) and not late


@pytest.mark.parametrize("died", [False, True])
async def test_what_an_update_wrote_that_did_not_end_is_deleted(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: bool
) -> None:
    small(monkeypatch)
    of = await log.create_experiment("e1")
    await log.append(await log.register(of, role="messager"), said(0, 90))
    folder = tmp_path / "kept"

    def full(*_: Any) -> str:
        raise Died if died else OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(update, "write_tail", full)
        with pytest.raises(Died if died else OSError):
            await projected(log, of, folder)
    if not died:  # at once, as the space is needed
        assert [path.name for path in folder.iterdir()] == [layout.LOCK]
    await projected(log, of, folder)
    assert {path.name for path in folder.iterdir()} == Manifest.read(folder).files | {layout.LOCK, layout.MANIFEST}
