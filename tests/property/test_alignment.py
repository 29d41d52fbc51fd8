"""A comparison finds the edits that were made, or fewer that have the same result."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store import EventLog, Match
from messager_store.queries.comparison import sequence_alignment
from messager_store.queries.comparison.canonical import Canonical
from messager_store.queries.comparison.compare import compare
from messager_store.queries.comparison.sequence_alignment import align, gaps
from tests.property.test_match import MATCHES, PAYLOADS
from tests.support.examples import WITH_STORE
from tests.support.logs import filled, sent

SEQUENCES = st.lists(st.integers(0, 5), max_size=14)


def longest(a: list[int], b: list[int]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for one in a:
        row = _next(row, one, b)
    return row[-1]


def _next(row: list[int], one: int, b: list[int]) -> list[int]:
    following = [0]
    for at, other in enumerate(b):
        following.append(row[at] + 1 if one == other else max(row[at + 1], following[-1]))
    return following


@given(SEQUENCES, SEQUENCES)
def test_every_alignment_is_a_common_subsequence_and_short_ones_the_longest(a: list[int], b: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for cells in (10_000, 25, 1):
            patch.setattr(sequence_alignment, "CELLS", cells)
            pairs, _ = align(a, b)
            assert all(a[i] == b[j] for i, j in pairs)
            assert all(i < next_i and j < next_j for (i, j), (next_i, next_j) in pairwise(pairs))
            if cells == 10_000:
                assert len(pairs) == longest(a, b)
            between = list(gaps(pairs, len(a), len(b)))
            assert sorted([i for i, _ in pairs] + [i for one, _ in between for i in one]) == list(range(len(a)))
            assert sorted([j for _, j in pairs] + [j for _, one in between for j in one]) == list(range(len(b)))


@given(MATCHES, PAYLOADS, PAYLOADS)
def test_payloads_with_equal_digests_and_near_numbers_are_the_same_by_the_match(
    match: Match, a: bytes, b: bytes
) -> None:
    canonical = Canonical(match)
    (digest_a, numbers_a), (digest_b, numbers_b) = canonical.digest(a), canonical.digest(b)
    equal = digest_a == digest_b and canonical.near(numbers_a, numbers_b)
    if match.shape:
        assert match.same(a, b) or not equal
    else:
        assert match.same(a, b) == equal


Edit = tuple[str, int, int]
EDITS = st.lists(
    st.tuples(st.sampled_from(["change", "delete", "insert", "move"]), st.integers(0, 99), st.integers(0, 99)),
    max_size=6,
)


def edited(texts: list[str], edits: list[Edit]) -> list[str]:
    """Return the texts with these edits. What is changed stays similar; what is new is like nothing else."""
    found = list(texts)
    for number, (what, at, to) in enumerate(edits):
        place = at % (len(found) + 1) if what == "insert" else at % max(len(found), 1)
        if what == "insert":
            found.insert(place, chr(0x4E00 + 9 * number) * 12)
        elif found:
            one = found.pop(place)
            if what == "change":
                found.insert(place, f"{one}, {number}")
            elif what == "move":
                found.insert(to % (len(found) + 1), one)
    return found


async def compared(log: EventLog, a: list[str], b: list[str], **options: Any) -> Any:
    names = uuid4().hex, uuid4().hex
    for name, texts in zip(names, (a, b), strict=True):
        await filled(log, [sent(at, json.dumps({"content": text}).encode()) for at, text in enumerate(texts)], name)
    return await compare(log, *names, **options)


@WITH_STORE
@given(st.integers(0, 25), EDITS)
async def test_the_script_is_not_longer_than_the_edits(log: EventLog, count: int, edits: list[Edit]) -> None:
    texts = [f"{at:04}-{at * 7919 % 9973:04}-{at * 104729 % 99991:05}" for at in range(count)]
    result = await compared(log, texts, edited(texts, edits), details=1000)
    assert result.messages.differing <= len(edits)
    assert len(result.differences) == result.messages.differing
    assert Counter(one.kind for one in result.differences) == Counter(
        {kind: n for kind in ("moved", "changed", "only_a", "only_b") if (n := getattr(result.messages, kind))}
    )


@WITH_STORE
@given(st.lists(st.sampled_from(["ok", "yes", "no", "well, let me think"]), max_size=25), EDITS)
async def test_nor_is_it_if_the_same_is_said_again_and_again(
    log: EventLog, texts: list[str], edits: list[Edit]
) -> None:
    edits = [edit for edit in edits if edit[0] != "move"]
    result = await compared(log, texts, edited(texts, edits))
    assert result.messages.differing <= len(edits)


@WITH_STORE
@given(st.integers(10, 40), st.sets(st.integers(0, 12), max_size=5), st.randoms(use_true_random=False))
async def test_edits_that_stand_apart_are_found_exactly(log: EventLog, count: int, places: set[int], dice: Any) -> None:
    a = [f"{at:04}-{at * 7919 % 9973:04}" for at in range(count)]
    b: list[str] = []
    expected = []
    for at, text in enumerate(a):
        what = dice.choice(["changed", "only_a", "only_b"]) if at % 3 == 1 and at // 3 in places else None
        if what == "changed":
            expected.append(("changed", at, len(b)))
        elif what == "only_a":
            expected.append(("only_a", at, None))
        elif what == "only_b":
            expected.append(("only_b", None, len(b)))
        if what in ("changed", "only_b"):
            b.append(f"other {at}")
        if what in (None, "only_b"):
            b.append(text)
    result = await compared(log, a, b)
    assert [(one.kind, one.index_a, one.index_b) for one in result.differences] == expected
