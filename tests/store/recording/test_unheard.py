"""Messages that a tap cannot receive are reported at its start, during the recording, and by `info` and `status`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from messager import MemoryBroker, RedisBroker
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, Recorder
from messager_store.queries.overview import overview
from messager_store.recording.tap import Tap
from messager_store.recording.unheard import Unheard
from tests.support import messager, until
from tests.support.redis_topologies import ask, cluster_url


@pytest.fixture
def fresh() -> Iterator[RedisServer]:
    """Server that no other test uses."""
    with redis_server() as server:
        yield server


@pytest.fixture
async def there(fresh: RedisServer) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker.from_url(fresh.url)
    yield broker
    await broker.close()


async def test_a_broker_counts_what_goes_past_subscribers(fresh: RedisServer, there: RedisBroker) -> None:
    assert await there.unheard() == {}
    await there.publish([(b"c", b"heard")])
    await ask(fresh.port, "XADD", "stream", "*", "a", "b")
    assert await there.unheard() == {"XADD": 1}
    try:
        await ask(fresh.port, "SPUBLISH", "c", "x")
    except ResponseError:
        pytest.skip("sharded channels came with Redis 7")
    assert await there.unheard() == {"SPUBLISH": 1, "XADD": 1}


async def test_in_a_cluster_every_node_counts(redis_cluster: list[RedisServer]) -> None:
    broker = RedisBroker.from_url(cluster_url(redis_cluster[0]))
    before = (await broker.unheard() or {}).get("XADD", 0)
    for node in redis_cluster:
        for key in "abcdefgh":
            try:
                await ask(node.port, "XADD", key, "*", "a", "b")
            except ResponseError:
                continue  # the slot is another node's
    assert (await broker.unheard() or {})["XADD"] == before + 8
    await broker.close()


async def test_a_server_that_may_not_be_asked_is_recorded_without_a_word(fresh: RedisServer) -> None:
    await ask(fresh.port, "XADD", "stream", "*", "a", "b")
    await ask(fresh.port, "ACL", "SETUSER", "bob", "on", ">hunter2", "allchannels", "+psubscribe", "+publish", "+time")
    broker = RedisBroker.from_url(fresh.url.replace("://", "://bob:hunter2@"))
    assert await broker.unheard() is None
    await broker.close()
    assert await MemoryBroker().unheard() == {}


async def test_counters_that_start_again_and_a_first_look_that_fails_change_nothing(
    fresh: RedisServer, there: RedisBroker, log: EventLog
) -> None:
    told: list[str] = []
    async with Recorder(log, "e1", role="tap", patterns=["*"]) as recorder:
        unheard = Unheard(there, recorder, told.append)
        await there.connect()
        for _ in range(3):
            await ask(fresh.port, "XADD", "stream", "*", "a", "b")
        await ask(fresh.port, "CLIENT", "PAUSE", 1500)
        await unheard.inspect()  # no answer in time
        await unheard.inspect()
        assert len(told) == 1 and "3 so far" in told[0]
        await ask(fresh.port, "CONFIG", "RESETSTAT")
        for _ in range(2):
            await ask(fresh.port, "XADD", "stream", "*", "a", "b")
        await unheard.inspect()
        await unheard.inspect()
    [row] = (await overview(log, await log.experiment("e1")))["recorders"]
    assert row["meta"]["unheard"] == {"XADD": {"before": 3, "during": 2}} and len(told) == 2


async def test_a_tap_tells_at_the_start_and_in_the_end_what_it_could_not_hear(
    fresh: RedisServer, there: RedisBroker, log: EventLog
) -> None:
    for _ in range(2):
        await ask(fresh.port, "XADD", "stream", "*", "a", "b")
    told: list[str] = []
    async with Recorder(log, "e1", role="tap", patterns=["*"]) as recorder:
        task = asyncio.create_task(Tap(there, recorder, ["*"], notice=told.append).run())
        await until(lambda: bool(told))
        assert "streams (XADD), 2 so far" in told[0]
        for _ in range(3):
            await ask(fresh.port, "XADD", "stream", "*", "a", "b")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert "through streams (XADD) now" in told[1] and len(told) == 2

    async def meta() -> Any:
        [row] = (await overview(log, await log.experiment("e1")))["recorders"]
        return row["meta"]

    assert (await meta())["unheard"] == {"XADD": {"before": 2, "during": 3}}
    assert "versions" in await meta()  # the circumstances are still there


async def test_record_info_and_status_name_it(fresh: RedisServer, store: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return messager(*arguments, "--store", store, cwd=tmp_path)

    await ask(fresh.port, "XADD", "stream", "*", "a", "b")
    done = await asyncio.to_thread(run, "record", "--exp", "e1", "--broker", fresh.url, "--duration", "0.2")
    assert done.returncode == 0
    assert "not recorded: streams (XADD), 1 so far" in done.stderr
    line = "streams (XADD): 0 calls while it recorded, 1 call before"
    done = await asyncio.to_thread(run, "info", "e1")
    assert f"recorder 1: {line}" in done.stdout
    done = await asyncio.to_thread(run, "status")
    assert f"e1, recorder 1: {line}" in done.stdout and done.returncode == 0
    done = await asyncio.to_thread(run, "status", "--json")
    assert json.loads(done.stdout)["unheard"] == [f"e1, recorder 1: {line}"]
