"""Problems are those that were made, each of its kind, for its reason, and no others."""

from __future__ import annotations

import time
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
from messager_store import EventLog, Experiment, NewEvent, Recorder, Selection, StoreError, problems, redact
from messager_store.log.messages import selected_pages
from messager_store.log.not_json import NotJson
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries import problems as module
from messager_store.queries.audit import copies, receptions
from messager_store.queries.audit.problem import Kind, Problem
from messager_store.queries.problems import Problems
from tests.support import until
from tests.support.examples import WITH_STORE
from tests.support.logs import experiment, listed, sent
from tests.support.meta import HOSTILE_GAPS

MS = 1_000_000
S = 1000 * MS


def counted(found: Problems) -> dict[str, dict[str, int]]:
    return {str(kind): dict(reasons) for kind, reasons in found.counts.items()}


# The town


@pytest.fixture(params=[1, 2])
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
    assert counted(found) == wanted
    assert wanted.keys() >= {"never arrived", "arrived twice", "late", "blocked", "failed", "gap"}
    assert found and found.complete and found.examined and not found.notes
    numbers = [f"{sum(reasons.values())} {kind}" for kind, reasons in counted(found).items()]
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


@pytest.mark.sampled(16)
@pytest.mark.any_database
@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: "-".join(filters))
async def test_a_selection_gives_the_problems_of_its_messages_and_gaps(
    log: EventLog, town: Experiment, filters: dict[str, Any]
) -> None:
    everything = await problems(log, town)
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


@pytest.mark.any_database
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


@pytest.mark.any_database
async def test_without_an_index_arrivals_are_said_to_be_unknown(
    log: EventLog, town: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = counted(await problems(log, town))

    async def refused(*_: Any, **__: Any) -> None:
        raise StoreError("attempt to write a readonly database")

    monkeypatch.setattr("messager_store.queries.index.index", refused)
    found = await problems(log, town)
    assert counted(found) == {
        kind: everything[kind] for kind in ("blocked", "failed", "gap", "unclean end") if kind in everything
    }
    assert not found.complete and not found.examined
    assert found.notes == ("arrivals are not examined: the experiment could not be indexed",)


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
@pytest.mark.any_database
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
    found = counted(await problems(log, of))
    for kind in {"late", "gap"} & found.keys():
        found[kind] = {"any": sum(found[kind].values())}
    assert found == {kind: dict(reasons) for kind, reasons in wanted.items()}


# Single cases


async def listener(log: EventLog, of: Experiment, events: list[NewEvent], **row: Any) -> None:
    """Add a recorder that listens on c, and ended unless a row says otherwise."""
    writer = await log.register(of, role="tap", patterns=["c"], row={"started_at": -5 * S})
    await log.append(writer, [NewEvent("mark", -4 * S, None, b"", meta={"name": "here", "fields": {}}), *events])
    await log.touch(writer, **{"heartbeat_at": 20 * S, "ended_at": 20 * S, **row})


async def speaker(log: EventLog, of: Experiment, events: list[NewEvent]) -> None:
    writer = await log.register(of, role="messager", row={"started_at": -5 * S})
    await log.append(writer, events)
    await log.touch(writer, heartbeat_at=20 * S, ended_at=20 * S)


def heard(at: int, payload: bytes = b"x", **more: Any) -> NewEvent:
    return NewEvent("received", at, "c", payload, **more)


@pytest.mark.any_database
@pytest.mark.parametrize("end", [{"ended_at": None}, {"ended_at": 20 * S, "unclean": True}], ids=["silent", "repaired"])
async def test_a_message_to_a_listener_that_crashed_may_have_arrived(log: EventLog, end: dict[str, Any]) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(21 * S, b"y"), sent(60 * S, b"z")])
    await listener(log, of, [heard(S + 1)], **end)
    found = await problems(log, of)
    assert counted(found) == {
        "never arrived": {"listener crashed": 1, "nobody listened": 1},  # after 30 silent seconds, it does not listen
        "unclean end": {"recorder 2": 1},
    }


