"""Arrivals: messages that arrived, are missing, came twice or late, and those of which nothing is known."""

from __future__ import annotations

import time
from typing import Any

import pytest

from messager_store import EventLog, Experiment, NewEvent, Selection, problems, redact
from messager_store.log import message_rule
from messager_store.log.not_json import NotJson
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries.audit.problem import Kind
from tests.support import nightly_after
from tests.support.logs import experiment, sent
from tests.support.meta import HOSTILE_GAPS

MS = 1_000_000
S = 1000 * MS


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


@pytest.mark.parametrize("end", [{"ended_at": None}, {"ended_at": 20 * S, "unclean": True}], ids=["silent", "repaired"])
async def test_a_message_to_a_listener_that_crashed_may_have_arrived(log: EventLog, end: dict[str, Any]) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(21 * S, b"y"), sent(60 * S, b"z")])
    await listener(log, of, [heard(S + 1)], **end)
    found = await problems(log, of)
    assert found.counts == {
        "never arrived": {"listener crashed": 1, "nobody listened": 1},  # after 30 silent seconds, it does not listen
        "unclean end": {"recorder 2": 1},
    }


async def test_a_messager_that_was_closed_does_not_listen_any_more(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(3 * S, b"y"), sent(9 * S, b"z")])
    marks = ((0, "messager.subscribed", {"patterns": ["c"]}), (2 * S, "messager.closed", {}))
    own = [
        NewEvent("mark", at, None, b"", meta={"name": name, "fields": fields}, messager="m")
        for at, name, fields in marks
    ]
    again = NewEvent(
        "mark", 8 * S, None, b"", meta={"name": "messager.subscribed", "fields": {"patterns": ["c"]}}, messager="m"
    )
    writer = await log.register(of, role="messager", row={"started_at": -5 * S})
    await log.append(writer, [own[0], heard(S + 1, messager="m"), own[1], again, heard(9 * S + 1, b"z", messager="m")])
    await log.touch(writer, heartbeat_at=20 * S, ended_at=20 * S)
    found = await problems(log, of)
    assert found.counts == {"never arrived": {"nobody listened": 1}}


async def test_a_message_to_a_listener_that_is_recording_is_not_lost_yet(log: EventLog) -> None:
    of, now = await experiment(log), time.time_ns()
    writer = await log.register(of, role="messager", patterns=["c"])
    events = [sent(now - 3 * S, b"x"), heard(now - 2 * S), sent(now, b"y")]
    await log.append(writer, events)
    found = await problems(log, of)
    assert not found.number(Kind.NEVER) and found.number(Kind.LATE) == 0
    assert [note.split(":")[0] for note in found.notes] == ["nothing is known about 1 message"]


