"""Messages survive the log, a file and a replay unchanged."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from messager import MemoryBroker, channels
from messager.brokers import Broker, MqttBroker, kind_of
from messager_store import EventLog, NewEvent, Replay
from messager_store.experiments.records import Experiment
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.log.names import agent_value
from messager_store.maintenance.verify import verify
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, carried
from tests.support.examples import WITH_STORE

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


async def recorded(log: EventLog, wanted: Messages) -> Experiment:
    """Create an experiment with these messages, in batches of seven, beside those of earlier examples."""
    of = await log.create_experiment(uuid4().hex, name=None, tags=[], meta={})
    writer = await log.register(of, role="tap")
    events = [NewEvent("sent", ts, channels.decode(c), p, sender, to) for ts, c, p, sender, to in wanted]
    for at in range(0, len(events), 7):
        await log.append(writer, events[at : at + 7])
    return of


def in_order(wanted: Messages) -> Messages:
    """Return the messages in replay order, where seq breaks ties."""
    return sorted(wanted, key=lambda message: message[0])


def key(agent: Any) -> bytes | None:
    return None if agent is None else agent_value(agent)


@WITH_STORE
@given(messages)
async def test_what_is_appended_is_what_is_read_and_what_is_published(log: EventLog, wanted: Messages) -> None:
    of = await recorded(log, wanted)
    read = [entry async for entry in log.read(of)]
    found = [(e.ts, channels.encode(e.channel or ""), e.payload, key(e.from_id), key(e.to_id)) for e in read]
    assert found == [(*message[:3], key(message[3]), key(message[4])) for message in in_order(wanted)]
    assert all(type(entry.text) is str for entry in read)
    await _comes_back(log, of, MemoryBroker(), in_order(wanted))


@WITH_STORE
@pytest.mark.parametrize("broker", ["redis", "mqtt"], indirect=True)
@example(wanted=[(0, b"a", b"1", None, ""), (1, b"$SYS/uptime", b"2", None, "")])
@example(wanted=[(0, b"$\x00", b"", None, None)])
@example(wanted=[(0, b"a", b"1", None, ""), (1, b"__sentinel__:hello", b"2", None, "")])
@given(wanted=messages)
async def test_a_broker_carries_the_same(log: EventLog, broker: Broker, wanted: Messages) -> None:
    await _comes_back(log, await recorded(log, wanted), broker, in_order(wanted))


async def _comes_back(log: EventLog, of: Experiment, broker: Broker, wanted: Messages) -> None:
    mqtt = isinstance(broker, MqttBroker)
    kind = kind_of(broker.url)
    internal = [channel for _, channel, _, _, _ in wanted if kind.is_internal(channel)]  # be it a topic or not
    published = [(channel, payload) for _, channel, payload, _, _ in wanted if channel not in internal]
    expected = carried(broker, published)
    heard = [message for message in expected if not mqtt or kind.matches("*", message[0])]
    pubsub = broker.pubsub()
    await pubsub.psubscribe("*")
    replay = Replay(log, of.exp_id, broker, speed="max", rate=100_000 if mqtt else None, keep_names=True)
    task = asyncio.create_task(replay.run())
    for channel, payload in heard:
        message = await pubsub.get_message(timeout=20)
        assert message is not None and (message["channel"], message["data"]) == (channel, payload)
    report = await task
    assert (report.published, sum(report.internal.values())) == (len(expected), len(internal))
    assert report.failed == len(wanted) - len(expected) - len(internal)
    await pubsub.aclose()


metas = st.none() | st.dictionaries(st.text(st.characters(), max_size=5), any_json | st.just(math.nan), max_size=3)


@WITH_STORE
@given(messages, metas, st.booleans())
async def test_export_import_export_gives_the_same_bytes(
    log: EventLog, tmp_path: Path, wanted: Messages, meta: dict[str, Any] | None, packed: bool
) -> None:
    first, second = (tmp_path / f"{name}.jsonl{'.gz' if packed else ''}" for name in ("first", "second"))
    of = await recorded(log, wanted)
    other = await log.register(of, role="messager", meta=meta)
    await log.append(other, [NewEvent("mark", 0, None, b"", meta=meta), NewEvent("gap", 0, None, b"", meta=meta)])
    await export_jsonl(log, of.exp_id, first)
    again = await import_jsonl(log, first, uuid4().hex)
    await export_jsonl(log, again.exp_id, second)
    assert first.read_bytes() == second.read_bytes()
    assert (await verify(log, again)).problems == []
