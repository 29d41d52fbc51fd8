"""Failovers and leaving nodes: publishers move to another server, the connection of a listener stays open."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tests.support import until
from tests.support.redis_topologies import SLOTS, Watched, ask, cluster, cluster_url, is_master, watched

from .carriers import REDIS
from .evidence import count_repeats, events, findings
from .network import EXP, caught_up, judge_gaps
from .process import Worker
from .row import Row, Run, fault

STORE = "log.db"
SETTLED = 45.0
"""Time limit for a failover, including the demotion of the old master, s."""
NODE_TIMEOUT = 15_000
"""The usual value, ms. With less, nodes on a busy machine lose messages between them silently."""
EACH = 0.005
"""Pause between two messages of one publisher, s."""
AFTERWARDS = 50
"""Messages that each publisher sends after the move."""


def plain(port: int) -> Any:
    """Return a client that does not reconnect, and so never to a master that became a replica."""
    return Redis(port=port, retry=Retry(NoBackoff(), 0), socket_timeout=5)


class Publishing:
    """Publishers of the harness, and the messages that the servers accepted."""

    def __init__(self) -> None:
        self.published: dict[int, int] = {}
        """By number: time (ns UTC) immediately before the write of each acknowledged message."""
        self.groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        """By publisher and port: numbers in the order of sending."""
        self._number = 0
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self, *publishers: Awaitable[None]) -> AsyncIterator[None]:
        """Context in which these publish. Each has published before the context starts."""
        self._tasks = [asyncio.ensure_future(publisher) for publisher in publishers]
        try:
            await until(lambda: len(self.groups) == len(publishers))
            await self.wait_for_more(AFTERWARDS)
            yield
            await self.wait_for_more(AFTERWARDS)
        finally:
            self._over = True
            await asyncio.gather(*self._tasks)

    async def publish_one(self, publisher: str, client: Any, port: int) -> None:
        """Publish one message. Raises the errors of redis-py if no answer comes."""
        self._number += 1
        number, ts = self._number, time.time_ns()
        await client.publish("c", b'{"n": %d}' % number)
        self.published[number] = ts
        self.groups[publisher, port].append(number)

    async def persistent(self, publisher: str, named: Callable[[], Awaitable[int]]) -> None:
        """Publish on one connection until it is cut, then on one to the newly named port."""
        while not self._over:
            port = await named()
            client = plain(port)
            try:
                while not self._over:
                    await self.publish_one(publisher, client, port)
                    await asyncio.sleep(EACH)
            except (RedisError, OSError):
                await asyncio.sleep(EACH)
            finally:
                await client.aclose()

    async def reconnecting(self, publisher: str, named: Callable[[], Awaitable[int]]) -> None:
        """Publish each message with a new client, on the named port."""
        while not self._over:
            port = await named()
            client = plain(port)
            try:
                await self.publish_one(publisher, client, port)
            except (RedisError, OSError):
                pass
            finally:
                await client.aclose()
            await asyncio.sleep(EACH)

    def sent_by(self, publisher: str) -> int:
        """Return the number of acknowledged messages of a publisher."""
        return sum(len(numbers) for (name, _), numbers in self.groups.items() if name == publisher)

    async def wait_for_more(self, number: int) -> None:
        """Return once each publisher has published this number of further messages."""
        names = {name for name, _ in self.groups}
        wanted = {name: self.sent_by(name) + number for name in names}
        await until(lambda: all(self.sent_by(name) >= count for name, count in wanted.items()), SETTLED)


async def judge(row: Row, publishing: Publishing, folder: Path) -> None:
    """Each message is in the log once, or its time lies in a gap. Messages of a publisher on a server are in order."""
    store = folder / STORE
    row.tried += 1
    row.offered += len(publishing.published)
    logged = events(store, EXP)
    received = [entry.n for entry in logged if entry.kind == "received" and entry.n is not None]
    for numbers in publishing.groups.values():
        mine = set(numbers)
        count_repeats(row, [number for number in received if number in mine])
    judge_gaps(row, logged, publishing.published)
    for problem in await findings(store):
        row.problem(f"{folder.name}: {problem}")
    shutil.rmtree(folder)


@fault("sentinel-failover", "A planned failover, of three sentinels", short=1, long=10, seconds=1200)
async def planned_failover(run: Run, row: Row) -> None:
    """For some seconds two masters answer. Messages published on either are recorded, or lie in a gap."""
    async with watched(sentinels=3) as there:
        for number in range(run.tries):
            await until(there.can_fail_over, SETTLED)
            folder = run.place(f"failover-{number}")
            tap = await Worker.start("tap", folder, store=str(folder / STORE), exp=EXP, broker=there.url())
            await tap.heard("ready")
            publishing = Publishing()
            async with publishing.running(
                publishing.persistent("stays", there.named),
                publishing.reconnecting("asks", lambda: _named_by_any(run, there)),
            ):
                old = await there.named()
                await ask(run.dice.choice(there.sentinels).port, "SENTINEL", "FAILOVER", "mymaster")

                async def demoted(port: int = old) -> bool:
                    return not await is_master(port)

                await until(demoted, SETTLED)
            await caught_up(await there.named(), REDIS, tap)
            await tap.stop()
            await judge(row, publishing, folder)


async def _named_by_any(run: Run, there: Watched) -> int:
    named = await ask(run.dice.choice(there.sentinels).port, "SENTINEL GET-MASTER-ADDR-BY-NAME", "mymaster")
    return int(named[1])


@fault("cluster-leave", "A node that leaves a cluster, with its listener", short=1, long=15)
async def node_leaves(run: Run, row: Row) -> None:
    """The node continues to answer alone. Messages published on the others are recorded, or lie in a gap."""
    for number in range(run.tries):
        folder = run.place(f"leave-{number}")
        async with cluster(node_timeout=NODE_TIMEOUT) as nodes:
            leaver, *others = nodes
            tap = await Worker.start("tap", folder, store=str(folder / STORE), exp=EXP, broker=cluster_url(leaver))
            await tap.heard("ready")
            publishing = Publishing()

            async def at_first(port: int = others[0].port) -> int:
                return port

            async def at_second(port: int = others[1].port) -> int:
                return port

            async with publishing.running(
                publishing.persistent("first", at_first), publishing.reconnecting("second", at_second)
            ):
                identity = await ask(leaver.port, "CLUSTER", "MYID")
                for node in others:
                    await ask(node.port, "CLUSTER", "FORGET", identity)
                await ask(others[0].port, "CLUSTER", "ADDSLOTS", *range(SLOTS // 3))
                if run.dice.random() < 0.7:
                    await ask(leaver.port, "CLUSTER", "RESET", run.dice.choice(["HARD", "SOFT"]))
                await tap.heard("gap")
            last = {numbers[-1] for numbers in publishing.groups.values()}  # may be in flight between the nodes
            await until(lambda heard=tap.said["heard"], last=last: last <= set(heard), SETTLED)
            await tap.stop()
        await judge(row, publishing, folder)
