"""Deliveries: the receptions of each sending. A side table for analysis, filled at closing."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import select

from ..db.database import Database
from ..db.schema import KINDS, REDACTED, SEQ_BITS, delivery, event, place_at, recorder, replay_place

_SENT, _RECEIVED, _GAP = (KINDS.index(kind) + 1 for kind in ("sent", "received", "gap"))
WITHIN_NS = 60_000_000_000
"""Maximum time from a sending to its reception; a later reception belongs to another message."""
PAGE = 2000

_Key = tuple[int | None, bytes]
"""Channel and digest of the payload."""


async def fill(database: Database, experiment_id: int) -> None:
    """Fill the deliveries of an experiment that is closed or about to be closed. May be repeated.

    The same payload may be sent on a channel more than once: the first reception by a listener is matched with
    the first sending, its second reception with the second, and so on. Only sendings since the listener began, or
    since its last gap, are matched.
    """
    counters = (recorder.c.sent_count, recorder.c.received_count, recorder.c.started_at, recorder.c.first_ts)
    async with database.reading() as connection:
        query = select(recorder.c.id, *counters).where(recorder.c.experiment_id == experiment_id)
        recorders = (await connection.execute(query)).all()
    if not any(row.sent_count for row in recorders) or not any(row.received_count for row in recorders):
        return
    began = {row.id: row.started_at for row in recorders if row.first_ts is not None and row.started_at <= row.first_ts}
    matching = _Matching(began)
    columns = (event.c.id, event.c.ts, event.c.kind, event.c.channel_id, event.c.payload, event.c.meta)
    wanted = select(*columns).where(event.c.experiment_id == experiment_id, event.c.kind.in_((_SENT, _RECEIVED, _GAP)))
    wanted = wanted.where(event.c.flags.op("&")(REDACTED) == 0)  # redacted events have the same, empty payload
    place: tuple[int, int] | None = None
    while True:
        page = wanted if place is None else wanted.where(replay_place > place_at(*place))
        async with database.reading() as connection:
            rows = (await connection.execute(page.order_by(event.c.ts, event.c.id).limit(PAGE))).all()
        for row in rows:
            if row.kind == _GAP:
                matching.since[row.id >> SEQ_BITS] = row.ts
            elif row.kind == _SENT:
                matching.sent(row.id, row.ts, (row.channel_id, sha256(row.payload).digest()))
            elif row.meta is None or not json.loads(row.meta).get("retained"):  # no copy of an earlier message
                matching.received(row.id, row.ts, (row.channel_id, sha256(row.payload).digest()))
        found, matching.found = matching.found, []
        if found:
            async with database.writing() as connection:
                await connection.execute(database.dialect.insert_or_ignore(delivery), found)
        if len(rows) < PAGE:
            return
        place = (rows[-1].ts, rows[-1].id)


@dataclass(slots=True)
class _Sending:
    id: int
    ts: int


class _Matching:
    """Matches receptions with the sendings of the last minute, by channel and payload."""

    def __init__(self, since: dict[int, int]) -> None:
        self.found: list[dict[str, int]] = []
        """Rows of the side table."""
        self.since = since
        """By listener, the time from which sendings may be received by it."""
        self._sendings: dict[_Key, deque[_Sending]] = {}
        self._received: dict[_Key, dict[int, int]] = {}
        """By listener, the number of those sendings that it has received."""
        self._old: deque[tuple[int, _Key]] = deque()

    def sent(self, number: int, ts: int, key: _Key) -> None:
        """Add a sending; events come in replay order."""
        self._expire(ts)
        self._sendings.setdefault(key, deque()).append(_Sending(number, ts))
        self._old.append((ts, key))

    def received(self, number: int, ts: int, key: _Key) -> None:
        """Match a reception with the next sending that its listener has not received yet."""
        self._expire(ts)
        listener = number >> SEQ_BITS
        sendings = self._sendings.get(key)
        if sendings is None:
            return
        received = self._received.setdefault(key, {})
        nth, since = received.get(listener, 0), self.since.get(listener)
        while since is not None and nth < len(sendings) and sendings[nth].ts < since:
            nth += 1
        received[listener] = min(nth + 1, len(sendings))
        if nth < len(sendings):
            self.found.append({"event_id": number, "sending_id": sendings[nth].id, "received_at": ts})

    def _expire(self, now: int) -> None:
        while self._old and now - self._old[0][0] > WITHIN_NS:
            key = self._old.popleft()[1]
            sendings = self._sendings[key]
            sendings.popleft()
            if not sendings:
                del self._sendings[key]
                self._received.pop(key, None)
                continue
            received = self._received.get(key, {})
            for listener in received:
                received[listener] = max(received[listener] - 1, 0)
