"""Redaction records: one row for each redaction, and its seal in every event that it redacted.

The row holds who redacted which events, when and why. The seal is the SHA-256 over the row and the seal of the previous
row. It is stored in the meta of each redacted event, so the chain and the head cover it: verification detects a row
that was removed, added or changed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from .. import json_text
from ..db.codes import REDACTED
from ..db.database import Database
from ..db.schema import redaction
from . import chain
from .attributes import meta_of
from .event import SEAL, iso

if TYPE_CHECKING:
    from ..experiments.records import Experiment

Ranges = dict[str, list[tuple[int, int]]]
"""Ranges of events, as first and last seq, ascending, by the uuid of their recorder."""


@dataclass(slots=True)
class RedactionRow:
    """The row of one redaction of an experiment."""

    id: int
    who: str
    at: int
    """ns UTC"""
    why: str
    events: str
    """JSON: `ranges`, a list of [recorder, first seq, last seq], and `recorders`, their last seqs at `at`: an object by
    uuid."""
    head_before: bytes
    head_after: bytes
    """Over the chain hashes at the positions, without seals: a recorder may continue afterwards."""
    origin: str
    """Store where it was made: the uuid of the first recorder of the experiment there, or a random text if recorders
    were gathered into it. The seals of one origin form a chain."""

    def ranges(self) -> Ranges:
        """Return the redacted events. Raises `ValueError` if the row is invalid."""
        found: Ranges = {}
        for recorder, first, last in _lists(self._facts("ranges"), (str, int, int), "ranges"):
            found.setdefault(recorder, []).append((first, last))
        return {recorder: sorted(pairs) for recorder, pairs in found.items()}

    def positions(self) -> dict[str, int]:
        """Return the last seqs of the recorders at that time. Raises `ValueError`."""
        items = self._facts("recorders")
        if not isinstance(items, dict):
            raise ValueError("recorders is not an object")
        return dict(_lists(list(map(list, items.items())), (str, int), "recorders"))

    def _facts(self, key: str) -> Any:
        try:
            return json.loads(self.events)[key]
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError(str(error)) from None

    @property
    def count(self) -> int:
        """The number of redacted events; 0 if the row is invalid."""
        try:
            return sum(last - first + 1 for pairs in self.ranges().values() for first, last in pairs)
        except ValueError:
            return 0


def _lists(items: Any, types: tuple[type, ...], what: str) -> list[list[Any]]:
    """Return a list of lists with items of these types. Raises `ValueError`."""
    fits = isinstance(items, list) and all(isinstance(row, list) and tuple(map(type, row)) == types for row in items)
    if not fits:
        raise ValueError(f"{what} are not lists of {', '.join(each.__name__ for each in types)}")
    return list(items)


def events_json(ranges: Ranges, positions: Mapping[str, int]) -> str:
    """Return the column `events` of a row."""
    rows = [[recorder, first, last] for recorder in sorted(ranges) for first, last in ranges[recorder]]
    return json_text.dump({"ranges": rows, "recorders": positions})


def without_seal(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the meta of a redacted event for an export: the seal belongs to a row of this store."""
    left = {key: value for key, value in (meta or {}).items() if key != SEAL}
    return left or None


def seal(before: tuple[str, bytes] | None, who: str, at: int, why: str, events: str, head_before: bytes) -> str:
    """Return the seal of a redaction; `before` are the seal and the head_after of the previous one of its origin."""
    previous = None if before is None else [before[0], before[1].hex()]
    facts = [previous, who, at, why, events, head_before.hex()]
    return sha256(b"messager redaction " + json.dumps(facts).encode()).hexdigest()


def seals_of(rows: list[RedactionRow]) -> list[str]:
    """Return the seals of an experiment's redactions, in order."""
    found: list[str] = []
    before: dict[str, tuple[str, bytes]] = {}
    for row in rows:
        found.append(seal(before.get(row.origin), row.who, row.at, row.why, row.events, row.head_before))
        before[row.origin] = (found[-1], row.head_after)
    return found


