"""Every run of live agents ends in a report, whatever they do, and each expected message counts once.

A society is recorded in virtual time: each agent follows a script of sleeps, fetches and messages whose content
depends on everything that it has heard. Then some of it are live again, as they were or changed: silent, slow, late,
crashing, cancelled in the middle of a message, and more.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hypothesis import event, given, note
from hypothesis import strategies as st

from messager import Clock, MemoryBroker, Messager, MessageRecord, channels
from messager.brokers import kind_of
from messager_store import Match
from messager_store.errors import StoreError
from messager_store.lockstep import virtual_time
from messager_store.lockstep.cast import CastError
from messager_store.lockstep.play import Agent, LiveAgents
from messager_store.lockstep.policy import LockstepStopped
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import CastReport
from messager_store.lockstep.run import LiveAgentFailed, Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.lockstep.virtual_time import VirtualClock
from messager_store.log.event import Event

PATIENCE_S = 5.0
TO_LAST = 20.0
"""Virtual seconds for which the recorded society lives."""

Step = tuple[str, Any]
"""What an agent does next: a verb and its argument."""
Script = list[Step]

AGENTS = (1, 2, 3, 4)
ROOM = "room"
"""Channel on which everybody listens."""
PAUSES = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0])
PLAIN = st.one_of(
    st.tuples(st.just("sleep"), PAUSES),
    st.tuples(st.just("fetch"), st.none()),
    st.tuples(st.just("say"), st.sampled_from(AGENTS)),
    st.tuples(st.just("say to all"), st.just(AGENTS)),
    st.tuples(st.just("say"), st.just(ROOM)),
    st.tuples(st.just("say twice"), st.sampled_from(AGENTS)),
    st.tuples(st.just("mark"), st.just("phase")),
)
STARTS = st.dictionaries(st.sampled_from(AGENTS), PAUSES)
CHANGED = PLAIN | st.one_of(
    st.tuples(st.just("sleep"), st.just(4 * PATIENCE_S)),
    st.tuples(st.just("say otherwise"), st.sampled_from(AGENTS)),
    st.tuples(st.just("say as another"), st.sampled_from(AGENTS)),
    st.tuples(st.just("say elsewhere"), st.none()),
    st.tuples(st.just("give up"), st.sampled_from(AGENTS)),
    st.tuples(st.just("raise"), st.none()),
    st.tuples(st.just("return"), st.none()),
    st.tuples(st.just("hang"), st.none()),
    st.tuples(st.just("poll"), st.integers(1, 300)),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("subscribe"), st.sampled_from(["*", "nothing", "exps:exp:agents:[12]:*"])),
    st.tuples(st.just("fetch for ever"), st.none()),
)


@dataclass
class Program:
    """Agent functions of one script each."""

    scripts: dict[int, Script]
    starts: dict[int, float] = field(default_factory=dict)
    """Virtual seconds after which an agent subscribes."""
    exp_id: str = "exp"
    ids: Iterator[int] = field(default_factory=itertools.count)
    run: int | None = None
    """If given, part of an id in each message, so that no message of two runs is the same; agents do not look at it."""

    def agent(self, me: int) -> Agent:
        async def live(messager: Messager) -> None:
            await asyncio.sleep(self.starts.get(me, 0.0))
            await messager.subscribe_and_start_listening([messager.get_agent_chat_channel(me), ROOM])
            heard: list[str] = []
            for verb, argument in self.scripts[me]:
                if await self.step(messager, me, verb, argument, heard) == "return":
                    return
            while True:
                await messager.fetch_messages()
                await asyncio.sleep(1)

        return live

    async def step(self, messager: Messager, me: int, verb: str, argument: Any, heard: list[str]) -> str | None:
        async def say(to: int | str, sender: int = me, more: str = "") -> None:
            content = {"from": sender, "to": to, "heard": "/".join(heard)[-200:], "more": more}
            if self.run is not None:
                content = {"id": f"{self.run}-{next(self.ids)}", **content}
            await messager.send_message(
                ROOM if to == ROOM else messager.get_agent_chat_channel(to), content, sender, to
            )

        match verb:
            case "sleep":
                await asyncio.sleep(argument)
            case "fetch":
                for message in await messager.fetch_messages():
                    data = message["data"].decode()
                    heard.append(data[-30:] if self.run is None else f"{data[-30:]} of {json.loads(data)['from']}")
            case "poll":
                for _ in range(argument):
                    await messager.fetch_messages()
                    await asyncio.sleep(0)
            case "say":
                await say(argument)
            case "say twice":
                await asyncio.gather(say(argument), say(argument))
            case "refuse":
                messager.set_message_interceptor(Refusing() if argument else None)
            case "subscribe":
                await messager.subscribe_and_start_listening([argument])
            case "fetch for ever":
                while True:
                    await messager.fetch_messages()
            case "say to all":
                await asyncio.gather(*(say(to) for to in argument))
            case "say otherwise":
                await say(argument, more="changed")
            case "say as another":
                await say(argument, sender=5)
            case "say elsewhere":
                await say("nobody")
            case "give up":
                try:
                    await asyncio.wait_for(say(argument), 0.5)
                except TimeoutError:
                    pass
            case "mark":
                messager.mark(argument, of=me)
            case "raise":
                raise LookupError("the agent is lost")
            case "hang":
                await asyncio.Event().wait()
            case "return":
                return "return"
        return None


class Refusing:
    """Interceptor that blocks every message."""

    async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
        return False


class Skewed(Clock):
    """Virtual clock of a host whose wall clock is wrong."""

    __slots__ = ("_clock", "_skew")

    def __init__(self, clock: VirtualClock, skew_s: float) -> None:
        super().__init__(wall=clock.loop.wall_ns, monotonic=clock.loop.time_ns)
        self._clock, self._skew = clock, int(skew_s * 1e9)

    def now(self) -> int:
        return self._clock.now() + self._skew


class Kept:
    """Log hook that keeps the events of one Messager, as its recorder would."""

    def __init__(self, recorder: int, into: list[Event]) -> None:
        self._recorder, self._into, self._seq = recorder, into, 0

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        self._seq += 1
        self._into.append(
            Event(
                *(record.ts, self._recorder, self._seq, record.kind, record.channel, record.payload),
                *(record.from_id, record.to_id),
                meta=record.meta,
                messager=record.messager,
                arrival=record.arrival,
            )
        )


async def recorded(program: Program, skews: dict[int, float]) -> list[Event]:
    """Return the events of a society in which everybody is live and free."""
    broker, events = MemoryBroker(), list[Event]()
    clock = virtual_time.virtual_clock()
    tasks, messagers = [], []
    for me in program.scripts:
        messager = Messager(broker, program.exp_id, clock=Skewed(clock, skews.get(me, 0.0)))
        messager.add_log_hook(Kept(me, events))
        await messager.init()
        messagers.append(messager)
        tasks.append(asyncio.create_task(program.agent(me)(messager)))
    await asyncio.sleep(TO_LAST)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for messager in messagers:
        await messager.close()
    return events


@dataclass
class Outcome:
    lockstep: Lockstep
    error: StoreError | None
    outcomes: dict[int, list[MessageRecord]]
    """Sendings of each live agent of which the outcome is known."""
    instead: dict[str, dict[int, MessageRecord]]
    """By part and number of a recorded message, the one that was said in its place."""


async def played(
    recording: Recording, program: Program, live: list[int], on_timeout: Literal["continue", "stop"] = "continue"
) -> Outcome:
    """Run with live agents until the report is there."""
    broker = MemoryBroker()
    instead: defaultdict[str, dict[int, MessageRecord]] = defaultdict(dict)
    lockstep = Lockstep(
        *(recording, kind_of(broker.url), channels.encode, ToTheEnd(on_timeout=on_timeout)),
        live=live,
        patience=PATIENCE_S,
        instead=lambda part, act, record: instead[part.key].update({act.number: record}),
    )
    outcomes: dict[int, list[MessageRecord]] = {me: [] for me in live}
    numbers = iter(live)

    class Told:
        def __init__(self) -> None:
            self.mine = outcomes[next(numbers)]

        async def before_send(self, records: Sequence[MessageRecord]) -> None:
            """Do nothing."""

        def after(self, record: MessageRecord) -> None:
            if record.kind in ("sent", "blocked", "failed"):
                self.mine.append(record)

    def connected(messager: Messager) -> None:
        messager.add_log_hook(Told())

    error: StoreError | None = None
    try:
        async with LiveAgents(
            lockstep,
            broker,
            program.exp_id,
            {me: program.agent(me) for me in live},
            clock=virtual_time.virtual_clock(),
            connected=connected,
        ):
            async for batch in lockstep.releases():
                await broker.publish([(channels.encode(entry.channel or ""), entry.payload) for entry in batch])
    except (LiveAgentFailed, LockstepStopped) as raised:
        error = raised
    return Outcome(lockstep, error, outcomes, instead)


def check(outcome: Outcome) -> None:
    """Check that the report is whole: each expected message counts once, and nothing is matched twice."""
    lockstep = outcome.lockstep
    note(json.dumps(lockstep.report.to_dict(), default=str, indent=1))
    for part in lockstep.cast.parts:
        report = lockstep.gates[part.key].report
        assert report.expected == report.matched + report.different + report.missing, report
        assert min(report.matched, report.different, report.missing, report.unexpected, report.lost) >= 0, report
        instead = outcome.instead[part.key]
        assert {act.number for act in part.acts if act.taken} == instead.keys()
        assert len({id(record) for record in instead.values()}) == len(instead), "one message was matched twice"
        assert len(instead) == report.matched + report.different
    said = sum(len(records) for records in outcome.outcomes.values())
    assert lockstep.report.total("matched") + lockstep.report.total("different") <= said
    json.dumps(lockstep.report.to_dict(), default=str)


scripts = st.lists(PLAIN, max_size=8)
REFUSING = PLAIN | st.tuples(st.just("refuse"), st.booleans())
societies = st.dictionaries(st.sampled_from(AGENTS), scripts, min_size=2, max_size=4)


@given(societies, st.data())
def test_a_society_that_is_live_again_says_what_it_said(society: dict[int, Script], data: st.DataObject) -> None:
    """Whoever is live: everybody, or some among recorded agents. What is said depends on all that was heard.

    The clocks of the hosts of the recording may have been wrong, and the agents may start in another order.
    """
    program = Program(society, data.draw(STARTS, "starts"))
    skews = data.draw(st.dictionaries(st.sampled_from(AGENTS), st.sampled_from([-7.0, -0.3, 0.2, 11.0])), "skews")
    events = virtual_time.run(recorded(program, skews))
    speakers = sorted({entry.from_id for entry in events if entry.kind == "sent"})
    live = data.draw(st.lists(st.sampled_from(speakers), unique=True, min_size=1), "live") if speakers else []
    if not live:
        return
    program.starts = data.draw(STARTS, "starts when live")
    outcome = virtual_time.run(played(Recording.of_events("exp", events), program, live))
    check(outcome)
    event(f"{min(outcome.lockstep.report.total('expected'), 5)} messages expected, {len(live)} live")
    assert outcome.error is None
    assert outcome.lockstep.report.equal
    assert not outcome.lockstep.report.timed_out


def test_a_message_that_is_blocked_at_the_end_has_its_place() -> None:
    """Nobody waits for it: the gate is open by then."""
    program = Program({2: [("say", 1), ("refuse", True), ("sleep", 3.0), ("say", 1), ("sleep", 3.0), ("say", 4)]})
    events = virtual_time.run(recorded(program, {}))
    assert [entry.kind for entry in events if entry.kind != "mark"] == ["sent", "blocked", "blocked"]
    outcome = virtual_time.run(played(Recording.of_events("exp", events), program, [2]))
    assert outcome.lockstep.report.equal
    assert outcome.lockstep.report.total("matched") == 3


@given(st.dictionaries(st.sampled_from(AGENTS), st.lists(REFUSING, max_size=8), min_size=2, max_size=4), st.data())
def test_every_run_ends_in_a_report_and_each_expected_message_counts_once(
    society: dict[int, Script], data: st.DataObject
) -> None:
    """Whatever the live agents do, whatever the recording lacks, and however wrong its clocks were."""
    skews = data.draw(st.dictionaries(st.sampled_from(AGENTS), st.sampled_from([-7.0, -0.3, 0.2, 11.0])), "skews")
    events = virtual_time.run(recorded(Program(society), skews))
    events = perturbed(events, data)
    recording = Recording.of_events("exp", events)
    speakers = sorted({entry.from_id for entry in recording.messages if entry.from_id is not None})
    live = data.draw(st.lists(st.sampled_from(speakers), unique=True, min_size=1), "live") if speakers else []
    if not live:
        return
    changed = {me: data.draw(changes(society.get(me, [])), f"script of {me}") for me in live}
    on_timeout = data.draw(st.sampled_from(["continue", "stop"]), "on_timeout")
    try:
        outcome = virtual_time.run(played(recording, Program(changed, data.draw(STARTS)), live, on_timeout))
    except CastError:
        return
    check(outcome)
    event(f"ended with {type(outcome.error).__name__}, {outcome.lockstep.report.pace}")
    for name in ("different", "missing", "unexpected", "late", "lost", "withheld"):
        event(f"{name}: {outcome.lockstep.report.total(name) > 0}")
    if outcome.error is None:
        assert not outcome.lockstep.report.crashed


@st.composite
def changes(draw: st.DrawFn, script: Script) -> Script:
    """A script with steps left out, replaced and added."""
    found: Script = []
    for step in script:
        match draw(st.sampled_from(["keep", "keep", "keep", "drop", "replace", "add"])):
            case "keep":
                found.append(step)
            case "replace":
                found.append(draw(CHANGED))
            case "add":
                found += [step, draw(CHANGED)]
    return found + draw(st.lists(CHANGED, max_size=2))


def perturbed(events: list[Event], data: st.DataObject) -> list[Event]:
    """Return a recording that lacks some of the events, or what was heard, or is of one tap."""
    how = data.draw(st.sampled_from(["whole", "whole", "gaps", "no schedule", "tap"]), "recording")
    if how == "gaps":
        left_out = data.draw(st.sets(st.integers(0, max(len(events) - 1, 0)), max_size=5), "left out")
        return [entry for at, entry in enumerate(events) if at not in left_out]
    if how == "no schedule":
        return [replace(entry, messager=None, arrival=None) for entry in events]
    if how == "tap":
        heard = [entry for entry in events if entry.kind == "sent"]
        return [
            replace(entry, recorder=9, seq=at, kind="received", messager=None, arrival=None)
            for at, entry in enumerate(sorted(heard, key=lambda entry: entry.ts), 1)
        ]
    return events


async def played_apart(
    events: list[Event], program: Program, match: Match, pauses: dict[int, float]
) -> tuple[list[Event], list[CastReport]]:
    """Return the events and reports of a society of which each agent is live in a process of its own, so to say.

    No gate knows what another one lets pass. Each agent begins after a pause.
    """
    broker, found, reports, tasks, messagers = MemoryBroker(), list[Event](), list[CastReport](), [], []
    for me in program.scripts:
        lockstep = Lockstep(
            Recording.of_events("exp", events), kind_of(broker.url), channels.encode, ToTheEnd(), match=match
        )
        parts = [part for part in lockstep.cast.parts if me in part.agents]
        messager = Messager(broker, program.exp_id, clock=virtual_time.virtual_clock())
        messager.add_log_hook(Kept(me, found))
        await messager.init()
        if parts:
            lockstep.attach(messager, me)
        await messager.subscribe_and_start_listening([messager.get_agent_chat_channel(me), ROOM])
        for part in lockstep.cast.parts:
            if part not in parts:
                lockstep.presence.announced(part.key, lambda channel: True)
        messagers.append(messager)
        reports.append(lockstep.report)
    for me, messager in zip(program.scripts, messagers, strict=True):

        async def live(me: int = me, messager: Messager = messager) -> None:
            await asyncio.sleep(pauses.get(me, 0.0))
            await program.agent(me)(messager)

        tasks.append(asyncio.create_task(live()))
    await asyncio.sleep(TO_LAST + max(pauses.values(), default=0.0))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for messager in messagers:
        await messager.close()
    return found, reports


@given(societies, st.sampled_from([(), ("id",), ("**",)]), st.dictionaries(st.sampled_from(AGENTS), PAUSES))
def test_what_an_agent_hears_is_what_it_heard_whatever_the_comparison_leaves_out(
    society: dict[int, Script], ignore: tuple[str, ...], pauses: dict[int, float]
) -> None:
    """Every message has another id than in the recording, and agents are late by other times."""
    events = virtual_time.run(recorded(Program(society, run=1), {}))
    repeated, reports = virtual_time.run(played_apart(events, Program(society, run=2), Match(ignore=ignore), pauses))
    assert words(repeated) == words(events)
    assert all(report.pace == "lockstep" for report in reports)
    event(f"{min(sum(map(len, words(events).values())), 8)} messages, ignore {ignore}")


def words(events: Sequence[Event]) -> dict[int, list[tuple[str | None, dict[str, Any]]]]:
    """Return what each agent said, on which channel, in order, without the ids."""
    found: dict[int, list[tuple[str | None, dict[str, Any]]]] = {}
    for entry in events:
        if entry.kind == "sent":
            found.setdefault(entry.recorder, []).append((entry.channel, {**json.loads(entry.payload), "id": None}))
    return found
