"""Deliveries: the receptions of each sending. A side table for analysis, filled at closing."""

from __future__ import annotations

import json
from hashlib import sha256

from sqlalchemy import select

from ..db.database import Database
from ..db.schema import KINDS, REDACTED, SEQ_BITS, delivery, event, place_at, recorder, replay_place
from ..log.matching import Matching

_SENT, _RECEIVED, _GAP = (KINDS.index(kind) + 1 for kind in ("sent", "received", "gap"))
PAGE = 2000


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
    matching = Matching(began)
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
