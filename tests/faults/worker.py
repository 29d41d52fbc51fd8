"""Worker processes of the harness: `python -m tests.faults.worker VERB OPTIONS`, with the options as JSON.

Each step is written to standard output at once, as a line `word number`, so that a killed process has reported all
earlier steps.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

from messager import Clock, Messager, PublishError
from messager.brokers import Broker, open_broker
from messager.record import MessageRecord
from messager_store import EventLog, Recorder
from messager_store.db.sqlite.append import Appender
from messager_store.errors import StoreError
from messager_store.recording.tap import Tap
from tests.support.users import obey_permissions

BACK_OFF = 0.01
"""Pause of a sender after a failed send, s."""


def say(word: str, number: int = 0) -> None:
    """Write a line to the harness, in one unbuffered write."""
    os.write(1, b"%s %d\n" % (word.encode(), number))


class AwayReporter(logging.Handler):
    """Log handler that writes `away` when a recorder warns that the store is unreachable."""

    def emit(self, record: logging.LogRecord) -> None:
        if "retrying" in record.getMessage():
            say("away")


class AcceptedReporter:
    """Log hook behind the recorder. Writes the number of accepted events, and the kind and ts of each."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def before_send(self, records: Any) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        """Write the event, which the recorder has accepted before."""
        say("accepted", self._recorder.accepted)
        say(f"{record.kind}_at", record.ts)


def report_durable(log: EventLog, recorder: Recorder) -> None:
    """Write the last durable seq after every commit and every write to the spool."""
    append, spool = log.append, recorder._buffer.spool
    write = spool.write

    async def append_and_report(writer: Any, events: Any, **more: Any) -> None:
        await append(writer, events, **more)
        say("durable", writer.last_seq)

    def write_and_report(first_seq: int, entries: Any, complete_until: int) -> None:
        write(first_seq, entries, complete_until)
        say("durable", first_seq + len(entries) - 1)
        say("spooled", first_seq + len(entries) - 1)

    log.append = append_and_report  # type: ignore[method-assign]
    spool.write = write_and_report  # type: ignore[method-assign]


def asked_to_end() -> asyncio.Event:
    """Return an event that is set on SIGTERM."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    return ending


async def block(seed: int, longest: float = 0.15) -> None:
    """Block the event loop repeatedly, as an agent does by computing."""
    dice = random.Random(seed)
    while True:
        await asyncio.sleep(dice.uniform(0, 0.03))
        time.sleep(dice.uniform(0, longest))  # noqa: ASYNC251


async def step_the_clock(seed: int, ahead: float) -> None:
    """Step the wall clock of this process back and forward repeatedly, by up to an hour."""
    dice, wall = random.Random(seed), time.time_ns
    off = int(ahead * 1e9)

    def stepped() -> int:
        return wall() + off

    time.time_ns = stepped
    Clock.__init__.__defaults__ = (stepped, time.monotonic_ns)
    while True:
        await asyncio.sleep(dice.uniform(0, 0.05))
        off += dice.choice((-1, 1)) * dice.randrange(3_600_000_000_000)


def fill_on_request() -> None:
    """Prevent the store from growing from one SIGUSR1 to the next, as on a full disk."""
    full = False
    current = Appender._current

    def limited(self: Appender) -> sqlite3.Connection:
        connection = current(self)
        pages = 1 if full else 1 << 30  # SQLite raises the limit to the present size
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    def turn() -> None:
        nonlocal full
        full = not full

    Appender._current = limited  # type: ignore[method-assign]
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, turn)


def broker_at(url: str) -> Broker:
    """Return a broker with short timeouts."""
    return open_broker(url, timeout=1.0, ping_interval=0.3, ping_timeout=0.3)


