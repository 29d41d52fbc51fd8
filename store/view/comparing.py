"""Two runs for the page: how their messages are aligned, as a JSON object. `page/types.d.ts` describes it.

The messages themselves are those of two pages. A row gives them by their numbers among the compared ones: those of the
kinds `kinds`, in replay order, from 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..errors import StoreError
from ..experiments.records import Experiment
from ..formats.output_file import open_output
from ..formats.sharing import Sharing
from ..log.event_log import EventLog
from ..log.names import agent_text
from ..log.selection import Selection
from ..matching.match import Match
from ..queries.comparison.compare import compare
from ..queries.comparison.result import Comparison, Counts
from ..queries.comparison.rows import KINDS, AlignedRows
from ..queries.comparison.run_summary import RunsSummary, summarise
from ..queries.comparison.shared_paths import shared_paths
from ..text import plural
from .page import document, part
from .report import MOST, Progress, packed, run_parts

EXAMINED = 1_000
"""Differences whose values are compared."""
VALUES = 100
"""Values of a message that are listed."""
LONGEST = 20_000
"""Characters of a listed value, and of its path."""
PAIRS = 100
"""Pairs of a summary."""
_EXACT = Match(bytes_only=True)
_COMPARED = ("sent", "received")
"""Kinds of events that are messages, if none are selected."""


async def comparison(
    log: EventLog,
    a: Experiment,
    b: Experiment,
    selection: Selection,
    *,
    log_b: EventLog | None = None,
    match: Match | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Return how the messages of two experiments are aligned (see `compare`).

    `rows` has one number for each run of rows in `kind` (its position in `KINDS`) and `length`, and in `a` and `b` the
    number of its first message minus that behind the last one on its side; 0 if it has none there. `values` has the
    values that differ in the first `EXAMINED` differences, by the cursor of the message of A; `summary` the figures of
    `summarise` if the runs share little. Raises `StoreError` for a selection that cannot be compared, and for more than
    `MOST` messages on a side.
    """
    if selection.everything:  # before all of them are read
        for each, of in ((log, a), (log_b or log, b)):
            _check(of, sum(row.kinds["sent"] for row in await each.recorders(of)))
    rows = AlignedRows()
    found = await compare(
        log, a, b, log_b=log_b, selection=selection, match=match, details=EXAMINED, rows=rows, progress=progress
    )
    _check(a, found.messages_a)
    _check(b, found.messages_b)
    shared = shared_paths(found.differences)
    summary = None
    if found.shares_little:
        summary = _summary(await summarise(log, a, b, log_last=log_b, selection=selection, match=match))
    return {
        "a": found.a,
        "b": found.b,
        "equal": found.equal,
        "messages_a": found.messages_a,
        "messages_b": found.messages_b,
        "counts": _counts(found.messages),
        "channels": found.channels,
        "differing": found.differing,
        "match": None if match is None else _rules(match),
        "notes": _notes(found),
        "shared": None
        if shared is None
        else {"messages": shared.messages, "examined": shared.changed, "paths": list(shared.paths)},
        "summary": summary,
        "kinds": list(_COMPARED) if selection.kinds is None else sorted(selection.kinds),
        "rows": _encoded(rows),
        "values": {
            str(one.a.cursor): _values(one.a.payload, one.b.payload, match or _EXACT)
            for one in found.differences
            if one.kind == "changed" and one.a is not None and one.b is not None
        },
    }


