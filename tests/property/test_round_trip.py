"""Whatever was on the wire comes back: through the log, through a file, and onto the wire again."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messager import MemoryBroker, RedisBroker, channels
from messager.brokers import Broker
from messager.testing import RedisServer
from messager_store import EventLog, NewEvent, Replay
from messager_store import experiments as registry
from messager_store.exchange.jsonl import export_jsonl, import_jsonl
from messager_store.names import agent_value
from messager_store.verify import verify
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS

SETTINGS = settings(
    deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MANY, FEW = settings(SETTINGS, max_examples=40), settings(SETTINGS, max_examples=10)

payloads = st.binary(max_size=200) | st.sampled_from(HOSTILE_PAYLOADS)
wire_channels = st.binary(min_size=1, max_size=30) | st.sampled_from(HOSTILE_CHANNELS)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ids = any_json | st.sampled_from(HOSTILE_IDS)
messages = st.lists(st.tuples(st.integers(-5, 5), wire_channels, payloads, ids, ids), min_size=1, max_size=25)
Messages = list[tuple[int, bytes, bytes, Any, Any]]


async def recorded(log: EventLog, wanted: Messages, exp_id: str = "e1") -> None:
    """An experiment of these messages, in batches of seven."""
    of = await registry.create(log.database, exp_id, name=None, tags=[], meta={})
    assert of is not None
    writer = await log.register(of, role="tap")
    events = [NewEvent("sent", ts, channels.decode(c), p, sender, to) for ts, c, p, sender, to in wanted]
    for at in range(0, len(events), 7):
        await log.append(writer, events[at : at + 7])


def in_order(wanted: Messages) -> Messages:
    """In replay order: stable, because seq breaks ties."""
    return sorted(wanted, key=lambda message: message[0])


def key(agent: Any) -> bytes | None:
    return None if agent is None else agent_value(agent)


@MANY
@given(messages)
async def test_what_is_appended_is_what_is_read_and_what_is_published(tmp_path: Path, wanted: Messages) -> None:
    async with EventLog.open(":memory:") as log:
        await recorded(log, wanted)
        found = [(e.ts, channels.encode(e.channel or ""), e.payload, e.from_id, e.to_id) async for e in log.read("e1")]
        expected = in_order(wanted)
        assert [entry[:3] for entry in found] == [entry[:3] for entry in expected]
        assert [(key(e[3]), key(e[4])) for e in found] == [(key(e[3]), key(e[4])) for e in expected]
        assert all(type(text) is str for text in [e.text async for e in log.read("e1")])
        await _comes_back(log, MemoryBroker(), expected)


@FEW
@given(messages)
async def test_redis_carries_the_same(redis: RedisServer, wanted: Messages) -> None:
    async with EventLog.open(":memory:") as log:
        await recorded(log, wanted)
        broker = RedisBroker.from_url(redis.url)
        await _comes_back(log, broker, in_order(wanted))
        await broker.close()


async def _comes_back(log: EventLog, broker: Broker, expected: Messages) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("*")
    task = asyncio.create_task(Replay(log, "e1", broker, speed="max").run())
    for _, channel, payload, _, _ in expected:
        message = await pubsub.get_message(timeout=20)
        assert message is not None and (message["channel"], message["data"]) == (channel, payload)
    assert (await task).published == len(expected)
    await pubsub.aclose()


metas = st.none() | st.dictionaries(st.text(st.characters(), max_size=5), any_json | st.just(math.nan), max_size=3)


@MANY
@given(messages, metas, st.booleans())
async def test_export_import_export_gives_the_same_bytes(
    tmp_path: Path, wanted: Messages, meta: dict[str, Any] | None, packed: bool
) -> None:
    first, second = (tmp_path / f"{name}.jsonl{'.gz' if packed else ''}" for name in ("first", "second"))
    async with EventLog.open(":memory:") as log:
        await recorded(log, wanted)
        other = await log.register(await log.experiment("e1"), role="messager", meta=meta)
        await log.append(other, [NewEvent("mark", 0, None, b"", meta=meta), NewEvent("gap", 0, None, b"", meta=meta)])
        await export_jsonl(log, "e1", first)
        of = await import_jsonl(log, first, "e2")
        await export_jsonl(log, "e2", second)
        assert first.read_bytes() == second.read_bytes()
        assert (await verify(log.database, of)).problems == []
