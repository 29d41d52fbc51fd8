"""Faults between processes and a broker: kills of the broker, a faulty proxy, a slow listener."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from messager.testing import redis_server
from tests.support import Proxy, until

from .carriers import REDIS, Carrier, RedisLine
from .evidence import Logged, count_disorder, count_repeats, events, findings, gaps, recorders, within
from .process import Worker
from .row import Row, Run, fault
from .witness import LAST, Witness

EXP = "e1"
BETWEEN = 0.25
"""Maximum time between two faults, s."""
SILENCE = 1.3
"""Duration of silence, s: longer than the timeouts of a sender and of a ping."""
MESSAGE = b'{"n": '
"""Beginning of the payload of a message."""
BURST = 10
"""Faults between two restarts of the processes."""


@fault("redis-killed", "kill -9 of redis-server, and a restart", short=3, long=60)
async def redis_killed(run: Run, row: Row) -> None:
    """Failed sends are logged as failed, and messages that a listener missed lie in its gaps."""
    await broker_killed(run, row, REDIS)


@fault("proxy-cut", "Connections cut", short=4, long=80)
async def connections_cut(run: Run, row: Row) -> None:
    """No message is sent twice, outcomes are correct, and messages that a listener missed lie in its gaps."""
    await through_proxies(run, row, cut, REDIS)


@fault("proxy-silent", "A network that falls silent", short=2, long=25)
async def network_silent(run: Run, row: Row) -> None:
    """The same, and the silence is detected."""
    await through_proxies(run, row, silence, REDIS)


@fault("proxy-half", "Writes cut in the middle", short=4, long=80)
async def writes_cut(run: Run, row: Row) -> None:
    """The same."""
    await through_proxies(run, row, cut_a_write, REDIS, sender_only=True)


@fault("proxy-answer", "Answers cut off after the write", short=4, long=80)
async def answers_cut(run: Run, row: Row) -> None:
    """The same: the message may have been published, so it is not sent again."""
    await through_proxies(run, row, cut_an_answer, REDIS, sender_only=True)


async def cut(proxy: Proxy) -> None:
    """Cut every connection."""
    proxy.cut()


async def silence(proxy: Proxy) -> None:
    """Drop all data for a while, then cut every connection."""
    proxy.silent = True
    await asyncio.sleep(SILENCE)
    proxy.cut()
    proxy.silent = False


async def cut_a_write(proxy: Proxy) -> None:
    """Forward half of the next write, then cut."""
    proxy.cut_within_request = True
    await until(lambda: not proxy.cut_within_request)


async def cut_an_answer(proxy: Proxy) -> None:
    """Forward the next message, drop its answer, then cut."""
    proxy.requests, proxy.cut_answer_to = b"", MESSAGE
    await until(lambda: proxy.cut_answer_to is None)


def bursts(tries: int) -> list[int]:
    """Return the numbers of faults between restarts of the processes."""
    return [min(BURST, tries - at) for at in range(0, tries, BURST)]


async def broker_killed(run: Run, row: Row, carrier: Carrier) -> None:
    """Run a sender and a tap while the broker is killed and restarted."""
    for tries in bursts(run.tries):
        folder = run.place(f"burst-{row.tried}")
        store = folder / "log.db"
        with carrier.server() as server:
            sender, tap = await started(folder, carrier, server.url, server.url)
            for _ in range(tries):
                await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                await asyncio.to_thread(server.stop, kill=True)
                await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                await asyncio.to_thread(server.start)
                row.tried += 1
                await sender.heard("sent", sender.last("sent") + 20)
            await end(server.port, carrier, sender, tap)
        await judge(row, store, sender, None)
        shutil.rmtree(folder)


async def through_proxies(
    run: Run,
    row: Row,
    act: Callable[[Proxy], Awaitable[None]],
    carrier: Carrier,
    *,
    sender_only: bool = False,
) -> None:
    """Run a sender and a tap, each behind its own proxy, and a witness without a proxy."""
    with carrier.server() as server:
        for tries in bursts(run.tries):
            folder = run.place(f"burst-{row.tried}")
            async with AsyncExitStack() as stack:
                witness = await stack.enter_async_context(Witness.watching(server.port, carrier))
                proxies = [await stack.enter_async_context(Proxy(server.port).running()) for _ in range(2)]
                sender, tap = await started(folder, carrier, *(carrier.url(proxy.port) for proxy in proxies))
                for _ in range(tries):
                    await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                    await act(proxies[0] if sender_only else run.dice.choice(proxies))
                    row.tried += 1
                    await sender.heard("sent", sender.last("sent") + 20)
                    for proxy in proxies:
                        proxy.requests = b""
                await end(server.port, carrier, sender, tap)
                await witness.caught_up()
            await judge(row, folder / "log.db", sender, witness.saw)
            shutil.rmtree(folder)


async def started(folder: Path, carrier: Carrier, sends_to: str, listens_to: str) -> tuple[Worker, Worker]:
    """Return a running sender and a running tap that record into one store."""
    store = str(folder / "log.db")
    tap = await Worker.start("tap", folder, store=store, exp=EXP, broker=listens_to)
    await tap.heard("ready")
    sender = await Worker.start("send", folder, store=store, exp=EXP, broker=sends_to, pause=carrier.pause)
    await sender.heard("sent", 20)
    return sender, tap


async def end(port: int, carrier: Carrier, sender: Worker, tap: Worker) -> None:
    """Stop the sender, wait until the tap has caught up, and stop the tap."""
    await sender.stop()
    await caught_up(port, carrier, tap)
    await tap.stop()


async def caught_up(port: int, carrier: Carrier, tap: Worker) -> None:
    """Return once the tap has received, or logged as a gap, all messages published before this call."""
    before = len(tap.said["heard"])
    async with carrier.line.to(port) as line:

        async def hears() -> bool:
            await line.publish(b"-", LAST)
            return 0 in tap.said["heard"][before:]

        await until(hears, 30)


async def judge(row: Row, store: Path, sender: Worker, saw: list[int] | None) -> None:
    roles = {recorder.ordinal: recorder.role for recorder in recorders(store, EXP)}
    logged = events(store, EXP)
    by_sender = [entry for entry in logged if roles[entry.recorder] == "messager"]
    by_tap = [entry for entry in logged if roles[entry.recorder] == "tap"]
    _judge_sender(row, sender, by_sender, saw)
    published = {n: ts for entry in by_sender if (n := entry.n) is not None for ts in [entry.ts]}
    on_the_wire = set(sender.said["sent"]) if saw is None else set(saw)
    judge_listener(row, by_tap, {n: ts for n, ts in published.items() if n in on_the_wire})
    for problem in await findings(store):
        row.problem(f"{store.parent.name}: {problem}")


def _judge_sender(row: Row, sender: Worker, logged: list[Logged], saw: list[int] | None) -> None:
    """Each send is in the log once, with the outcome that its caller got."""
    said = {n: word for word in ("sent", "not_sent", "unknown") for n in sender.said.get(word, [])}
    row.offered += len(said)
    row.add("unknown", len(sender.said.get("unknown", [])))
    row.add("not sent", len(sender.said.get("not_sent", [])))
    kept: dict[int, str] = {}
    for entry in logged:
        if entry.n is not None:
            row.doubled += entry.n in kept
            kept[entry.n] = entry.kind if entry.kind == "sent" else str(entry.meta.get("outcome"))
    row.lost += sum(1 for n in said if n not in kept)
    row.unnoticed += sum(1 for n, word in said.items() if n in kept and kept[n] != word)
    count_disorder(row, logged, "sent")
    if saw is None:
        return
    count_repeats(row, saw)
    seen = set(saw)
    row.lost += sum(1 for n, word in said.items() if word == "sent" and n not in seen)
    row.unnoticed += sum(1 for n, word in said.items() if word == "not_sent" and n in seen)


def judge_listener(row: Row, logged: list[Logged], published: dict[int, int]) -> None:
    """Each published message is in the log once, or its time lies in a gap. `published` has ts by number."""
    count_disorder(row, logged, "received")
    judge_gaps(row, logged, published)


def judge_gaps(row: Row, logged: list[Logged], published: dict[int, int]) -> None:
    """Each published message is in the log, or its time lies in a gap. `published` has ts by number."""
    received = {entry.n for entry in logged if entry.kind == "received"}
    known = gaps(logged)
    missed = [ts for n, ts in published.items() if n not in received]
    row.add("missed by the listener, inside its gaps", sum(1 for ts in missed if within(ts, known)))
    row.add("gaps", len(known))
    outside = [ts for ts in missed if not within(ts, known)]
    row.unnoticed += len(outside)
    if outside:
        starts = [min((since - ts for since, _ in known if since > ts), default=0) for ts in outside]
        row.most("most ms before a gap began", max(starts) / 1e6)


SLOW_PAYLOAD = 16_000
"""Bytes of a message for a slow listener. Valkey 9 counts larger ones as references, and so disconnects no one."""
FLOOD_SECONDS = 60.0
"""Time limit for a listener to be disconnected and to reconnect, s."""


@fault("listener-cut-off", "A listener so slow that Redis cuts it off", short=2, long=20)
async def cut_off(run: Run, row: Row) -> None:
    """Messages that Redis discarded lie in its gaps."""
    with redis_server("--client-output-buffer-limit", "pubsub", "1mb", "0", "0") as server:
        for number in range(run.tries):
            folder = run.place(f"slow-{number}")
            store = folder / "log.db"
            seed = run.dice.randrange(1 << 30)
            tap = await Worker.start(
                "tap", folder, store=str(store), exp=EXP, broker=server.url, blocked=seed, longest=0.4
            )
            await tap.heard("ready")
            published = await _flood(server.port, tap)
            await caught_up(server.port, REDIS, tap)
            await tap.stop()
            row.tried += 1
            row.offered += len(published)
            judge_listener(row, events(store, EXP), published)
            for problem in await findings(store):
                row.problem(problem)
            shutil.rmtree(folder)


async def _flood(port: int, tap: Worker) -> dict[int, int]:
    """Publish until the tap was disconnected and received again; return the time (ns) of each message by number."""
    published: dict[int, int] = {}
    back = 0  # number of the last message before the tap reconnected
    async with RedisLine.to(port) as line, asyncio.timeout(FLOOD_SECONDS):
        while not back or tap.last("heard") <= back:
            number = len(published) + 1
            payload = json.dumps({"n": number, "pad": "" if back else "x" * SLOW_PAYLOAD}).encode()
            published[number] = time.time_ns()
            await line.publish(b"c", payload)
            if not back and tap.said["gap"]:
                back = number
    return published