async def test_a_message_may_have_reached_listeners_that_were_not_recorded(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x", "d", receivers=2), sent(2 * S, b"y", "d", receivers=0)])
    await listener(log, of, [])
    found = await problems(log, of)
    assert found.counts == {"never arrived": {"nobody listened": 1}}
    assert found.notes == ("1 message reached only listeners that were not recorded, as the broker reported",)


async def test_without_a_recorded_listener_nothing_is_known_about_arrivals(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    found = await problems(log, of)
    note = "no listener was recorded, so nothing is known about arrivals"
    assert not found and found.notes == (note,)
    assert not found.examined
    assert note in found._repr_html_() and "no problems" not in found._repr_html_()
    assert repr(found) == "<Problems: no other problems; arrivals were not examined>"
    await speaker(log, of, [NewEvent("failed", 2 * S, "c", b"y", meta={"outcome": "unknown"})])
    found = await problems(log, of)
    assert found and not found.examined and note in found._repr_html_()
    assert repr(found) == "<Problems: 1 failed; arrivals were not examined>"


async def test_without_a_recorded_sending_nothing_is_known_about_arrivals(log: EventLog) -> None:
    of = await experiment(log)
    await listener(log, of, [NewEvent("received", S, "c", b"x")])
    found = await problems(log, of)
    assert not found and not found.examined
    assert found.notes == ("no sending was recorded, so nothing is known about arrivals",)


async def test_copies_of_a_retained_message_and_early_receptions_are_no_problems(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(2 * S, b"y")])
    await listener(log, of, [heard(S + 1), heard(S + 2, meta={"retained": True}), heard(2 * S - 2 * MS, b"y")])
    found = await problems(log, of)
    assert not found and not found.notes


async def test_copies_are_numbered_for_each_listener_and_retained_ones_do_not_count(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    retained = heard(S + 2, meta={"retained": True})
    await listener(log, of, [heard(S + 1), retained, heard(S + 3), heard(S + 4)])
    await listener(log, of, [heard(S + 1), heard(S + 5)])
    found = await problems(log, of)
    assert found.counts == {"arrived twice": {"unknown why": 3}}
    assert [one.text for one in found.details] == [
        "recorder 2 received it 2 times",
        "recorder 2 received it 3 times",
        "recorder 3 received it 2 times",
    ]


async def test_a_reception_without_a_recorded_sending_is_noted_and_is_no_copy(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    await listener(log, of, [heard(S + 1), heard(2 * S, b"of another program"), heard(70 * S)])
    found = await problems(log, of)
    assert not found
    assert found.notes == (
        "2 receptions of messages whose sending was not recorded, on channels with recorded sendings",
    )


@pytest.mark.parametrize("meta", nightly_after(2, HOSTILE_GAPS))
async def test_a_gap_with_values_of_any_type_hides_no_problem(log: EventLog, meta: dict[str, Any]) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x", "d")])
    await listener(log, of, [NewEvent("gap", 2 * S, None, b"", meta=meta)])
    found = await problems(log, of)
    assert found.counts == {"never arrived": {"nobody listened": 1}, "gap": {"recorder 2": 1}}
    [gap] = [one for one in found.details if one.kind is Kind.GAP]
    assert gap.text.startswith("unknown reason: ") and "message" not in gap.text


async def test_a_repaired_gap_is_that_of_the_recorder_that_it_names(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    await listener(log, of, [])
    meta = {"recorder": 2, "reason": "crash", "since": S // 2, "until": 3 * S // 2, "count": 1}
    await speaker(log, of, [NewEvent("gap", 9 * S, None, b"", meta=meta)])
    found = await problems(log, of)
    assert found.counts == {"never arrived": {"in a gap": 1}, "gap": {"recorder 2": 1}}
    assert found.details[-1].text == "crash: 1.000 s from 1970-01-01T00:00:00.500000000Z, 1 message"


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


async def test_a_payload_that_is_not_json_is_counted_once_although_it_was_received_twice(log: EventLog) -> None:
    of, skipped = await experiment(log), NotJson()
    await speaker(log, of, [sent(S, b"x"), sent(2 * S, b'{"n": 1}')])
    await listener(log, of, [heard(S + 1), heard(S + 2), heard(S + 3), heard(2 * S + 1, b'{"n": 1}')])
    assert not await problems(log, of, Selection(where="n=1").counting(skipped))
    assert skipped.count == 1


async def test_arrivals_on_a_channel_with_redacted_receptions_cannot_be_judged(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x"), sent(2 * S, b"y")])
    await listener(log, of, [heard(S + 1, from_id=1), heard(2 * S + 1, b"y")])
    assert not (await problems(log, of)).notes
    await redact(log, of, RedactionFilter(senders=((1,),)), who="test", why="asked to")
    found = await problems(log, of)
    assert not found
    assert [note.split(":")[0] for note in found.notes] == ["nothing is known about 1 message"]


async def test_a_message_that_failed_is_not_missing_as_well(log: EventLog) -> None:
    of = await experiment(log)
    failed = NewEvent("failed", 3 * S, "c", b"x", cause=(1, 1), meta={"outcome": "unknown", "error": "Timeout"})
    await speaker(log, of, [sent(S, b"x"), failed, sent(4 * S, b"y")])
    await listener(log, of, [heard(4 * S + 1, b"y")])
    found = await problems(log, of)
    assert found.counts == {"failed": {"unknown": 1}}
    assert found.details[0].text == "it may have been sent or not: Timeout"


async def test_a_time_above_which_messages_are_late_is_chosen(log: EventLog) -> None:
    of = await experiment(log)
    await speaker(log, of, [sent(S, b"x")])
    await listener(log, of, [heard(S + 300 * MS)])
    assert not await problems(log, of)
    assert not await problems(log, of, late_ns=300 * MS)
    [late] = (await problems(log, of, late_ns=300 * MS - 1)).details
    assert (late.kind, late.delay_ns, late.recorder) == (Kind.LATE, 300 * MS, 2)


async def test_messages_that_were_decided_early_are_noted(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_rule, "MOST_UNDECIDED", 3)
    of = await experiment(log)
    await speaker(log, of, [sent(20 * S)])
    await listener(log, of, [heard(S + at, b"%d" % at) for at in range(8)])
    notes = (await problems(log, of)).notes
    assert any(note.startswith("5 messages of senders that were not recorded may be receptions") for note in notes)
    assert (await problems(log, of)).notes == notes
