"""Cast: which recorded messages live agents are to say, and which are published from the recording.

A message belongs to the Messager that sent it. Senders are needed only to cast some of the agents of one Messager.
A message whose sending was not recorded is published as the first reception of it.

Messages are released, and live ones awaited, in replay order. If the clocks of recorders differed, a message may lie
behind one that was said after it had been heard: it comes where it is needed (`release_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from messager import channels
from messager.record import CLOSED

from ..errors import StoreError
from ..log.event import Event
from .calls import call_acts
from .recording import Recording, given_sender, is_own_mark
from .schedule import Act, ActKind, Key, Part, Reception, Unreceived, key
from .sources import retracted

Live = Iterable[Any] | int | str | None
"""Agents that are live, by id with its JSON type; "all" is everybody, None nobody."""
Wire = Callable[[str], bytes]
"""Channel on which messages of a recorded channel are published."""


class CastError(StoreError):
    """The cast cannot be played with this recording. The text says what would make it possible."""


@dataclass(slots=True)
class Cast:
    """Parts of live agents, and the recorded messages between them."""

    parts: list[Part]
    expected: dict[Key, tuple[Part, Act]] = field(default_factory=dict)
    """Messages that live agents are to say, by event."""
    loose: list[Act] = field(default_factory=list)
    """Calls to models of endpoints that said nothing and whose agent is not known: they have no place in a schedule."""
    without_sender: int = 0
    """Messages of unknown senders and Messagers. They are published from the recording."""

    @property
    def exact(self) -> bool:
        """True if the recording tells for every part what was heard."""
        return all(part.exact for part in self.parts)

    def parts_of(self, agents: Iterable[Any] | int | str | None, taken: Container[str]) -> list[Part]:
        """Return the part that a Messager of these agents plays, or all of theirs in a recording without Messagers.

        `taken` are the keys of parts that others play. Without `agents`, only one part may be left. Raises `CastError`
        if no part fits, or if they did not share a Messager.
        """
        left = [part for part in self.parts if part.key not in taken]
        named = "; ".join(part.label for part in left) or "none"
        if agents is None:
            if len(left) == 1:
                return left
            raise CastError(f"name the agents of this Messager: the parts that are left are {named}")
        wanted = [agents] if isinstance(agents, int | str) else list(agents)
        fitting = [part for part in left if any(among(agent, part.agents) for agent in wanted)]
        fitting = fitting or [part for part in left if not part.agents and subscribed_for(part.patterns, wanted)]
        if not fitting:
            raise CastError(f"no part is left for {wanted!r}: the parts that are left are {named}")
        if len(fitting) > 1 and not any(part.exact for part in fitting):
            return fitting
        if fitting[0].agents and not all(among(agent, fitting[0].agents) for agent in wanted):
            raise CastError(f"agents {wanted!r} did not share a Messager in the recording: attach a Messager for each")
        return fitting[:1]

    def join(self, parts: list[Part]) -> Part:
        """Join the parts of agents that share a live Messager, in a recording without Messagers; return the first."""
        first, *others = parts
        for part in others:
            first.joined += [part.key, *part.joined]
            first.agents += part.agents
            first.acts += part.acts
            self.parts.remove(part)
        first.acts.sort(key=lambda act: act.event.cursor)
        first.number()
        for act in first.sends:
            self.expected[key(act.event)] = first, act
        return first


def make_cast(recording: Recording, live: Live, wire: Wire) -> Cast:
    """Return the cast of a replay.

    An agent that says nothing is live if the recording shows its Messager, or messages to it; nothing is expected then.

    Raises `CastError` if an agent is not in the recording, or if a Messager is partly live and some of its messages
    have no sender.
    """
    wanted = _wanted(live)
    loose: list[Act] = []
    parts = [*_exact_parts(recording, wanted, wire, loose), *_weak_parts(recording, wanted, wire)]
    if wanted != "all":
        parts += _silent_parts(recording, wanted, parts)
        known = [agent for part in parts for agent in part.agents]
        for agent in wanted:
            if not among(agent, known):
                raise CastError(_unknown(recording, agent))
    cast = Cast(parts, loose=loose)
    for part in parts:
        for act in part.sends:
            cast.expected[key(act.event)] = part, act
    there = cast.expected.keys() | set(map(key, recording.messages))
    for part in parts:  # redacted messages are not published
        part.receptions = [one for one in part.receptions if one.source in there]
        part.number()
    cast.without_sender = sum(1 for entry in recording.messages if entry.messager is None and entry.from_id is None)
    return cast


def _exact_parts(
    recording: Recording, wanted: list[Any] | Literal["all"], wire: Wire, loose: list[Act]
) -> Iterable[Part]:
    """Yield the parts of Messagers whose schedule was recorded. Calls that belong to no part are added to `loose`."""
    undone = retracted(recording.events)
    by_messager: dict[str, list[Event]] = {}
    fetched: dict[str, int | None] = {}
    for entry in recording.events:
        if entry.messager is None:
            continue
        if entry.mark == CLOSED:  # alone, it makes no part
            fetched[entry.messager] = entry.arrival
        else:
            fetched.pop(entry.messager, None)  # it was opened again
            by_messager.setdefault(entry.messager, []).append(entry)
    patterns = recording.patterns()
    silent = {} if wanted == "all" else _silent(recording, wanted, by_messager, patterns)
    chosen: dict[str, Part] = {}
    for messager, events in by_messager.items():
        said = [entry for entry in events if _is_saying(entry)]
        asked = [entry for entry in events if entry.kind == "asked"]
        if asked and not said and all(entry.from_id is None for entry in asked):
            loose += call_acts(events)
            continue
        agents = _distinct(entry.from_id for entry in (*said, *asked)) + silent.get(messager, [])
        live = agents if wanted == "all" else [agent for agent in agents if among(agent, wanted)]
        if wanted != "all" and not live:
            continue
        if len(live) < len(agents):
            _check_senders(messager, said, live)
            said = [entry for entry in said if among(entry.from_id, live)]
        exact = all(entry.arrival is not None for entry in said)
        subscribed = patterns.get(messager, [])
        part = Part(messager, live, exact, subscribed, list(map(wire, subscribed)), fetched=fetched.get(messager))
        for entry in said:
            one = Act(ActKind.SEND, entry, wire(entry.channel or ""), given_sender(entry), entry.arrival or 0)
            if key(entry) in undone:
                one.event = replace(entry, kind="failed")
            part.acts.append(one)
        if asked:
            calls = (act for act in call_acts(events) if act.sender is None or among(act.sender, live))
            part.acts = sorted([*part.acts, *calls], key=lambda act: act.event.cursor)
        part.marks = [entry for entry in events if entry.kind == "mark" and not is_own_mark(entry)]
        if wanted == "all" and not (part.acts or subscribed or part.marks):
            continue  # a reader without a Messager: nobody plays it, or waits for it
        chosen[messager] = part
    sent: dict[str | None, list[Event]] = {}
    for entry in recording.messages:
        if entry.kind == "sent":
            sent.setdefault(entry.channel, []).append(entry)
    sources = recording.sources
    speakers = {key(entry): _speaker(entry) for entry in recording.events if sources.get(key(entry)) == key(entry)}
    for messager, part in chosen.items():
        received = [one for one in by_messager[messager] if one.kind == "received" and one.arrival is not None]
        received.sort(key=lambda entry: entry.arrival or 0)
        part.receptions = [
            _reception(one, wire, source, speakers) for one in received if (source := sources.get(key(one)))
        ]
        known = {one.source for one in part.receptions}
        part.unreceived = [
            Unreceived(wire(entry.channel or ""), entry.payload, key(entry))
            for name in dict.fromkeys(one.channel for one in received)
            for entry in sent.get(name, ())
            if key(entry) not in known
        ]
        yield part


def _reception(entry: Event, wire: Wire, source: Key, speakers: Mapping[Key, Any]) -> Reception:
    return Reception(
        entry.arrival or 0, wire(entry.channel or ""), entry.payload, key(entry), source, speakers.get(source)
    )


def _speaker(entry: Event) -> Any:
    """Return who sent a message: the agent, else its Messager."""
    return entry.messager if entry.from_id is None and entry.kind == "sent" else entry.from_id


def _silent(
    recording: Recording, wanted: list[Any], by_messager: dict[str, list[Event]], patterns: dict[str, list[str]]
) -> dict[str, list[Any]]:
    """Return the wanted agents that say nothing, by the Messager that has their name or their subscriptions."""
    speakers = _distinct(entry.from_id for entry in recording.events if _is_saying(entry))
    talking = {entry.messager for entry in recording.events if _is_saying(entry)}
    found: dict[str, list[Any]] = {}
    for agent in wanted:
        if str(agent) in map(str, speakers):  # in channels, 3 is also "3"
            continue
        own = [name for name in by_messager if subscribed_for(patterns.get(name, []), [agent])]
        own = [name for name in by_messager if name == f"agent {agent}"] or sorted(own, key=lambda one: one in talking)
        if own:
            found.setdefault(own[0], []).append(agent)
    return found


def _silent_parts(recording: Recording, wanted: list[Any], parts: Iterable[Part]) -> list[Part]:
    """Return parts without messages for agents without a known Messager that messages were sent to."""
    known = {str(agent) for part in parts for agent in part.agents}
    return [
        Part(f"agent {agent!r}", [agent], False, [])
        for agent in _distinct(wanted)
        if str(agent) not in known | {str(entry.from_id) for entry in recording.messages}
        and any(among(agent, [entry.to_id]) or subscribed_for([entry.channel], [agent]) for entry in recording.events)
    ]


def subscribed_for(patterns: Iterable[str | None], agents: Iterable[Any]) -> bool:
    """Return whether one of these patterns is on a channel of one of these agents."""
    parsed = [channels.parse(pattern) for pattern in patterns if pattern]
    wanted = {str(agent) for agent in agents}
    return any(one is not None and str(one.agent_id) in wanted for one in parsed)


def _weak_parts(recording: Recording, wanted: list[Any] | Literal["all"], wire: Wire) -> Iterable[Part]:
    """Yield a part for each live agent of a recording without Messagers. `heard` is the place in replay order."""
    parts: dict[str, Part] = {}
    for place, entry in enumerate(recording.messages, 1):
        if (
            entry.messager is not None
            or entry.from_id is None
            or (wanted != "all" and not among(entry.from_id, wanted))
        ):
            continue
        name = f"agent {entry.from_id!r}"
        part = parts.get(name)
        if part is None:
            part = parts[name] = Part(name, [entry.from_id], False, [])
        part.acts.append(Act(ActKind.SEND, entry, wire(entry.channel or ""), given_sender(entry), place - 1))
    yield from parts.values()


def weak_receptions(recording: Recording, wire: Wire, hears: Callable[[bytes], int]) -> list[Reception]:
    """Return what a Messager receives if it gets every message on its channels, numbered by place in replay order.

    `hears` returns how many copies it gets of a message on a channel.
    """
    found = []
    for place, entry in enumerate(recording.messages, 1):
        channel = wire(entry.channel or "")
        for _ in range(hears(channel)):
            found.append(Reception(place, channel, entry.payload, key(entry), key(entry), _speaker(entry)))
    return found


def _is_saying(entry: Event) -> bool:
    """Return True for an attempt to send; the outcome of a `sent` intent is not another one."""
    return entry.kind in ("sent", "blocked") or (entry.kind == "failed" and entry.cause is None)


def _check_senders(messager: str, said: list[Event], live: list[Any]) -> None:
    unnamed = [entry for entry in said if entry.from_id is None]
    if unnamed:
        raise CastError(
            f"{len(unnamed)} messages of the Messager {messager[:8]} have no sender (the first is {unnamed[0].cursor} "
            f"on {unnamed[0].channel}), so it is unknown which of them agent {live[0]!r} said. Cast all agents of this "
            "Messager, or record with a rule that finds the sender in the payload, such as Recorder(sender=['from'])"
        )


def _unknown(recording: Recording, agent: Any) -> str:
    known = _distinct(entry.from_id for entry in recording.events if entry.kind in ("sent", "received"))
    shown = ", ".join(repr(one) for one in known[:10]) or "none: no message has a sender"
    more = ", ..." if len(known) > 10 else ""
    return f"agent {agent!r} says nothing in {recording.exp_id}. Its senders are {shown}{more}"


def _wanted(live: Live) -> list[Any] | Literal["all"]:
    if live is None:
        return []
    if isinstance(live, str):
        return "all" if live == "all" else [live]
    return [live] if isinstance(live, int) else list(live)


def _distinct(agents: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    seen: set[tuple[type, str]] = set()
    for agent in agents:
        mark = (type(agent), repr(agent))
        if agent is not None and mark not in seen:
            seen.add(mark)
            found.append(agent)
    return found


def among(agent: Any, listed: Iterable[Any]) -> bool:
    """Return whether an id is one of these, with its JSON type: 5 is not "5"."""
    return any(type(agent) is type(one) and agent == one for one in listed)


def release_order(recording: Recording, cast: Cast) -> list[Event]:
    """Return the messages of a recording, in replay order unless a live message depends on a later one."""
    places = {key(entry): place for place, entry in enumerate(recording.messages)}
    needed = _dependencies(cast, places)
    changed = True
    moved = False
    while changed:
        changed = False
        for message, before in needed:
            place = places[message]
            for one in before:
                if places[one] > place:
                    places[one] = place
                    changed = moved = True
    if not moved:
        return recording.messages
    order = enumerate(recording.messages)
    ranked = sorted((places[key(entry)], key(entry) in cast.expected, place) for place, entry in order)
    return [recording.messages[place] for _, _, place in ranked]


def _dependencies(cast: Cast, places: dict[Key, int]) -> list[tuple[Key, list[Key]]]:
    """Return, for each live message, what it directly depends on: what was heard since the last one, and that one."""
    found = []
    for part in cast.parts:
        if not part.exact:
            continue
        before: list[Key] = []
        at = 0
        for act in part.acts:
            while at < act.needs:
                source = part.receptions[at].source
                if source is not None and source in places:
                    before.append(source)
                at += 1
            if key(act.event) in places:
                found.append((key(act.event), before))
                before = [key(act.event)]
    return found
