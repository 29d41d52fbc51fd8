"""The part of a recording that a fork repeats depends on nothing behind the point."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from messager_store.lockstep.cut import Cut, closed_cut
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.schedule import key
from messager_store.log.event import Cursor, Event


def event(ts: int, recorder: int, seq: int, kind: str, payload: str = "", **more: Any) -> Event:
    channel = None if kind == "mark" else "c"
    return Event(
        ts, recorder, seq, kind, channel, payload.encode(), messager=more.pop("messager", f"m{recorder}"), **more
    )


def cut(events: list[Event], ts: int) -> Cut:
    return closed_cut(Recording.of_events("e", events), Cursor(ts, 0, 0))


def taken(events: list[Event], ts: int) -> list[tuple[int, int]]:
    return sorted(cut(events, ts).keys)


def test_everything_before_the_point_is_taken_if_the_clocks_agree() -> None:
    events = [
        event(1, 1, 1, "sent", "a", arrival=0),
        event(2, 2, 1, "received", "a", arrival=1),
        event(3, 2, 2, "sent", "b", arrival=1),
        event(4, 1, 2, "received", "b", arrival=1),
        event(5, 1, 3, "mark", arrival=1),
    ]
    assert taken(events, 4) == [(1, 1), (2, 1), (2, 2)]
    assert cut(events, 4).excluded == 0
    assert len(cut(events, 6).keys) == 5 and taken(events, 0) == []


def test_what_was_caused_from_behind_the_point_is_left_out_with_all_that_follows_from_it() -> None:
    """The clock of recorder 2 is slow: it hears, and answers, before the message is sent."""
    events = [
        event(1, 2, 1, "sent", "free", arrival=0),
        event(2, 2, 2, "received", "late", arrival=1),
        event(3, 2, 3, "mark", arrival=0),
        event(4, 2, 4, "sent", "answer", arrival=1),
        event(5, 3, 1, "received", "answer", arrival=1),
        event(6, 2, 5, "mark", arrival=0),
        event(7, 3, 2, "sent", "echo", arrival=1),
        event(8, 2, 6, "received", "other", arrival=2),
        event(9, 1, 1, "sent", "late", arrival=0),
    ]
    assert taken(events, 9) == [(2, 1), (2, 3)]
    assert cut(events, 9).excluded == 6
    assert len(cut(events, 10).keys) == 9


def test_what_had_not_been_heard_does_not_matter() -> None:
    events = [
        event(1, 2, 1, "received", "late", arrival=1),
        event(2, 2, 2, "sent", "free", arrival=0),
        event(9, 1, 1, "sent", "late", arrival=0),
    ]
    assert taken(events, 9) == [(2, 2)]


def test_the_outcome_of_a_sending_is_on_its_side_of_the_point() -> None:
    failed: dict[str, Any] = {"meta": {"outcome": "not_sent"}, "arrival": 0}
    events = [
        event(1, 1, 1, "sent", "one", arrival=0),
        event(2, 1, 2, "sent", "two", arrival=0),
        event(5, 1, 3, "failed", "two", cause=(1, 2), **failed),
        event(6, 1, 4, "sent", "three", arrival=0),
    ]
    assert taken(events, 3) == [(1, 1), (1, 2), (1, 3)]
    assert taken(events, 2) == [(1, 1)]


def test_events_without_a_schedule_are_taken_by_their_place() -> None:
    events = [
        event(1, 1, 1, "received", "a", messager=None),
        event(2, 1, 2, "gap", "", messager=None),
        event(3, 2, 1, "sent", "a", messager=None),
    ]
    assert taken(events, 3) == [(1, 1), (1, 2)]


@st.composite
def societies(draw: st.DrawFn) -> list[Event]:
    """A true history of three Messagers, recorded with clocks that differ."""
    skews = [draw(st.integers(-20, 20)) for _ in range(3)]
    seqs, arrived, heard = [0] * 3, [0] * 3, [0] * 3
    on_the_wire: list[list[int]] = [[] for _ in range(3)]
    events: list[Event] = []
    for at in range(draw(st.integers(0, 25))):
        who = draw(st.integers(0, 2))
        what = draw(st.sampled_from(["send", "receive", "receive", "fetch", "mark"]))
        facts: dict[str, Any] = {"ts": 100 + 2 * at + skews[who], "recorder": who + 1, "messager": f"m{who + 1}"}
        if what == "fetch":
            heard[who] = arrived[who]
            continue
        if what == "receive" and not on_the_wire[who]:
            continue
        seqs[who] += 1
        if what == "receive":
            arrived[who] += 1
            number = on_the_wire[who].pop(0)
            events.append(event(seq=seqs[who], kind="received", payload=str(number), arrival=arrived[who], **facts))
            continue
        kind = "sent" if what == "send" else "mark"
        events.append(event(seq=seqs[who], kind=kind, payload=str(at), arrival=heard[who], **facts))
        for other in range(3):
            if what == "send" and other != who:
                on_the_wire[other].append(at)
    return events


def dependencies(events: list[Event]) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """Return what each event directly depends on, by the definition."""
    recording = Recording.of_events("e", events)
    sent = {(entry.payload): key(entry) for entry in events if entry.kind == "sent"}
    sources = {key(entry): sent[entry.payload] for entry in events if entry.kind == "received"}
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for entry in events:
        mine = [one for one in recording.events if one.messager == entry.messager]
        acts = [one for one in mine if one.kind != "received"]
        on = found[key(entry)] = set()
        if entry.kind == "received":
            on |= {key(one) for one in mine if one.kind == "received" and (one.arrival or 0) < (entry.arrival or 0)}
            on |= {sources[key(entry)]} if key(entry) in sources else set()
        else:
            on |= {key(one) for one in acts[: acts.index(entry)]}
            on |= {key(one) for one in mine if one.kind == "received" and (one.arrival or 0) <= (entry.arrival or 0)}
    return found


@given(societies(), st.integers(80, 180))
def test_the_cut_is_the_largest_closed_part_before_the_point(events: list[Event], ts: int) -> None:
    on = dependencies(events)
    late = {key(entry) for entry in events if entry.ts >= ts}
    while more := {place for place, found in on.items() if place not in late and found & late}:
        late |= more
    assert set(cut(events, ts).keys) == on.keys() - late
