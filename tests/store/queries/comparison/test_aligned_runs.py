"""Comparison of a run with jittered, renumbered, reordered, shortened and altered copies of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Match, NewEvent, Selection, StoreError, summarise
from messager_store.log.selection import Filters
from messager_store.maintenance.removal import remove
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.projection.pages import found_pages
from messager_store.projection.selecting import Rows
from messager_store.queries.comparison import channel_differences, sequence_alignment
from messager_store.queries.comparison.compare import Comparison, Counts, compare
from messager_store.replay import ChannelMap
from tests.support.logs import filled, sent

WORDS = ["bread", "milk", "price", "market", "seven", "today", "nothing", "offer", "accept", "perhaps", "why", "never"]


def society(count: int = 120, seed: int = 3, **fields: Callable[[int], Any]) -> list[NewEvent]:
    """Return the messages of five agents, each with an id, a time and a text, on a channel per recipient."""
    dice = random.Random(seed)
    found = []
    for at in range(count):
        sender, recipient = dice.sample(range(5), 2)
        payload = {"id": f"m{at}", "t": 1000.0 + at, "content": f"{' '.join(dice.choices(WORDS, k=6))} {at}"}
        payload |= {name: value(at) for name, value in fields.items()}
        channel = f"exps:e:agents:{recipient}:chat"
        found.append(sent(at * 10, json.dumps(payload).encode(), channel, from_id=sender, to_id=recipient))
    return found


def altered(entry: NewEvent, **values: Any) -> NewEvent:
    return entry._replace(payload=json.dumps(json.loads(entry.payload) | values).encode())


async def compared(log: EventLog, a: list[NewEvent], b: list[NewEvent], **options: Any) -> Comparison:
    number = len(await log.experiments())
    for name, events in ((f"a{number}", a), (f"b{number}", b)):
        await filled(log, events, name)
    return await compare(log, f"a{number}", f"b{number}", details=1000, **options)


async def test_one_jittered_time_is_one_changed_message_and_everything_else_stays_equal(log: EventLog) -> None:
    a = society()
    b = [*a[:50], altered(a[50], t=1050.25), *a[51:]]
    result = await compared(log, a, b)
    assert result.messages == Counts(119, changed=1)
    [difference] = result.differences
    assert (difference.kind, difference.path, difference.a and difference.a.payload) == (
        "changed",
        "$.t",
        a[50].payload,
    )
    assert difference.similarity is not None and difference.similarity > 0.8
    assert (await compared(log, a, b, match=Match(ignore=["t"]))).equal


async def test_a_renumbered_copy_is_equal_without_its_ids_and_only_changed_with_them(log: EventLog) -> None:
    a, b = society(), society(id=lambda at: f"other-{at * 7919 % 1000}")
    result = await compared(log, a, b)
    assert result.messages == Counts(0, changed=120)
    assert {(one.path, one.index_a == one.index_b) for one in result.differences} == {("$.id", True)}
    without = await compared(log, a, b, match=Match(ignore=["id"]))
    assert without.equal and (without.messages, without.matched) == (Counts(120), 120)


async def test_changes_are_found_among_messages_of_which_each_has_another_time(log: EventLog) -> None:
    a, b = society(), society(t=lambda at: 1000.003 + at)
    b[40] = altered(b[40], content="something else")
    del b[70]
    b.insert(90, sent(900, b'{"content": "new"}', a[90].channel or "", from_id=a[90].from_id, to_id=a[90].to_id))
    for match in (Match(ignore=["t"]), Match(tolerance=0.01), Match(shape=["t"])):
        result = await compared(log, a, b, match=match)
        assert result.messages == Counts(118, changed=1, only_a=1, only_b=1), match
        assert [one.kind for one in result.differences] == ["changed", "only_a", "only_b"]
        assert result.differences[0].path == "$.content" and result.matched == 118
    close = await compared(log, a, b, match=Match(tolerance=0.001))
    assert close.messages.equal == 0


async def test_numbers_within_a_tolerance_align_also_where_nothing_else_tells_messages_apart(log: EventLog) -> None:
    dice = random.Random(5)
    prices = [dice.randrange(1000) for _ in range(150)]
    a = [sent(at, b'{"price": %d}' % price) for at, price in enumerate(prices)]
    b = [sent(at, b'{"price": %d.125}' % price) for at, price in enumerate(prices)]
    del b[30]
    b.insert(100, sent(100, b'{"price": 5000}'))
    result = await compared(log, a, b, match=Match(tolerance=0.2))
    assert result.messages == Counts(149, only_a=1, only_b=1)
    assert [(one.kind, one.index_a, one.index_b) for one in result.differences] == [
        *(("only_a", 30, None), ("only_b", None, 100)),
    ]


async def test_arrays_of_one_shape_are_equal_also_if_one_is_empty(log: EventLog) -> None:
    a, b = society(tags=lambda at: ["x"] * (at % 3)), society(tags=lambda at: ["y"] * ((at + 1) % 3))
    result = await compared(log, a, b, match=Match(shape=["tags"]))
    assert result.equal and result.matched == 120
    b[7] = altered(b[7], tags=[1])
    assert (await compared(log, a, b, match=Match(shape=["tags"]))).messages.changed == 1


async def test_the_first_difference_is_that_of_replay_order_and_not_of_names(log: EventLog) -> None:
    a = [sent(at, b"%d" % at, channel) for at, channel in enumerate("zyx" * 5)]
    b = [one._replace(payload=b"changed") if at in (3, 4, 11) else one for at, one in enumerate(a)]
    result = await compared(log, a, b)
    assert [one.channel for one in result.differences] == ["z", "y", "x"]
    assert [row.channel for row in result.by_channel] == ["z", "y", "x"]
    b = [*a[:6], sent(5, b"new", "new"), *a[6:12], *a[13:]]
    result = await compared(log, a, b)
    assert [(one.channel, one.kind) for one in result.differences] == [("new", "only_b"), ("z", "only_a")]


async def test_a_reordered_copy_has_moved_messages_unless_senders_are_compared_on_their_own(log: EventLog) -> None:
    a = [sent(at, b"%d" % at, "group", from_id=at % 2) for at in range(40)]
    b = list(a)
    b[10], b[11] = a[11], a[10]
    b.insert(30, b.pop(20))
    b = [one._replace(ts=at) for at, one in enumerate(b)]
    result = await compared(log, a, b)
    assert result.messages == Counts(38, moved=2)
    assert (await compared(log, a, b, by_sender=True)).messages == Counts(39, moved=1)


async def test_a_shortened_copy_lacks_what_was_left_out(log: EventLog) -> None:
    a = society()
    for b, left_out in ((a[:80], a[80:]), (a[30:], a[:30]), ([], a), (a[:20] + a[50:], a[20:50])):
        result = await compared(log, a, b)
        assert result.messages == Counts(len(b), only_a=len(left_out))
        assert sorted(one.a.payload for one in result.differences if one.a) == sorted(one.payload for one in left_out)
        mirrored = await compared(log, b, a)
        assert mirrored.messages == Counts(len(b), only_b=len(left_out))


async def test_texts_decide_which_of_several_messages_was_changed(log: EventLog) -> None:
    a = [sent(at, b"%s" % word) for at, word in enumerate([b"start", b"goes away entirely", b"the price is 5", b"end"])]
    b = [sent(at, b"%s" % word) for at, word in enumerate([b"start", b"the price is 6", b"now what?!", b"end"])]
    result = await compared(log, a, b)
    assert [(one.kind, one.index_a, one.index_b) for one in result.differences] == [
        *(("only_a", 1, None), ("changed", 2, 1), ("only_b", None, 2)),
    ]


async def test_a_redacted_message_is_equal_to_the_one_in_its_place_also_behind_a_difference(log: EventLog) -> None:
    a = [sent(at, b"secret" if at in (2, 7, 12) else b"%d" % at) for at in range(15)]
    b = [*a[:5], sent(5, b"new"), *(one._replace(ts=one.ts + 1) for one in a[5:])]
    del b[13]  # a[12] has no counterpart
    for name, events in (("a", a), ("b", b)):
        writer = await log.register(await log.create_experiment(name), role="tap")
        await log.append(writer, events)
        await log.touch(writer, ended_at=1)
    await redact(log, "a", RedactionFilter(contains=("secret",)), who="me", why="x")
    result = await compare(log, "a", "b")
    assert (result.messages, result.redacted) == (Counts(14, only_a=1, only_b=1), 2)
    assert [one.kind for one in result.differences] == ["only_b", "only_a"]
    assert (await compare(log, "a", "b", match=Match())).messages == result.messages


async def test_two_stores_and_channels_of_other_names(log: EventLog, tmp_path: Path) -> None:
    a = society()
    b = [one._replace(channel=(one.channel or "").replace("exps:e:", "exps:f:")) for one in a]
    b[33] = altered(b[33], content="changed")
    await filled(log, a, "a")
    async with EventLog.open(str(tmp_path / "other.db")) as other:
        await filled(other, b, "b")
        result = await compare(log, "a", "b", log_b=other, mapping=ChannelMap(None, "f"))
    assert result.messages == Counts(119, changed=1) and result.differences[0].path == "$.content"


async def test_names_of_redis_and_mqtt_are_the_same_also_where_messages_differ(log: EventLog) -> None:
    a = society()
    b = [one._replace(channel=(one.channel or "").replace(":", "/")) for one in a if one is not a[60]]
    result = await compared(log, a, b)
    assert result.translated and result.messages == Counts(119, only_a=1)
    [difference] = result.differences
    assert difference.channel == a[60].channel


async def test_only_so_many_differences_are_returned_and_all_are_counted(log: EventLog) -> None:
    a, b = society(), society(id=lambda at: f"other-{at}")
    await filled(log, a, "a")
    await filled(log, b, "b")
    result = await compare(log, "a", "b", details=7)
    assert [one.a and one.a.ts for one in result.differences] == [at * 10 for at in range(7)]
    assert result.messages.changed == 120 and sum(row.messages.changed for row in result.by_channel) == 120
    assert (await compare(log, "a", "b", details=0)).differences == []


async def test_a_large_channel_with_little_in_common_is_aligned_by_anchors_and_says_so(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_alignment, "CELLS", 100)
    a = [sent(at, b"a%d" % at) for at in range(200)]
    b = [sent(at, b"b%d" % at) for at in range(200)]
    b[100] = sent(100, b"a90")
    result = await compared(log, a, b)
    assert result.by_anchors == ["c"]
    assert result.messages == Counts(1, changed=189, only_a=10, only_b=10)
    b[:80] = a[:80]
    assert (await compared(log, a, b)).by_anchors == ["c"]  # what follows the common opening
    assert (await compared(log, a, [*a[:90], *b[90:100], *a[100:]])).by_anchors == []


async def test_repeated_messages_are_aligned_however_many_were_added_or_left_out(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_alignment, "CELLS", 100)
    dice = random.Random(2)
    a = [sent(at, dice.choice([b"yes", b"no"])) for at in range(400)]
    b = [one for at, one in enumerate(a) if at % 7]
    result = await compared(log, a, b)
    assert result.by_anchors == [] and result.messages.equal > 300
    again = [sent(at, dice.choice([b"yes", b"no"])) for at in range(400)]
    assert (await compared(log, a, again)).by_anchors == []


async def test_jittered_numbers_with_many_edits_on_one_channel_align_within_the_tolerance(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_alignment, "CELLS", 100)
    dice = random.Random(6)
    prices = [dice.randrange(1_000_000) for _ in range(500)]
    a = [sent(at, b'{"price": %d}' % price) for at, price in enumerate(prices)]
    b = [sent(at, b'{"price": %d.125}' % price) for at, price in enumerate(prices)]
    for at in range(4, 500, 10):
        b[at] = sent(at, b'{"price": -%d}' % (at + 1))
    del b[255:260]
    result = await compared(log, a, b, match=Match(tolerance=0.2))
    assert result.messages == Counts(445, changed=50, only_a=5)


async def test_a_selection_on_each_side_is_as_if_only_its_messages_had_been_recorded(log: EventLog) -> None:
    a, b = society(), society(t=lambda at: 1000.003 + at)
    b[40] = altered(b[40], content="something else and bread")
    del b[70]
    for name, events in (("a", a), ("b", b)):
        await filled(log, events, name)
    chosen: list[Filters] = [
        *({"grep": "bread"}, {"from_ids": 2}, {"between": (1, 2)}, {"where": "t > 1030"}, {"around": "0.5us+-200ns"}),
    ]
    for filters in chosen:
        sides = []
        for name in ("a", "b"):
            of = await log.experiment(name)
            pages = found_pages(log, of, Selection(**filters), Rows.MESSAGES)
            found = [entry async for page in pages for entry in page]
            sides.append([sent(one.ts, one.payload, one.channel or "") for one in found])
        expected = await compared(log, *sides)
        assert (await compare(log, "a", "b", details=1000, **filters)).messages == expected.messages, filters
        assert expected.messages_a and expected.messages_b


@pytest.mark.parametrize("filters", [{"last_per": "channel"}, {"grep": "bread", "context": 1}])
async def test_a_selection_that_leaves_the_order_is_refused(log: EventLog, filters: Any) -> None:
    for name in ("a", "b"):
        await filled(log, society(5), name)
    with pytest.raises(StoreError, match="compared in order"):
        await compare(log, "a", "b", **filters)
    with pytest.raises(StoreError, match="compared in order"):
        await summarise(log, "a", "b", **filters)


async def test_an_experiment_that_is_removed_meanwhile_ends_the_comparison_with_an_error(log: EventLog) -> None:
    a = society(10)
    await filled(log, a, "a")
    of_b = await filled(log, [*a[:5], altered(a[5], content="changed")], "b")

    async def judge(expected: object, actual: object) -> bool:
        await remove(log, of_b)
        return False

    with pytest.raises(StoreError, match="events of b were removed"):
        await compare(log, "a", "b", match=Match(judge=judge))


async def test_beyond_the_limit_of_texts_messages_are_paired_in_order(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_differences, "MOST_IN_ALL", 3)
    a = [sent(at, word) for at, word in enumerate([b"start", b"goes away", b"the price is 5", b"end"])]
    b = [sent(at, word) for at, word in enumerate([b"start", b"the price is 6", b"now what?!", b"end"])]
    assert (await compared(log, a, b)).messages == Counts(2, changed=2)


async def test_random_edits_of_a_society_are_found_on_many_channels(log: EventLog) -> None:
    dice = random.Random(9)
    a = society(600)
    b: list[NewEvent] = []
    made: Counts = Counts()
    for at, one in enumerate(a):
        what = dice.choice(["change", "leave out", "add"]) if at % 30 == 0 else "keep"
        if what == "change":
            b.append(altered(one, content=f"{json.loads(one.payload)['content']}, changed"))
            made += Counts(changed=1)
        elif what == "leave out":
            made += Counts(only_a=1)
        else:
            b.append(one)
            made += Counts(equal=1)
        if what == "add":
            b.append(altered(one, content="an addition that is like nothing else"))
            made += Counts(only_b=1)
    assert (await compared(log, a, b)).messages == made


async def test_records_have_a_row_for_each_difference(log: EventLog) -> None:
    a = society(20)
    b = [*a[:5], altered(a[5], content="another text"), *a[6:19]]
    result = await compared(log, a, b)
    changed, missing = result.records()
    assert list(changed) == ["channel", "kind", "index_a", "index_b", "text_a", "text_b", "path", "similarity"]
    assert (changed["kind"], changed["channel"], changed["path"]) == ("changed", a[5].channel, "$.content")
    assert (changed["text_a"], changed["text_b"]) == (json.loads(a[5].payload)["content"], "another text")
    assert changed["index_a"] == changed["index_b"] == sum(one.channel == a[5].channel for one in a[:5])
    assert changed["similarity"] == result.differences[0].similarity
    text = json.loads(a[19].payload)["content"]
    nothing = dict.fromkeys(("index_b", "text_b", "path", "similarity"))
    index = sum(one.channel == a[19].channel for one in a[:19])
    assert missing == nothing | {"channel": a[19].channel, "kind": "only_a", "index_a": index, "text_a": text}
