"""All messages of a comparison side by side."""

from __future__ import annotations

import random

from messager_store import EventLog, NewEvent
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries.comparison.compare import Comparison, Counts, compare
from messager_store.queries.comparison.rows import AlignedRows, RowRun
from tests.support.logs import filled, sent


def run(text: str) -> list[NewEvent]:
    """Return messages from words `channel:payload`, or payloads on one channel."""
    words = [word.rpartition(":") for word in text.split()]
    return [sent(at, payload.encode(), channel or "c") for at, (channel, _, payload) in enumerate(words)]


async def aligned(log: EventLog, a: list[NewEvent], b: list[NewEvent]) -> tuple[list[RowRun], Comparison]:
    number = len(await log.experiments())
    for name, events in ((f"a{number}", a), (f"b{number}", b)):
        await filled(log, events, name)
    rows = AlignedRows()
    result = await compare(log, f"a{number}", f"b{number}", details=1, rows=rows)
    return list(rows.runs()), result


async def shown(log: EventLog, a: str, b: str) -> list[str]:
    """Return the rows as text: `=`, `~`, `>`, `a` or `b`, and the payloads of A and B."""
    runs, _ = await aligned(log, run(a), run(b))
    signs = {"equal": "=", "changed": "~", "moved": ">", "only_a": "a", "only_b": "b"}
    found = []
    for kind, at_a, at_b, length in runs:
        for more in range(length):
            words = [words.split()[at + more] for words, at in ((a, at_a), (b, at_b)) if at is not None]
            found.append(" ".join([signs[kind], *dict.fromkeys(words)]))
    return found


async def test_two_equal_runs_are_one_run_of_rows(log: EventLog) -> None:
    words = "x:1 y:1 x:2 y:2 z:1"
    assert (await aligned(log, run(words), run(words)))[0] == [RowRun("equal", 0, 0, 5)]
    assert (await aligned(log, [], []))[0] == []


async def test_every_kind_of_row_stands_in_the_order_of_both_sides(log: EventLog) -> None:
    assert await shown(log, "1 2 3 4 5", "1 2 neu 3 5 6") == ["= 1", "= 2", "b neu", "= 3", "a 4", "= 5", "b 6"]
    assert await shown(log, "1 2 3", "1 zwei 3") == ["= 1", "~ 2 zwei", "= 3"]
    assert await shown(log, "1 2 3 4", "1 n1 n2 n3 2 3 4") == ["= 1", "b n1", "b n2", "b n3", "= 2", "= 3", "= 4"]
    assert await shown(log, "", "1 2") == ["b 1", "b 2"]
    assert await shown(log, "1 2", "") == ["a 1", "a 2"]


async def test_a_moved_message_stands_where_the_first_of_both_sides_has_it(log: EventLog) -> None:
    assert await shown(log, "1 2 3 4 5", "1 5 2 3 4") == ["= 1", "> 5", "= 2", "= 3", "= 4"]
    assert await shown(log, "1 2 3 4 5", "1 3 4 5 2") == ["= 1", "> 2", "= 3", "= 4", "= 5"]


async def test_what_only_b_has_stands_among_the_messages_of_other_channels_where_b_has_it(log: EventLog) -> None:
    a = "x:1 y:1 x:2 y:2 x:3 y:3"
    b = "x:1 y:1 neu:1 x:2 neu:2 y:2 x:3 y:3 neu:3"
    assert await shown(log, a, b) == [
        *("= x:1", "= y:1", "b neu:1", "= x:2", "b neu:2", "= y:2", "= x:3", "= y:3", "b neu:3"),
    ]
    # the messages of x before it in B are behind its neighbours in A
    assert await shown(log, "y:1 y:2 x:1 x:2", "y:1 x:1 x:2 y:neu y:2") == [
        *("= y:1", "b y:neu", "= y:2", "= x:1", "= x:2"),
    ]
    # x is late in B: what only B has on y still stands between its neighbours on y
    assert await shown(log, "x:1 x:2 y:1 y:2", "y:1 y:neu y:2 x:1 x:2") == [
        *("= x:1", "= x:2", "= y:1", "b y:neu", "= y:2"),
    ]


async def test_a_redacted_message_is_equal_to_its_counterpart(log: EventLog) -> None:
    for name in ("a", "b"):
        writer = await log.register(await log.create_experiment(name), role="tap")
        await log.append(writer, run("1 2 3"))
        await log.touch(writer, ended_at=1)
    await redact(log, "a", RedactionFilter(contains=("2",)), who="me", why="asked")
    rows = AlignedRows()
    result = await compare(log, "a", "b", rows=rows)
    assert list(rows.runs()) == [RowRun("equal", 0, 0, 3)] and result.redacted == 1


async def test_every_message_has_one_row_and_those_of_a_channel_stay_in_order(log: EventLog) -> None:
    dice = random.Random(4)
    for _ in range(20):
        a = [f"{dice.choice('xyz')}:{dice.randrange(12)}" for _ in range(dice.randrange(60))]
        b = [word for word in a if dice.random() < 0.8]
        for _ in range(dice.randrange(12)):
            b.insert(dice.randrange(len(b) + 1), f"{dice.choice('xyzw')}:{dice.randrange(14)}")
        runs, result = await aligned(log, run(" ".join(a)), run(" ".join(b)))
        rows = [
            (kind, None if at_a is None else at_a + more, None if at_b is None else at_b + more)
            for kind, at_a, at_b, length in runs
            for more in range(length)
        ]
        assert sorted(at for _, at, _ in rows if at is not None) == list(range(len(a)))
        assert sorted(at for _, _, at in rows if at is not None) == list(range(len(b)))
        kinds = [kind for kind, _, _ in rows]
        assert Counts(*map(kinds.count, ("equal", "moved", "changed", "only_a", "only_b"))) == result.messages
        for kind, at_a, at_b in rows:
            if at_a is not None and at_b is not None:
                assert (a[at_a] == b[at_b]) == (kind != "changed") and a[at_a][0] == b[at_b][0]
        assert [at for kind, at, _ in rows if at is not None and kind != "moved"] == sorted(
            at for kind, at, _ in rows if at is not None and kind != "moved"
        )
        for channel in "xyzw":
            places = [
                at for kind, _, at in rows if at is not None and b[at][0] == channel and kind in ("equal", "only_b")
            ]
            assert places == sorted(places)
