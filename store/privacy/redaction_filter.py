"""Which events a redaction takes: conditions that must all hold, on an event's columns and on what it says."""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, and_, false, or_, select

from ..db.database import Database
from ..db.schema import KINDS, REDACTED, SEQ_BITS, event
from ..errors import StoreError
from ..experiments.registry import Experiment, RecorderRow
from ..log.cursor import resolve
from ..log.event import Cursor
from ..log.event_log import EventLog
from ..log.reading import Selection

KEYS = ("channel", "agent", "from", "to", "kind", "cursor", "since", "until", "contains", "matches")
PAGE = 500
PAGE_BYTES = 16 * 1024 * 1024
"""Payload bytes in a page, as the recorder's average lets expect."""
LEVELS = 32
"""How often escapes are undone: JSON inside JSON, each level with twice the backslashes."""
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([\"\\/bfnrt]))"
)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SEQ_MASK = (1 << SEQ_BITS) - 1


@dataclass(frozen=True, slots=True)
class RedactionFilter:
    """Conditions on events, all of which must hold. At least one is needed.

    Each entry of a field is a condition of its own. `agents`, `senders` and `recipients` are
    lists of ids, any of which fits; `channels` are glob patterns, `cursors`, `since` and `until`
    points (see `messager_store.log.cursor`). `contains` is text that the payload or the meta holds, as
    raw bytes or once JSON is unpacked; `matches` is a regular expression searched for in the same
    places. A pattern with repetitions inside repetitions can take very long; it is searched
    for before anything is written, so it may be interrupted.
    """

    channels: tuple[str, ...] = ()
    agents: tuple[tuple[Any, ...], ...] = ()
    senders: tuple[tuple[Any, ...], ...] = ()
    recipients: tuple[tuple[Any, ...], ...] = ()
    kinds: tuple[str, ...] = ()
    cursors: tuple[str | Cursor, ...] = ()
    since: tuple[Any, ...] = ()
    until: tuple[Any, ...] = ()
    contains: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()

    def checked(self) -> RedactionFilter:
        """The same. Raises `StoreError` where it has no condition, an empty text, or a pattern that is none."""
        if not any(getattr(self, name) for name in self.__dataclass_fields__):
            raise StoreError("a redaction needs at least one condition: without any it would take every event")
        if "" in self.contains or "" in self.matches:
            raise StoreError("contains and matches need a text: an empty one is in every event")
        for pattern in self.matches:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise StoreError(f"{pattern!r} is no regular expression: {error}") from None
        return self

    def matcher(self, enough: Callable[[Iterable[bool]], bool] = all) -> Callable[[bytes], bool] | None:
        """Whether bytes hold all that `contains` and `matches` ask, or, with `any`, some of it; None where they
        ask nothing."""
        if not self.contains and not self.matches:
            return None
        wanted = [(_raw(text), {text, unicodedata.normalize("NFC", text)}) for text in self.contains]
        patterns = [re.compile(pattern) for pattern in self.matches]

        def answers(value: bytes) -> Iterator[bool]:
            plain = b"\\" not in value and value.isascii()  # there is nothing to unpack
            said: list[str] | None = None
            for raw, forms in wanted:
                if raw in value or plain:
                    yield raw in value
                    continue
                said = list(texts(value)) if said is None else said
                yield any(form in text for text in said for form in forms)
            for pattern in patterns:
                said = list(texts(value)) if said is None else said
                yield any(pattern.search(text) for text in said)

        return lambda value: enough(answers(value))

    async def conditions(
        self, database: Database, of: Experiment, recorders: list[RecorderRow]
    ) -> list[ColumnElement[bool]]:
        """What of it SQL can ask. Raises `BadCursor`, and `StoreError` for a kind that there is not."""
        found: list[ColumnElement[bool]] = []
        for kind in self.kinds:
            found += await Selection(kinds=[kind]).condition(database, of)
        for channel in self.channels:
            found += await Selection(channels=[channel]).condition(database, of)
        for ids in self.agents:
            found += await Selection(agents=ids).condition(database, of)
        for ids in self.senders:
            found += await Selection(from_ids=ids).condition(database, of)
        for ids in self.recipients:
            found += await Selection(to_ids=ids).condition(database, of)
        numbers = {row.ordinal: row.id for row in recorders}
        for point in self.cursors:
            cursor = point if isinstance(point, Cursor) else Cursor.parse(point)
            number = numbers.get(cursor.recorder)
            here = false() if number is None else event.c.id == number << SEQ_BITS | cursor.seq
            found.append(and_(here, event.c.ts == cursor.ts))
        for points, before in ((self.since, False), (self.until, True)):
            for point in points:
                bound = await resolve(database, of, point)
                if bound is not None:
                    found.append(_side(bound, recorders, before=before))
        return found


def _side(bound: Cursor, recorders: list[RecorderRow], *, before: bool) -> ColumnElement[bool]:
    """Before a cursor, or from it on, in replay order."""
    same = [
        and_(event.c.id >= row.id << SEQ_BITS, event.c.id <= (row.id << SEQ_BITS | _SEQ_MASK))
        for row in recorders
        if (row.ordinal < bound.recorder if before else row.ordinal > bound.recorder)
    ]
    for row in recorders:
        if row.ordinal == bound.recorder:
            low, high = row.id << SEQ_BITS, row.id << SEQ_BITS | _SEQ_MASK
            at = row.id << SEQ_BITS | min(bound.seq, _SEQ_MASK)
            same.append(
                and_(event.c.id >= low, event.c.id < at) if before else and_(event.c.id >= at, event.c.id <= high)
            )
    tied = and_(event.c.ts == bound.ts, or_(false(), *same))
    return or_(event.c.ts < bound.ts if before else event.c.ts > bound.ts, tied)


def _raw(text: str) -> bytes:
    """The bytes that a text stands for: those of an argument that is no UTF-8 are as they were typed."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def texts(value: bytes) -> Iterator[str]:
    """All that bytes say: as text, every string in it where it is JSON, strings that hold JSON unpacked too.

    And the text with its escapes undone, level by level: around JSON, between lines of it, behind a key that is
    there twice or a nesting that is too deep to parse. Each once more as NFC, where that differs.
    """
    for text in _said(value):
        yield text
        if not text.isascii() and not unicodedata.is_normalized("NFC", text):
            yield unicodedata.normalize("NFC", text)


def _said(value: bytes) -> Iterator[str]:
    text = value.decode("utf-8", "backslashreplace")
    yield text
    undone = text
    for _ in range(LEVELS):
        before, undone = undone, _ESCAPE.sub(_unescaped, undone)
        if undone == before:
            break
        yield undone
    waiting: list[tuple[Any, int]] = [(text, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            if depth:
                yield item
            if depth < 200 and item.lstrip()[:1] in ("{", "[", '"'):
                try:
                    waiting.append((json.loads(item), depth + 1))
                except (ValueError, RecursionError):
                    continue
        elif isinstance(item, dict):
            waiting += [(part, depth) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            waiting += [(part, depth) for part in item]


def _unescaped(found: re.Match[str]) -> str:
    high, low, code, letter = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    return chr(int(code, 16)) if code else _LETTERS.get(letter, letter)


@dataclass(slots=True)
class Found:
    """The events that conditions take."""

    ids: array[int] = field(default_factory=lambda: array("q"))
    """event.id of those that are still to be redacted, ascending."""
    kinds: dict[str, int] = field(default_factory=dict)
    channels: dict[int | None, int] = field(default_factory=dict)
    """How many, by the id of the channel's name."""
    done: int = 0
    """Events that fit and were redacted before."""


async def find(
    log: EventLog,
    of: Experiment,
    chosen: RedactionFilter,
    recorders: list[RecorderRow],
    *,
    ids: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """The events of an experiment that fit, up to the last seqs of `recorders`; with `ids`, also
    redacted ones that still say who spoke to whom. In pages, so that memory stays small.

    `progress` is told how many events of how many were looked at."""
    asked = chosen.checked().matcher()
    conditions = await chosen.conditions(log.database, of, recorders)
    columns = [event.c.id, event.c.kind, event.c.channel_id, event.c.flags, event.c.from_id, event.c.to_id]
    if asked is not None:
        columns += [event.c.payload, event.c.meta, event.c.msg_id]
    found = Found()
    done, total = 0, sum(row.last_seq for row in recorders)
    for row in sorted(recorders, key=lambda row: row.id):
        async for seq in _find(log.database, row, conditions, columns, asked, found, ids=ids):
            if progress is not None:
                progress(done + seq, total)
        done += row.last_seq
    return found


async def _find(
    database: Database,
    row: RecorderRow,
    conditions: list[ColumnElement[bool]],
    columns: list[Any],
    asked: Callable[[bytes], bool] | None,
    found: Found,
    *,
    ids: bool,
) -> AsyncIterator[int]:
    """Those of one recorder; how far it got, by seq, after each page. By id, which is the order of the table: the
    replay index would be sorted for each page."""
    size = PAGE
    if asked is not None and row.payload_bytes > 0:
        size = max(10, min(PAGE, PAGE_BYTES * row.last_seq // row.payload_bytes))
    place, end = row.id << SEQ_BITS, row.id << SEQ_BITS | row.last_seq
    while True:
        query = select(*columns).where(*conditions, event.c.id > place, event.c.id <= end)
        async with database.reading() as connection:
            entries = (await connection.execute(query.order_by(event.c.id).limit(size))).all()
        for entry in entries:
            if asked is not None and not any(
                asked(part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass"))
                for part in (entry.payload, entry.meta, entry.msg_id)
                if part is not None
            ):
                continue
            if entry.flags & REDACTED and not (ids and (entry.from_id is not None or entry.to_id is not None)):
                found.done += 1
                continue
            found.ids.append(entry.id)
            kind = KINDS[entry.kind - 1]
            found.kinds[kind] = found.kinds.get(kind, 0) + 1
            found.channels[entry.channel_id] = found.channels.get(entry.channel_id, 0) + 1
        if len(entries) < size:
            return
        place = entries[-1].id
        yield place & _SEQ_MASK
