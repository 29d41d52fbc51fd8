"""The choice of events that represent messages, by the times in which senders were recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from messager import MemoryBroker
from messager_store import EventLog, NewEvent, Replay
from messager_store.db.codes import REDACTED
from messager_store.experiments.records import SILENT_NS, Experiment
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.log import late_receptions
from messager_store.log.channel_map import ChannelMap
from messager_store.log.messages import message_count, message_pages, sources
from messager_store.log.selection import Selection
from messager_store.log.span import Span
from messager_store.queries.comparison.compare import compare
from tests.support import nightly_after, sql
from tests.support.logs import filled, sent

SECOND = 1_000_000_000
LAST = 2**63 - 1
BEGAN = 1_700_000_000 * SECOND


def at(seconds: float) -> int:
    return BEGAN + int(seconds * SECOND)


def said(seconds: float, payload: str, channel: str = "c", **more: Any) -> NewEvent:
    return sent(at(seconds), payload.encode(), channel, **more)


def heard(seconds: float, payload: str, channel: str = "c", **more: Any) -> NewEvent:
    return NewEvent("received", at(seconds), channel, payload.encode(), **more)


class Session(NamedTuple):
    """One recorder: its role, and its start and end in seconds."""

    role: str
    start: float
    end: float | None
    events: Sequence[NewEvent]
    columns: dict[str, int]


def tap(start: float, end: float | None, *events: NewEvent, **columns: int) -> Session:
    return Session("tap", start, end, events, columns)


def inside(start: float, end: float | None, *events: NewEvent, **columns: int) -> Session:
    return Session("messager", start, end, events, columns)


async def recorded(log: EventLog, *sessions: Session, exp_id: str = "e1") -> Experiment:
    of = await log.create_experiment(exp_id)
    for session in sessions:
        writer = await log.register(of, role=session.role, row={"started_at": at(session.start)})
        await log.append(writer, session.events)
        ended = {} if session.end is None else {"heartbeat_at": at(session.end), "ended_at": at(session.end)}
        await log.touch(writer, **ended | session.columns)
    return of


SCENARIOS: dict[str, tuple[list[Session], list[str]]] = {
    "tapped first, then recorded from inside": (
        [tap(0, 10, heard(1, "a"), heard(2, "b")), inside(20, 30, said(21, "c"), heard(21.1, "c"))],
        ["a", "b", "c"],
    ),
    "recorded from inside first, then tapped": (
        [inside(0, 10, said(1, "a"), heard(1.1, "a")), tap(20, 30, heard(21, "b"), heard(22, "c"))],
        ["a", "b", "c"],
    ),
    "both at once": (
        [
            inside(0, 10, said(1, "a"), said(2, "b")),
            tap(0, 10, heard(1.1, "a"), heard(2.1, "b"), heard(3, "unrecorded")),
        ],
        ["a", "b"],
    ),
    "a tap that is longer on both ends": (
        [
            tap(0, 50, heard(1, "a"), heard(21.1, "b"), heard(22, "unrecorded"), heard(29.1, "c"), heard(41, "d")),
            inside(20, 30, said(21, "b"), said(29, "c")),
        ],
        ["a", "b", "c", "d"],
    ),
    "a late reception behind the end of the sender": (
        [inside(0, 10, said(9.9, "a")), tap(0, 30, heard(10.2, "a"), heard(10.3, "a"), heard(20, "b"))],
        ["a", "a", "b"],  # the second one was sent by somebody else
    ),
    "a late reception of several listeners": (
        [
            inside(0, 10, said(9.9, "a")),
            tap(0, 30, heard(10.2, "a")),
            tap(0, 30, heard(10.1, "a"), heard(10.4, "b")),
        ],
        ["a", "b"],
    ),
    "a reception too late to belong to a sending": (
        [inside(0, 10, said(9, "a")), tap(0, 90, heard(9.1, "a"), heard(70, "a"))],
        ["a", "a"],
    ),
    "a copy that the broker kept": (
        [inside(0, 10, said(9.9, "a")), tap(10.1, 30, heard(10.2, "a", meta={"retained": True}))],
        ["a", "a"],
    ),
    "a channel that was only tapped beside one that was recorded": (
        [
            inside(10, 30, said(11, "b", "c"), heard(12, "c", "c2")),
            tap(0, 50, heard(1, "a", "c"), heard(11.1, "b", "c"), heard(12, "c", "c2"), heard(31, "d", "c")),
        ],
        ["a", "b", "c", "d"],
    ),
    "recorded from inside twice, tapped all the time": (
        [
            inside(0, 10, said(9.9, "a")),
            inside(12, 20, said(13, "c"), said(19.9, "d")),
            tap(0, 40, heard(10.1, "a"), heard(11, "b"), heard(13.1, "c"), heard(20.1, "d"), heard(30, "e")),
        ],
        ["a", "b", "c", "d", "e"],
    ),
    "a sender that was killed and repaired much later": (
        [inside(0, 100_000, said(1, "a"), unclean=1, heartbeat_at=at(5)), tap(20, 30, heard(21, "b"))],
        ["a", "b"],
    ),
    "a sender that may be alive": (
        [inside(0, None, said(1, "a"), heartbeat_at=at(5)), tap(0, 9, heard(1.1, "a"), heard(8, "unrecorded"))],
        ["a"],
    ),
    "a sender whose heartbeat is overdue": (
        [inside(0, None, said(1, "a"), heartbeat_at=at(5)), tap(0, 90, heard(6 + SILENT_NS / SECOND, "b"))],
        ["a", "b"],
    ),
    "a sender whose last events were drained from a spool": (
        [
            inside(0, 5, said(1, "a"), said(9, "b")),
            tap(0, 20, heard(1.1, "a"), heard(8, "unrecorded"), heard(9.1, "b"), heard(12, "c")),
        ],
        ["a", "b", "c"],
    ),
    "a sender with a clock of its own": (
        [
            inside(1000, 1010, said(5, "a"), said(7, "b")),
            tap(0, 20, heard(1, "before"), heard(5.1, "a"), heard(9, "c")),
        ],
        ["before", "a", "b", "c"],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_reception_counts_unless_its_sender_was_recorded(log: EventLog, tmp_path: Path, name: str) -> None:
    sessions, expected = SCENARIOS[name]
    await recorded(log, *sessions)
    await export_jsonl(log, "e1", tmp_path / "e1.jsonl")
    await import_jsonl(log, tmp_path / "e1.jsonl", "imported")
    await filled(log, [said(number, payload, "all") for number, payload in enumerate(expected)], "expected")
    for exp_id in ("e1", "imported"):
        if exp_id == "imported" and "repaired" in name:
            continue  # an export tells only when it was repaired
        of = await log.experiment(exp_id)
        chosen = [e async for page in message_pages(log, of, Selection(), Span()) for e in page]
        assert [entry.payload.decode() for entry in chosen] == expected
        rule = await sources(log, of)
        assert await message_count(log, of, Selection(), Span(), rule) == len(expected)
        report = await Replay(log, exp_id, MemoryBroker(), dry_run=True).run()
        assert report.planned == len(expected)
        assert sum(report.unrecorded_senders.values()) == sum(
            entry.payload == b"unrecorded" for session in sessions for entry in session.events
        )
        assert (await compare(log, exp_id, "expected", mapping=ChannelMap({"c": "all", "c2": "all"}))).equal


@pytest.mark.parametrize("name", nightly_after(5, SCENARIOS))
async def test_an_index_changes_no_choice_and_events_behind_it_are_seen(log: EventLog, name: str) -> None:
    sessions, expected = SCENARIOS[name]
    of = await recorded(log, *sessions)
    unrecorded = (await sources(log, of, counted=True)).unrecorded_senders
    assert await payloads(log, of) == expected
    assert (await sources(log, of, counted=True)).unrecorded_senders == unrecorded
    channels = ("nobody else heard this", "nor this")
    for second, channel in enumerate(channels, 10**6):
        await log.append(await log.register(of, role="tap"), [heard(second, channel, channel)])
    assert await payloads(log, of) == [*expected, *channels]


async def test_no_reception_replaces_a_redacted_sending(log: EventLog) -> None:
    told = said(1, "")._replace(flags=REDACTED)
    of = await recorded(log, inside(0, 10, told), tap(0, 10, heard(1.1, "secret"), heard(2, "b", "c2")))
    assert await payloads(log, of) == ["b"]


async def payloads(log: EventLog, of: Experiment) -> list[str]:
    return [e.payload.decode() async for page in message_pages(log, of, Selection(), Span()) for e in page]


@pytest.mark.parametrize("page", [7, 2000])
async def test_equal_payloads_are_matched_from_where_their_channel_was_silent(
    log: EventLog, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(late_receptions, "PAGE", page)
    payload, length = '{"count": 1}', 200
    begins = (0, 300)  # two runs of a sending each second
    sayings = [said(start + at, payload) for start in begins for at in range(length)]
    hearings = [heard(start + at + 2.5, payload) for start in begins for at in range(length)]
    other = [said(at, f"{at}", "other") for at in range(0, 500, 10)]  # a channel that is never silent
    of = await recorded(
        log,
        inside(0, 199, *sayings[:length]),
        inside(300, 499, *sayings[length:]),
        inside(0, 499, *other),
        tap(0, 550, *hearings, heard(520, "late")),
    )
    assert len(await payloads(log, of)) == 2 * length + len(other) + 1


@pytest.mark.parametrize(
    ("session", "ts"),
    [({"started_at": 5}, LAST), ({"started_at": LAST}, 7), ({"started_at": -LAST - 1}, 7), ({}, LAST), ({}, 7)],
)
async def test_an_import_with_times_at_the_end_of_the_range_has_its_sending(
    log: EventLog, store: str, tmp_path: Path, session: dict[str, int], ts: int
) -> None:
    recorders = [{"role": "messager", **session}, {"role": "tap", "started_at": 1, "ended_at": LAST}]
    lines: list[dict[str, Any]] = [
        {"format": "messager/1", "recorders": recorders},
        {"ts": ts, "kind": "sent", "channel": "c", "payload": "a", "recorder": 1},
        {"ts": 2, "kind": "received", "channel": "c", "payload": "b", "recorder": 2},
        {"ts": at(0), "kind": "received", "channel": "c", "payload": "c", "recorder": 2},
    ]
    (tmp_path / "far.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    of = await import_jsonl(log, tmp_path / "far.jsonl", "far")
    assert "a" in await payloads(log, of)
    sql(store, "UPDATE recorder SET unclean = 1 WHERE role = 'import'")
    assert "a" in await payloads(log, of)
