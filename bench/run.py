"""make bench: what recording costs and what replay reaches, each beside what it is held against.

The two sides of a row run in turn, several rounds; printed are the median ratio and its
spread. Absolute figures on a shared machine mean little and are shown only for orientation.

    python bench/run.py [ROW ...] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from redis.asyncio import Redis

from messager import Messager, RedisBroker, RedisConfig
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, NewEvent, Recorder, Replay
from messager_store import experiments as registry

PAYLOAD = {"from": 12, "content": json.dumps({"content": "x" * 160}), "type": "social", "day": 1, "t": 3600}
WIRE = json.dumps(PAYLOAD).encode()
EVENTS = 50_000
Side = Callable[[RedisServer, Path], Awaitable[float]]
"""Does some work and returns how many units a second it managed."""


async def _sends(server: RedisServer, folder: Path, *, recorded: bool, together: int, count: int) -> float:
    config = RedisConfig(server="127.0.0.1", port=server.port)
    async with EventLog.open(str(folder / "sends.db")) as log, Messager(config, "bench") as messager:
        recorder = Recorder(log, "bench", if_exists="new")
        if recorded:
            await recorder.start()
            messager.add_log_hook(recorder)
        began = time.perf_counter()
        for _ in range(0, count, together):
            await asyncio.gather(*(messager.send_message("c", PAYLOAD, 12, 13) for _ in range(together)))
        took = time.perf_counter() - began
        await recorder.stop()
    return count / took


def _sending(recorded: bool, together: int, count: int) -> Side:
    return lambda server, folder: _sends(server, folder, recorded=recorded, together=together, count=count)


async def _append(server: RedisServer, folder: Path) -> float:
    events = [NewEvent("sent", at, "c", WIRE, 12, 13) for at in range(5000)]
    async with EventLog.open(str(folder / "append.db")) as log:
        of = await registry.create(log.database, f"e{time.monotonic_ns()}", name=None, tags=[], meta={})
        assert of is not None
        writer = await log.register(of, role="tap")
        await log.append(writer, events[:1])
        began = time.perf_counter()
        for _ in range(EVENTS // 5000):
            await log.append(writer, events)
        return EVENTS / (time.perf_counter() - began)


async def _executemany(server: RedisServer, folder: Path) -> float:
    connection = sqlite3.connect(folder / f"raw{time.monotonic_ns()}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    columns = (
        "experiment_id, ts, kind, channel_id, from_id, to_id, derived, msg_id, duration_ns, receivers, cause, meta"
    )
    connection.execute(f"CREATE TABLE event (id INTEGER PRIMARY KEY, {columns}, payload BLOB)")
    connection.execute("CREATE INDEX replay ON event (experiment_id, ts, id)")
    began = time.perf_counter()
    for part in range(EVENTS // 5000):
        rows = [
            (1 << 40 | at, 1, at, 1, 1, 2, 3, 0, None, None, None, None, None, WIRE)
            for at in range(part * 5000 + 1, part * 5000 + 5001)
        ]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO event VALUES ({', '.join('?' * 14)})", rows)
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return EVENTS / took


async def _subscribed(server: RedisServer, publish: Callable[[], Awaitable[None]]) -> float:
    """Publish while one redis-py subscriber drains; until everything has arrived."""
    client = Redis(port=server.port)
    pubsub = client.pubsub()
    await pubsub.psubscribe("c")
    await pubsub.get_message(timeout=5)

    async def drain() -> None:
        left = EVENTS
        async for message in pubsub.listen():
            if message["type"] == "pmessage":
                left -= 1
                if not left:
                    return

    draining = asyncio.create_task(drain())
    began = time.perf_counter()
    await publish()
    await draining
    took = time.perf_counter() - began
    await pubsub.aclose()  # type: ignore[no-untyped-call]
    await client.aclose()
    return EVENTS / took


async def _replay(server: RedisServer, folder: Path) -> float:
    async with EventLog.open(str(folder / "replay.db")) as log:
        if await registry.by_exp_id(log.database, "bench") is None:
            of = await registry.create(log.database, "bench", name=None, tags=[], meta={})
            assert of is not None
            writer = await log.register(of, role="tap")
            for part in range(0, EVENTS, 5000):
                await log.append(writer, [NewEvent("sent", at, "c", WIRE, 12, 13) for at in range(part, part + 5000)])
        broker = RedisBroker.from_url(server.url)

        async def publish() -> None:
            await Replay(log, "bench", broker, speed="max").run()

        rate = await _subscribed(server, publish)
        await broker.close()
    return rate


async def _pipelines(server: RedisServer, folder: Path) -> float:
    client = Redis(port=server.port)

    async def publish() -> None:
        for _ in range(EVENTS // 1000):
            pipeline = client.pipeline(transaction=False)
            for _ in range(1000):
                pipeline.publish("c", WIRE)
            await pipeline.execute()

    rate = await _subscribed(server, publish)
    await client.aclose()
    return rate


ROWS: dict[str, tuple[str, Side, Side]] = {
    "sends-together": (
        "concurrent sends (1000 at a time), recording on / off",
        _sending(True, 1000, 20_000),
        _sending(False, 1000, 20_000),
    ),
    "sends-alone": ("sends one after another, recording on / off", _sending(True, 1, 4000), _sending(False, 1, 4000)),
    "append": ("append to SQLite, 5000 a batch / sqlite3 executemany of the same columns", _append, _executemany),
    "replay": ("replay at full speed, one subscriber / redis-py pipelines from memory", _replay, _pipelines),
}


async def measured(row: str, rounds: int, server: RedisServer) -> dict[str, object]:
    what, ours, theirs = ROWS[row]
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            pairs.append((await ours(server, Path(folder)), await theirs(server, Path(folder))))
    ratios = sorted(a / b for a, b in pairs)
    return {
        "row": row,
        "what": what,
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(ratios[0], 3), round(ratios[-1], 3)],
        "per_second": [round(statistics.median(side)) for side in zip(*pairs, strict=True)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(options.rows) - ROWS.keys()
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: rows are {', '.join(ROWS)}")
    with redis_server() as server:
        for row in options.rows or ROWS:
            found = asyncio.run(measured(row, options.rounds, server))
            if options.json:
                print(json.dumps(found), flush=True)
            else:
                low, high = found["spread"]  # type: ignore[misc]
                print(f"{found['ratio']:>6}  ({low} to {high})  {found['what']}  {found['per_second']}/s", flush=True)


if __name__ == "__main__":
    main()
