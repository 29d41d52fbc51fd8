"""A fork repeats the part before a point, each event once, and then goes on by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessageRecord
from messager.brokers import Broker, OutputLimits
from messager.record import CLOSED
from messager_store import Event, EventLog, LiveReplay, NewEvent, Recorder
from messager_store.errors import ReplayFailed, ReplayRefused, StoreError
from messager_store.log.event import Cursor
from messager_store.log.lineage import parent_of
from messager_store.matching.match import Match
from messager_store.replay import Replay
from tests.support import until
from tests.support.forking import (
    AT,
    CASTER,
    LEADER,
    QUIET,
    THINKER,
    TICKER,
    check_fork,
    fork,
    recorded,
    society,
)
from tests.support.logs import filled, listed, sent


async def test_everybody_repeats_the_prefix_and_goes_on_differently(parent: EventLog) -> None:
    async with fork(parent) as forked:
        report = await forked.play(society())
    events = await check_fork(parent, "exp-1", "exp-2", AT)
    assert report.complete and report.stopped is None and report.equal
    assert report.events == report.repeated + report.copied and report.left_out == report.published == 0
    phases = [entry for entry in events if entry.kind == "mark" and (entry.meta or {}).get("name") == "phase"]
    assert [(entry.origin is None, (entry.meta or {})["fields"]["word"]) for entry in phases] == [
        *((False, "a"), (False, "b"), (True, "X"), (True, "Y")),
    ]
    assert (await parent.experiment("exp-2")).meta == {"prefix": "complete"}


@pytest.mark.parametrize(
    "live",
    [
        [CASTER],
        [LEADER, QUIET],
        [],
        *(pytest.param([one], marks=pytest.mark.nightly) for one in (LEADER, TICKER, THINKER, QUIET)),
    ],
)
async def test_whoever_is_live_the_fork_has_each_event_of_the_prefix_once(parent: EventLog, live: list[int]) -> None:
    agents = {agent: function for agent, function in society().items() if agent in live}
    async with fork(parent, live=live) as forked:
        if agents:
            await forked.play(agents, seconds=0.1)
        else:
            await forked.run()
    await check_fork(parent, "exp-1", "exp-2", AT)
    assert forked.report.published > 0 and forked.report.complete


@pytest.mark.parametrize("live", ["all", pytest.param([LEADER], marks=pytest.mark.nightly)])
async def test_a_fork_repeats_over_any_broker(parent: EventLog, broker: Broker, live: Any) -> None:
    agents = {agent: function for agent, function in society().items() if live == "all" or agent in live}
    async with fork(parent, broker=broker, live=live) as forked:
        await forked.play(agents, seconds=0.1)
    await check_fork(parent, "exp-1", "exp-2", AT)


async def test_one_of_two_agents_that_share_a_messager_can_be_live(log: EventLog) -> None:
    async def both(messager: Messager, agents: tuple[int, ...] = (1, 2)) -> None:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(1, "*")])
        for n in range(4):
            for agent in agents:
                await messager.send_message(messager.get_agent_chat_channel(1), {"n": n, "from": agent}, agent, 1)
            heard: list[Any] = []
            while len(heard) < 2:
                heard += await messager.fetch_messages()
                await asyncio.sleep(0.001)
            messager.mark("round")

    async def one(messager: Messager) -> None:
        await both(messager, (1,))

    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(MemoryBroker(), recorder, "exp-1", {1: both})
    async with fork(log, at="mark:round#3", live=[1]) as forked:
        await forked.play({1: one}, seconds=0.05)
    await check_fork(log, "exp-1", "exp-2", "mark:round#3")
    assert forked.report.published == 3


async def test_a_fork_at_the_end_has_everything(parent: EventLog) -> None:
    async with fork(parent, at=None) as forked:
        await forked.play(society("abcd"))
    events = await check_fork(parent, "exp-1", "exp-2", None)
    assert sum(entry.origin is not None for entry in events) == len(await listed(parent.read("exp-1")))


async def test_messagers_can_be_attached_one_by_one(parent: EventLog) -> None:
    broker = MemoryBroker()
    async with fork(parent, broker=broker) as forked:
        tasks = []
        for agent, function in society().items():
            messager = Messager(broker, "exp-2", clock=forked.clock)
            await forked.attach(messager, agent)
            await messager.init()
            tasks.append(asyncio.create_task(function(messager)))
        report = await forked.run()
        assert report.complete
        await asyncio.gather(*tasks)
    await check_fork(parent, "exp-1", "exp-2", AT)


async def test_a_fork_can_be_forked_and_replayed(parent: EventLog) -> None:
    async with fork(parent) as forked:
        await forked.play(society())
    async with fork(parent, "exp-3", of="exp-2", at="mark:phase#4") as again:
        await again.play(society("abXZ"))
    await check_fork(parent, "exp-2", "exp-3", "mark:phase#4")
    known = parent_of(await parent.experiment("exp-3"))
    assert known is not None and known.exp_id == "exp-2"
    report = await LiveReplay(parent, "exp-3", MemoryBroker(), to_exp="exp-4", live="all", patience=5).play(
        society("abXZ")
    )
    assert report.equal, (report.first, report.parts)


async def test_a_match_that_accepts_the_difference_lets_the_fork_go_on(parent: EventLog) -> None:
    async with fork(parent, match=Match(ignore=["memory", "word"])) as forked:
        report = await forked.play(society("aXcd"))
    assert report.complete
    origins = [entry.origin for entry in await listed(parent.read("exp-2")) if entry.origin is not None]
    assert len(origins) == len(set(origins)) == report.events


async def test_what_a_judge_accepts_is_told_from_a_live_message(log: EventLog) -> None:
    """Agent 3 is done at once, and speaks on the channel on which agent 1 is still to repeat its message."""
    listening, answered = asyncio.Event(), asyncio.Event()

    async def first(messager: Messager) -> None:
        await listening.wait()
        word = "begin" if messager.exp_id == "exp-1" else "start"
        await messager.send_message(messager.get_agent_chat_channel(2), {"word": word}, 1, 2)

    async def second(messager: Messager) -> None:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(2, "*")])
        listening.set()
        heard: list[bytes] = []
        while not heard:
            heard += [message["data"] for message in await messager.fetch_messages()]
            await asyncio.sleep(0.001)
        await messager.send_message("news", {"heard": heard[0].decode()}, 2, None)
        answered.set()

    async def third(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["nothing"])
        await answered.wait()  # in the recording
        messager.mark("cut")
        await messager.send_message(messager.get_agent_chat_channel(2), {"word": "new"}, 3, 2)

    async def accepts(expected: Any, actual: Any) -> bool:
        return "new" not in str(actual)

    agents = {1: first, 2: second, 3: third}
    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(MemoryBroker(), recorder, "exp-1", agents)
    async with fork(log, at="mark:cut", match=Match(judge=accepts)) as forked:
        await forked.play(agents)
    received = await listed(log.read("exp-2", kinds="received"))
    assert [(entry.text, entry.origin is None) for entry in received] == [
        *(('{"word": "start"}', False), ('{"word": "new"}', True)),
    ]


async def test_what_is_not_part_of_the_prefix_is_held_back_until_an_agents_own_part_is_done(log: EventLog) -> None:
    """Agent 1 is done at once, and speaks while agent 2 still repeats."""
    listening, spoke = asyncio.Event(), asyncio.Event()

    async def first(messager: Messager, word: str = "new") -> None:
        await messager.send_message(messager.get_agent_chat_channel(2), {"word": "begin"}, 1, 2)
        await messager.send_message(messager.get_agent_chat_channel(2), {"word": word}, 1, 2)

    async def second(messager: Messager, rounds: int = 3) -> None:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(2, "*")])
        listening.set()
        heard: list[bytes] = []
        for n in range(rounds):
            while not heard:
                heard += [message["data"] for message in await messager.fetch_messages()]
                await asyncio.sleep(0.001)
            await messager.send_message("news", {"round": n, "heard": len(heard)}, 2, None)
        spoke.set()
        while len(heard) < 2:
            heard += [message["data"] for message in await messager.fetch_messages()]
            await asyncio.sleep(0.001)
        await messager.send_message("news", {"heard": len(heard)}, 2, None)

    async def begin_only(messager: Messager) -> None:
        await listening.wait()
        await messager.send_message(messager.get_agent_chat_channel(2), {"word": "begin"}, 1, 2)
        await spoke.wait()
        messager.mark("cut")
        await messager.send_message(messager.get_agent_chat_channel(2), {"word": "old"}, 1, 2)

    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(MemoryBroker(), recorder, "exp-1", {1: begin_only, 2: second})
    async with fork(log, at="mark:cut") as forked:
        await forked.play({1: first, 2: second})
    events = await check_fork(log, "exp-1", "exp-2", "mark:cut")
    said = [entry.text for entry in events if entry.kind == "sent" and entry.from_id == 2]
    assert said == [f'{{"round": {n}, "heard": 1}}' for n in range(3)] + ['{"heard": 2}']
    received = [entry for entry in events if entry.kind == "received"]
    assert [entry.origin is None for entry in received] == [False, True]


async def test_a_new_message_waits_until_everything_of_the_prefix_has_arrived(log: EventLog) -> None:
    """Agent 2 said nothing behind its first message, and received something before the cut."""
    quiet = Messager(broker := MemoryBroker(), "exp-1")

    async def talker(messager: Messager) -> None:
        for word in ("one", "two"):
            await messager.send_message(messager.get_agent_chat_channel(2), {"word": word}, 1, 2)
        if messager.exp_id == "exp-1":
            await until(lambda: quiet.message_queue.qsize() == 2)
        messager.mark("cut")

    async def listener(messager: Messager, new: bool = True) -> None:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(2, "*")])
        await messager.send_message("news", {"word": "hello"}, 2, None)
        if new:
            await messager.send_message("news", {"word": "new"}, 2, None)

    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        quiet.add_log_hook(recorder)
        await quiet.init()
        await listener(quiet, new=False)
        await recorded(broker, recorder, "exp-1", {1: talker})
        await quiet.close()
    async with fork(log, at="mark:cut") as forked:
        await forked.play({1: talker, 2: listener})
    events = await check_fork(log, "exp-1", "exp-2", "mark:cut")
    order = [(entry.kind, entry.text) for entry in events if entry.messager and entry.kind != "mark"]
    assert order.index(("sent", '{"word": "new"}')) > order.index(("received", '{"word": "two"}'))


async def test_an_agent_that_never_spoke_is_known_by_its_subscriptions(log: EventLog) -> None:
    heard: dict[str, list[bytes]] = {}
    listening = asyncio.Event()

    async def speaker(messager: Messager) -> None:
        await listening.wait()
        for word in ("one", "two"):
            await messager.send_message(messager.get_agent_chat_channel(2), {"word": word}, 1, 2)
        if messager.exp_id == "exp-1":
            await until(lambda: len(heard["exp-1"]) == 2)
        messager.mark("cut")

    async def silent(messager: Messager) -> None:
        mine = heard[messager.exp_id] = []
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(2, "*")])
        listening.set()
        while len(mine) < 2:
            mine += [message["data"] for message in await messager.fetch_messages()]
            await asyncio.sleep(0.001)

    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(MemoryBroker(), recorder, "exp-1", {1: speaker, 2: silent})
    async with fork(log, at="mark:cut") as forked:
        await forked.play({2: silent, 1: speaker})
    await check_fork(log, "exp-1", "exp-2", "mark:cut")
    assert heard["exp-2"] == heard["exp-1"]
    async with fork(log, "exp-4", at="mark:cut") as forked:
        await forked.play({1: speaker})  # nobody waits for one that only listened
    assert forked.report.complete
    with pytest.raises(StoreError, match="no part is left for"):
        async with fork(log, "exp-3", at="mark:cut") as forked:
            await forked.play({7: silent})


async def test_marks_that_are_not_repeated_are_copied_at_the_end(parent: EventLog) -> None:
    async with Recorder(parent, "exp-0") as recorder:
        messager = Messager(MemoryBroker(), "exp-0")
        messager.add_log_hook(recorder)
        async with messager:
            messager.mark("alone", n=1)
            await messager.send_message("news", {"n": 1}, 1, None)

    async def without_mark(messager: Messager) -> None:
        await messager.send_message("news", {"n": 1}, 1, None)

    async with fork(parent, of="exp-0", at=None, patience=0.2) as forked:
        report = await forked.play({1: without_mark})
    assert report.complete and (report.left_out, report.repeated) == (1, 1)
    [mark] = [entry for entry in await listed(parent.read("exp-2")) if entry.kind == "mark"]
    assert mark.origin is not None and mark.messager is None


async def test_the_closing_of_a_messager_that_is_live_in_the_fork_is_copied_without_its_name(parent: EventLog) -> None:
    async def speaks(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["news"])
        await messager.send_message("out", {"n": 1}, 1, None)

    async with Recorder(parent, "exp-0") as recorder:
        messager = Messager(MemoryBroker(), "exp-0")
        messager.add_log_hook(recorder)
        async with messager:
            await speaks(messager)
    async with fork(parent, of="exp-0", at=None) as forked:
        report = await forked.play({1: speaks})
    assert report.complete and (report.left_out, report.repeated) == (0, 1)
    closings = [entry for entry in await listed(parent.read("exp-2")) if entry.mark == CLOSED]
    [copied] = [entry for entry in closings if entry.origin is not None]
    assert copied.messager is copied.arrival is None and len(closings) == 2


async def test_cursors_tell_how_far_the_prefix_is_done(parent: EventLog) -> None:
    cursors: list[Cursor] = []
    async with fork(parent, on_cursor=cursors.append) as forked:
        await forked.play(society())
    assert cursors == sorted(cursors) and len(cursors) > 10
    before = await listed(parent.read("exp-1", until=AT))
    assert cursors[-1] == before[-1].cursor


async def test_agents_with_checkpoints_repeat_only_what_follows_their_start(log: EventLog) -> None:
    async def counter(messager: Messager, begin: int = 0) -> None:
        for n in range(begin, 4):
            messager.mark("checkpoint", n=n)
            await messager.send_message("news", {"n": n}, 1, None)

    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(MemoryBroker(), recorder, "exp-1", {1: counter})

    async def restored(messager: Messager) -> None:
        await counter(messager, 1)

    async with fork(log, at="mark:checkpoint#4", start="mark:checkpoint#2") as forked:
        report = await forked.play({1: restored})
    events = await check_fork(log, "exp-1", "exp-2", "mark:checkpoint#4")
    assert (report.repeated, report.copied, report.published) == (4, 2, 0)
    assert [entry.text for entry in events if entry.kind == "sent"] == [f'{{"n": {n}}}' for n in range(4)]
    with pytest.raises(StoreError, match="the start of a fork is after its point"):
        async with fork(log, "exp-3", at="mark:checkpoint#2", start="mark:checkpoint#3"):
            pass


@pytest.mark.parametrize("options", [{"preset": "agentsociety"}, {"exclude": "exps:*:user-payback"}])
async def test_recorded_paybacks_are_copied_and_not_published(log: EventLog, options: dict[str, Any]) -> None:
    of = [sent(n, b'{"count": 1}', "exps:exp-1:user-payback") for n in range(1, 3)] + [
        sent(3, b"x", "exps:exp-1:other")
    ]
    await filled(log, of, "exp-1")
    broker = MemoryBroker()
    async with Messager(broker, "exp-2") as driver:
        await driver.subscribe_and_start_listening(["exps:exp-2:*"])
        async with fork(log, at=None, live=None, broker=broker, **options) as forked:
            report = await forked.run()
        assert [message["data"] for message in await driver.fetch_messages()] == [b"x"]
    assert (report.published, report.copied) == (1, 3)
    assert [entry.channel for entry in await listed(log.read("exp-2"))] == [
        *("exps:exp-2:user-payback", "exps:exp-2:user-payback", "exps:exp-2:other"),
    ]


async def test_a_recording_of_a_tap_can_be_forked(log: EventLog) -> None:
    of = [NewEvent("received", n, "exps:exp-1:agents:2:chat", b'{"n": %d}' % n, n % 2) for n in range(1, 5)]
    await filled(log, of, "exp-1")

    async def one(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["exps:exp-2:agents:*"])
        for n in (1, 3, 5):
            await messager.fetch_messages()
            await messager.send_message(messager.get_subtopic_channel(2, "chat"), {"n": n}, 1, None)

    async with fork(log, at=4, live=[1]) as forked:
        report = await forked.play({1: one})
    events = await listed(log.read("exp-2", kinds="sent"))
    assert [(entry.text, entry.origin and entry.origin[1]) for entry in events] == [
        *(('{"n": 1}', 1), ('{"n": 2}', 2), ('{"n": 3}', 3), ('{"n": 5}', None)),
    ]
    assert report.complete and report.pace == "weaker"
    origins = [entry.origin for entry in await listed(log.read("exp-2")) if entry.origin is not None]
    assert len(origins) == len(set(origins)), "what a live agent receives is no event of the tap"


async def test_what_was_received_from_an_unrecorded_sender_is_published_and_received_again(log: EventLog) -> None:
    broker = MemoryBroker()

    async def listener(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["news"])
        if messager.exp_id == "exp-1":
            await broker.publish([(b"news", b"extra"), (b"news", b"extra")])
        heard: list[Any] = []
        while len(heard) < 2:
            heard += await messager.fetch_messages()
            await asyncio.sleep(0.001)
        await messager.send_message("answer", {"heard": len(heard)}, 1, None)
        messager.mark("cut")

    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(broker, recorder, "exp-1", {1: listener})
    async with fork(log, at="mark:cut") as forked:
        report = await forked.play({1: listener})
    await check_fork(log, "exp-1", "exp-2", "mark:cut")
    assert (report.published, report.left_out) == (2, 0)


async def test_gaps_causes_and_details_of_events_are_copied(log: EventLog) -> None:
    details: dict[str, Any] = {"msg_id": "m", "duration_ns": 5, "receivers": 2, "flags": 1, "from_id": 7, "to_id": "x"}
    failed = {"outcome": "not_sent", "error": "e"}
    of = [
        sent(1, b"\xff", meta={"qos": 2}, messager="m1", arrival=0, **details),
        sent(2, b"lost", messager="m1", arrival=0),
        NewEvent("failed", 3, "c", b"lost", cause=(1, 2), meta=failed, messager="m1", arrival=0),
        NewEvent("gap", 4, None, b"", meta={"reason": "r", "since": 1, "until": 4, "count": 3}),
        NewEvent("received", 5, "c", b"\xff", messager="m2", arrival=1),
    ]
    await filled(log, of, "exp-1")
    async with fork(log, at=None, live=None) as forked:
        await forked.run()
    assert forked.report.published == 1, "what was not sent is not published"

    def facts(entry: Event) -> tuple[Any, ...]:
        own = (entry.msg_id, entry.duration_ns, entry.receivers, entry.flags, entry.meta, entry.cause)
        return (entry.kind, entry.payload, entry.from_id, entry.to_id, entry.messager, entry.arrival, *own)

    assert list(map(facts, await listed(log.read("exp-2")))) == list(map(facts, await listed(log.read("exp-1"))))


async def test_a_strict_recorder_records_a_fork_as_well(parent: EventLog) -> None:
    async with fork(parent, recorder={"durability": "strict"}) as forked:
        await forked.play(society())
    await check_fork(parent, "exp-1", "exp-2", AT)


class Limited(MemoryBroker):
    """Broker that disconnects a subscriber for which more than 1 MB waits."""

    async def output_limits(self) -> OutputLimits:
        return OutputLimits(1 << 20, None)


async def test_a_payload_that_would_cut_subscribers_off_is_not_published(log: EventLog) -> None:
    payloads = ((b"x" * 10, "a"), (b"x" * 600_000, "b"), (b"x" * 2_000_000, "c"))
    await filled(log, [sent(n, *one) for n, one in enumerate(payloads, 1)], "exp-1")
    broker = Limited()
    async with Messager(broker, "listener") as listener:
        await listener.subscribe_and_start_listening(["*", "?"])
        for into, options, refused in (
            ("exp-2", {}, r"3:1:3 has 2,000,000 bytes: above [0-9,]+ the .* with --exclude"),
            ("exp-3", {"exclude": "c"}, r"2:1:2 has 600,000 bytes, and one subscriber may get it 2 times: .*--exclude"),
        ):
            async with fork(log, into, at=None, live=None, broker=broker, **options) as forked:
                with pytest.raises(ReplayRefused, match=refused):
                    await forked.run()
            assert (await log.experiment(into)).meta["prefix"].startswith("stopped: ")
        async with fork(log, "exp-4", at=None, live=None, broker=broker, exclude=["b", "c"]) as forked:
            assert (await forked.run()).complete
        assert {len(message["data"]) for message in await listener.fetch_messages()} == {10}


async def test_a_fork_delivers_as_a_replay_does(log: EventLog) -> None:
    told: list[Any] = []

    class Retaining(MemoryBroker):
        def publish_as(self, messages: Any, how: Any) -> Any:
            told.extend(how)
            return super().publish(messages)

    async with Recorder(log, "exp-1") as recorder:
        recorder.connected("mqtt://host", recorder.clock, None)
        for meta in (None, {"qos": 0}, {"retained": True}):
            recorder.after(MessageRecord("sent", recorder.clock.now(), "a/b", b"x", meta=meta))
    await Replay(log, "exp-1", Retaining(), rate=1000).run()
    async with fork(log, at=None, live=None, broker=Retaining()) as forked:
        await forked.run()
    assert told[:3] == told[3:] == [{"qos": 1}, {"qos": 0}, {"qos": 1, "retained": True}]


async def test_a_fork_publishes_nothing_that_did_not_travel_on_a_channel(log: EventLog) -> None:
    await filled(log, [sent(1, b"x", "a"), sent(2, b"y", "b", carrier="stream")], "exp-1")
    async with fork(log, at=None, live=None, broker=MemoryBroker()) as forked:
        with pytest.raises(ReplayFailed, match="travelled through a stream"):
            await forked.run()
