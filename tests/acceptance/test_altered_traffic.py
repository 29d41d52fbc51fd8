"""Traffic of realistic size, and copies of it with edits: `diff` finds what was edited, and nothing else.

Set MESSAGER_TEST_DATA to a folder of `.jsonl.gz` files to use those instead of generated ones (see `support.traffic`).
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from messager_store import EventLog, Match, NewEvent
from messager_store.queries.comparison.compare import compare
from tests.support.traffic import FILES, lines_of, made

EDITS = 60


def events_of(path: Path) -> list[NewEvent]:
    """Return the messages of a file in replay order."""
    return [
        NewEvent("sent", line["ts"], line["channel"], line["payload"].encode(), line["from_id"], line["to_id"])
        for line in sorted(lines_of(path), key=lambda line: int(line["ts"]))
    ]


def numbered(events: list[NewEvent], run: str) -> list[NewEvent]:
    """Return the messages as another run would have them: each with an id and a time of the run."""
    dice = random.Random(run)
    ends = (
        b', "run_id": "%08x", "clock": %f}' % (dice.getrandbits(32), at + dice.random() / 1000)
        for at in range(len(events))
    )
    return [one._replace(payload=one.payload.rstrip()[:-1] + end) for one, end in zip(events, ends, strict=True)]


def edited(
    events: list[NewEvent], payloads: Counter[tuple[str | None, bytes]], original: list[NewEvent], dice: random.Random
) -> tuple[list[NewEvent], Counter[tuple[str, str | None]]]:
    """Return a copy with edits, and how many of each kind there are on each channel.

    No two edits are next to each other on a channel. Only messages change whose original payload is there once.
    """
    before: dict[str | None, int] = {}
    places = set(dice.sample(range(len(events)), min(EDITS, len(events) // 8)))
    made_: Counter[tuple[str, str | None]] = Counter()
    found: list[NewEvent] = []
    for at, one in enumerate(events):
        number = before[one.channel] = before.get(one.channel, 0) + 1
        if at not in places or number % 2 or payloads[one.channel, original[at].payload] > 1:
            found.append(one)
            continue
        kind = dice.choice(["changed", "only_a", "only_b"])
        made_[kind, one.channel] += 1
        if kind == "changed":
            found.append(one._replace(payload=one.payload[:-1] + b" altered %d" % at + one.payload[-1:]))
        elif kind == "only_b":
            found += [one._replace(payload=b'{"content": "added %d"}' % at), one]
    return found, made_


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("match", [None, Match(ignore=["run_id"], tolerance=0.01)], ids=["altered", "another-run"])
@pytest.mark.parametrize("file", FILES or [None], ids=lambda file: file.name if file else "made")
async def test_an_altered_copy_differs_in_what_was_altered(
    log: EventLog, tmp_path: Path, file: Path | None, match: Match | None
) -> None:
    original = events_of(file or made(tmp_path, 6000))
    a, copied = (original, original) if match is None else (numbered(original, "a"), numbered(original, "b"))
    payloads = Counter((one.channel, one.payload) for one in original)
    b, expected = edited(copied, payloads, original, random.Random(4))
    for name, events in (("a", a), ("b", b)):
        of = await log.create_experiment(name)
        writer = await log.register(of, role="tap")
        for at in range(0, len(events), 5000):
            await log.append(writer, events[at : at + 5000])
    result = await compare(log, "a", "b", match=match, details=1000)
    assert Counter((one.kind, one.channel) for one in result.differences) == expected
    assert expected and result.messages.differing == expected.total()
    assert result.messages.equal == len(a) - sum(n for (kind, _), n in expected.items() if kind != "only_b")
    assert not result.by_anchors
