"""Ends of programs recorded by MESSAGER_STORE: in their event loop, after it, or in another one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog
from messager_store.db.databases import for_store
from messager_store.recording import committer
from tests.store.recording.test_auto_recorder import recording, said, say
from tests.support import nightly_after, self_recording
from tests.support.outages import everything_drained

__all__ = ["recording"]


PROGRAM = """
import asyncio, sys
from messager import MemoryBroker, Messager
{before}
async def main():
    messager = Messager(MemoryBroker(), "e1")
    await messager.init()
    await messager.subscribe_and_start_listening(["c"])
    for at in range(100):
        await messager.send_message("c", {{"n": at}})
    {end}
{run}
"""


PATIENT = """
from messager_store.recording import auto_recorder as autorecord
from messager_store.recording import committer
from messager_store.db.postgres import dialect as postgres
from messager_store.db.postgres import append as postgres_append
autorecord.START_SECONDS = committer.STOP_SECONDS = postgres_append.SECONDS = 600
postgres.CONNECT_SECONDS = postgres.Postgres.open_seconds = 600
"""
"""Longer timeouts for busy machines, as a server that does not answer for some seconds counts as unreachable."""


def program(store: str, run: str, *, before: str = "", end: str = "pass", check: bool = True) -> str:
    """Run a program that never closes its messager; return its standard error."""
    return ran(store, PROGRAM.format(before=before, end=end, run=run), check=check)


def ran(store: str, source: str, *, check: bool = True) -> str:
    """Run a program; return its standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env={**os.environ, "MESSAGER_STORE": store},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("end", nightly_after(1, ["pass", "sys.exit(3)", "raise KeyboardInterrupt"]))
async def test_a_program_that_never_closes_its_messager_has_everything_in_the_log(store: str, end: str) -> None:
    told = program(store, "asyncio.run(main())", before=PATIENT, end=end, check=False)
    assert told.splitlines()[0] == f"messager: recording e1 into {for_store(store).location} (MESSAGER_STORE)"
    assert end.startswith("raise") or len(told.splitlines()) == 1
    assert await said(store) == list(range(100))
    async with EventLog.open(store) as log:
        [row] = await log.recorders()
    assert (row.state, row.unclean) == ("ended", False)


@pytest.mark.parametrize(
    ("handlers", "line"),
    nightly_after(1, [("", "messager: heard"), ("logging.basicConfig()", "WARNING:messager_store:heard")]),
)
async def test_what_a_recorder_logs_bears_its_name_also_where_the_program_has_set_up_no_logging(
    store: str, handlers: str, line: str
) -> None:
    end = 'logging.getLogger("messager_store").warning("heard")'
    told = program(store, "asyncio.run(main())", before=f"{PATIENT}import logging\n{handlers}", end=end)
    assert [found for found in told.splitlines() if "heard" in found] == [line]


@pytest.mark.nightly
async def test_one_that_its_event_loop_has_ended_may_be_stopped_in_another(store: str) -> None:
    run = "asyncio.run(main()); asyncio.run(kept[0].stop())"
    assert (
        len(program(store, run, before=f"{PATIENT}kept = []", end="kept.extend(messager._offered)").splitlines()) == 1
    )
    assert await said(store) == list(range(100))


async def test_a_program_that_cancels_its_tasks_and_goes_on_is_told_that_it_is_not_recorded(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
        hook = self_recording(messager)
        hook._task.cancel()
        await asyncio.wait([hook._task])
        await say(messager, 3, 1)
    _, cut_off, lost = capsys.readouterr().err.splitlines()
    assert "e1 is not recorded any more" in cut_off and "3 events of e1 are lost" in lost
    assert await said(store) == [0]


SLOW = "from messager_store.recording import committer; committer.FLUSH_SECONDS = 600"


@pytest.mark.parametrize(
    "run",
    nightly_after(
        1,
        [
            "asyncio.new_event_loop().run_until_complete(main())",
            "loop = asyncio.new_event_loop(); import threading; "
            "threading.Thread(target=loop.run_forever, daemon=True).start(); "
            "asyncio.run_coroutine_threadsafe(main(), loop).result()",
        ],
    ),
)
async def test_where_the_event_loop_is_simply_left_the_rest_is_in_the_spool(store: str, run: str) -> None:
    told = program(store, f"import warnings; warnings.simplefilter('ignore'); {run}", before=SLOW)
    assert "events of e1 wait in" in told and "messager drain" in told
    async with EventLog.open(store) as log:
        [done] = await everything_drained(log, Path(log.database.dialect.spool_folders[0]))
        assert done.ended
    assert await said(store) == list(range(100))


async def test_where_the_event_loop_is_left_and_the_spool_takes_nothing_it_is_told_how_much_is_lost(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "file" / "spool"))
    run = "import warnings; warnings.simplefilter('ignore'); asyncio.new_event_loop().run_until_complete(main())"
    told = [line for line in program(store, run, before=SLOW).splitlines() if line.startswith("messager: ")]
    _, full, lost = told
    assert full.startswith("messager: e1: the spool") and " events of e1 are lost" in lost


