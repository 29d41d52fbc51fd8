"""Answers about traffic of realistic size equal those computed from the file itself.

Set MESSAGER_TEST_DATA to a folder of `.jsonl.gz` files to use those instead of generated ones (see `support.traffic`).
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Experiment, Selection, count, delays, import_jsonl
from messager_store.arrow.batches import table
from messager_store.log.messages import selected_pages
from messager_store.queries.index import index
from tests.support.traffic import FILES, lines_of, made

Line = dict[str, Any]


def identity(value: Any) -> str:
    """Return a value as JSON: 5 is not "5"."""
    return json.dumps(value)


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def text_of(line: Line) -> str:
    """Return what a line says, by the rule of docs/querying.md#sql for these files."""
    try:
        value = json.loads(line["payload"])
    except ValueError:
        return str(line["payload"])
    text = value.get("content", value.get("text", value.get("message")))
    return text if isinstance(text, str) else json.dumps(value, ensure_ascii=False)


class Traffic:
    """A file, and the experiment that was imported from it."""

    def __init__(self, log: EventLog, of: Experiment, lines: list[Line]) -> None:
        self.log = log
        self.of = of
        self.lines = sorted(lines, key=lambda line: line["ts"])
        """In replay order: equal times keep the order of the file."""

    async def found(self, **filters: Any) -> list[tuple[int, str]]:
        pages = selected_pages(self.log, self.of, Selection(**filters), messages=True)
        return [(entry.ts, entry.payload.decode()) async for page in pages for entry in page]

    def places(self, lines: list[Line]) -> list[tuple[int, str]]:
        return [(line["ts"], line["payload"]) for line in lines]


@pytest.fixture(params=FILES or [None], ids=lambda file: file.name if file else "made")
async def traffic(log: EventLog, tmp_path: Path, request: pytest.FixtureRequest) -> Traffic:
    source = request.param or made(tmp_path, 6_000)
    of = await import_jsonl(log, source, "e")
    await index(log, of)
    return Traffic(log, of, lines_of(source))


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_every_answer_equals_the_one_computed_from_the_file(traffic: Traffic) -> None:
    await _mentions(traffic)
    await _people(traffic)
    await _moments(traffic)
    await _numbers(traffic)
    await _replies(traffic)
    await _table(traffic)


async def _mentions(traffic: Traffic) -> None:
    """Every mention of words, of two characters and more, in any script."""
    texts = [text_of(line) for line in traffic.lines]
    words = {folded(text[at : at + size]) for text in texts[:: len(texts) // 5] for at, size in ((0, 2), (3, 5))}
    for word in sorted(word for word in words if word.strip()):
        wanted = [line for line, text in zip(traffic.lines, texts, strict=True) if word in folded(text)]
        assert await traffic.found(grep=word) == traffic.places(wanted), word


async def _people(traffic: Traffic) -> None:
    """The messages of one sender, and of one number in their payloads."""
    who = traffic.lines[len(traffic.lines) // 3]["from_id"]
    same = [line for line in traffic.lines if line["from_id"] == who and type(line["from_id"]) is type(who)]
    assert await traffic.found(from_ids=[who]) == traffic.places(same)
    numbered = [line for line in traffic.lines if (json.loads(line["payload"]).get("n") or 0) > 1000]
    assert await traffic.found(where="n > 1000") == traffic.places(numbered)


async def _moments(traffic: Traffic) -> None:
    """The state in the middle, and a minute around it."""
    middle = traffic.lines[len(traffic.lines) // 2]["ts"]
    for per, key in (("channel", "channel"), ("agent", "from_id")):
        last = {json.dumps(line[key]): line for line in traffic.lines if line["ts"] < middle}
        at = [line for line in traffic.lines if last.get(json.dumps(line[key])) is line]
        assert await traffic.found(last_per=per, until=middle) == traffic.places(at)
    near = [line for line in traffic.lines if abs(line["ts"] - middle) <= 60_000_000_000]
    assert await traffic.found(around=f"{middle}+-1m") == traffic.places(near)


async def _numbers(traffic: Traffic) -> None:
    """Who talks to whom, the rate of each channel, and a field of payloads: from `activity`, and from the events."""
    day = 86_400_000_000_000
    dimensions: list[tuple[tuple[str, str], Callable[[Line], Any]]] = [
        (("from", "to"), lambda line: (line["from_id"], line["to_id"])),
        (("channel", "day"), lambda line: (line["channel"], line["ts"] // day * day)),
        (("channel", "7s"), lambda line: (line["channel"], line["ts"] // 7_000_000_000 * 7_000_000_000)),
        (("from", "$.n"), lambda line: (line["from_id"], json.loads(line["payload"]).get("n"))),
    ]
    for by, values in dimensions:
        found = await count(traffic.log, traffic.of, by)
        rows = {json.dumps(row.keys): row.messages for row in found}
        assert rows == Counter(json.dumps(values(line)) for line in traffic.lines), by


async def _replies(traffic: Traffic) -> None:
    """How fast agents answer, by the messages alone: nothing in a file says what was heard."""
    times: dict[Any, list[int]] = defaultdict(list)
    open_since: dict[tuple[str, str], int] = {}
    for line in traffic.lines:
        pair = identity(line["from_id"]), identity(line["to_id"])
        if line["from_id"] is None or line["to_id"] is None or pair[0] == pair[1]:
            continue
        asked = open_since.pop((pair[1], pair[0]), None)
        if asked is not None:
            times[pair].append(line["ts"] - asked)
        open_since[pair] = line["ts"]
    found = await delays(traffic.log, traffic.of, replies=True)
    assert {row.basis for row in found.rows} <= {"next"}
    assert {(identity(row.key[0]), identity(row.key[1])): (row.number, row.max) for row in found.rows} == {
        pair: (len(each), max(each)) for pair, each in times.items()
    }


async def _table(traffic: Traffic) -> None:
    """The table of pyarrow has each message, as the file has it."""
    made = await table(traffic.log, traffic.of, Selection())
    columns = {name: made.column(name).to_pylist() for name in ("ts", "payload", "text", "channel")}
    assert columns == {
        "ts": [line["ts"] for line in traffic.lines],
        "payload": [line["payload"].encode() for line in traffic.lines],
        "text": [text_of(line) for line in traffic.lines],
        "channel": [line["channel"] for line in traffic.lines],
    }
