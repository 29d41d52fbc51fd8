"""Ledger of streams: what is missing is told from counters, without a server."""

from __future__ import annotations

import pytest

from messager.brokers.redis.stream_entry import fields_of, message_of
from messager.brokers.redis.stream_ledger import Counters, Gap, Info, Ledger, Look

KEY = b"x:1"


class Told:
    """A ledger with one stream that was read to its fourth entry, and the looks that it is told of."""

    def __init__(self) -> None:
        self.ledger = Ledger(listed=0)
        self.now = 0
        self.ledger.add(KEY, "end")
        self.look(added=4, last=(4, 0), xadds=4)

    def look(self, *, added: int | None, last: tuple[int, int] = (0, 0), run: bytes = b"1", **counters: int) -> None:
        self.now += 10
        info = None if added is None else Info(last, added, 0)
        given = Counters(run, counters.get("xadds", 4), counters.get("deletions", 0))
        self.ledger.looked(Look(self.now, self.now + 1, given, {KEY: info}, True))

    def read(self, *ids: int, more: bool = False) -> None:
        self.ledger.took({KEY: [(number, 0) for number in ids]}, [KEY] if more else [])

    @property
    def gaps(self) -> list[tuple[int | None, int, int]]:
        return [(gap.entries, gap.since, gap.until) for gap in self.ledger.gaps]


def test_what_was_added_and_read_is_no_gap() -> None:
    told = Told()
    told.look(added=7, last=(7, 0), xadds=7)
    assert told.ledger.complete_until() == 10  # not before it was read
    told.read(5, 6, 7)
    assert (told.gaps, told.ledger.complete_until()) == ([], 20)


def test_what_was_added_and_not_read_is_counted_between_two_looks() -> None:
    told = Told()
    told.look(added=9, last=(9, 0), xadds=9)
    told.read(5, 9, 10)  # the last one was added after the look
    assert told.gaps == [(3, 10, 21)]
    told.look(added=10, last=(10, 0), xadds=10)
    assert len(told.gaps) == 1


def test_a_reading_that_is_not_the_whole_proves_nothing_yet() -> None:
    told = Told()
    told.look(added=9, last=(9, 0), xadds=9)
    told.read(5, 6, more=True)
    told.look(added=12, last=(12, 0), xadds=12)  # while the first look is not reached
    assert told.gaps == []
    told.read(9, 12)
    assert told.gaps == [(2, 10, 21), (2, 20, 31)]


def test_a_stream_that_was_made_anew_is_told_from_one_that_grew() -> None:
    told = Told()
    told.read(5)
    told.look(added=5, last=(9, 0), xadds=9, deletions=1)  # four entries were added to the old one
    assert told.gaps == [(None, 0, 21)]


def test_unread_entries_of_a_deleted_stream_are_counted() -> None:
    told = Told()
    told.look(added=9, last=(9, 0), xadds=9)
    told.read(5, more=True)
    told.look(added=None, xadds=9, deletions=1)
    assert told.gaps == [(4, 10, 31)]


def test_entries_of_other_streams_are_no_gap_unless_keys_are_deleted() -> None:
    told = Told()
    told.look(added=4, last=(4, 0), xadds=40)
    assert told.gaps == []
    told.look(added=4, last=(4, 0), xadds=40, deletions=1)
    assert told.gaps == [(None, 0, 31)]
    told.ledger.listed = told.now + 5  # a listing has found every stream that there still is
    told.look(added=4, last=(4, 0), xadds=40, deletions=2)
    assert len(told.gaps) == 1


def test_entries_that_a_failover_lost_are_not_read_twice() -> None:
    told = Told()
    told.read(5, 6)
    told.look(added=5, last=(5, 0), xadds=1, run=b"2")
    assert told.gaps == [(None, 10, 21)]
    assert told.ledger.streams[KEY].cursor == (5, 0)


def test_ids_that_start_again_on_the_same_server_are_read_from_the_first() -> None:
    told = Told()
    told.look(added=2, last=(2, 0), xadds=6, deletions=1)
    assert told.ledger.streams[KEY].cursor == (0, 0)
    told.read(1, 2)
    assert told.gaps == []


def test_what_is_unread_at_the_end_is_a_gap() -> None:
    told = Told()
    told.look(added=9, last=(9, 0), xadds=9)
    told.ledger.ended(50)
    assert told.ledger.gaps == [Gap("the recording ended before all entries were read", 10, 50, None, KEY)]


@pytest.mark.parametrize(
    "words",
    [
        [b"data", b"\xff\x00"],
        [b"\xfe", b"a"],
        [b"", b""],
        [b"a", b"1", b"a", b"2", b"", "caf\u00e9".encode()],
        [b"a", b"\xed\xa0\x80", b"\xff", b"\\ud800"],
    ],
)
def test_an_entry_comes_back_from_its_message(words: list[bytes]) -> None:
    payload, meta = message_of(b"5-0", words)
    assert fields_of(payload, meta) == words
    assert meta["id"] == "5-0"
    if len(words) == 2:
        assert payload == words[1]
