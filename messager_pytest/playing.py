"""A replay of a recording to live agents, in memory or on a broker, without a database."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from messager import channels
from messager.brokers.base import Broker
from messager.brokers.factory import kind_of
from messager.clock import Clock
from messager.messager import Messager
from messager.record import MessageRecord
from messager_store.lockstep.gate import ScheduleGate
from messager_store.lockstep.play import Agent, LiveAgents
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import CastReport, Divergence
from messager_store.lockstep.run import LiveAgentFailed, Lockstep
from messager_store.lockstep.schedule import Act as Expected
from messager_store.lockstep.schedule import Part, Verdict
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.matching.match import Match

from .agent_state import AgentState, state_of_agent
from .alignment import Pair, Saying, aligned
from .recording_file import RecordingFile

QUIET_S, MOST_QUIET = 0.5, 4
"""After a divergence, agents may go on until they have said nothing for so many seconds of virtual time, at most so
many times."""


class AgentCrashed(Exception):
    """A live agent raised; the cause is what it raised."""


class NotAnAgent(Exception):
    """An agent is played by something that is no async function."""


@dataclass(slots=True)
class Played:
    """Result of one replay."""

    report: CastReport
    error: BaseException | None = None
    """Error of the agent that crashed first."""
    heard: list[Heard] = field(default_factory=list)
    """Messages that the live agents said and heard."""
    returned: set[str] = field(default_factory=set)
    """Labels of the agents that had returned before the first divergence."""

    def pairs(self, hook: Heard, file: RecordingFile, match: Match) -> list[Pair]:
        """Return the expected messages of an agent and what is to take their place, in the order in which it was
        said."""
        part = hook.part.label
        kinds = ("late", "early")
        late = {one.index for one in self.report.divergences if one.kind in kinds and one.part == part}
        return _in_time(aligned(_pairs(hook, late, match), match.same), hook.part)

    def why_late(self, divergence: Divergence) -> str:
        """Return why a message was given up that was said later."""
        hook = next(hook for hook in self.heard if hook.part.label == divergence.part)
        number = divergence.index or 0
        saying, *following = hook.part.sends[number:]
        said = hook.instead.get(saying.index)
        numbers = {id(hook.instead[one.index]): one.index + 1 for one in following if one.index in hook.instead}
        for record in takewhile(lambda record: record is not said, hook.sent):
            if id(record) in numbers:
                return f"it said message {numbers[id(record)]:,} first"
        if said is not None and hook.heard_more(saying, said):
            return "it said nothing until it had heard more than in the recording"
        return "it said nothing for so long"


class Heard:
    """Log hook that keeps what one live Messager sent, and the recorded event of each message that it received."""

    def __init__(self, gate: ScheduleGate, instead: dict[int, MessageRecord]) -> None:
        self.part = gate.part
        self._report = gate.report
        self._last: bytes | None = None  # payload of the last message that was received
        self.sent: list[MessageRecord] = []
        self.instead = instead
        """By number of a recorded message, the one that was said in its place."""
        self._origins: list[tuple[int, tuple[int, int]]] = []
        """Number of a reception, and (recorder, seq) of the recorded one."""
        self._unknown: list[MessageRecord] = []
        """Receptions after the last expected message, when the gate no longer tells which they are."""

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        if record.kind == "received":
            self._last = record.payload
            if record.arrival is not None and record.origin is not None:
                recorder, seq = record.origin
                self._origins.append((record.arrival, (int(recorder), seq)))
            elif record.arrival is not None:
                self._unknown.append(record)
        elif record.kind in ("sent", "blocked"):
            self.sent.append(record)

    def state(self) -> AgentState:
        """Return what the agent has said and heard so far."""
        said = self._report.matched + self._report.different
        return AgentState(self.part.label, said, self._report.expected, self._last)

    @property
    def heard_all(self) -> bool:
        """True if every message that was received in the recording has come."""
        return not (self._report.lost or self._report.unsubscribed)

    def heard_more(self, saying: Expected, record: MessageRecord) -> bool:
        """Return whether a message was said after more had been heard than before the recorded one."""
        self.find_origins()
        arrivals = {reception.origin: reception.arrival for reception in self.part.receptions}
        last = self.last(record.arrival)
        return last is not None and arrivals.get(last, 0) > saying.heard

    def find_origins(self) -> None:
        """Find the recorded receptions of what was received after the last expected message, by channel and payload."""
        known = {origin for _, origin in self._origins}
        free: dict[tuple[bytes, bytes], list[tuple[int, int]]] = {}
        for reception in reversed(self.part.receptions):
            if reception.origin not in known:
                free.setdefault((reception.channel, reception.payload), []).append(reception.origin)
        for record in self._unknown:
            if same := free.get((channels.encode(record.channel or ""), record.payload)):
                self._origins.append((record.arrival or 0, same.pop()))
        self._unknown.clear()
        self._origins.sort()

    def last(self, arrival: int | None) -> tuple[int, int] | None:
        """Return the recorded event of the last message that had been heard at the reception of this number."""
        known = [place for number, place in self._origins if number <= (arrival or 0)]
        return known[-1] if known else None


async def play(
    file: RecordingFile,
    agents: Mapping[Any, Agent],
    broker: Broker,
    clock: Clock | None,
    *,
    match: Match,
    patience: float,
    to_exp: str | None = None,
) -> Played:
    """Replay a recording to live agents. `to_exp` renames its experiment on the wire.

    Raises `StoreError` if the cast cannot be played, and errors of the broker.
    """
    exp_id = experiment_of(file)
    kind = kind_of(broker.url)

    def wire(channel: str) -> bytes:
        renamed = channel if to_exp is None else channels.with_experiment(channel, to_exp)
        return channels.encode(channels.with_separator(renamed, kind.separator))

    recorders = {event.recorder for event in file.events}
    recording = Recording.of_events(exp_id, file.events, {recorder: str(recorder) for recorder in recorders})
    live = [one for agent in agents for one in (agent if isinstance(agent, tuple) else (agent,))]
    instead: defaultdict[str, dict[int, MessageRecord]] = defaultdict(dict)  # by key of the part

    def note_instead(part: Part, act: Expected, record: MessageRecord) -> None:
        instead[part.key][act.index] = record

    policy = ToTheEnd(origins=True)
    lockstep = Lockstep(recording, kind, wire, policy, live=live, match=match, patience=patience, instead=note_instead)
    played = Played(lockstep.report)
    errors: list[BaseException] = []

    def connected(messager: Messager) -> None:
        gate = list(lockstep.gates.values())[-1]  # the one that was attached last
        played.heard.append(Heard(gate, instead[gate.part.key]))
        messager.add_log_hook(played.heard[-1])

    def guarded(number: int, function: Agent) -> Agent:
        """Return an agent that keeps what it raises, also if it raises when the replay has ended."""

        async def play(messager: Messager) -> None:
            hook = played.heard[number]
            state_of_agent.set(hook.state)
            try:
                await function(messager)
            except Exception as error:
                errors.append(error)
                raise
            if not played.report.divergences:
                played.returned.add(hook.part.label)

        return play

    playing = {ids: guarded(number, function) for number, (ids, function) in enumerate(agents.items())}
    try:
        async with LiveAgents(lockstep, broker, to_exp or exp_id, playing, clock=clock, connected=connected):
            async with aclosing(lockstep.releases()) as batches:
                async for batch in batches:
                    await broker.publish([(wire(event.channel or ""), event.payload) for event in batch])
            if not lockstep.report.equal and clock is not None:
                await _until_quiet(played.heard)
    except LiveAgentFailed:
        pass  # it is in the report
    played.error = errors[0] if errors else None
    if to_exp is not None:
        _name_as_recorded(played.report, wire, file, exp_id, to_exp)
    return played


def _name_as_recorded(
    report: CastReport, wire: Callable[[str], bytes], file: RecordingFile, exp_id: str, to_exp: str
) -> None:
    """Give the channels of divergences the names that they have in the recording, not those of this replay."""
    names = {channels.decode(wire(event.channel)): event.channel for event in file.events if event.channel}
    separator: channels.Separator = next(filter(None, map(channels.separator, names.values())), ":")

    def recorded(channel: str) -> str:
        if channel in names:
            return names[channel]
        parsed = channels.parse(channel)
        if parsed is None or parsed.exp_id != to_exp:
            return channel
        return channels.with_separator(channels.with_experiment(channel, exp_id), separator)

    for divergence in report.divergences:
        divergence.channel = recorded(divergence.channel)
        divergence.heard = [(recorded(channel), payload) for channel, payload in divergence.heard]


async def _until_quiet(hooks: Sequence[Heard]) -> None:
    """Wait until live agents that differ from the recording, and are therefore behind it, say nothing more."""
    for _ in range(MOST_QUIET):
        said = sum(len(hook.sent) for hook in hooks)
        await asyncio.sleep(QUIET_S)
        if said == sum(len(hook.sent) for hook in hooks):
            return


def checked_agent(who: Any, function: Agent) -> Agent:
    """Return an agent that raises `NotAnAgent` if its function gives nothing to await."""

    async def play(messager: Messager) -> None:
        found = function(messager)
        if not inspect.isawaitable(found):
            raise NotAnAgent(
                f"agent {who!r} is played by {function!r}, which is not async. Give an async function that takes a "
                "Messager."
            )
        await found

    return play


def experiment_of(file: RecordingFile) -> str:
    """Return the experiment in the channels of a recording, that of most events; without one, the name of the file."""
    names = Counter(
        parsed.exp_id for event in file.events if event.channel and (parsed := channels.parse(event.channel))
    )
    return names.most_common(1)[0][0] if names else file.path.name.partition(".")[0]


def _pairs(hook: Heard, late: Collection[int | None], match: Match) -> list[Pair]:
    """Return what was expected of an agent and what was said in its place, as the replay compared it.

    `late` are the numbers of the messages that were said after they had been given up, or without what was heard.
    """
    part = hook.part
    hook.find_origins()
    places = {reception.origin: place for place, reception in enumerate(part.receptions, 1)}
    expected = {id(record): part.sends[number] for number, record in hook.instead.items()}
    moved = _in_order(hook, expected, late)
    found: list[Pair] = []
    needs = heard = 0  # greatest so far
    due, furthest = 0, -1  # the same, and the number, of those that were said in time
    for record in hook.sent:
        saying = expected.get(id(record))
        last = hook.last(record.arrival)
        place = 0 if last is None else places.get(last, 0)
        in_time = saying is not None and saying.index not in late and (saying.number > furthest or not saying.awaited)
        early = saying is not None and place < saying.needs and hook.heard_all
        if saying is not None and in_time and not early and max(needs, place) <= max(due, saying.needs):
            after, arrival = saying.needs, saying.heard  # also if some of what it heard then did not come
            due, furthest = max(due, after), max(furthest, saying.number)
        else:
            after, arrival = max(needs, place), max(heard, part.receptions[place - 1].arrival if place else 0)
        needs, heard = max(needs, after), max(heard, arrival)
        live = Saying(
            *(record.kind, record.channel or "", record.payload, record.from_id, record.to_id, None, None),
            needs=after,
        )
        if part.exact:
            live = replace(live, messager=part.key, heard=arrival)
        elif len(part.agents) == 1:  # without a Messager, the sender tells whose message it is
            live = replace(live, from_id=part.agents[0], follows=last)
        if (instead := moved.get(id(record))) is not None:
            found.append(Pair(instead.event, live, instead.fits(match, record.payload), stays=True))
        else:
            matched = saying is not None and saying.verdict is Verdict.MATCHED
            found.append(Pair(None if saying is None else saying.event, live, matched))
    missing = [saying.event for saying in part.acts if saying.verdict is Verdict.MISSING]
    return [*found, *(Pair(event, None) for event in missing)]


def _in_time(pairs: Sequence[Pair], part: Part) -> list[Pair]:
    """Return the pairs, with a note at those whose live message was said after another reception than the expected
    one."""
    needs = {(saying.event.recorder, saying.event.seq): saying.needs for saying in part.acts}
    return [
        pair
        if pair.expected is None or pair.live is None
        else replace(pair, moved=needs[pair.expected.recorder, pair.expected.seq] != pair.live.needs)
        for pair in pairs
    ]


def _in_order(hook: Heard, expected: Mapping[int, Expected], late: Collection[int | None]) -> dict[int, Expected]:
    """Return new places of the messages of senders and channels with late ones, by the id of the record: the order in
    which they were said, instead of the places that the replay found for them."""
    moved: dict[int, Expected] = {}
    for place in {(one.channel, repr(one.sender)) for one in hook.part.acts if one.index in late}:
        said = [id(record) for record in hook.sent if id(record) in expected]
        said = [one for one in said if (expected[one].channel, repr(expected[one].sender)) == place]
        moved |= zip(said, sorted((expected[one] for one in said), key=lambda saying: saying.number), strict=True)
    return moved