async def send(
    store: str,
    exp: str,
    broker: str,
    *,
    channel: str = "faults",
    listen: bool = False,
    lanes: int = 4,
    size: int = 50,
    pause: float = 0.0,
    blocked: int | None = None,
    stepping: int | None = None,
    ahead: float = 0.0,
    full: bool = False,
    denied: bool = False,
    messages: int = 0,
    first: int = 1,
    recorder: dict[str, Any] | None = None,
) -> None:
    """Send and record numbered messages until SIGTERM.

    Writes `sent`, `not_sent`, `unknown` or `refused` with the number of each message, and `accepted` and `durable` with
    numbers of events. `blocked` is the seed for blocking the event loop, `stepping` that for stepping the wall clock,
    which starts `ahead` seconds wrong. With `denied`, permissions apply to a process of root too.
    """
    if denied:
        obey_permissions()
    ending = asked_to_end()
    stepped = None if stepping is None else asyncio.create_task(step_the_clock(stepping, ahead))
    await asyncio.sleep(0)
    numbers = count(first)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(EventLog.open(store))
        if full:
            fill_on_request()
        recording = Recorder(log, exp, **(recorder or {}))
        report_durable(log, recording)
        await stack.enter_async_context(recording)
        carrier = broker_at(broker)
        stack.push_async_callback(carrier.close)
        messager = await stack.enter_async_context(Messager(carrier, exp))
        messager.add_log_hook(recording)
        messager.add_log_hook(AcceptedReporter(recording))
        if listen:
            await messager.subscribe_and_start_listening([channel])
        say("ready")

        async def lane() -> None:
            while not ending.is_set():
                number = next(numbers)
                if messages and number >= first + messages:
                    return
                try:
                    await messager.send_message(channel, {"n": number, "pad": "x" * size})
                except PublishError as error:
                    say(error.outcome, number)
                    await asyncio.sleep(BACK_OFF)
                except StoreError:
                    say("refused", number)
                    await asyncio.sleep(BACK_OFF)
                else:
                    say("sent", number)
                    await asyncio.sleep(pause)

        blocking = None if blocked is None else asyncio.create_task(block(blocked))
        await asyncio.gather(*(lane() for _ in range(lanes)))
        for task in (blocking, stepped):
            if task is not None:
                task.cancel()
        await messager.close()
        say("done", recording.accepted)
    say("ended", recording.dropped)


async def tap(
    store: str,
    exp: str,
    broker: str,
    *,
    streams: list[str] | None = None,
    blocked: int | None = None,
    longest: float = 0.15,
) -> None:
    """Record published messages, or entries of `streams`, until SIGTERM.

    Writes `heard` with the number of each message, and `gap`.
    """
    ending = asked_to_end()
    active = asyncio.Event()
    patterns = [] if streams else ["*"]
    async with EventLog.open(store) as log, Recorder(log, exp, role="tap", patterns=streams or patterns) as recorder:
        after = recorder.after

        def after_and_report(record: MessageRecord) -> None:
            after(record)
            found = b"{" in record.payload and json.loads(record.payload).get("n")
            say("gap" if record.kind == "gap" else "heard", found or 0)

        recorder.after = after_and_report  # type: ignore[method-assign]
        carrier = broker_at(broker)
        listening = asyncio.create_task(
            Tap(carrier, recorder, patterns, streams=streams or (), active=active.set).run()
        )
        await active.wait()
        say("ready")
        blocking = None if blocked is None else asyncio.create_task(block(blocked, longest))
        await ending.wait()
        for task in (listening, blocking):
            if task is not None:
                task.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await carrier.close()
    say("ended", recorder.dropped)


async def write(store: str, exp: str, messages: int, burst: int) -> None:
    """Record numbered events without a broker, `burst` at a time."""
    async with EventLog.open(store) as log, Recorder(log, exp) as recorder:
        say("ready")
        for number in range(1, messages + 1):
            recorder.after(MessageRecord("sent", time.time_ns(), f"c{number % 5}", b'{"n": %d}' % number, number % 7))
            if number % burst == 0:
                await asyncio.sleep(0.001)
    say("ended", recorder.accepted)