@pytest.mark.any_database
async def test_a_message_to_a_listener_that_is_recording_is_not_lost_yet(log: EventLog) -> None:
    of, now = await experiment(log), time.time_ns()
    writer = await log.register(of, role="messager", patterns=["c"])
    events = [sent(now - 3 * S, b"x"), heard(now - 2 * S), sent(now, b"y")]
    await log.append(writer, events)
    found = await problems(log, of)
    assert not found.number(Kind.NEVER) and found.number(Kind.LATE) == 0
    assert [note.split(":")[0] for note in found.notes] == ["nothing is known about 1 message"]


@pytest.mark.any_database
async def test_a_message_may_have_reached_listeners_that_were_not_recorded(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x", "d", receivers=2), sent(2 * S, b"y", "d", receivers=0)])
    await listener(log, of, [])
    found = await problems(log, of)
    assert counted(found) == {"never arrived": {"nobody listened": 1}}
    assert found.notes == ("1 message reached only listeners that were not recorded, as the broker reported",)


@pytest.mark.any_database
async def test_without_a_recorded_listener_nothing_is_known_about_arrivals(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    found = await problems(log, of)
    note = "no listener was recorded, so nothing is known about arrivals"
    assert not found and found.notes == (note,)
    assert found.complete and not found.examined
    assert note in found._repr_html_() and "no problems" not in found._repr_html_()
    assert repr(found) == "<Problems: no other problems; arrivals were not examined>"
    await speaker(log, of, [NewEvent("failed", 2 * S, "c", b"y", meta={"outcome": "unknown"})])
    found = await problems(log, of)
    assert found and not found.examined and note in found._repr_html_()
    assert repr(found) == "<Problems: 1 failed; arrivals were not examined>"


@pytest.mark.any_database
async def test_without_a_recorded_sending_nothing_is_known_about_arrivals(log: EventLog) -> None:
    of = await experiment(log)
    await listener(log, of, [NewEvent("received", S, "c", b"x")])
    found = await problems(log, of)
    assert not found and not found.examined
    assert found.notes == ("no sending was recorded, so nothing is known about arrivals",)


@pytest.mark.any_database
async def test_copies_of_a_retained_message_and_early_receptions_are_no_problems(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(2 * S, b"y")])
    await listener(log, of, [heard(S + 1), heard(S + 2, meta={"retained": True}), heard(2 * S - 2 * MS, b"y")])
    found = await problems(log, of)
    assert not found and not found.notes


@pytest.mark.any_database
@pytest.mark.parametrize("together", [1, 500])
async def test_copies_are_numbered_for_each_listener_and_retained_ones_do_not_count(
    log: EventLog, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receptions, "PAGE", together)
    monkeypatch.setattr(copies, "TOGETHER", together)
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    retained = heard(S + 2, meta={"retained": True})
    await listener(log, of, [heard(S + 1), retained, heard(S + 3), heard(S + 4)])
    await listener(log, of, [heard(S + 1), heard(S + 5)])
    found = await problems(log, of)
    assert counted(found) == {"arrived twice": {"unknown why": 3}}
    assert [one.text for one in found.details] == [
        "recorder 2 received it 2 times",
        "recorder 2 received it 3 times",
        "recorder 3 received it 2 times",
    ]


@pytest.mark.any_database
async def test_a_reception_without_a_recorded_sending_is_noted_and_is_no_copy(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    await listener(log, of, [heard(S + 1), heard(2 * S, b"of another program"), heard(70 * S)])
    found = await problems(log, of)
    assert not found
    assert found.notes == (
        "2 receptions of messages whose sending was not recorded, on channels with recorded sendings",
    )


@pytest.mark.any_database
@pytest.mark.parametrize("meta", HOSTILE_GAPS)
async def test_a_gap_with_values_of_any_type_hides_no_problem(log: EventLog, meta: dict[str, Any]) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x", "d")])
    await listener(log, of, [NewEvent("gap", 2 * S, None, b"", meta=meta)])
    found = await problems(log, of)
    assert counted(found) == {"never arrived": {"nobody listened": 1}, "gap": {"recorder 2": 1}}
    [gap] = [one for one in found.details if one.kind is Kind.GAP]
    assert gap.text.startswith("unknown reason: ") and "message" not in gap.text


@pytest.mark.any_database
async def test_a_repaired_gap_is_that_of_the_recorder_that_it_names(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    await listener(log, of, [])
    meta = {"recorder": 2, "reason": "crash", "since": S // 2, "until": 3 * S // 2, "count": 1}
    await speaker(log, of, [NewEvent("gap", 9 * S, None, b"", meta=meta)])
    found = await problems(log, of)
    assert counted(found) == {"never arrived": {"in a gap": 1}, "gap": {"recorder 2": 1}}
    assert found.details[-1].text == "crash: 1.000 s from 1970-01-01T00:00:00.500000000Z, 1 message"


@pytest.mark.any_database
async def test_a_reception_of_a_redacted_sending_is_not_said_to_be_of_one_that_was_not_recorded(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x", from_id=1), sent(2 * S, b"y", from_id=2)])
    await listener(log, of, [heard(S + 1), heard(2 * S + 1, b"y"), heard(3 * S, b"redacted", from_id=9)])
    said = "of messages whose sending was not recorded{}, on channels with recorded sendings"
    only_received = RedactionFilter(senders=((9,),))
    await redact(log, of, only_received, who="test", why="asked to")
    assert (await problems(log, of)).notes == ()
    await redact(log, of, RedactionFilter(senders=((1,),), kinds=("sent",)), who="test", why="asked to")
    assert (await problems(log, of)).notes == (f"1 reception {said.format(' or is redacted')}",)


@pytest.mark.any_database
async def test_a_payload_that_is_not_json_is_counted_once_although_it_was_received_twice(log: EventLog) -> None:
    of, skipped = await experiment(log), NotJson()
    await speaker(log, of, [sent(S, b"x"), sent(2 * S, b'{"n": 1}')])
    await listener(log, of, [heard(S + 1), heard(S + 2), heard(S + 3), heard(2 * S + 1, b'{"n": 1}')])
    assert not await problems(log, of, Selection(where="n=1").counting(skipped))
    assert skipped.count == 1


@pytest.mark.any_database
async def test_arrivals_on_a_channel_with_redacted_receptions_cannot_be_judged(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(2 * S, b"y")])
    await listener(log, of, [heard(S + 1, from_id=1), heard(2 * S + 1, b"y")])
    assert not (await problems(log, of)).notes
    await redact(log, of, RedactionFilter(senders=((1,),)), who="test", why="asked to")
    found = await problems(log, of)
    assert not found
    assert [note.split(":")[0] for note in found.notes] == ["nothing is known about 1 message"]


@pytest.mark.any_database
async def test_a_message_that_failed_is_not_missing_as_well(log: EventLog) -> None:
    of = await experiment(log)
    failed = NewEvent("failed", 3 * S, "c", b"x", cause=(1, 1), meta={"outcome": "unknown", "error": "Timeout"})
    await speaker(log, of, [sent(S, b"x"), failed, sent(4 * S, b"y")])
    await listener(log, of, [heard(4 * S + 1, b"y")])
    found = await problems(log, of)
    assert counted(found) == {"failed": {"unknown": 1}}
    assert found.details[0].text == "it may have been sent or not: Timeout"


@pytest.mark.any_database
async def test_a_time_above_which_messages_are_late_is_chosen(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    await listener(log, of, [heard(S + 300 * MS)])
    assert not await problems(log, of)
    assert not await problems(log, of, late_ns=300 * MS)
    [late] = (await problems(log, of, late_ns=300 * MS - 1)).details
    assert (late.kind, late.delay_ns, late.recorder) == (Kind.LATE, 300 * MS, 2)


@pytest.mark.any_database
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


@pytest.mark.any_database
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
    assert counted(found) == {
        "never arrived": {"nobody listened": 1},
        "arrived twice": {"exps:e1:agents:4:* and exps:e1:agents:4:agent-chat": 2},
        "blocked": {"Judge": 1},
        "failed": {"not_sent": 1},
    }
    [blocked] = [one for one in found.details if one.kind is Kind.BLOCKED]
    assert blocked.text == "Judge refused it: rude"
