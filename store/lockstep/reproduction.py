"""Reproduction: a recorded program is run again, offline and in lockstep, and what it says is compared word for word.

The program is started with an environment (`settings_file`, `prepared`); its Messagers and transports take their parts
of the schedule, and its calls to models are answered from the log. `verdict` compares what it recorded.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from messager.calls.exchange import CallRefused
from messager.variables import ALL_HTTP, ALLOW, ALSO, CALLS, COMPAT, INTO, SEED

from ..errors import StoreError
from ..experiments.records import Experiment, RecorderRow
from ..log.event import Event
from ..log.event_log import EventLog
from ..queries.comparison.text_diff import LEAD, common_prefix, shortened
from ..recording.run import start_path
from ..text import plural, safe
from .calls import Request, call_acts, masked, request_of
from .schedule import ActKind, Key, key
from .sources import retracted

REPRODUCES = "reproduces"
"""Key of the meta of an experiment that reproduces another one: its exp_id."""
MOST = 160
"""Characters of a text that are shown on either side of the first difference."""


@dataclass(slots=True)
class Difference:
    """The first place at which a reproduction differs from its recording."""

    what: str
    """message, or call."""
    agent: Any
    heard: int | None
    """Number of messages that the agent had fetched by then."""
    channel: str | None
    """Channel of a message, path of a call."""
    recorded: str | None
    """None if it is only in the reproduction."""
    live: str | None
    """None if it is only in the recording."""

    def lines(self) -> list[str]:
        """Return it for people, with the difference marked."""
        after = "" if self.heard is None else f", after {plural(self.heard, 'message')}"
        who = "an unknown agent" if self.agent is None else f"agent {safe(str(self.agent))}"
        found = [f"first difference: {self.what} of {who}{after}, {safe(self.channel or '')}"]
        at = start = 0
        if self.recorded is not None and self.live is not None:
            at = common_prefix(self.recorded, self.live)
            start = max(at - LEAD, 0) if max(len(self.recorded), len(self.live)) > MOST else 0
        for label, text in (("recorded", self.recorded), ("now", self.live)):
            shown = "(nothing)" if text is None else shortened(safe(text), start, most=MOST)
            found.append(f"  {label:<9} {shown}")
        if self.recorded is not None and self.live is not None:
            found.append(f"  {'':<9} {' ' * (at - start + (1 if start else 0))}^")
        return found


@dataclass(slots=True)
class Verdict:
    """Comparison of a reproduction with its recording."""

    exp_id: str
    into: str
    messages: int
    """Number of recorded messages."""
    calls: int
    """Number of recorded calls to models, without those that failed and were tried again."""
    equal_messages: int
    equal_calls: int
    surplus: int
    """Messages and calls that are only in the reproduction."""
    order_held: bool
    """False if calls were answered without a place in the schedule."""
    difference: Difference | None = None

    @property
    def reproduced(self) -> bool:
        """True if everything is equal."""
        complete = self.equal_messages == self.messages and self.equal_calls == self.calls and not self.surplus
        return complete and bool(self.messages or self.calls)

    def lines(self) -> list[str]:
        """Return the verdict for people."""
        all_of = f"{plural(self.messages, 'message')}, {plural(self.calls, 'call')}"
        names = f"{safe(self.exp_id)} as {safe(self.into)}"
        if self.reproduced:
            held = "" if self.order_held else "; order not held: some calls have no place in the schedule"
            return [f"{'reproduced' if self.order_held else 'equal'} {names}: {all_of}, all equal{held}"]
        if not (self.messages or self.calls or self.surplus):
            return [f"{safe(self.exp_id)} has no messages and no calls: there is nothing to reproduce"]
        equal = f"{self.equal_messages:,} of {plural(self.messages, 'message')}"
        equal += f", {self.equal_calls:,} of {plural(self.calls, 'call')}"
        more = f", {self.surplus:,} more than recorded" if self.surplus else ""
        shown = [] if self.difference is None else self.difference.lines()
        return [f"not reproduced, {names}: {equal} are equal{more}", *shown]

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON data."""
        return {"reproduced": self.reproduced, **asdict(self)}