CLOSED = """
import asyncio, os, warnings
from messager import MemoryBroker, Messager
from messager_store import EventLog
from messager_store.recording.closing import close
warnings.simplefilter("ignore")
messager = Messager(MemoryBroker(), "e1")
async def main():
    await messager.init()
    await messager.send_message("c", {"n": 0})
    recorder = messager._offered[0]._recorder
    await recorder.flush()
    async with EventLog.open(os.environ["MESSAGER_STORE"]) as log:
        await close(log, await log.experiment("e1"), force=True)
    recorder.connected(messager.broker.url, messager.clock, None)  # it writes this, and finds out
    while recorder._committer.registered:
        await asyncio.sleep(0.01)
    messager.mark("late")
asyncio.new_event_loop().run_until_complete(main())
"""


async def test_the_last_event_after_its_experiment_was_closed_is_brought_into_the_next_one_by_a_drain(
    store: str,
) -> None:
    assert "1 events of e1 wait in" in ran(store, CLOSED)
    async with EventLog.open(store) as log:
        [done] = await everything_drained(log, Path(log.database.dialect.spool_folders[0]))
        assert (done.exp_id, done.events, done.ended) == ("e1-2", 1, True)
        assert [event.kind async for event in log.read("e1-2")] == ["mark"]


ELSEWHERE = """
import asyncio, warnings
from messager import MemoryBroker, Messager
from messager_store.recording import committer
warnings.simplefilter("ignore")
committer.FLUSH_SECONDS = 600
messager, first, second = Messager(MemoryBroker(), "e1"), asyncio.new_event_loop(), asyncio.new_event_loop()
first.run_until_complete(messager.init())
for at in range(3):
    first.run_until_complete(messager.send_message("c", {{"n": at}}))
{left}
second.run_until_complete(asyncio.wait_for(messager.close(), 30))
assert messager._offered == []
"""


@pytest.mark.parametrize("left", nightly_after(1, ["first.close()", ""]))
async def test_a_messager_may_be_closed_in_another_event_loop_than_the_one_it_records_in(store: str, left: str) -> None:
    assert "3 events of e1 wait in" in ran(store, ELSEWHERE.format(left=left))
    async with EventLog.open(store) as log:
        [done] = await everything_drained(log, Path(log.database.dialect.spool_folders[0]))
        assert done.ended
    assert await said(store) == [0, 1, 2]


async def test_a_messager_may_be_closed_in_another_threads_event_loop(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(committer, "FLUSH_SECONDS", 600)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 3)
        hook = self_recording(messager)
        await asyncio.to_thread(asyncio.run, messager.close())
        assert hook._task.done()
    assert await said(store) == [0, 1, 2]
    async with EventLog.open(store) as log:
        [row] = await log.recorders()
    assert (row.state, row.unclean) == ("ended", False)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_the_setting_nothing_of_the_store_is_imported(store: str) -> None:
    look = "print([name for name in sys.modules if name.startswith('messager_store')], file=sys.stderr)"
    assert program("", f"asyncio.run(main()); {look}") == "[]\n"


CLOSED_LOOP = """
import asyncio
from messager import MemoryBroker, Messager
from messager_store import EventLog, Recorder
messager = Messager(MemoryBroker(), "e1")
loop = asyncio.new_event_loop()
loop.run_until_complete(messager.init())
loop.close()
async def second():
    async with EventLog.open({store!r}) as log, Recorder(log, "e1") as recorder:
        messager.add_log_hook(recorder)
        await messager.send_message("c", {{"n": 0}})
        await messager.close()
asyncio.run(second())
"""


@pytest.mark.nightly
async def test_a_recorder_may_be_added_once_the_event_loop_of_the_other_is_closed(store: str) -> None:
    ran(store, CLOSED_LOOP.format(store=store))
    assert await said(store) == [0]
