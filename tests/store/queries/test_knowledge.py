"""What an agent could have known before an event: the examples of the page (`js/knowledge.test.js`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from messager_store import EventLog, Experiment, NewEvent, Selection, known_to
from messager_store.log.event import Cursor
from messager_store.projection.query import projected
from messager_store.view.columns import Names, chunk
from messager_store.view.shown import Reader
from tests.support import programs
from tests.support.logs import filled, sent

READER = Path(__file__).parents[1] / "view" / "js" / "read_heard.js"

GROUP: list[tuple[str, str | None, str | None, int | None, list[tuple[str, int]]]] = [
    ("boss", None, "D", 0, [("G", 1), ("H", 1)]),
    ("x", "b", "H", 1, [("G", 2)]),
    ("x", "a", "H", 1, [("G", 3)]),
    ("a", "x", "G", 3, [("H", 2)]),
    ("b", "x", "G", 3, [("H", 3)]),
    ("y", "x", "H", 3, []),
    ("boss", None, "D", 0, [("G", 4), ("H", 4)]),
    ("a", None, "G", 3, []),
    ("z", "b", None, None, [("D", 1), ("G", 5), ("H", 5)]),
    ("boss", None, "D", 1, []),
    ("b", None, "G", 5, []),
]
"""Sender, recipient, Messager, what had been fetched, and receptions: two groups of agents, each with one Messager. The
sending of a sender without a Messager was not recorded."""


async def group(log: EventLog) -> Experiment:
    events: list[NewEvent] = []
    for at, (one, other, messager, heard, receptions) in enumerate(GROUP):
        text = str(at).encode()
        if messager is not None:
            events.append(sent(10 * at, text, from_id=one, to_id=other, messager=messager, arrival=heard))
        events += [
            NewEvent("received", 10 * at + 1, "c", text, one, other, messager=by, arrival=number)
            for by, number in receptions
        ]
    return await filled(log, events)


@pytest.mark.parametrize(
    ("agent", "row", "known", "basis"),
    [
        ("a", 3, [0, 2], "heard"),
        ("b", 4, [0, 1], "heard"),
        ("y", 5, [0], "heard"),
        ("x", 5, [0, 1, 2, 3, 4], "delivered"),
        ("a", 7, [0, 2, 3], "heard"),
        ("b", 7, [0, 1, 4, 6], "delivered"),
        ("boss", 7, [0, 6], "delivered"),
        ("boss", 9, [0, 6, 8], "heard"),
        ("b", 10, [0, 1, 4, 6, 8], "heard"),
    ],
)
async def test_an_agent_knows_what_its_messager_handed_over_to_it_and_what_it_sent(
    log: EventLog, agent: str, row: int, known: list[int], basis: str
) -> None:
    of = await group(log)
    [cursor] = [entry.cursor async for entry in log.read(of, kinds="sent", grep=str(row))]
    found = await known_to(log, of, [agent], cursor)
    assert ([int(entry.payload) for entry in found.messages], found.basis) == (known, basis)


async def test_without_receptions_all_that_could_have_informed_it_is_known(log: EventLog) -> None:
    said = [("a", None, "hall"), ("b", None, "hall"), ("a", None, "cellar"), ("c", "b", "inbox"), ("b", None, "cellar")]
    events = [sent(at, b"%d" % at, channel, from_id=one, to_id=other) for at, (one, other, channel) in enumerate(said)]
    of = await filled(log, events)
    for row, known in ((3, [0, 1]), (4, [0, 1, 2, 3])):
        found = await known_to(log, of, ["b"], Cursor(row, 1, row + 1))
        assert ([entry.ts for entry in found.messages], found.basis) == (known, "before")


async def test_the_page_says_the_same_of_every_sender(log: EventLog, tmp_path: Path) -> None:
    of = await group(log)
    async with projected(log, of) as here:
        [shown] = [shown async for shown in Reader(log, of, here, Selection()).chunks(100, 1 << 30)]
    (tmp_path / "chunk").write_bytes(chunk(shown, Names()).packed())
    command = [programs.node(), "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", str(READER), str(tmp_path / "chunk")]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    by_page = dict(map(json.loads, done.stdout.splitlines()))
    assert len(by_page) == len([messager for _, _, messager, _, _ in GROUP if messager is not None])
    async for entry in log.read(of, kinds="sent"):
        found = await known_to(log, of, [entry.from_id], entry.cursor)
        heard = {str(one.cursor) for one in found.messages if one.from_id != entry.from_id}
        assert heard == set(by_page[str(entry.cursor)]), entry
