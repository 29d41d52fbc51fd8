"""Counts of messages for the page, from the side table `activity`: over time, and between pairs of agents."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import Any

from ...db.codes import BUCKET_NS
from ...log.cursor import clamped
from ...log.event import Cursor
from ...log.selection import Selection
from ...queries.counting.count import count
from ...queries.counting.dimensions import FIRST_NS
from .served_store import Served

SERIES = 11
"""Channels, or senders, with counts of their own; the others are one series."""
PAIRED = 200
"""Agents with numbers of their own between them: those with the most messages."""
BRIEF_NS = 5 * BUCKET_NS
"""Length of a time, up to which buckets may be shorter than a minute: its messages are read one by one."""
_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)
_DAY_NS = 1440 * BUCKET_NS


async def activity(run: Served, selection: Selection, since: int, until: int, buckets: int, by: str) -> dict[str, Any]:
    """Return the number of selected messages over time, by `channel` or `from`.

    `starts` and `length` of the buckets are in seconds; there are about as many as asked for. Each of `series` has the
    position of its name (0 for none, -1 for all others), a `label` and its `counts`, the largest first.
    """
    length = _length(until - since, buckets)
    start = max(since - since % length, FIRST_NS)
    number = max(1, -(-(until - start) // length))
    within = _within(selection, start, start + number * length)
    found = await count(run.log, run.of, (by, f"{length}ns"), within, rule=await run.sources(selection))
    position = run.names.channel if by == "channel" else run.names.agent
    counts: dict[int, list[int]] = {}
    for row in found.rows:
        name, at = row.keys
        counts.setdefault(position(name), [0] * number)[(at - start) // length] += row.messages
    largest = sorted(counts, key=lambda at: -sum(counts[at]))
    kept = largest if len(largest) <= SERIES + 1 else largest[:SERIES]
    names = run.names.listed(set(), {*kept}, set()) if by == "channel" else run.names.listed({*kept}, set(), set())
    labels = {0: "none"} | {name[0]: name[1] for name in names["channels"] + names["agents"]}
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


async def pairs(run: Served, selection: Selection) -> dict[str, Any]:
    """Return the number of selected messages by sender and recipient.

    `pairs` has the positions of both (0 for none) and the number, the largest first; `others` is the number of messages
    between agents that are not among the `PAIRED` busiest.
    """
    found = await count(run.log, run.of, ("from", "to"), selection, rule=await run.sources(selection))
    by_agent: Counter[int] = Counter()
    rows = [(run.names.agent(row.keys[0]), run.names.agent(row.keys[1]), row.messages) for row in found.rows]
    for sender, recipient, messages in rows:
        by_agent[sender] += messages
        by_agent[recipient] += messages
    shown = {0, *(at for at, _ in by_agent.most_common(PAIRED))}
    listed = [row for row in rows if row[0] in shown and row[1] in shown]
    return {
        "pairs": [{"from": sender, "to": recipient, "count": messages} for sender, recipient, messages in listed],
        "others": found.messages - sum(row[2] for row in listed),
        "names": run.names.listed(shown, set(), set()),
    }


def _within(selection: Selection, start: int, end: int) -> Selection:
    """Return the same selection in a time, start included and end excluded."""
    within = copy(selection)
    within.since, within.until = Cursor(start, 0, 0), Cursor(clamped(end), 0, 0)
    return within


def _length(time_ns: int, buckets: int) -> int:
    """Return the length of a bucket, ns."""
    wanted = max(1, -(-time_ns // buckets))
    if time_ns <= BRIEF_NS:
        return wanted
    minutes = -(-wanted // BUCKET_NS)
    return next((fit * BUCKET_NS for fit in _MINUTES if fit >= minutes), -(-wanted // _DAY_NS) * _DAY_NS)