async def record_in_threads(
    store: str, exp: str, *, threads: int, apart: int, pause: float, recorder: dict[str, Any] | None = None
) -> None:
    """Record numbered events in threads until SIGTERM. The numbers of a thread begin `apart` behind those of another.

    Writes `recorded` with the number of each event, and `durable` and `spooled` with numbers of events.
    """
    ending, over = asked_to_end(), threading.Event()
    async with EventLog.open(store) as log:
        recording = Recorder(log, exp, **(recorder or {}))
        report_durable(log, recording)

        def run(first: int) -> None:
            for number in count(first):
                if over.is_set():
                    return
                payload = b'{"n": %d}' % number
                recording.after(MessageRecord("sent", recording.clock.now(), "faults", payload))
                say("recorded", number)
                time.sleep(pause)

        async with recording:
            running = [asyncio.create_task(asyncio.to_thread(run, 1 + at * apart)) for at in range(threads)]
            say("ready")
            await ending.wait()
            over.set()
            await asyncio.gather(*running)
    say("ended", recording.dropped)


async def drain_(store: str, spool: str) -> None:
    """Drain spools, a few events at a time. Writes `ready` before and `done` after."""
    from messager_store.recording import draining

    draining.BATCH_EVENTS = 50
    async with EventLog.open(store) as log:
        say("ready")
        async for done in draining.drain(log, Path(spool)):
            say("stays" if done.reason else "drained", done.events)
    say("done")


async def gather_(store: str, parts: list[str], flush: int) -> None:
    """Gather stores, `flush` events with one commit. Writes `ready` before and `done` after."""
    from messager_store.formats import chain_loader
    from messager_store.formats.gather import gather

    chain_loader.FLUSH_EVENTS = flush
    async with EventLog.open(store) as log:
        say("ready")
        async for _ in gather(log, parts):
            pass
    say("done")


async def migrate(store: str, target: str) -> None:
    """Migrate a store to a revision; create it if needed. Writes `ready` before and `done` after."""
    from messager_store.db import migrations
    from messager_store.db.database import Database
    from tests.support import next_revision

    migrations.scripts().get_heads()  # load the modules before the harness starts to measure
    say("ready")
    database = Database(store)
    if not database.dialect.exists():
        await database.open()
        await database.close()
    else:
        await next_revision.migrate(store, target)
    say("done")


async def import_(store: str, file: str, exp: str) -> None:
    """Import a file. Writes `ready` before and `done` after."""
    from messager_store.formats.jsonl import import_jsonl

    async with EventLog.open(store) as log:
        say("ready")
        await import_jsonl(log, file, exp)
    say("done")


async def ask(**options: Any) -> None:
    """Ask the questions of `projecting`, until SIGTERM."""
    from . import projecting

    await projecting.ask(say, asked_to_end(), **options)


async def project(**options: Any) -> None:
    """Record the messages of `projecting`, until SIGTERM."""
    from . import projecting

    await projecting.record(say, asked_to_end(), **options)


async def live(**options: Any) -> None:
    """Play an agent of `living`."""
    from . import living

    await living.live(say, **options)


async def around(**options: Any) -> None:
    """Replay around the agents of `living`."""
    from . import living

    await living.around(say, **options)


async def fork(**options: Any) -> None:
    """Fork the society of `forking`."""
    from . import forking

    await forking.fork(say, **options)


async def fork_around(**options: Any) -> None:
    """Fork around the agents of `living`."""
    from . import living

    await living.fork_around(say, **options)


VERBS: dict[str, Callable[..., Any]] = {
    "send": send,
    "tap": tap,
    "write": write,
    "threads": record_in_threads,
    "drain": drain_,
    "gather": gather_,
    "migrate": migrate,
    "import": import_,
    "ask": ask,
    "project": project,
    "live": live,
    "around": around,
    "fork_around": fork_around,
    "fork": fork,
}


LONGEST = 300
"""Time limit of a worker, in case the harness does not end it, s."""


def main() -> None:
    """Run the verb in `sys.argv[1]` with the options in `sys.argv[2]`, which are JSON."""
    signal.alarm(LONGEST)
    logging.getLogger("messager_store").addHandler(AwayReporter())
    asyncio.run(VERBS[sys.argv[1]](**json.loads(sys.argv[2])))
