"""A subscriber that is slower than the replay, at Redis' default limits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from messager import RedisBroker
from messager.testing import redis_server
from messager_store import EventLog, NewEvent
from messager_store.replay.engine import Replay

from .evidence import count_repeats, number_of
from .row import Row, Run, fault

MESSAGES, PAYLOAD = 40_000, 1500
"""60 MB: more than the 32 MB after which Redis cuts a subscriber off."""
TOO_MUCH = 55_000_000
BYTES_AT_ONCE, PAUSE = 1 << 17, 0.0005
"""The slow subscriber reads so much, and then does something else for so many seconds."""


@fault("slow-subscriber", "A subscriber slower than the replay", short=1, long=6)
async def slow_subscriber(run: Run, row: Row) -> None:
    """All of it arrives, in order, once."""
    store = run.folder / "log.db"
    async with EventLog.open(str(store)) as log:
        await _fill(log)
        for _ in range(run.tries):
            with redis_server() as server:
                broker = RedisBroker.from_url(server.url)
                replay = Replay(log, "e1", broker, speed="max", wait_for_subscribers=1)

                def idle(replay: Replay = replay) -> bool:
                    """Not a byte is read until the replay holds back, or has published too much."""
                    return not replay.report.held_back_s and replay.report.published * PAYLOAD < TOO_MUCH

                reader = asyncio.create_task(_read_slowly(server.port, idle, PAUSE * run.dice.uniform(0.5, 2)))
                report = await replay.run()
                await broker.publish([(b"c", b'{"last": 1}')])
                await broker.close()
                arrived = await reader
            row.tried += 1
            row.offered += report.published
            row.lost += MESSAGES - len(set(arrived))
            count_repeats(row, arrived)
            row.most("s held back", report.held_back_s)


async def _fill(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    pad = "x" * PAYLOAD
    for first in range(1, MESSAGES + 1, 5000):
        payloads = [(n, b'{"n": %d, "pad": "%s"}' % (n, pad.encode())) for n in range(first, first + 5000)]
        await log.append(writer, [NewEvent("sent", n, "c", payload) for n, payload in payloads])


async def _read_slowly(port: int, idle: Callable[[], bool], pause: float) -> list[int]:
    """The numbers that arrive, until the last message or until the connection is cut."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # else the kernel reads for us
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", port))
    await loop.sock_sendall(raw, b"SUBSCRIBE c\r\n")
    found: list[int] = []
    data = b""
    with raw:
        while True:
            while idle():
                await asyncio.sleep(pause)
            try:
                read = await loop.sock_recv(raw, BYTES_AT_ONCE)
            except ConnectionError:
                return found
            *whole, data = (data + read).split(b"\r\n")
            for line in whole:
                if line == b'{"last": 1}':
                    return found
                if line.startswith(b"{") and (number := number_of(line)) is not None:
                    found.append(number)
            if not read:
                return found
            await asyncio.sleep(pause)
