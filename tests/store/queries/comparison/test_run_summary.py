"""Figures of several runs beside each other."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.town import Town
from messager_store import EventLog, Match, NewEvent, Selection, StoreError, delays, summarise
from messager_store.replay import ChannelMap
from tests.store.queries.test_delays import replies_of
from tests.support import messager
from tests.support.logs import experiment, filled, listed, sent

SECOND = 1_000_000_000


def society(seed: int, count: int = 90) -> list[NewEvent]:
    """Return messages of three agents; the first ten are the same in every run."""
    dice = random.Random(seed)
    same = random.Random(0)
    found: list[NewEvent] = []
    ts = 0
    for at in range(count):
        source = same if at < 10 else dice
        sender, recipient = source.sample([1, 2, "3"], 2)
        ts += source.randrange(1, 5) * SECOND
        payload = json.dumps({"content": f"{at} {source.random()}"}).encode()
        found.append(sent(ts, payload, f"exps:e{seed}:agents:{recipient}:chat", from_id=sender, to_id=recipient))
    return found


def figures(events: list[NewEvent]) -> tuple[Counter[str], dict[str, float]]:
    """Return the messages of each pair, and the median time of its answers, computed on their own."""
    counts: Counter[str] = Counter()
    times: dict[str, list[int]] = {}
    for at, one in enumerate(events):
        counts[f"{one.from_id!r} {one.to_id!r}"] += 1
        for earlier in reversed(events[:at]):
            if (earlier.from_id, earlier.to_id) == (one.from_id, one.to_id):
                break
            if (earlier.from_id, earlier.to_id) == (one.to_id, one.from_id):
                times.setdefault(f"{one.from_id!r} {one.to_id!r}", []).append(one.ts - earlier.ts)
                break
    return counts, {pair: statistics.median_low(found) / 1e9 for pair, found in times.items()}


async def test_messages_and_delays_of_each_pair_are_those_of_the_events_of_each_run(log: EventLog) -> None:
    runs = [society(seed) for seed in (1, 2, 3)]
    for seed, events in zip((1, 2, 3), runs, strict=True):
        await filled(log, events, f"e{seed}")
    result = await summarise(log, "e1", "e2", "e3", mapping=ChannelMap(None, "e3"))
    expected = [figures(events) for events in runs]
    assert [run.exp_id for run in result.runs] == ["e1", "e2", "e3"]
    assert [run.messages for run in result.runs] == [90] * 3 and [run.agents for run in result.runs] == [3] * 3
    assert [run.duration_s for run in result.runs] == [(run[-1].ts - run[0].ts) / 1e9 for run in runs]
    assert len(result.pairs) == 6
    for pair in result.pairs:
        key = f"{pair.from_id!r} {pair.to_id!r}"
        assert pair.channel == f"exps:e3:agents:{pair.to_id}:chat"
        assert pair.messages == tuple(counts[key] for counts, _ in expected)
        assert pair.delays_s == tuple(delays.get(key) for _, delays in expected)
        low, high = sorted(pair.messages[:2])
        now = pair.messages[2]
        assert pair.range == (low, high) and pair.outside == (now - low if now < low else max(now - high, 0))
        known = [delay for delay in pair.delays_s[:2] if delay is not None]
        assert pair.delay_range == ((min(known), max(known)) if known else None)
        last = pair.delays_s[2]
        if last is not None and known:
            assert pair.delay_outside == (last - min(known) if last < min(known) else max(last - max(known), 0))
    assert any(pair.delay_outside for pair in result.pairs)
    changes = [abs(pair.outside) for pair in result.pairs]
    assert changes == sorted(changes, reverse=True) and result.outside == sum(map(bool, changes)) > 0


async def test_delays_are_those_of_the_replies_that_the_sender_gave(log: EventLog) -> None:
    """Compared with the replies by their definition, from the raw events of towns whose receptions are recorded."""
    expected = []
    for seed in (1, 2):
        town = Town(f"town{seed}", seed)
        town.play()
        await town.write(log)
        times: dict[tuple[Any, ...], list[int]] = {}
        for entry, _, time in replies_of(await listed(log.read(f"town{seed}"))):
            channel = (entry.channel or "").replace(f"town{seed}", "town2")
            times.setdefault((channel, entry.from_id, entry.to_id), []).append(time)
        expected.append({key: statistics.median_low(found) / 1e9 for key, found in times.items()})
    result = await summarise(log, "town1", "town2")
    found = [
        {(p.channel, p.from_id, p.to_id): p.delays_s[at] for p in result.pairs if p.delays_s[at] is not None}
        for at in (0, 1)
    ]
    assert found == expected and all(len(each) > 5 for each in expected)
    whole = await delays(log, await log.experiment("town2"), replies=True)
    p50 = {row.key: row.p50 / 1e9 for row in whole.rows}
    assert p50 == {(who, to): delay for (_, who, to), delay in expected[1].items()}


async def test_experiments_are_indexed_so_that_receptions_without_ids_begin_a_delay(log: EventLog) -> None:
    for exp in ("a", "b"):
        of = await experiment(log, exp)
        first, second = [await log.register(of, role="messager", row={"started_at": -SECOND}) for _ in range(2)]
        await log.append(first, [sent(0, b"ask", from_id=1, to_id=2, messager="x", arrival=0)])
        answer = sent(3 * SECOND, b"answer", from_id=2, to_id=1, messager="y", arrival=1)
        await log.append(second, [NewEvent("received", SECOND, "c", b"ask", messager="y", arrival=1), answer])
    result = await summarise(log, "a", "b")
    assert {(pair.from_id, pair.delays_s) for pair in result.pairs} == {(1, (None, None)), (2, (2.0, 2.0))}


async def test_a_limit_selects_messages_and_the_replies_among_them(log: EventLog) -> None:
    events = [sent(at * SECOND, f"{at}".encode(), from_id=at % 2, to_id=1 - at % 2) for at in range(6)]
    for exp in ("a", "b"):
        await filled(log, events, exp)
    for limit, expected in ((1, [None]), (2, [None, 1.0]), (6, [1.0, 1.0])):
        result = await summarise(log, "a", "b", limit=limit)
        assert [pair.delays_s[1] for pair in sorted(result.pairs, key=lambda pair: pair.from_id)] == expected
        assert sum(pair.messages[1] for pair in result.pairs) == limit
    blocked = await summarise(log, "a", "b", kinds="sent")
    assert {pair.delays_s for pair in blocked.pairs} == {(None, None)}


async def test_the_common_opening_is_counted_over_all_channels_for_each_baseline(log: EventLog) -> None:
    for seed in (1, 2):
        await filled(log, society(seed), f"e{seed}")
    await filled(log, society(2)[:40], "short")
    whole = await summarise(log, "e1", "short", "e2", mapping=ChannelMap(None, "e2"))
    assert [run.opening for run in whole.runs] == [10, 40, None]
    assert await summarise(log, "e1", "short", "e2") == whole  # the exp_ids count as the same
    apart = await summarise(log, "e1", "e2", keep_names=True)
    assert [run.opening for run in apart.runs] == [0, None]
    everything = await summarise(log, "e1", "e2", mapping=ChannelMap(None, "e2"), match=Match(ignore=["content"]))
    assert everything.runs[0].opening is not None and everything.runs[0].opening >= 10


async def test_a_selection_counts_on_each_side_and_one_run_is_refused(log: EventLog, tmp_path: Path) -> None:
    await filled(log, society(1), "e1")
    async with EventLog.open(str(tmp_path / "other.db")) as other:
        await filled(other, society(1)[:60], "e2")
        result = await summarise(log, "e1", "e2", log_last=other, selection=Selection(from_ids=1))
    [run, last] = result.runs
    assert run.messages == sum(one.from_id == 1 for one in society(1))
    assert last.messages == sum(one.from_id == 1 for one in society(1)[:60])
    assert {pair.from_id for pair in result.pairs} == {1}
    with pytest.raises(StoreError, match="give the baselines"):
        await summarise(log, "e1")


async def test_the_spread_of_the_baselines_is_the_range(log: EventLog) -> None:
    for exp, number in (("a", 3), ("b", 5), ("within", 4), ("above", 9), ("below", 1)):
        await filled(log, [sent(at * SECOND, b"x", from_id=1, to_id=2) for at in range(number)], exp)
    for exp, outside in (("within", 0), ("above", 4), ("below", -2)):
        result = await summarise(log, "a", "b", exp)
        assert [pair.outside for pair in result.pairs] == [outside] and result.outside == bool(outside)


def test_the_verb_prints_the_pairs_that_changed_most_and_ends_with_one_if_there_are_any(tmp_path: Path) -> None:
    def imported(exp: str, *pairs: tuple[int, int]) -> None:
        lines: list[dict[str, Any]] = [
            {"ts": at * SECOND, "channel": "c", "from_id": a, "to_id": b, "payload": f"{at}"}
            for at, (a, b) in enumerate(pairs)
        ]
        (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert messager("import", "run.jsonl", "--exp", exp, cwd=tmp_path).returncode == 0

    imported("a", (1, 2), (2, 1))
    imported("b", (1, 2), (2, 1), (1, 2))
    imported("new", (1, 2), (2, 1), (2, 1), (2, 1))
    done = messager("diff", "--summary", "a", "b", "new", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[0] == "outside  new against a, b: 1 of 2 pairs outside of the range of messages"
    assert [line.split() for line in lines[2:6]] == [
        ["RUN", "MESSAGES", "DURATION", "CHANNELS", "AGENTS", "OPENING"],
        ["a", "2", "1", "s", "1", "2", "2"],
        ["b", "3", "2", "s", "1", "2", "2"],
        ["new", "4", "3", "s", "1", "2", "-"],
    ]
    assert [line.split() for line in lines[8:]] == [
        ["2", "1", "c", "1", "3", "+2", "1", "s", "1", "s"],
        ["1", "2", "c", "1", "to", "2", "1", "1", "s", "-"],
    ]
    assert messager("diff", "--summary", "a", "b", "b", cwd=tmp_path).returncode == 0
    found = json.loads(messager("diff", "--summary", "a", "new", "--json", cwd=tmp_path).stdout)
    assert [(pair["from_id"], pair["messages"], pair["outside"]) for pair in found["pairs"]] == [
        *((2, [1, 3], 2), (1, [1, 1], 0)),
    ]
    for words in (("a", "b", "new"), ("--summary", "a", "b", "--full"), ("--summary", "a", "b", "--channel", "none")):
        wrong = messager("diff", *words, cwd=tmp_path)
        assert wrong.returncode == 2 and "Traceback" not in wrong.stderr, wrong.stderr
