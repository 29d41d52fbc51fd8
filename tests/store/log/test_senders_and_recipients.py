"""Selection of events by sender and recipient, in all commands that select events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent
from messager_store.db.codes import FROM_DERIVED, TO_DERIVED
from messager_store.log.reading import count
from messager_store.log.selection import Selection
from messager_store.log.span import Span
from messager_store.queries.comparison.compare import Comparison, compare
from messager_store.recording.closing import close
from tests.support import messager, nightly_after
from tests.support.command_line import one_line
from tests.support.logs import filled, sent

SAID = [
    sent(1, b"a", from_id=3, to_id=7),
    sent(2, b"b", from_id=7, to_id=3),
    sent(3, b"c", from_id="3", to_id=7),
    sent(4, b"d", to_id=7),
    sent(5, b"e", from_id=3),
    NewEvent("mark", 6, None, b"", meta={"name": "tick", "fields": {}}),
    NewEvent("received", 7, "c", b"f", 3, 7, FROM_DERIVED | TO_DERIVED),
    sent(8, b"g", from_id=3, to_id="7"),
]
CHOSEN: list[tuple[dict[str, Any], list[int]]] = [
    ({"from_ids": [3]}, [1, 5, 7, 8]),
    ({"from_ids": 3}, [1, 5, 7, 8]),
    ({"from_ids": "3"}, [3]),
    ({"from_ids": [3, "3"]}, [1, 3, 5, 7, 8]),
    ({"to_ids": [7]}, [1, 3, 4, 7]),
    ({"from_ids": 3, "to_ids": 7}, [1, 7]),
    ({"from_ids": 3, "agents": "7"}, [8]),
    ({"from_ids": [3, "3"], "to_ids": [7, "7"], "kinds": "sent"}, [1, 3, 8]),
    ({"from_ids": "nobody"}, []),
    ({"from_ids": [None]}, [4]),
    ({"to_ids": [None]}, [5]),
    ({"from_ids": []}, []),
]


async def test_events_are_chosen_by_sender_and_recipient_with_their_type(log: EventLog) -> None:
    of = await filled(log, SAID)
    for filters, times in CHOSEN:
        assert [entry.ts async for entry in log.read(of, **filters)] == times
        chosen = Selection(**filters)
        assert await count(log.database, of, chosen, Span()) == len(times)
        await close(log, of, force=True)
        assert [entry.ts async for entry in log.tail(of) if chosen.takes(entry)] == times


def changed(**more: Any) -> list[NewEvent]:
    """Return the same messages, with one in the middle changed and from another agent."""
    return [sent(1, b"1", from_id=3), sent(2, from_id=4, to_id=5, **more), sent(3, b"3", from_id=3)]


@pytest.mark.parametrize(
    ("options", "equal"),
    nightly_after(
        4,
        [
            ({}, False),
            ({"selection": Selection(from_ids=3)}, True),
            ({"selection": Selection(from_ids=4)}, False),
            ({"selection": Selection(to_ids=5)}, False),
            ({"selection": Selection(agents=3)}, True),
            ({"selection": Selection(kinds="blocked")}, True),
            ({"since": 3}, True),
            ({"since": 2}, False),
            ({"after": 2}, True),
            ({"until": 2}, True),
            ({"until": "1s"}, False),
            ({"limit": 1}, True),
            ({"limit": 2}, False),
        ],
    ),
)
async def test_two_experiments_are_compared_by_what_every_filter_takes_of_both(
    log: EventLog, options: dict[str, Any], equal: bool
) -> None:
    await filled(log, changed(payload=b"2"), "a")
    await filled(log, changed(payload=b"other"), "b")
    result: Comparison = await compare(log, "a", "b", **options)
    assert result.equal == equal, str(result)


async def test_points_are_looked_for_on_each_side(log: EventLog) -> None:
    for exp_id, at in (("a", 0), ("b", 1000)):
        mark = NewEvent("mark", at + 2, None, b"", meta={"name": "go", "fields": {}})
        await filled(log, [sent(at + 1, exp_id.encode()), mark, sent(at + 3, b"same")], exp_id)
    assert (await compare(log, "a", "b", since="mark:go")).equal
    assert not (await compare(log, "a", "b", until="mark:go")).equal
    assert (await compare(log, "a", "b", until="0")).messages_a == 0


async def test_senders_are_compared_across_kinds_of_broker(log: EventLog) -> None:
    """Channels have two separators there, and filters apply to both."""
    for exp_id, channel in (("a", "exps:e:agents:1:x"), ("b", "exps/e/agents/1/x")):
        noise = sent(2, exp_id.encode(), channel, from_id=4, to_id=1)
        await filled(log, [sent(1, b"1", channel, from_id=3, to_id=1), noise], exp_id)
    whole = await compare(log, "a", "b")
    assert whole.translated and not whole.equal
    result = await compare(log, "a", "b", selection=Selection(from_ids=3, channels="exps/e/*"))
    assert result.translated and result.equal and result.messages_b == 1
    assert (await compare(log, "a", "b", selection=Selection(to_ids=2))).messages_b == 0


Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    for name, noise in (("a", "hm"), ("b", "well")):
        lines: list[dict[str, Any]] = [
            {"ts": 1, "channel": "c", "from_id": 3, "to_id": 7, "payload": "1"},
            {"ts": 2, "channel": "c", "from_id": 7, "to_id": "3", "payload": noise},
            {"ts": 3, "channel": "c", "from_id": "3", "to_id": 7, "payload": "3"},
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert messager("import", f"{name}.jsonl", "--exp", name, cwd=tmp_path).returncode == 0
    return lambda *arguments: messager(*arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "times"),
    nightly_after(
        2,
        [
            (["--from", "3"], [1, 3]),
            (["--from", '"3"'], [3]),
            (["--to", "7"], [1, 3]),
            (["--to", "3"], [2]),
            (["--from", "3", "--from", "7", "--to", "7"], [1, 3]),
            (["--from", "7", "--to", "7"], []),
            (["--agent", "3", "--from", "7"], [2]),
        ],
    ),
)
def test_each_verb_that_selects_takes_senders_and_recipients_as_typed(
    run: Run, words: list[str], times: list[int]
) -> None:
    for more in ([], ["--follow"], ["--messages"]):
        done = run("events", "a", *words, *more, "--json")
        assert [json.loads(line)["ts"] for line in done.stdout.splitlines()] == times, (more, done.stderr)
    lines = run("export", "a", "-o", "-", *words).stdout.splitlines()[1:]
    assert [json.loads(line)["ts"] for line in lines] == times
    planned = json.loads(run("replay", "a", *words, "--dry-run", "--json").stdout)
    assert (planned["planned"], planned["skipped"]) == (len(times), 3 - len(times))
    done = run("diff", "a", "b", *words, "--json")
    if times:
        found = json.loads(done.stdout)
        assert (found["messages_a"], found["equal"], done.returncode) == (len(times), 2 not in times, int(2 in times))
    else:
        one_line(done, 2, "nothing to compare")