async def prepared(log: EventLog, of: Experiment, into: str | None) -> str:
    """Create the experiment into which a reproduction is recorded, and return its exp_id.

    Without `into`, it is the first of exp_id-2, exp_id-3 ... that does not exist. Raises `StoreError` if the
    experiment is still being recorded, or is being reproduced by another process.
    """
    for one in await log.experiments():
        if one.exp_id != of.exp_id and one.meta.get(REPRODUCES) != of.exp_id:
            continue
        running = [row for row in await log.recorders(one, unended=True) if row.state == "alive"]
        if running:
            what = "is still being recorded" if one.exp_id == of.exp_id else f"is being reproduced as {one.exp_id}"
            raise StoreError(f"{of.exp_id} {what} (pid {running[0].pid} on {running[0].host}): end that first")
    number = 2
    while into is None:
        name = f"{of.exp_id}-{number}"
        into, number = (None if await log.has_experiment(name) else name), number + 1
    await log.create_experiment(into, name=of.name, meta={REPRODUCES: of.exp_id})
    return into


def settings_file(folder: Path, of: Experiment, store: str, patience: float) -> Path:
    """Write the file that MESSAGER_REPLAY names, and return it."""
    path = folder / "reproduce.json"
    path.write_text(json.dumps({"experiment": of.exp_id, "store": store, "patience": patience}))
    return path


def seeds_of(rows: Iterable[RecorderRow]) -> dict[str, str]:
    """Return the variables with which a program records the same calls as it did, and has the same random numbers."""
    rows = list(rows)
    given: dict[str, Any] = next(
        (row.meta["run_with"] for row in rows if isinstance(row.meta.get("run_with"), dict)), {}
    )
    same = {name: str(given[name]) for name in (ALSO, ALL_HTTP, COMPAT) if name in given}
    seed = next((row.meta["seed"] for row in rows if "seed" in row.meta), None)
    return same if seed is None else {**same, SEED: str(seed), "PYTHONHASHSEED": str(seed)}


