"""The longest silence of each agent, pair and channel, and who stopped."""

from __future__ import annotations

from typing import Any

import pytest

from messager_store import EventLog, NewEvent, Selection, silences
from tests.support.logs import filled, sent

SAID = [(0, 1, 2), (10, 2, 1), (30, 1, 2), (35, 1, None), (40, "1", 2), (45, None, 2), (70, 1, 2)]
"""Time, sender and recipient."""


@pytest.mark.parametrize(
    ("filters", "rows", "end"),
    [
        ({}, [((2,), 1, 90, 10, None), (("1",), 1, 60, 40, None), ((1,), 4, 35, 35, 70)], 100),
        ({"until": 50}, [((2,), 1, 35, 10, None), ((1,), 3, 30, 0, 30), (("1",), 1, 5, 40, None)], 45),
        (
            {"by": "pair"},
            [
                ((2, 1), 1, 90, 10, None),
                ((1, None), 1, 65, 35, None),
                (("1", 2), 1, 60, 40, None),
                ((1, 2), 3, 40, 30, 70),
            ],
            100,
        ),
        ({"by": "channel"}, [(("c",), 7, 30, 70, None)], 100),
        ({"from_ids": [3]}, [], None),
    ],
)
async def test_a_silence_lasts_to_the_next_message_or_to_the_end(
    log: EventLog, filters: dict[str, Any], rows: list[Any], end: int | None
) -> None:
    events = [sent(1000 + ts, str(ts).encode(), from_id=one, to_id=other) for ts, one, other in SAID]
    of = await filled(log, [*events, NewEvent("mark", 1100, None, b"", meta={"name": "end", "fields": {}})])
    by, given = filters.get("by", "agent"), {name: value for name, value in filters.items() if name != "by"}
    if "until" in given:
        given["until"] = f"{1000 + given['until']}:1:1"
    found = await silences(log, of, Selection(**given), by=by)
    shown = [(row.key, row.messages, row.longest, row.since, row.until) for row in found.rows]
    assert shown == [
        (key, number, longest, 1000 + since, None if until is None else 1000 + until)
        for key, number, longest, since, until in rows
    ]
    assert found.end == (None if end is None else 1000 + end)
