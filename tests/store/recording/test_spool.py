"""The spool keeps events, and raises if it cannot."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from messager import channels
from messager_store import NewEvent
from messager_store.errors import BadEvent, SpoolDamaged, SpoolFull, SpoolHeld
from messager_store.recording.spool import Spool
from messager_store.recording.spools import spools
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS

FACTS = {"recorder": "r1", "exp_id": "e1", "store": "s"}


def events(number: int = 30) -> list[NewEvent]:
    return [
        NewEvent(
            "sent",
            at,
            channels.decode(HOSTILE_CHANNELS[at % len(HOSTILE_CHANNELS)]),
            HOSTILE_PAYLOADS[at % len(HOSTILE_PAYLOADS)],
            HOSTILE_IDS[at % len(HOSTILE_IDS)],
            HOSTILE_IDS[(at + 3) % len(HOSTILE_IDS)],
            at % 4,
            msg_id="m" if at % 2 else None,
            cause=(0, at) if at % 3 == 1 else None,
            duration_ns=at,
            receivers=at,
            meta={"a": [at, "\ud800"]} if at % 5 == 0 else None,
        )
        for at in range(number)
    ]


def left(path: Path) -> Spool:
    """Create a spool with 30 events from seq 7 on, and close it."""
    spool = Spool(path, FACTS)
    spool.write(7, events()[:20], 100)
    spool.write(27, events()[20:], 200)
    spool.close()
    return spool


def test_what_was_written_is_read_again_also_by_somebody_else(tmp_path: Path) -> None:
    left(tmp_path / "f" / "r1.spool")
    spool = Spool.open(tmp_path / "f" / "r1.spool")
    assert (spool.first_seq, spool.last_seq, len(spool), spool.complete_until) == (7, 36, 30, 200)
    assert spool.read(7, 1000, 10**6) == events()
    assert spool.read(10, 4, 10**6) == events()[3:7]
    assert spool.read(14, 4, 10**6) == events()[7:11]  # goes on where it was
    assert spool.read(8, 1, 10**6) == events()[1:2]  # and back
    assert spool.read(7, 1000, 1) == events()[:2]  # one payload at least; the first is empty
    assert (spool.ended_at, spool.damaged_at) == (None, None)
    spool.remove()
    assert not (tmp_path / "f").exists()


def test_a_spool_is_held_by_its_recorder_alone(tmp_path: Path) -> None:
    path = tmp_path / "r1.spool"
    spool = Spool(path, FACTS)
    spool.write(1, events(), 5)
    with pytest.raises(SpoolHeld, match="held by a live recorder"):
        Spool.open(path)
    assert [info.held for info in spools(tmp_path)] == [True]
    spool.close()
    assert [(info.held, info.events, info.oldest_at) for info in spools(tmp_path)] == [(False, 30, 0)]
    Spool.open(path).close()


def test_a_frame_that_a_crash_cut_short_is_left_out_and_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "r1.spool"
    left(path)
    whole = path.read_bytes()
    shortest = len(whole)
    for cut in range(1, 400):
        path.write_bytes(whole[:-cut])
        spool = Spool.open(path)
        count = len(spool)
        assert spool.read(7, 1000, 10**6) == events()[:count] and spool.damaged_at is None
        shortest = min(shortest, count)
        spool.close()
    assert shortest < 30
    path.write_bytes(whole + bytes(100))  # a file system that had made room before the crash
    spool = Spool.open(path)
    assert len(spool) == 30 and spool.damaged_at is None
    spool.close()


def test_a_changed_byte_is_found_and_what_stands_before_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r1.spool"
    left(path)
    before = path.read_bytes()
    whole = bytearray(before)
    at = whole.index(b"not json {")
    whole[at] ^= 1
    path.write_bytes(whole)
    spool = Spool.open(path)
    assert spool.damaged_at is None and len(spool) == 30
    found = spool.read(7, 1000, 10**6)
    spool.close()
    [wrong] = [number for number, entry in enumerate(found) if entry != events()[number]]
    assert events()[wrong].payload == b"not json {" and found[wrong].kind == "gap"
    # a changed length: what follows cannot be found, but it is not taken for a frame that a crash cut short
    for bit in range(17):
        whole = bytearray(before)
        head = whole.index(json.dumps(["sent", 12]).encode()[:-1]) - 17
        whole[head + bit] ^= 64
        path.write_bytes(whole)
        spool = Spool.open(path)
        assert spool.damaged_at == head and len(spool) == 12
        assert spool.read(7, 1000, 10**6) == events()[:12]
        spool.close()
    [info] = spools(tmp_path)
    assert "damaged" in (info.damage or "")


def test_a_spool_that_lost_events_in_the_middle_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "r1.spool"
    left(path)
    whole = path.read_bytes()
    first, second = (whole.index(json.dumps(["sent", number]).encode()[:-1]) - 17 for number in (3, 4))
    path.write_bytes(whole[:first] + whole[second:])
    spool = Spool.open(path)
    assert spool.damaged_at is not None
    spool.close()


def test_a_first_write_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "r1.spool", FACTS, limit=1000)
    with pytest.raises(SpoolFull):
        spool.write(1, [NewEvent("sent", 1, "c", bytes(2000))], 5)
    assert not spool.path.exists()
    spool.write(6, events(2), 6)
    spool.close()
    again = Spool.open(spool.path)
    assert (again.first_seq, again.last_seq) == (6, 7)
    again.close()


def test_a_spool_that_somebody_removed_is_read_on_and_made_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "r1.spool", FACTS)
    spool.write(1, events(10), 5)
    spool.path.unlink()
    assert spool.read(1, 100, 10**6) == events(10)
    spool.write(11, events(5), 6)
    spool.close()
    again = Spool.open(spool.path)
    assert again.read(1, 100, 10**6) == [*events(10), *events(5)]
    again.close()


def test_a_spool_that_somebody_removed_after_it_went_to_a_successor_is_made_again_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "r1.spool", dict(FACTS))
    spool.write(1, events(10), 5)
    assert len(spool.read(1, 4, 10**6)) == 4  # where it continues must stay right
    spool.succeed("a-successor-with-a-longer-name", 4, {"uuid": "a-successor-with-a-longer-name"})
    spool.path.unlink()
    spool.write(11, events(5), 6)
    assert [event.ts for event in spool.read(5, 100, 10**6)] == [*range(4, 10), *range(5)]
    spool.close()
    again = Spool.open(spool.path)
    assert (again.facts["recorder"], again.offset, again.damaged_at) == ("a-successor-with-a-longer-name", 4, None)
    assert again.registration == {"uuid": "a-successor-with-a-longer-name"}
    assert [event.ts for event in again.read(1, 100, 10**6)] == [*range(10), *range(5)]
    again.close()


def test_a_spool_that_somebody_removed_is_kept_if_it_cannot_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: object, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    spool = Spool(tmp_path / "r1.spool", FACTS)
    spool.write(1, events(10), 5)
    spool.path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("messager_store.recording.spool._write_all", full)
        with pytest.raises(SpoolFull, match="No space left"):
            spool.write(11, events(5), 6)
    assert spool.read(1, 100, 10**6) == events(10)
    spool.write(11, events(5), 6)
    spool.close()
    again = Spool.open(spool.path)
    assert again.read(1, 100, 10**6) == [*events(10), *events(5)]
    again.close()


def test_a_full_spool_can_still_be_given_to_a_successor_and_ended(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "r1.spool", dict(FACTS), 4000)
    with contextlib.suppress(SpoolFull):
        for first in range(1, 1000):
            spool.write(first, events(1), 5)
    last = spool.last_seq
    assert last < 999
    spool.succeed("r2", last - 3, {"uuid": "r2", "meta": "m" * 1000})
    spool.end(9, last + 1)
    spool.close()
    again = Spool.open(spool.path)
    assert (again.facts["recorder"], again.offset, again.last_seq, len(again)) == ("r2", last - 3, last, 3)
    assert (again.ended_at, again.damaged_at) == (9, None)
    again.close()


def test_a_spool_that_is_removed_while_another_looks_at_it_is_gone_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Spool(tmp_path / "r1.spool", FACTS)
    live.write(1, events(3), 5)

    def hold(file: object, path: Path) -> None:  # the recorder is done in the moment before the lock is taken
        live.remove()
        live.write(4, events(3), 6)

    monkeypatch.setattr("messager_store.recording.spool._hold", hold)
    with pytest.raises(FileNotFoundError):
        Spool.open(live.path)
    assert live.path.exists() and live.read(4, 10, 10**6) == events(3)
    live.close()


def test_what_is_no_spool_is_refused(tmp_path: Path) -> None:
    for content in [b"", b"\n", b"{}\n", b"\x00" * 50, b'{"format": "other", "first_seq": 1}\n', b"[" * 5000]:
        path = tmp_path / "r1.spool"
        path.write_bytes(content)
        with pytest.raises(SpoolDamaged, match=r"r1\.spool"):
            Spool.open(path)
        assert len(list(spools(tmp_path))) == (1 if content else 0)


def test_a_full_spool_keeps_what_it_has_and_takes_nothing_of_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "r1.spool"
    spool = Spool(path, FACTS, limit=4000)
    spool.write(1, events(10), 5)
    with pytest.raises(SpoolFull, match="4,000"):
        spool.write(11, events(300), 6)
    assert (spool.last_seq, spool.complete_until) == (10, 5)
    spool.end(9, 11)
    spool.close()
    again = Spool.open(path)
    assert (len(again), again.ended_at, again.damaged_at) == (10, 9, None)
    again.close()


def test_a_write_that_fails_halfway_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r1.spool"
    spool = Spool(path, FACTS)
    spool.write(1, events(10), 5)
    size = path.stat().st_size

    def half(file: object, data: bytes) -> None:
        file.write(data[: len(data) // 2])  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("messager_store.recording.spool._write_all", half)
        with pytest.raises(SpoolFull, match="No space left"):
            spool.write(11, events(10), 6)
        assert path.stat().st_size == size
        other = Spool(tmp_path / "r2.spool", FACTS)
        with pytest.raises(SpoolFull):
            other.write(1, events(10), 6)
        assert not other.path.exists()  # not even a header
    spool.write(11, events(5), 7)
    assert len(spool.read(1, 100, 10**6)) == 15
    spool.close()


def test_an_event_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "r1.spool", FACTS)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadEvent) as caught:
        spool.write(1, [*events(3), NewEvent("mark", 1, None, b"", meta={"deep": deep})], 5)
    assert caught.value.index == 3
    assert not spool.path.exists()