def served_environment(
    store: str,
    into: str,
    settings: Path,
    allowed: Iterable[str],
    seeds: Mapping[str, str],
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables with which a program is run again, without those of `inherited` that they do not change.

    `allowed` are the addresses to which it may connect, besides the store. Variables of `inherited` that seed it stay.
    """
    addresses = [*allowed, store] if "://" in store else allowed
    return {
        "MESSAGER_STORE": store,
        "MESSAGER_REPLAY": str(settings),
        INTO: into,
        CALLS: "serve",
        ALLOW: ",".join(addresses),
        "PYTHONPATH": start_path(inherited),
        **{name: inherited.get(name, value) for name, value in seeds.items()},
    }


async def verdict(log: EventLog, of: Experiment, into: str) -> Verdict:
    """Compare a reproduction with its recording: messages by sender and channel, in order; calls by agent."""
    there = await log.experiment(into)
    recorded, live = _Side(await _events(log, of)), _Side(await _events(log, there))
    numbers = len(recorded.messages), len(recorded.calls)
    found = Verdict(of.exp_id, into, *numbers, 0, 0, 0, order_held=not recorded.loose)
    different: list[tuple[Event, Difference]] = []
    _compare_messages(recorded, live, found, different)
    _compare_calls(recorded, live, found, different)
    if different:
        found.difference = min(different, key=lambda one: one[0].cursor)[1]
    return found


async def _events(log: EventLog, of: Experiment) -> list[Event]:
    return [entry async for entry in log.read(of.exp_id, kinds=["sent", "blocked", "failed", "asked", "answered"])]


@dataclass(slots=True)
class _Call:
    question: Event
    request: Request
    answer: Event | None


_SAID = ("sent", "blocked", "failed")
"""Kinds of events that are compared as messages; those that retract a sending stand for it."""


def _is_refused(answer: Event | None) -> bool:
    """Return whether a call was not answered from the recording."""
    error = None if answer is None else (answer.meta or {}).get("error")
    return isinstance(error, list) and error[:1] == [CallRefused.__name__]


class _Side:
    """Messages and calls of one experiment."""

    def __init__(self, events: list[Event]) -> None:
        undone = retracted(events)
        self.messages = [entry for entry in events if entry.kind in _SAID and key(entry) not in undone]
        senders: dict[str | None, set[Any]] = defaultdict(set)
        for entry in self.messages:
            senders[entry.messager].add(entry.from_id)
        self.agent_of = {messager: next(iter(own)) for messager, own in senders.items() if len(own) == 1}
        """The agent of each Messager that has only one."""
        by_messager: dict[str | None, list[Event]] = defaultdict(list)
        for entry in events:
            by_messager[entry.messager].append(entry)
        acts = (act for own in by_messager.values() for act in call_acts(own))
        made = {key(act.event) for act in acts if act.kind is ActKind.ASK}
        self.loose = any(
            all(entry.kind in ("asked", "answered") for entry in own)
            and any(entry.kind == "asked" and entry.from_id is None for entry in own)
            for own in by_messager.values()
        )
        """True if there are calls without a place in a schedule: of endpoints that say nothing, and have no agent."""
        answers: dict[Key | None, Event] = {entry.cause: entry for entry in events if entry.kind == "answered"}
        self.calls = [
            _Call(entry, request_of(entry.payload, entry.meta or {}), answers.get(key(entry)))
            for entry in events
            if entry.kind == "asked" and (key(entry) in made or _is_refused(answers.get(key(entry))))
        ]


def _compare_messages(recorded: _Side, live: _Side, found: Verdict, different: list[tuple[Event, Difference]]) -> None:
    def lanes(side: _Side) -> dict[tuple[str | None, ...], deque[Event]]:
        listed: dict[tuple[str | None, ...], deque[Event]] = defaultdict(deque)
        for entry in side.messages:
            listed[entry.kind, repr(entry.from_id), repr(entry.to_id), entry.channel].append(entry)
        return listed

    there = lanes(live)
    for lane, events in lanes(recorded).items():
        others = there.pop(lane, deque())
        for entry in events:
            other = others.popleft() if others else None
            if other is not None and other.payload == entry.payload:
                found.equal_messages += 1
            else:
                different.append((entry, _of_messages(entry, other)))
        found.surplus += len(others)
        different += [(other, _of_messages(None, other)) for other in others]
    for others in there.values():
        found.surplus += len(others)
        different += [(other, _of_messages(None, other)) for other in others]


def _compare_calls(recorded: _Side, live: _Side, found: Verdict, different: list[tuple[Event, Difference]]) -> None:
    def key_of(call: _Call) -> tuple[Any, ...]:
        answer = call.answer
        meta = {} if answer is None else answer.meta or {}
        said = None if answer is None else answer.payload
        kept = [repr((one.meta or {}).get("body")) for one in (call.question, answer) if one is not None]
        return (
            repr(call.question.from_id),
            masked(call.request),
            said,
            meta.get("status"),
            repr(meta.get("error")),
            *kept,
        )

    left = Counter(map(key_of, live.calls))
    missing = []
    for call in recorded.calls:
        if left[key_of(call)]:
            left[key_of(call)] -= 1
            found.equal_calls += 1
        else:
            missing.append(call)
    surplus: dict[str, deque[_Call]] = defaultdict(deque)
    for call in live.calls:
        if left[key_of(call)]:
            left[key_of(call)] -= 1
            surplus[repr(call.question.from_id)].append(call)
    for call in missing:
        others = surplus[repr(call.question.from_id)]
        other = others.popleft() if others else None
        different.append((call.question, _of_calls(call, other, recorded)))
    rest = [call for others in surplus.values() for call in others]
    found.surplus += len(rest)
    different += [(call.question, _of_calls(None, call, live)) for call in rest]


def _of_messages(recorded: Event | None, live: Event | None) -> Difference:
    one = recorded or live
    assert one is not None
    return Difference("message", one.from_id, one.arrival, one.channel, _text(recorded), _text(live))


def _of_calls(recorded: _Call | None, live: _Call | None, side: _Side) -> Difference:
    one = recorded or live
    assert one is not None
    texts = [None if call is None else call.request[2].decode("utf-8", "backslashreplace") for call in (recorded, live)]
    entry = one.question
    agent = side.agent_of.get(entry.messager) if entry.from_id is None else entry.from_id
    return Difference("call", agent, entry.arrival, one.request[1], *texts)


def _text(entry: Event | None) -> str | None:
    return None if entry is None else entry.payload.decode("utf-8", "backslashreplace")
