"""Problems are those that were made, each of its kind, for its reason, and no others."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.town import GAP, PEOPLE, START, Town
from messager import Messager
from messager.brokers import Broker
from messager_store import EventLog, Experiment, NewEvent, Recorder, Selection, StoreError, problems
from messager_store.projection.narrowing import selected_pages
from messager_store.queries import problems as module
from messager_store.queries.audit.problem import Kind, Problem
from tests.support import nightly_after, until
from tests.support.examples import WITH_STORE
from tests.support.logs import experiment, listed, sent

MS = 1_000_000
S = 1000 * MS


# The town


@pytest.fixture(params=nightly_after(1, [1, 2]))
async def town(log: EventLog, request: pytest.FixtureRequest) -> Experiment:
    made = Town("town", request.param)
    made.play()
    await made.write(log)
    return await log.experiment("town")


async def expected_of(log: EventLog, of: Experiment) -> dict[str, dict[str, int]]:
    """Compute the problems of the town from its raw events."""
    events = await listed(log.read(of))
    rows = {row.ordinal: row for row in await log.recorders(of)}
    received = Counter((e.recorder, e.channel, e.payload) for e in events if e.kind == "received")
    first = {}
    for e in reversed(events):
        if e.kind == "received":
            first[e.recorder, e.channel, e.payload] = e.ts
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for e in events:
        if e.kind == "sent":
            heard = {ordinal for ordinal, channel, payload in received if (channel, payload) == (e.channel, e.payload)}
            if not heard:
                second = (e.ts - START) / S
                reason = "dropped"
                if e.to_id not in PEOPLE:
                    reason = "nobody listened"
                elif GAP[0] <= second <= GAP[1] and e.to_id in ("mayor", "baker", "miller"):
                    reason = "in a gap"
                found["never arrived"][reason] += 1
            for ordinal in heard:
                if first[ordinal, e.channel, e.payload] - e.ts > S:
                    found["late"][f"recorder {ordinal}"] += 1
        elif e.kind == "blocked":
            found["blocked"][(e.meta or {})["interceptor"]] += 1
        elif e.kind == "failed":
            found["failed"][(e.meta or {})["outcome"]] += 1
        elif e.kind == "gap":
            found["gap"][f"recorder {e.recorder}"] += 1
    for number in received.values():
        if number > 1:
            found["arrived twice"]["exps:town:agents:doctor:* and exps:town:agents:doctor:agent-chat"] += number - 1
    for ordinal, row in rows.items():
        if row.ended_at is None:
            found["unclean end"][f"recorder {ordinal}"] += 1
    return {kind: dict(reasons) for kind, reasons in found.items()}


async def test_the_problems_of_the_town_are_those_that_its_raw_events_show(log: EventLog, town: Experiment) -> None:
    found = await problems(log, town)
    wanted = await expected_of(log, town)
    assert found.counts == wanted
    assert wanted.keys() >= {"never arrived", "arrived twice", "late", "blocked", "failed", "gap"}
    assert found and found.examined and not found.notes
    numbers = [f"{sum(reasons.values())} {kind}" for kind, reasons in found.counts.items()]
    assert repr(found) == f"<Problems: {', '.join(numbers)}>"
    assert Counter(one.kind for one in found.details) == {kind: found.number(kind) for kind in found.counts}


FILTERS: list[dict[str, Any]] = [
    {"from_ids": "teacher"},
    {"to_ids": ["doctor", "ferryman"]},
    {"agents": "miller"},
    {"between": ("smith", "doctor")},
    {"grep": "bridge"},
    {"where": "t<120"},
    {"channels": "*doctor*"},
    {"exclude": "*doctor*"},
    {"since": "mark:fire"},
    {"until": "mark:evening"},
    {"since": "mark:fire", "until": "mark:evening", "exclude": "*ferryman*"},
    {"around": "120+-5s"},
]


async def test_a_selection_gives_the_problems_of_its_messages_and_gaps(log: EventLog, town: Experiment) -> None:
    everything = await problems(log, town)
    for filters in FILTERS:
        chosen = Selection(**filters)
        selected = {entry.cursor async for page in selected_pages(log, town, chosen) for entry in page}

        def key(problem: Problem) -> Any:
            return problem.kind, problem.reason, problem.cursor, problem.text

        wanted = {key(one) for one in everything.details if (one.event.cursor if one.event else one.cursor) in selected}
        found = {key(one) for one in (await problems(log, town, chosen)).details if one.kind is not Kind.UNCLEAN}
        assert found == wanted
        assert await problems(log, town, **filters) == await problems(log, town, Selection(**filters))


async def test_an_unclean_end_is_a_problem_of_its_time_and_of_no_agent(log: EventLog, town: Experiment) -> None:
    [row] = [row for row in await log.recorders(town) if row.ended_at is None] or [None]
    for filters, within in (
        ({}, True),
        ({"until": START}, False),
        ({"since": START}, True),
        ({"agents": "mayor"}, False),
    ):
        found = await problems(log, town, **filters)
        assert found.number(Kind.UNCLEAN) == (within and row is not None), filters


async def test_each_problem_is_passed_on_although_the_result_holds_only_the_first_of_each_kind(
    log: EventLog, town: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await problems(log, town)
    monkeypatch.setattr(module, "KEPT", 2)
    each: list[Problem] = []
    found = await problems(log, town, each=each.append)
    assert found.counts == wanted.counts
    assert sorted(map(repr, each)) == sorted(map(repr, wanted.details))
    assert all(number <= 2 for number in Counter(one.kind for one in found.details).values())


# Random listeners


@dataclass
class Ear:
    """A listener that was made up, with what becomes of each sending."""

    patterns: list[str]
    gap: tuple[int, int] | None = None
    heard: list[tuple[int, bytes, str]] = field(default_factory=list)
    reached: int = -1
    """Number of the last sending that reached it."""

    def matching(self, channel: str) -> list[str]:
        return [pattern for pattern in self.patterns if pattern in (channel, "*")]


@given(seed=st.integers(0, 2**32))
@WITH_STORE
async def test_problems_of_random_listeners_are_those_that_were_made(log: EventLog, seed: int) -> None:
    random = Random(seed)
    count = random.randrange(1, 30)
    channels = ["c0", "c1", "c2"]
    choices = [["c0"], ["c1"], ["c0", "c1"], ["*"], ["*", "c0"], ["c0", "*", "c1"]]
    ears = [Ear(random.choice(choices)) for _ in range(random.randrange(1, 4))]
    for ear in ears:
        if random.random() < 0.4:
            first = random.randrange(count)
            ear.gap = first, min(first + random.randrange(1, 4), count)
    fates: dict[tuple[int, int], str] = {}
    sendings = [random.choice(channels) for _ in range(count)]
    wanted: dict[str, Counter[str]] = defaultdict(Counter)
    for number, channel in enumerate(sendings):
        latest = 0
        for which, ear in enumerate(ears):
            if not ear.matching(channel):
                continue
            fate = random.choice(["ok", "ok", "ok", "late", "lost", "twice"])
            near = ear.gap is not None and ear.gap[0] - 4 <= number < ear.gap[1]
            if near:  # what is late may not come after the gap
                fate = "lost" if number >= (ear.gap or (0, 0))[0] else "ok"
            fates[number, which] = fate
            if fate == "lost":
                continue
            ear.reached = number
            delay = random.randrange(1001, 3500) * MS if fate == "late" else random.randrange(1, 900) * MS
            latest = max(latest, delay)
            for copy in range(2 if fate == "twice" else 1):
                ear.heard.append((number * S + delay + copy, str(number).encode(), channel))
            if fate == "twice":
                patterns = ear.matching(channel)
                wanted["arrived twice"][" and ".join(patterns) if len(patterns) > 1 else "unknown why"] += 1
        if latest > S:
            wanted["late"]["any"] += 1
    for number, channel in enumerate(sendings):
        meant = [which for which, ear in enumerate(ears) if ear.matching(channel)]
        reasons = []
        for which in meant:
            ear = ears[which]
            if fates[number, which] == "lost":
                gap = ear.gap is not None and ear.gap[0] <= number <= ear.gap[1]
                reasons.append("in a gap" if gap else "dropped" if ear.reached > number else "listener stopped")
        if not meant:
            wanted["never arrived"]["nobody listened"] += 1
        elif len(reasons) == len(meant):
            order = ["dropped", "in a gap", "listener stopped"]
            wanted["never arrived"][min(reasons, key=order.index)] += 1
        else:
            for reason in reasons:
                if reason != "listener stopped":
                    wanted["missed"][reason] += 1
    of = await experiment(log, uuid4().hex)
    speaker = await log.register(of, role="messager", row={"started_at": -5 * S})
    await log.append(speaker, [sent(n * S, str(n).encode(), channel) for n, channel in enumerate(sendings)])
    await log.touch(speaker, ended_at=100 * S)
    for ear in ears:
        writer = await log.register(of, role="tap", patterns=ear.patterns, row={"started_at": -5 * S})
        events = [NewEvent("received", at, channel, payload) for at, payload, channel in sorted(ear.heard)]
        events.insert(0, NewEvent("mark", -4 * S, None, b"", meta={"name": "here", "fields": {}}))
        if ear.gap is not None:
            since, end = (number * S for number in ear.gap)
            meta = {"reason": "connection lost", "since": since, "until": end, "count": None}
            events.append(NewEvent("gap", end, None, b"", meta=meta))
            wanted["gap"]["any"] += 1
        await log.append(writer, events)
        await log.touch(writer, heartbeat_at=100 * S, ended_at=100 * S)
    found = (await problems(log, of)).counts
    for kind in {"late", "gap"} & found.keys():
        found[kind] = {"any": sum(found[kind].values())}
    assert found == {kind: dict(reasons) for kind, reasons in wanted.items()}


async def test_limits_and_context_are_refused(log: EventLog) -> None:
    of = await experiment(log)
    for filters in ({"limit": 3}, {"context": 1}, {"last_per": "agent"}):
        with pytest.raises(StoreError, match="leave out"):
            await problems(log, of, **filters)  # type: ignore[arg-type]


# Real brokers


class Refusal:
    reason = "rude"

    def __bool__(self) -> bool:
        return False


class Judge:
    async def forward(self, from_id: Any, to_id: Any, message: str) -> Any:
        if "boom" in message:
            raise RuntimeError("no model")
        return Refusal() if "rude" in message else True


async def test_what_goes_wrong_on_a_real_broker_is_found(broker: Broker, log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        async with Messager(broker, "e1", Judge()) as messager:
            messager.add_log_hook(recorder)
            await messager.subscribe_and_start_listening(["exps:e1:agents:4:*", "exps:e1:agents:4:agent-chat"])
            here, nowhere = messager.get_agent_chat_channel(4), messager.get_agent_chat_channel(5)
            await messager.send_message(here, {"content": "hello"}, 3, 4)
            await messager.send_message(nowhere, {"content": "hello"}, 3, 5)
            await messager.send_message(here, {"content": "rude"}, 3, 4)
            with pytest.raises(RuntimeError):
                await messager.send_message(here, {"content": "boom"}, 3, 4)
            await messager.send_message(here, {"content": "bye"}, 3, 4)
            await until(lambda: recorder.accepted == 10)  # with the subscription, and two copies each
    of = await log.experiment("e1")
    found = await problems(log, of)
    assert found.counts == {
        "never arrived": {"nobody listened": 1},
        "arrived twice": {"exps:e1:agents:4:* and exps:e1:agents:4:agent-chat": 2},
        "blocked": {"Judge": 1},
        "failed": {"not_sent": 1},
    }
    [blocked] = [one for one in found.details if one.kind is Kind.BLOCKED]
    assert blocked.text == "Judge refused it: rude"
