"""Comparison of two experiments."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from messager_store import EventLog, NewEvent
from messager_store.log.selection import Selection
from messager_store.queries.compare import Comparison, compare
from messager_store.replay import ChannelMap
from tests.support import messager
from tests.support.logs import filled, sent

pytestmark = pytest.mark.any_database


def run(*pairs: tuple[str, bytes]) -> list[NewEvent]:
    return [sent(at, payload, channel) for at, (channel, payload) in enumerate(pairs)]


async def compared(log: EventLog, a: list[NewEvent], b: list[NewEvent]) -> Comparison:
    await filled(log, a, "a")
    await filled(log, b, "b")
    return await compare(log, "a", "b")


async def test_the_same_payloads_on_every_channel_are_equal_whatever_their_times(log: EventLog) -> None:
    a = run(("x", b"1"), ("y", b"1"), ("x", b"2"))
    b = [sent(900, b"1", "y"), sent(1000, b"1", "x"), sent(1001, b"2", "x")]
    result = await compared(log, a, b)
    assert result.equal
    assert (result.messages_a, result.messages_b, result.channels, result.same) == (3, 3, 2, 2)


async def test_the_first_difference_is_named_with_its_neighbours(log: EventLog) -> None:
    result = await compared(
        log,
        run(("x", b"1"), ("x", b"2"), ("x", b"3"), ("x", b"4"), ("y", b"same")),
        run(("x", b"1"), ("x", b"2"), ("x", b"three"), ("x", b"vier"), ("y", b"same")),
    )
    [difference] = result.differences
    assert (difference.channel, difference.index) == ("x", 2)
    found = (difference.before, difference.a, difference.b, difference.a_next, difference.b_next)
    assert [entry and entry.payload for entry in found] == [b"2", b"3", b"three", b"4", b"vier"]
    assert (result.same, result.channels) == (1, 2)
    assert (difference.messages_a, difference.messages_b) == (4, 4)


async def test_a_channel_that_ends_early_or_is_missing_differs(log: EventLog) -> None:
    result = await compared(
        log,
        run(("short", b"1"), ("only a", b"1")),
        run(("short", b"1"), ("short", b"2"), ("short", b"3"), ("only b", b"1")),
    )
    found = {d.channel: (d.index, d.a and d.a.payload, d.b and d.b.payload) for d in result.differences}
    assert found == {"short": (1, None, b"2"), "only a": (0, b"1", None), "only b": (0, None, b"1")}
    short = next(d for d in result.differences if d.channel == "short")
    assert (short.messages_a, short.messages_b) == (1, 3)
    assert short.before is not None and short.b_next is not None and short.b_next.payload == b"3"


async def test_an_order_that_changed_within_a_channel_differs_but_not_across_channels(log: EventLog) -> None:
    result = await compared(
        log,
        run(("x", b"1"), ("x", b"2"), ("y", b"3"), ("z", b"4")),
        run(("z", b"4"), ("y", b"3"), ("x", b"2"), ("x", b"1")),
    )
    assert [difference.channel for difference in result.differences] == ["x"]


async def test_any_single_change_is_found(log: EventLog) -> None:
    dice = random.Random(4)
    a = [sent(at, b"%d" % dice.randrange(5), f"c{dice.randrange(6)}") for at in range(400)]
    await filled(log, a, "a")
    for number in range(12):
        at = dice.randrange(len(a))
        b = list(a)
        b[at] = b[at]._replace(payload=b"changed")
        await filled(log, b, f"b{number}")
        result = await compare(log, "a", f"b{number}")
        place = [entry.channel for entry in a[:at]].count(a[at].channel)
        assert [(d.channel, d.index) for d in result.differences] == [(a[at].channel, place)]


async def test_renamed_channels_and_filters(log: EventLog, tmp_path: Path) -> None:
    await filled(log, run(("exps:a:agents:1:x", b"1"), ("noise", b"1")), "a")
    async with EventLog.open(str(tmp_path / "other.db")) as other:
        await filled(other, run(("exps:b:agents:1:x", b"1")), "b")
        result = await compare(
            log, "a", "b", log_b=other, selection=Selection(None, None, ["noise"]), mapping=ChannelMap(None, "b")
        )
    assert result.equal and result.channels == 1


@pytest.mark.parametrize(
    ("of_a", "of_b", "found"),
    [
        (["exps:a:agents:1:x", "noise a"], ["exps:b:agents:1:x", "noise b"], ("a", "b")),
        (["exps:a:agents:1:x"], ["exps:b 2:agents:1:x"], None),  # no name that --to-exp takes
        (["exps:a:agents:1:x", "both"], ["exps:b:agents:1:x", "both"], None),
        (["exps:a:agents:1:x"], ["exps:b:agents:2:x"], None),
        (["exps:a:agents:1:x"], ["exps:a:agents:2:x"], None),
        (["exps:a:agents:1:x"], ["exps:b:agents:1:x", "exps:c:agents:1:x"], None),
        (["x"], ["y"], None),
        (["exps:a:agents:1:x"], [], None),
    ],
)
async def test_channels_that_only_their_exp_ids_keep_apart_are_known_as_such(
    log: EventLog, of_a: list[str], of_b: list[str], found: tuple[str, str] | None
) -> None:
    a, b = (run(*((channel, b"1") for channel in side)) for side in (of_a, of_b))
    assert (await compared(log, a, b)).exp_ids == found
    assert (await compare(log, "a", "b", mapping=ChannelMap(None, "a"))).exp_ids is None


async def test_progress_is_told_in_messages_of_both_sides(log: EventLog) -> None:
    seen: list[int] = []
    await filled(log, [sent(at) for at in range(1500)], "a")
    await filled(log, [sent(at) for at in range(1600)], "b")
    await compare(log, "a", "b", progress=seen.append)
    assert seen == [1000, 2000, 3000]


def test_the_verb_says_where_two_runs_differ_and_how_they_compare(tmp_path: Path) -> None:
    for exp, end in (("a", "blue"), ("b 1", "red")):
        payload = json.dumps({"items": [{"name": "lorem " * 600 + end}]})
        line = {"ts": 1, "channel": f"exps:{exp[0]}:agents:1:x", "payload": payload}
        (tmp_path / "run.jsonl").write_text(json.dumps(line) + "\n")
        assert messager("import", "run.jsonl", "--exp", exp, cwd=tmp_path).returncode == 0
    apart = messager("diff", "a", "b 1", cwd=tmp_path)
    assert apart.returncode == 1
    assert apart.stderr.endswith("A has channels of a, B of b; compare them with --to-exp b\n")
    together = ("diff", "a", "b 1", "--to-exp", "b")
    done = messager(*together, cwd=tmp_path)
    assert done.stderr == "" and "message 1 (A has 1, B 1)\n" in done.stdout
    assert "~ differs at character 3,622, in $.items[0].name\n" in done.stdout and "lorem " * 600 not in done.stdout
    assert messager(*together, "--full", cwd=tmp_path).stdout.count("lorem " * 600) == 2
    found = json.loads(messager(*together, "--json", cwd=tmp_path).stdout)
    [difference] = found["differences"]
    assert [difference[key] for key in ("path", "messages_a", "messages_b")] == ["$.items[0].name", 1, 1]
    assert found["to_exp"] is None
    assert json.loads(messager("diff", "a", "b 1", "--json", cwd=tmp_path).stdout)["to_exp"] == "b"
