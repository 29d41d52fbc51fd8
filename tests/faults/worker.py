"""The programs that faults are done to. `python -m tests.faults.worker VERB OPTIONS`, the options as JSON.

What happens is said at once on standard output, a line `word number` each, so that a
process that is killed has told all that happened before.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from messager import Messager, PublishError, RedisBroker
from messager.record import MessageRecord
from messager_store import EventLog, Recorder
from messager_store.errors import StoreError

BACK_OFF = 0.01
"""Seconds a sender waits after a send that failed."""


def say(word: str, number: int = 0) -> None:
    """Tell the harness; unbuffered, and in one piece."""
    os.write(1, b"%s %d\n" % (word.encode(), number))


class Told:
    """A log hook behind the recorder: says how many events that one has accepted by now."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def before_send(self, records: Any) -> None:
        """Nothing to do."""

    def after(self, record: MessageRecord) -> None:
        """The recorder was handed this one before."""
        say("accepted", self._recorder.accepted)


def tell_acknowledged(log: EventLog) -> None:
    """Say after every commit up to which seq this recorder's events are acknowledged."""
    append = log.append

    async def append_and_tell(writer: Any, events: Any, **more: Any) -> None:
        await append(writer, events, **more)
        say("acked", writer.last_seq)

    log.append = append_and_tell  # type: ignore[method-assign]


def asked_to_end() -> asyncio.Event:
    """Set when the harness asks this process to end."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    return ending


async def block(seed: int) -> None:
    """Keep the event loop from running, again and again, as an agent's own work does."""
    dice = random.Random(seed)
    while True:
        await asyncio.sleep(dice.uniform(0, 0.03))
        time.sleep(dice.uniform(0, 0.15))  # noqa: ASYNC251


def broker_at(redis: str, **options: Any) -> RedisBroker:
    """A broker whose silence is noticed soon."""
    return RedisBroker.from_url(redis, **{"timeout": 1.0, "ping_interval": 0.3, "ping_timeout": 0.3, **options})


async def send(
    store: str,
    exp: str,
    redis: str,
    *,
    channel: str = "faults",
    listen: bool = False,
    lanes: int = 4,
    size: int = 50,
    pause: float = 0.0,
    blocked: int | None = None,
    messages: int = 0,
    first: int = 1,
    recorder: dict[str, Any] | None = None,
) -> None:
    """Send numbered messages over Redis and record them, until told to end.

    Says `sent`, `not_sent`, `unknown` or `refused` with the number of each message, `accepted` and
    `acked` with numbers of events. `blocked` is the seed of blocking the event loop, if any.
    """
    ending = asked_to_end()
    numbers = count(first)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(EventLog.open(store))
        tell_acknowledged(log)
        recording = await stack.enter_async_context(Recorder(log, exp, **(recorder or {})))
        broker = broker_at(redis)
        stack.push_async_callback(broker.close)
        messager = await stack.enter_async_context(Messager(broker, exp))
        messager.add_log_hook(recording)
        messager.add_log_hook(Told(recording))
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
        if blocking is not None:
            blocking.cancel()
        await messager.close()
        say("done", recording.accepted)
    say("ended", recording.dropped)


async def migrate(store: str, target: str) -> None:
    """Bring a store to a revision, making it where there is none. Says `ready` before and `done` after."""
    from messager_store import migrating
    from messager_store.database import Database

    migrating.scripts().get_heads()  # what there is to load, before the harness starts its watch
    say("ready")
    database = Database(store)
    if not database.dialect.exists():
        await database.open()
    else:
        await database.open_engines()
        act = migrating.upgrade if target == "head" else migrating.downgrade
        async with database.writing() as connection:
            await connection.run_sync(act, target)
    await database.close()
    say("done")


async def import_(store: str, file: str, exp: str) -> None:
    """Import a file. Says `ready` before and `done` after."""
    from messager_store.exchange.jsonl import import_jsonl

    async with EventLog.open(store) as log:
        say("ready")
        await import_jsonl(log, file, exp)
    say("done")


VERBS: dict[str, Callable[..., Any]] = {"send": send, "migrate": migrate, "import": import_}


if __name__ == "__main__":
    asyncio.run(VERBS[sys.argv[1]](**json.loads(sys.argv[2])))