async def report_two(
    log: EventLog,
    a: str,
    b: str,
    path: str | os.PathLike[str],
    selection: Selection,
    *,
    log_b: EventLog | None = None,
    match: Match | None = None,
    chosen: str = "",
    shared: Sharing | None = None,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Write two experiments, side by side, as a page to a file; return their numbers of messages.

    `shared` erases or pseudonymises both, with the same pseudonyms. Raises `StoreError` as `comparison` and
    `report.report` do.
    """
    other = log_b or log
    runs = (log, await log.experiment(a)), (other, await other.experiment(b))
    if shared is not None:
        shared.begin([agent for store, of in runs for agent in await store.agents(of)])
    made = [
        await run_parts(*each, number, selection, chosen=chosen, shared=shared, progress=progress)
        for number, each in enumerate(runs)
    ]

    def note(done: int) -> None:
        if progress is not None:
            progress(done, None, "comparing")

    (_, of_a), (_, of_b) = runs
    found = await comparison(log, of_a, of_b, selection, log_b=log_b, match=match, progress=note)
    if shared is not None:
        names = {side: shared.experiment(found[side]) for side in ("a", "b")}
        unnamed = {} if match is None else {"match": _rules(match, named=False)}
        if found["values"]:
            found["notes"].append("the values that differ are not listed: payloads were changed for this file")
        # paths and values are parts of payloads, and a summary has names
        found = found | names | unnamed | {"shared": None, "values": {}, "summary": None}
    title = " and ".join(run.title for run in made)
    elements = part("comparison", 0, packed(found)) + "".join(run.elements for run in made)
    html = document(f"{title} - messager", elements)
    with open_output(path) as file:
        file.write(html.encode("utf-8", "replace"))
    return made[0].messages, made[1].messages


def _check(of: Experiment, messages: int) -> None:
    if messages > MOST:
        raise StoreError(
            f"{of.exp_id} has more than {MOST:,} messages to show: use `messager report A B` and select some, for "
            "example with --since, --until, --channel or --agent"
        )


def _summary(found: RunsSummary) -> dict[str, Any]:
    """Return the figures of two runs, as far as the page shows them."""
    return {
        "runs": [asdict(run) for run in found.runs],
        "pairs": [
            {
                "channel": pair.channel,
                "from": agent_text(pair.from_id),
                "to": agent_text(pair.to_id),
                "messages": pair.messages,
                "delays_s": pair.delays_s,
            }
            for pair in found.pairs[:PAIRS]
        ],
        "number": len(found.pairs),
        "outside": found.outside,
    }


def _encoded(rows: AlignedRows) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"kind": [], "a": [], "b": [], "length": []}
    next_a = next_b = 0
    for run in rows.runs():
        found["kind"].append(KINDS.index(run.kind))
        found["length"].append(run.length)
        found["a"].append(0 if run.a is None else run.a - next_a)
        found["b"].append(0 if run.b is None else run.b - next_b)
        next_a = next_a if run.a is None else run.a + run.length
        next_b = next_b if run.b is None else run.b + run.length
    return found


def _rules(match: Match, *, named: bool = True) -> dict[str, Any]:
    """Return the rules of a comparison. Without names, paths are only counted, because they are parts of payloads."""
    ignore, shape = (match.ignore, match.shape) if named else ((), ())
    return {
        "ignore": list(ignore),
        "shape": list(shape),
        "tolerance": match.tolerance,
        "bytes_only": match.bytes_only,
        "unnamed": 0 if named else len(match.ignore) + len(match.shape),
    }


def _values(a: bytes, b: bytes, match: Match) -> list[list[str | None]] | None:
    """Return path and both values of each difference of two payloads; None if they are not JSON."""
    found = match.differences(a, b, VALUES)
    return None if found is None else [[_cut(one.path), _cut(one.expected), _cut(one.actual)] for one in found]


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else f"{text[:LONGEST]}\u2026"


def _counts(counts: Counts) -> dict[str, int]:
    return {kind: getattr(counts, kind) for kind in KINDS}


def _notes(found: Comparison) -> list[str]:
    """Return remarks without names, which the page may not have."""
    notes = []
    if found.redacted:
        notes.append(f"{plural(found.redacted, 'message')} redacted on at least one side, not compared")
    if found.matched:
        notes.append(f"{plural(found.matched, 'message')} equal by value, not byte for byte")
    if found.exp_ids is not None:
        notes.append("channels of A's experiment are compared as channels of B's")
    if found.translated:
        notes.append("exps/... counts as exps:..., because the runs come from different kinds of broker")
    if found.by_anchors:
        count = plural(len(found.by_anchors), "channel")
        notes.append(f"on {count}, so little is equal that other messages are paired in order")
    if found.messages.differing > EXAMINED:
        notes.append(f"the values that differ are listed for the first {EXAMINED:,} differences")
    return notes
