"""The head of the page: what it knows of an experiment besides its messages, as a JSON object.

Times are ns UTC as decimal text, because JavaScript's numbers are exact to 2**53 only; cursors are text.
`page/types.d.ts` describes the object.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from messager.record import is_own

from ..experiments.records import Experiment
from ..formats.sharing import Sharing
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.gap import gap_of
from ..log.mark_labels import MarkLabels
from ..log.selection import Selection
from ..log.text import storable
from ..maintenance.verdict import Verdict
from ..projection.narrowing import selected_pages
from ..queries.audit.problem import Kind, Problem
from ..queries.overview import overview
from ..queries.problems import Problems
from ..text import plural

MOST_TEXT = 1_000
"""Characters of the text of a mark, a gap or a problem on a page."""
MOST_MARKS = 5_000
"""Marks, and gaps, on a page."""


async def head(
    log: EventLog, of: Experiment, selection: Selection, *, messages: int | None = None, shared: Sharing | None = None
) -> dict[str, Any]:
    """Return the head without problems and verification. `messages` is the number of messages, if known."""
    found = await overview(log, of)
    private = shared is not None and shared.pseudonymise
    if shared is not None:
        found = shared.header(found)
    marks, gaps, notes = await _marks_and_gaps(log, of, selection, shared)
    return {
        "exp_id": of.exp_id if shared is None else shared.experiment(of.exp_id),
        "name": found["name"],
        "tags": found["tags"],
        "meta": found["meta"],
        "status": of.status,
        "created_at": str(of.created_at),
        "parent": found.get("parent"),
        "forks": found["forks"] if not private else [],
        "events": sum(found["kinds"].values()),
        "kinds": {kind: count for kind, count in found["kinds"].items() if count},
        "agents": found["agents"],
        "channels": found["channels"],
        "messages": messages,
        "first_ts": _text(found["first_ts"]),
        "last_ts": _text(found["last_ts"]),
        "recorders": await recorders_of(log, of, private=private),
        "head": None if private else found["head"],  # it leads to the original
        "marks": marks,
        "gaps": gaps,
        "notes": notes,
    }


async def recorders_of(log: EventLog, of: Experiment, *, private: bool = False) -> list[dict[str, Any]]:
    """Return the recorders of an experiment for the page, with their state now. With `private`, without patterns."""
    return [
        {
            "recorder": row.ordinal,
            "role": row.role,
            "state": row.state,
            "patterns": [] if private else [storable(one) for one in row.patterns],
            "started_at": str(row.started_at),
            "complete_until": str(row.complete_until),
            "ended_at": _text(row.ended_at),
        }
        for row in await log.recorders(of)
    ]


def problems_of(found: Problems, shared: Sharing | None = None) -> dict[str, Any]:
    """Return problems for the page."""
    return {
        "counts": {str(kind): found.number(kind) for kind in found.counts},
        "details": [_problem(one, shared) for one in found.details],
        "notes": [note if shared is None else shared.text(note) for note in found.notes],
        "examined": found.examined,
    }


def verdict_of(found: Verdict) -> dict[str, Any]:
    """Return the result of a verification for the page."""
    return {"ok": found.ok, "head": found.head, "problems": found.problems, "notes": found.notes}


def _problem(one: Problem, shared: Sharing | None) -> dict[str, Any]:
    private = shared is not None and shared.pseudonymise
    counted = one.reason if not private or one.kind in (Kind.NEVER, Kind.MISSED, Kind.LATE, Kind.GAP) else ""
    return {
        "kind": str(one.kind),
        "reason": _shown(counted),
        "text": "" if private else _shown(one.text),
        "cursor": None if one.cursor is None else str(one.cursor),
        "ts": None if one.cursor is None else str(one.cursor.ts),
        "message": None if one.event is None else str(one.event.cursor),
        "recorder": one.recorder,
        "delay_ns": one.delay_ns,
    }


async def _marks_and_gaps(
    log: EventLog, of: Experiment, selection: Selection, shared: Sharing | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Return the marks of users and the gaps in the time of a selection, and notes on those left out."""
    marks: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    left_out = 0
    labels = MarkLabels()
    span = await selection.span(log.database, of)
    number = sum(row.kinds["mark"] + row.kinds["gap"] for row in await log.recorders(of))
    pages = selected_pages(log, of, Selection({"mark", "gap"}, limit=number))  # it ends with the last one
    async with aclosing(pages):
        async for page in pages:
            for entry in page:
                if not (entry.kind == "gap" or is_chapter(entry)):
                    continue
                changed = entry if shared is None else shared.event(entry)
                label = labels.next(changed.mark or "") if entry.kind == "mark" else ""
                if entry.cursor not in span:
                    continue
                chosen = marks if entry.kind == "mark" else gaps
                if len(chosen) >= MOST_MARKS:
                    left_out += 1
                    continue
                chosen.append(mark_of(changed, label) if entry.kind == "mark" else gap_for_page(changed))
    notes = [f"{plural(left_out, 'more mark')} and gaps are not shown"] if left_out else []
    return marks, gaps, notes


def is_chapter(entry: Event) -> bool:
    """Return whether an event is a mark of a user: those of a Messager itself are not shown."""
    return entry.mark is not None and not is_own(entry.mark)


def mark_of(entry: Event, label: str) -> dict[str, Any]:
    """Return a mark for the page."""
    return {"ts": str(entry.ts), "cursor": str(entry.cursor), "label": _shown(label), "text": _shown(entry.text)}


def gap_for_page(entry: Event) -> dict[str, Any]:
    """Return a gap for the page."""
    gap = gap_of(entry.meta or {})
    since, until = gap.within(entry.ts)
    return {
        "ts": str(entry.ts),
        "cursor": str(entry.cursor),
        "since": str(since),
        "until": str(until),
        "recorder": entry.recorder if gap.recorder is None else gap.recorder,
        "count": gap.count,
        "reason": _shown(gap.reason),
    }


def _shown(text: str) -> str:
    """Return text for the page, a long one cut."""
    return storable(text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\u2026")


def _text(ts: int | None) -> str | None:
    return None if ts is None else str(ts)
