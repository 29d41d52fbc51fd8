"""Redaction records: one row for each redaction, and its seal in every event that it redacted.

The row holds who redacted which events, when and why. The seal is the SHA-256 over the row and the seal of the previous
row. It is stored in the meta of each redacted event, so the chain and the head cover it: verification detects a row
that was removed, added or changed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from .. import json_text
from ..db.database import Database
from ..db.schema import REDACTED, redaction
from . import chain
from .event import iso

if TYPE_CHECKING:
    from ..experiments.records import Experiment

SEAL = "redaction"
"""Key of the seal, in hex, in the meta of a redacted event."""

Ranges = dict[int, list[tuple[int, int]]]
"""Ranges of events, as first and last seq, ascending, by ordinal of the recorder."""


@dataclass(slots=True)
class RedactionRow:
    """The row of one redaction of an experiment."""

    id: int
    who: str
    at: int
    """ns UTC"""
    why: str
    events: str
    """JSON: `ranges`, a list of [recorder, first seq, last seq], and `recorders`, a list of their last seqs at `at`."""
    head_before: bytes
    head_after: bytes

    def ranges(self) -> Ranges:
        """Return the redacted events. Raises `ValueError` if the row is invalid."""
        found: Ranges = {}
        for ordinal, first, last in _listed(self.events, "ranges", 3):
            found.setdefault(ordinal, []).append((first, last))
        return {ordinal: sorted(pairs) for ordinal, pairs in found.items()}

    def positions(self) -> list[int]:
        """Return the last seqs of the recorders at that time, in order of ordinal. Raises `ValueError`."""
        return [last for (last,) in _listed(self.events, "recorders", 1)]

    @property
    def count(self) -> int:
        """The number of redacted events; 0 if the row is invalid."""
        try:
            return sum(last - first + 1 for pairs in self.ranges().values() for first, last in pairs)
        except ValueError:
            return 0


def _listed(text: str, key: str, length: int) -> list[list[int]]:
    try:
        items = json.loads(text)[key]
        rows = [item if length > 1 else [item] for item in items]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(row, list) and len(row) == length and all(type(n) is int for n in row) for row in rows):
        raise ValueError(f"{key} are not lists of {length} whole numbers")
    return rows


def events_json(ranges: Ranges, positions: list[int]) -> str:
    """Return the column `events` of a row."""
    rows = [[ordinal, first, last] for ordinal in sorted(ranges) for first, last in ranges[ordinal]]
    return json_text.dump({"ranges": rows, "recorders": positions})


def without_seal(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the meta of a redacted event for an export: the seal belongs to a row of this store."""
    left = {key: value for key, value in (meta or {}).items() if key != SEAL}
    return left or None


def seal(before: tuple[str, bytes] | None, who: str, at: int, why: str, events: str, head_before: bytes) -> str:
    """Return the seal of a redaction; `before` are the seal and the head_after of the previous redaction."""
    previous = None if before is None else [before[0], before[1].hex()]
    facts = [previous, who, at, why, events, head_before.hex()]
    return sha256(b"messager redaction " + json.dumps(facts).encode()).hexdigest()


def seals_of(rows: list[RedactionRow]) -> list[str]:
    """Return the seals of an experiment's redactions, in order."""
    found: list[str] = []
    before: tuple[str, bytes] | None = None
    for row in rows:
        found.append(seal(before, row.who, row.at, row.why, row.events, row.head_before))
        before = (found[-1], row.head_after)
    return found


async def redactions_of(database: Database, experiment_id: int) -> list[RedactionRow]:
    """Return the redactions of an experiment, oldest first."""
    query = select(redaction).where(redaction.c.experiment_id == experiment_id).order_by(redaction.c.id)
    async with database.reading() as connection:
        return [
            RedactionRow(row.id, row.who, row.at, row.why, row.events, row.head_before, row.head_after)
            for row in await connection.execute(query)
        ]


@dataclass(slots=True)
class _Checked:
    """One row during a check, with the number of its events found so far."""

    row: RedactionRow
    seal: str
    ranges: Ranges
    starts: dict[int, list[int]]
    found: int = 0

    def covers(self, ordinal: int, seq: int) -> bool:
        at = bisect_right(self.starts.get(ordinal, []), seq) - 1
        return at >= 0 and seq <= self.ranges[ordinal][at][1]

    @property
    def name(self) -> str:
        return f"the redaction of {iso(self.row.at)}"


