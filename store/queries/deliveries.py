"""When each sending was first received: a side table for analysis, made when an experiment is closed."""

from __future__ import annotations

import json
from collections import deque
from hashlib import sha256

from sqlalchemy import select

from ..db.database import Database
from ..db.schema import KINDS, REDACTED, SEQ_BITS, delivery, event, place_at, recorder, replay_place

_SENT, _RECEIVED, _GAP = (KINDS.index(kind) + 1 for kind in ("sent", "received", "gap"))
WITHIN_NS = 60_000_000_000
"""A reception later than this after the sending is taken for that of another message."""
PAGE = 2000

_Key = tuple[int | None, bytes]


async def work_out(database: Database, experiment_id: int) -> None:
    """Fill the deliveries of an experiment that is closed, or is about to be. Does nothing where it heard or said
    nothing, and nothing a second time.

    The same bytes may go over a channel more than once: what a listener received first is taken
    for the first sending of them, what it received second for the second, and so on; of those since
    it began, or since its last gap.
    """
    listeners = select(
        *(recorder.c.id, recorder.c.sent_count, recorder.c.received_count, recorder.c.started_at, recorder.c.first_ts)
    ).where(recorder.c.experiment_id == experiment_id)
    async with database.reading() as connection:
        kept = (await connection.execute(listeners)).all()
    if not any(row.sent_count for row in kept) or not any(row.received_count for row in kept):
        return
    began = {row.id: row.started_at for row in kept if row.first_ts is not None and row.started_at <= row.first_ts}
    matching = _Matching(began)
    columns = (event.c.id, event.c.ts, event.c.kind, event.c.channel_id, event.c.payload, event.c.meta)
    wanted = select(*columns).where(event.c.experiment_id == experiment_id, event.c.kind.in_((_SENT, _RECEIVED, _GAP)))
    wanted = wanted.where(event.c.flags.op("&")(REDACTED) == 0)  # all of them have the same, empty payload
    place: tuple[int, int] | None = None
    while True:
        page = wanted if place is None else wanted.where(replay_place > place_at(*place))
        async with database.reading() as connection:
            rows = (await connection.execute(page.order_by(event.c.ts, event.c.id).limit(PAGE))).all()
        for number, ts, kind, channel, payload, meta in rows:
            if meta is not None and kind == _RECEIVED and json.loads(meta).get("retained"):
                continue  # a broker's copy of something said before, and no delivery of it
            if kind == _GAP:
                matching.since[number >> SEQ_BITS] = ts
            else:
                matching.take(number, ts, kind, (channel, sha256(payload).digest()))
        found, matching.found = matching.found, []
        if found:
            async with database.writing() as connection:
                await connection.execute(database.dialect.insert_or_ignore(delivery), found)
        if len(rows) < PAGE:
            return
        place = (rows[-1][1], rows[-1][0])


class _Matching:
    """Sendings of the last minute, by channel and bytes, and how many each listener has heard."""

    def __init__(self, since: dict[int, int]) -> None:
        self.found: list[dict[str, int]] = []
        self.since = since
        """By listener, which sendings it may hear: those not before this moment."""
        self._sent: dict[_Key, deque[list[int]]] = {}  # [id, listeners that heard it, ts]
        self._heard: dict[_Key, dict[int, int]] = {}  # by listener, how many of those sendings
        self._old: deque[tuple[int, _Key]] = deque()

    def take(self, number: int, ts: int, kind: int, key: _Key) -> None:
        """The next event in replay order."""
        while self._old and ts - self._old[0][0] > WITHIN_NS:
            self._forget(self._old.popleft()[1])
        if kind == _SENT:
            self._sent.setdefault(key, deque()).append([number, 0, ts])
            self._old.append((ts, key))
            return
        sendings = self._sent.get(key)
        if sendings is None:
            return
        heard = self._heard.setdefault(key, {})
        listener = number >> SEQ_BITS
        nth, since = heard.get(listener, 0), self.since.get(listener)
        while since is not None and nth < len(sendings) and sendings[nth][2] < since:
            nth += 1
        heard[listener] = min(nth + 1, len(sendings))
        if nth < len(sendings):
            if not sendings[nth][1]:
                self.found.append({"event_id": sendings[nth][0], "received_at": ts})
            sendings[nth][1] += 1

    def _forget(self, key: _Key) -> None:
        """The oldest sending of these bytes is over a minute old."""
        sendings = self._sent[key]
        sendings.popleft()
        if not sendings:
            del self._sent[key]
            self._heard.pop(key, None)
            return
        heard = self._heard.get(key, {})
        for listener in heard:
            heard[listener] = max(heard[listener] - 1, 0)
