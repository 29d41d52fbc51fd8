"""Counts of messages for the page: over time, by sender and recipient or channel."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

from ...experiments.records import Experiment
from ...log.cursor import clamped, span
from ...log.event import Cursor
from ...log.event_log import EventLog
from ...log.selection import Selection
from ...projection.query import Projection
from ...projection.selecting import Rows
from ...queries.counting.count import sums
from ...queries.counting.dimensions import FIRST_NS, dimensions
from ...queries.counting.groups import Groups
from ..columns import Names
from .questions import Questions
from .served_store import Served

EXCHANGED = frozenset(("sent", "received"))
"""Kinds of messages that count, unless kinds are selected."""
BUCKETS = 400
"""Buckets, unless another number is asked for: about as many as a page on a usual screen asks for."""
SERIES = 11
"""Channels, or senders, with counts of their own; the others are one series."""
PAIRED = 200
"""Agents with numbers of their own between them: those with the most messages."""
MINUTE_NS = 60_000_000_000
BRIEF_NS = 5 * MINUTE_NS
"""Length of a time, up to which buckets may be shorter than a minute."""
_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)
_DAY_NS = 1440 * MINUTE_NS


@dataclass(frozen=True, slots=True)
class Buckets:
    """Equal parts of a time, ns."""

    start: int
    length: int
    number: int


async def buckets_of(run: Served, since: int, until: int, wanted: int) -> Buckets:
    """Return about as many buckets as wanted, for all of the experiment none before its first or behind its last event.

    So pages of different widths ask the same for all of it.
    """
    length = _length(until - since, wanted)
    first, last = await span(run.log.database, run.of)
    if first is not None and last is not None and since <= first and last < until:
        since, until = first, last + 1
    start = max(since - since % length, FIRST_NS)
    return Buckets(start, length, max(1, -(-(until - start) // length)))


async def activity(
    questions: Questions, run: Served, selection: Selection, buckets: Buckets, by: str
) -> dict[str, Any]:
    """Return the number of selected messages over time, by `channel` or `from`; `all` counts them together.

    `starts` and `length` of the buckets are in seconds. Each of `series` has the position of its name (0 for none, -1
    for all others), a `label` and its `counts`, the largest first.
    """
    start, length, number = buckets.start, buckets.length, buckets.number
    within = copy(selection)
    within.since, within.until = Cursor(start, 0, 0), Cursor(clamped(start + number * length), 0, 0)
    found = await _sums(questions, run, within, *([] if by == "all" else [by]), f"{length}ns")
    position = _positions(run.names, by)
    counts: dict[int, list[int]] = {}
    for (*name, at), (messages, _) in found.sums.items():
        series_at = position(name[0]) if name else -1
        counts.setdefault(series_at, [0] * number)[(at - start) // length] += messages
    largest = sorted(counts, key=lambda at: -sum(counts[at]))
    kept = largest if len(largest) <= SERIES + 1 else largest[:SERIES]
    names = run.names.listed(set(), {*kept}, set()) if by == "channel" else run.names.listed({*kept}, set(), set())
    labels = {0: "none", -1: "all"} | {name[0]: name[1] for name in names["channels"] + names["agents"]}
    series = [{"at": at, "label": labels[at], "counts": counts[at]} for at in kept]
    if others := [counts[at] for at in largest[len(kept) :]]:
        summed = [sum(column) for column in zip(*others, strict=True)]
        series.append({"at": -1, "label": f"{len(others)} others", "counts": summed})
    return {
        "starts": [(start + at * length) / 1e9 for at in range(number)],
        "length": length / 1e9,
        "total": found.messages,
        "by": by,
        "series": series,
        "names": names,
    }


async def pairs(questions: Questions, run: Served, selection: Selection, across: str) -> dict[str, Any]:
    """Return the number of selected messages by sender, and across by recipient (`to`) or `channel`.

    `pairs` has the positions of both (0 for none) and the number, the largest first; `others` is the number of messages
    between names that are not among the `PAIRED` busiest.
    """
    found = await _sums(questions, run, selection, "from", across)
    senders, columns = _positions(run.names, "from"), _positions(run.names, across)
    rows = [(senders(row), columns(column), messages) for (row, column), (messages, _) in found.sums.items()]
    by_name: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    busiest = by_name if across == "channel" else (by_name[0], by_name[0])  # the same agents in both
    for sender, column, messages in rows:
        busiest[0][sender] += messages
        busiest[1][column] += messages
    shown = [{0, *(at for at, _ in each.most_common(PAIRED))} for each in busiest]
    listed = sorted((row for row in rows if row[0] in shown[0] and row[1] in shown[1]), key=lambda row: -row[2])
    return {
        "across": across,
        "pairs": [{"from": sender, "to": column, "count": messages} for sender, column, messages in listed],
        "others": found.messages - sum(row[2] for row in listed),
        "names": run.names.listed(shown[0], shown[1] if across == "channel" else set(), set()),
    }


def _positions(names: Names, dimension: str) -> Callable[[Any], int]:
    """Return the function that returns the position of a value in a dimension."""
    if dimension == "channel":
        return names.channel
    return lambda value: names.agent(None if value is None else json.loads(value))


async def _sums(questions: Questions, run: Served, selection: Selection, *by: str) -> Groups:
    chosen = selection.of_kinds(selection.kinds or EXCHANGED).without_redacted()

    async def summed(log: EventLog, of: Experiment, here: Projection) -> Groups:
        return await sums(log, of, here, dimensions(by), chosen, Rows.SHOWN)

    return await questions.ask(run.of.exp_id, summed)


def _length(time_ns: int, buckets: int) -> int:
    """Return the length of a bucket, ns."""
    wanted = max(1, -(-time_ns // buckets))
    if time_ns <= BRIEF_NS:
        return wanted
    minutes = -(-wanted // MINUTE_NS)
    return next((fit * MINUTE_NS for fit in _MINUTES if fit >= minutes), -(-wanted // _DAY_NS) * _DAY_NS)
