"""A recording is read from the log as a lockstep replay needs it."""

from __future__ import annotations

from messager import MemoryBroker, MessageRecord, channels
from messager.brokers import kind_of
from messager_store import EventLog, Recorder
from messager_store.lockstep.cut import load_recording
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.channel_map import ChannelMap
from messager_store.log.selection import Selection
from messager_store.replay.plan import make_plan


async def test_senders_of_live_messages_are_derived_by_the_rules_of_the_recording(log: EventLog) -> None:
    async with Recorder(log, "e1", sender=["header.who"]) as recorder:
        recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b'{"header": {"who": 5}}'))
    broker = MemoryBroker()
    plan = await make_plan(
        *(log, await log.experiment("e1"), Selection()),
        channel_map=ChannelMap(None, None),
        broker_url=broker.url,
        keep_names=False,
    )
    recording = await load_recording(log, plan)
    assert [entry.from_id for entry in recording.messages] == [5]
    lockstep = Lockstep(recording, kind_of(broker.url), channels.encode, ToTheEnd())
    assert lockstep.sender_of(b'{"header": {"who": 7}}') == 7
    assert lockstep.sender_of(b'{"from": 7}') is None