@dataclass(slots=True)
class RedactionCheck:
    """Compares the redactions of an experiment with its events."""

    rows: list[_Checked] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    imported: int = 0
    """Number of events that were redacted before they were imported: their records are in the original store."""
    _unmatched: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    _links: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    async def load(cls, database: Database, of: Experiment) -> RedactionCheck:
        """Return a check of one experiment."""
        return cls.of(await redactions_of(database, of.id))

    @classmethod
    def of(cls, rows: list[RedactionRow]) -> RedactionCheck:
        """Return a check with the redactions of one experiment, oldest first."""
        found = cls()
        try:
            for row, mark in zip(rows, seals_of(rows), strict=True):
                ranges = row.ranges()
                row.positions()
                starts = {ordinal: [first for first, _ in pairs] for ordinal, pairs in ranges.items()}
                found.rows.append(_Checked(row, mark, ranges, starts))
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            found.problems.append(f"a row of table redaction was changed: {error}")
        return found

    def add(self, ordinal: int, role: str, seq: int, flags: Any, meta: Any, payload: Any) -> None:
        """Check one event: it is redacted and has the seal of the last redaction that names it, or neither."""
        redacted = isinstance(flags, int) and bool(flags & REDACTED)
        if not redacted and not self.rows:
            return
        covering = [checked for checked in self.rows if checked.covers(ordinal, seq)]
        for checked in covering:
            checked.found += 1
        if not redacted and not covering:
            return
        found = json_text.load_object(meta if isinstance(meta, str) else None).get(SEAL)
        expected = covering[-1].seal if covering else None
        if redacted and found == expected and not payload and (expected is not None or role == "import"):
            self.imported += not covering
            return
        problem = (
            f"{covering[-1].name} names it, but it was not redacted"
            if covering and not redacted
            else "it is redacted, but has a payload"
            if payload
            else "no redaction record matches it"
        )
        first, count = self._unmatched.get((ordinal, problem), (seq, 0))
        self._unmatched[ordinal, problem] = (first, count + 1)

    def link(self, ordinal: int, seq: int, chain_hash: bytes) -> None:
        """Add the chain hash of a recorder at the end of a batch, or at the start of the chain (seq 0)."""
        if self.rows:
            positions = self.rows[-1].row.positions()
            if ordinal <= len(positions) and positions[ordinal - 1] == seq:
                self._links[ordinal] = chain_hash

    def first_problem(self) -> str | None:
        """Return a problem of the events so far, None if there is none."""
        return next(iter(self._event_problems()), None)

    def _event_problems(self) -> list[str]:
        problems = []
        for (ordinal, problem), (first, count) in self._unmatched.items():
            more = f" and {count - 1} others" if count > 1 else ""
            problems.append(f"recorder {ordinal}, the event of seq {first}{more}: {problem}")
        return problems

    def finish(self, uuids: Mapping[int, str]) -> list[str]:
        """Return the problems after the last event; `uuids` are those of the recorders, by ordinal."""
        problems = [*self.problems, *self._event_problems()]
        for checked in self.rows:
            if not checked.row.count or checked.found != checked.row.count:
                problems.append(f"{checked.name} names {checked.row.count} events, but {checked.found} were found")
        if self.rows:
            last = self.rows[-1]
            at_the_time = range(1, len(last.row.positions()) + 1)
            pairs = [(uuids.get(ordinal, ""), self._links.get(ordinal, b"")) for ordinal in at_the_time]
            if bytes.fromhex(chain.head(pairs)) != last.row.head_after:
                problems.append(f"the head after {last.name} is not the recorded one")
        return problems

    def notes(self) -> list[str]:
        """Return a line for each redaction, and one for imported redactions."""
        lines = [
            f"{row.count} {'event was' if row.count == 1 else 'events were'} redacted "
            f"on {iso(row.at)} by {row.who} ({row.why})"
            for row in (checked.row for checked in self.rows)
        ]
        if self.imported:
            events = "event" if self.imported == 1 else "events"
            lines.append(f"{self.imported} {events} had been redacted before they were imported")
        return lines

    def former_head(self, head: str) -> str | None:
        """Return a sentence on the redaction that replaced a head, given by its first digits; None if there is none."""
        for checked in self.rows:
            row = checked.row
            if isinstance(row.head_before, bytes) and row.head_before.hex().startswith(head):
                return f"that was its head before the redaction of {iso(row.at)} by {row.who} ({row.why})"
        return None
