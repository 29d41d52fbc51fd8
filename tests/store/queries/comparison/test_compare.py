"""Comparison of two experiments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from messager_store import EventLog, Match, NewEvent
from messager_store.log.selection import Selection
from messager_store.queries.comparison.compare import Comparison, Counts, compare
from messager_store.replay import ChannelMap
from tests.support import messager, nightly_after
from tests.support.logs import filled, sent


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
    difference, following = result.differences
    assert (difference.channel, difference.kind, difference.index_a, difference.index_b) == ("x", "changed", 2, 2)
    assert (following.kind, following.index_a, following.index_b, following.before) == ("changed", 3, 3, None)
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
    found = [(d.channel, d.kind, d.index_a, d.index_b, (d.a or d.b or sent(0)).payload) for d in result.differences]
    assert sorted(found[:2]) == [("only a", "only_a", 0, None, b"1"), ("short", "only_b", None, 1, b"2")]
    assert sorted(found[2:]) == [("only b", "only_b", None, 0, b"1"), ("short", "only_b", None, 2, b"3")]
    assert result.messages == Counts(1, 0, 0, 1, 3)
    assert {(row.channel, row.messages_a, row.messages_b) for row in result.by_channel} == {
        *(("short", 1, 3), ("only a", 1, 0), ("only b", 0, 1))
    }


async def test_an_order_that_changed_within_a_channel_differs_but_not_across_channels(log: EventLog) -> None:
    result = await compared(
        log,
        run(("x", b"1"), ("x", b"2"), ("y", b"3"), ("z", b"4")),
        run(("z", b"4"), ("y", b"3"), ("x", b"2"), ("x", b"1")),
    )
    [difference] = result.differences
    assert (difference.channel, difference.kind) == ("x", "moved")
    assert (difference.index_a, difference.index_b) in [(0, 1), (1, 0)]
    assert result.messages == Counts(3, moved=1)


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
    nightly_after(
        4,
        [
            (["exps:a:agents:1:x", "noise a"], ["exps:b:agents:1:x", "noise b"], ("a", "b")),
            (["exps:a:agents:1:x"], ["exps:b 2:agents:1:x"], None),  # no name that --to-exp takes
            (["exps:a:agents:1:x", "both"], ["exps:b:agents:1:x", "both"], ("a", "b")),
            (["exps:a:agents:1:x"], ["exps/b/agents/1/x"], ("a", "b")),
            (["exps:a:agents:1:x"], ["exps:b:agents:2:x"], None),
            (["exps:a:agents:1:x"], ["exps:a:agents:2:x"], None),
            (["exps:a:agents:1:x"], ["exps:b:agents:1:x", "exps:c:agents:1:x"], None),
            (["x"], ["y"], None),
            (["exps:a:agents:1:x"], [], None),
        ],
    ),
)
async def test_channels_that_their_exp_ids_keep_apart_are_compared_as_the_same(
    log: EventLog, of_a: list[str], of_b: list[str], found: tuple[str, str] | None
) -> None:
    a, b = (run(*((channel, b"1") for channel in side)) for side in (of_a, of_b))
    result = await compared(log, a, b)
    assert result.exp_ids == found and (found is None or result.messages.equal > 0)
    apart = await compare(log, "a", "b", keep_names=True)
    assert apart.exp_ids is None and apart.messages.equal == len({*of_a} & {*of_b})
    assert (await compare(log, "a", "b", mapping=ChannelMap(None, "a"))).exp_ids is None


async def by_match(log: EventLog, match: Match | None, a: list[bytes], b: list[bytes]) -> Comparison:
    """Compare one channel under a match, in new experiments."""
    number = len(await log.experiments())
    names = [f"a{number}", f"b{number}"]
    for name, payloads in zip(names, (a, b), strict=True):
        await filled(log, run(*(("x", payload) for payload in payloads)), name)
    return await compare(log, *names, match=match)


async def test_payloads_are_compared_byte_for_byte_unless_there_is_a_match(log: EventLog) -> None:
    a, b = [b'{"id": 1, "n": 1}', b'{"id": 2}'], [b'{"n": 1.0, "id": 1}', b'{"id": 2}']
    for match in (None, Match(bytes_only=True)):
        result = await by_match(log, match, a, b)
        assert [difference.path for difference in result.differences] == ["$.n"] and result.matched == 0
    result = await by_match(log, Match(), a, b)
    assert result.equal and result.matched == 1 and "(1 equal by value, not byte for byte)" in str(result)


async def test_a_match_says_which_messages_are_equal_and_where_the_first_unequal_ones_differ(log: EventLog) -> None:
    match = Match(ignore=["id", "**.t"])
    a = [json.dumps({"id": at, "said": f"s{at}", "at": {"t": at}}).encode() for at in range(6)]
    b = [json.dumps({"id": -at, "said": f"s{at}", "at": {"t": -at}}).encode() for at in range(6)]
    assert (await by_match(log, match, a, b)).matched == 5  # the first is equal byte for byte
    b[3] = b[3].replace(b"s3", b"other")
    b[4] = b[4].replace(b"s4", b"other")
    result = await by_match(log, match, a, b)
    difference, following = result.differences
    assert (difference.index_a, difference.path, result.matched) == (3, "$.said", 3)
    assert (following.index_a, following.path, result.messages) == (4, "$.said", Counts(4, changed=2))
    found = (difference.before, difference.a, difference.b, difference.a_next, difference.b_next)
    assert [entry and entry.payload for entry in found] == [a[2], a[3], b[3], a[4], b[4]]
    assert dict(difference.lines())["~"].endswith('similar, differs in $.said: "s3" in A, "other" in B')


async def test_a_match_holds_also_when_one_side_is_ahead_and_for_messages_that_moved(log: EventLog) -> None:
    a = [("x", b"%d" % at) for at in range(50)]
    b = [("x", b"%d.0" % at) for at in range(50)]
    other = [("y", b"1")] * 50
    await filled(log, run(*a, *other), "a")
    await filled(log, run(*other, *b), "b")
    result = await compare(log, "a", "b", match=Match())
    assert result.equal and result.matched == 50
    await filled(log, run(*other, *b[1:], b[0]), "moved")
    [difference] = (await compare(log, "a", "moved", match=Match())).differences
    assert (difference.channel, difference.kind, difference.index_a, difference.index_b) == ("x", "moved", 0, 49)
    assert difference.a_next is not None and difference.b_next is None
    assert difference.a_next.payload == b"1"


async def test_paths_that_no_payload_of_either_side_has_are_returned(log: EventLog) -> None:
    a = [b"no json", b'{"same": 1}', b'{"id": 1, "only_a": 1}', b'{"items": [{"n": 1}, 2]}', b"1"]
    b = [b"\xff", b'{"same": 1}', b'{"id": 1}', b'{"items": []}', b'{"text": "{\\"t\\": 1}", "only_b": 1}']
    for ignore, shape, absent in [
        (["id", "$.id", "id"], [], []),
        (["ids", "a.b"], ["x", "ids"], ["ids", "a.b", "x"]),
        (["$"], ["**"], []),
        (["only_a"], ["only_b"], []),
        (["id.**", "id.**.x", "**.t", "items.*.n"], ["items[1]", "items[2]"], ["id.**.x", "items[2]"]),
        (["text.t", "text.u"], ["t"], ["text.u", "t"]),
        (["same", "Same"], ["redacted"], ["Same", "redacted"]),
    ]:
        assert (await by_match(log, Match(ignore=ignore, shape=shape), a, b)).absent_paths == absent


async def test_payloads_too_deep_for_python_have_no_paths(log: EventLog) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    inner = json.dumps({"a": deep.decode(), "id": 1}).encode()
    assert (await by_match(log, Match(ignore=["[0]"]), [deep], [deep])).absent_paths == ["[0]"]
    assert (await by_match(log, Match(ignore=["a", "a[0]", "id"]), [inner], [inner])).absent_paths == ["a[0]"]


async def test_a_judge_decides_what_the_other_rules_do_not_accept(log: EventLog) -> None:
    asked = []

    async def judge(expected: object, actual: object) -> bool:
        asked.append((expected, actual))
        return "no" not in str(actual)

    match = Match(judge=judge)
    result = await by_match(log, match, [b'"hi"', b'"a"', b'"b"', b'"c"'], [b'"hello"', b'"a"', b'"no"', b'"d"'])
    [difference] = result.differences
    assert (difference.index_a, result.messages, result.matched) == (2, Counts(3, changed=1), 2)
    assert asked == [("hi", "hello"), ("b", "no"), ("c", "d")]
    assert (await by_match(log, Match(bytes_only=True, judge=judge), [b"x"], [b"y"])).equal


async def test_a_message_without_a_counterpart_differs_under_any_match(log: EventLog) -> None:
    result = await by_match(log, Match(ignore=["**"]), [b"1", b"2"], [b"3"])
    [difference] = result.differences
    assert (difference.kind, difference.index_a, difference.path, difference.b) == ("only_a", 1, None, None)


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
    apart = json.loads(messager("diff", "a", "b 1", "--keep-names", "--json", cwd=tmp_path).stdout)
    assert (apart["messages"]["only_a"], apart["messages"]["only_b"], apart["to_exp"]) == (1, 1, None)
    together = ("diff", "a", "b 1")
    done = messager(*together, cwd=tmp_path)
    assert done.stderr == "channels of a are compared as channels of b (--keep-names turns that off)\n"
    assert done.returncode == 1 and "x: changed, message 1 of 1 in A, 1 of 1 in B\n" in done.stdout
    assert "similar, differs in $.items[0].name: …" in done.stdout and 'blue" in A, …' in done.stdout
    assert "lorem " * 600 not in done.stdout
    assert messager(*together, "--full", cwd=tmp_path).stdout.count("lorem " * 600) == 4
    found = json.loads(messager(*together, "--json", cwd=tmp_path).stdout)
    [difference] = found["differences"]
    assert [difference[key] for key in ("kind", "path")] == ["changed", "$.items[0].name"]
    assert 0.8 < difference["similarity"] < 1 and found["messages"]["changed"] == 1
    assert found["to_exp"] == "b"
    assert messager(*together, "--to-exp", "b", cwd=tmp_path).stdout == done.stdout


def test_the_verb_takes_the_options_of_a_match(tmp_path: Path) -> None:
    for exp, payload in (("a", {"id": 1, "n": 1.0, "said": "hi"}), ("b", {"n": 1.2, "said": "ho", "id": 2})):
        line = {"ts": 1, "channel": "x", "payload": json.dumps(payload)}
        (tmp_path / "run.jsonl").write_text(json.dumps(line) + "\n")
        assert messager("import", "run.jsonl", "--exp", exp, cwd=tmp_path).returncode == 0

    def diff(*options: str) -> tuple[int, str]:
        done = messager("diff", "a", "b", *options, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    code, diff_of_all = diff("--ignore", "id", "--tolerance", "0.5", "--shape", "said")
    assert code == 0
    code, text = diff("--ignore", "id", "--tolerance", "0.5")
    assert code == 1 and 'similar, differs in $.said: "hi" in A, "ho" in B\n' in text
    code, text = diff("--tolerance", "0")
    assert code == 1 and "similar, differs in $.id: 1 in A, 2 in B\n" in text
    code, text = diff("--ignore", "id", "--ignore", "**.n", "--shape", "said", "--json")
    assert code == 0 and json.loads(text)["matched"] == 1
    assert diff()[0] == diff("--bytes")[0] == 1
    assert diff("--ignore", "$.id", "--tolerance", "0.5", "--shape", '$["said"]') == (0, diff_of_all)
    code, text = diff("--ignore", "$.id", "--ignore", "ids", "--shape", "Said", "--shape", "n")
    assert code == 1 and text.endswith(
        "no JSON payload that was compared has ids, Said: check these paths of --ignore and --shape\n"
    )
    code, text = diff("--ignore", "**", "--ignore", "ids")
    assert code == 0 and text.count("no JSON payload that was compared has ids:") == 1
    code, text = diff("--ignore", "**", "--json")
    assert code == 0 and json.loads(text)["absent_paths"] == []
    code, text = diff("--framework", "agentscope", "--ignore", "n", "--ignore", "ids", "--shape", "said")
    assert code == 0 and "no JSON payload that was compared has ids:" in text
    for wrong in (
        ["--framework", "autogen"],
        ["--ignore", "a..b"],
        ["--tolerance", "-1"],
        ["--bytes", "--tolerance", "0"],
        ["--bytes", "--shape", "x"],
    ):
        code, text = diff(*wrong)
        assert code == 2 and "Traceback" not in text, text


async def test_by_sender_the_order_between_the_senders_of_a_channel_makes_no_difference(log: EventLog) -> None:
    def by(*said: tuple[object, bytes]) -> list[NewEvent]:
        return [sent(at, payload, "x")._replace(from_id=sender) for at, (sender, payload) in enumerate(said)]

    await filled(log, by((3, b"a"), (7, b"b"), (3, b"c"), (7, b"d")), "a")
    await filled(log, by((7, b"b"), (7, b"d"), (3, b"a"), (3, b"c")), "b")
    await filled(log, by((3, b"a"), (7, b"d"), (7, b"b"), (3, b"c")), "c")
    await filled(log, by((3, b"a"), ("7", b"b"), (3, b"c"), ("7", b"d")), "d")
    assert not (await compare(log, "a", "b")).equal
    found = await compare(log, "a", "b", by_sender=True)
    assert found.equal and (found.channels, found.messages_a) == (2, 4)
    assert "4 messages, of 2 sender and channel pairs" in str(found)
    [difference] = (await compare(log, "a", "c", by_sender=True)).differences
    assert (difference.channel, difference.sender, difference.kind) == ("x", "7", "moved")
    assert difference.title in [f"x, from 7: moved, message {a} of 2 in A, {b} of 2 in B" for a, b in [(1, 2), (2, 1)]]
    other_type = await compare(log, "a", "d", by_sender=True, match=Match())
    assert sorted((one.sender, one.kind) for one in other_type.differences) == [
        *[('"7"', "only_b")] * 2,
        *[("7", "only_a")] * 2,
    ]


async def test_by_sender_a_side_that_knows_no_senders_is_compared_without_them(log: EventLog) -> None:
    talk = [sent(at, b"%d" % at, "c" if at < 6 else "d", from_id=at % 2) for at in range(9)]
    await filled(log, talk, "a")
    await filled(log, [one._replace(from_id=None) if one.channel == "c" else one for one in talk], "b")
    found = await compare(log, "a", "b", by_sender=True)
    assert (found.equal, found.messages.equal, found.channels) == (True, 9, 3)  # c, and d by two senders


async def test_runs_that_share_little_are_told_from_those_that_differ_a_little(log: EventLog) -> None:
    for name, mark in (("a", b"a"), ("b", b"b"), ("almost", b"a")):
        await filled(log, [sent(at, mark + b"%d" % at) for at in range(20)] + [sent(99, name.encode())], name)
    assert (await compare(log, "a", "b")).shares_little
    assert not (await compare(log, "a", "almost")).shares_little