async def redactions_of(database: Database, experiment_id: int) -> list[RedactionRow]:
    """Return the redactions of an experiment, oldest first."""
    query = select(redaction).where(redaction.c.experiment_id == experiment_id).order_by(redaction.c.id)
    async with database.reading() as connection:
        return [
            RedactionRow(row.id, row.who, row.at, row.why, row.events, row.head_before, row.head_after, row.origin)
            for row in await connection.execute(query)
        ]


class RecorderName(NamedTuple):
    """A recorder of an experiment."""

    ordinal: int
    uuid: str


@dataclass(slots=True)
class _Checked:
    """One row during a check, with the number of its events found so far."""

    row: RedactionRow
    seal: str
    ranges: Ranges
    starts: dict[str, list[int]]
    found: int = 0
    links: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """UUIDs of the recorders, and their chain hashes at their positions."""

    def covers(self, recorder: RecorderName, seq: int) -> bool:
        at = bisect_right(self.starts.get(recorder.uuid, []), seq) - 1
        return at >= 0 and seq <= self.ranges[recorder.uuid][at][1]

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
    _wanted: dict[tuple[str, int], list[_Checked]] = field(default_factory=dict)
    """The rows whose head_after covers the link of a recorder at a seq."""

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
                if not isinstance(row.at, int):
                    raise TypeError(f"its time is {row.at!r}")
                ranges = row.ranges()
                row.positions()
                starts = {recorder: [first for first, _ in pairs] for recorder, pairs in ranges.items()}
                found.rows.append(_Checked(row, mark, ranges, starts))
            for checked in found._with_present_heads():
                for position in checked.row.positions().items():
                    found._wanted.setdefault(position, []).append(checked)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            found.problems.append(f"a row of table redaction was changed: {error}")
        return found

    def _with_present_heads(self) -> Iterator[_Checked]:
        """Yield the rows whose head_after still follows from the chains: no later redaction changed a link of it."""
        changed: dict[str, int] = {}  # by recorder, the first seq that a later row names
        for checked in reversed(self.rows):
            if all(last < changed.get(recorder, last + 1) for recorder, last in checked.row.positions().items()):
                yield checked
            for recorder, pairs in checked.ranges.items():
                changed[recorder] = min(pairs[0][0], changed.get(recorder, pairs[0][0]))

    def add(self, recorder: RecorderName, role: str, seq: int, flags: Any, attributes: Any, payload: Any) -> None:
        """Check one event: it is redacted and has the seal of the last redaction that names it, or neither."""
        redacted = isinstance(flags, int) and bool(flags & REDACTED)
        if not redacted and not self.rows:
            return
        covering = [checked for checked in self.rows if checked.covers(recorder, seq)]
        for checked in covering:
            checked.found += 1
        if not redacted and not covering:
            return
        found = meta_of(attributes if isinstance(attributes, str) else None).get(SEAL)
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
        first, count = self._unmatched.get((recorder.ordinal, problem), (seq, 0))
        self._unmatched[recorder.ordinal, problem] = (first, count + 1)

    def link(self, recorder: RecorderName, seq: int, chain_hash: bytes) -> None:
        """Add the chain hash of a recorder at the end of a batch, or at the start of the chain (seq 0)."""
        for checked in self._wanted.get((recorder.uuid, seq), ()):
            if isinstance(chain_hash, bytes):  # not one that was changed into something else
                checked.links[recorder.uuid] = recorder.uuid, chain_hash

    def first_problem(self) -> str | None:
        """Return a problem of the events so far, None if there is none."""
        return next(iter(self._event_problems()), None)

    def _event_problems(self) -> list[str]:
        problems = []
        for (ordinal, problem), (first, count) in self._unmatched.items():
            more = f" and {count - 1} others" if count > 1 else ""
            problems.append(f"recorder {ordinal}, the event of seq {first}{more}: {problem}")
        return problems

    def finish(self) -> list[str]:
        """Return the problems after the last event."""
        problems = [*self.problems, *self._event_problems()]
        for checked in self.rows:
            if not checked.row.count or checked.found != checked.row.count:
                problems.append(f"{checked.name} names {checked.row.count} events, but {checked.found} were found")
        for checked in self._with_present_heads():
            links = [checked.links.get(recorder, ("", b"")) for recorder in checked.row.positions()]
            if bytes.fromhex(chain.head(links)) != checked.row.head_after:
                problems.append(f"the head after {checked.name} is not the recorded one")
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
