"""Recordings are read with the place of each fault, written as a whole, and by one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from messager_pytest.accepting import edits
from messager_pytest.alignment import Pair, Saying
from messager_pytest.event_lines import event_line, with_payload
from messager_pytest.recording_file import BadRecording, locked, read_lines, read_recording, write_lines
from messager_pytest.taking_over import accepted, take_over
from messager_store.log.event import NewEvent

from .shop import said

Data = dict[str, Any]


def written(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_events_of_a_recording_have_the_numbers_of_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"format": "messager/1"}, said(1, 7, 3, "a"))
    path.write_text(path.read_text() + "\n" + json.dumps(said(2, 3, 7, "b")) + "\n")
    found = read_recording(path)
    assert [found.line_numbers[event.recorder, event.seq] for event in found.events] == [2, 4]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"ts": 1}\n', "line 1: no channel"),
        ('{"ts": 1, "kind": "said", "channel": "a"}\n', "line 1: kind 'said' is none of"),
        ('{"ts": 1, "channel": "a", "cause": 1}\n', "line 1: its cause 1 is not the label of an earlier line"),
        ('{"ts": 1, "channel": "a", "pay": {}}\n', "line 1: unknown field 'pay'"),
        ('{"ts": 1, "channel": "a", "from_id": [2]}\n', "line 1: from_id is a list, not an agent's id"),
        ('{"ts": 1, "channel": "a", "payload": ""}\n\n{"ts": 2, "channel": "a"}\n', "line 3: it has no payload"),
    ],
)
def test_a_fault_is_one_sentence_with_file_and_line_and_one_with_the_remedy(
    text: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(BadRecording) as caught:
        read_recording(path)
    assert str(path) in str(caught.value) and says in str(caught.value)
    assert str(caught.value).endswith("Correct the line, or take the file from version control again.")


def test_an_empty_recording_is_said_to_be_empty_and_how_to_replace_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(BadRecording, match=r"is empty\. Take it from version control again, or delete it and make it"):
        read_recording(tmp_path / "a.jsonl")


def test_damaged_gzip_is_a_fault_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"\x1f\x8b nonsense")
    with pytest.raises(BadRecording, match=r"a\.jsonl\.gz"):
        read_recording(tmp_path / "a.jsonl.gz")


def test_a_recording_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.jsonl", said(1, 7, 3, "a"))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadRecording, match="No space left on device"):
        write_lines(path, [b"{}"])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_recording_is_changed_by_one_process_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path / "a.jsonl"):
        handle = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    with locked(tmp_path / "a.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []


def accepts(path: Path, test: str, at: int, content: str | None) -> Data:
    """Return what a test accepts after which the event at this position says something else; None for no change."""
    file = read_recording(path)
    event = file.events[at]
    payload = json.dumps({"from": event.from_id, "content": content}).encode()
    said = Saying("sent", event.channel or "", payload, event.from_id, event.to_id, None, None)
    found = edits(file, [Pair(event, said, matched=content is None)])
    return accepted(path, test, f"agent {event.from_id}", file.lines, found)


def contents(path: Path) -> list[str]:
    return [json.loads(line)["payload"]["content"] for line in read_lines(path)]


@pytest.mark.parametrize("other", ["c", "b", None])
def test_tests_that_contradict_each_other_change_nothing_and_are_named(other: str | None, tmp_path: Path) -> None:
    """`other` is what the second test accepts in place of "a"; the first one accepts "b"."""
    path = written(tmp_path / "a.jsonl", said(1, 3, 7, "a"))
    changes, errors = take_over([accepts(path, "one", 0, "b"), accepts(path, "two", 0, other)], tmp_path)
    if other == "b":
        assert changes and not errors and contents(path) == ["b"]
    else:
        assert errors[0].tests == ["one", "two"] and contents(path) == ["a"] and not changes
        assert "a.jsonl is left as it is" in errors[0].text and "\n  one\n  two\n" in errors[0].text


def test_a_recording_that_changed_during_the_run_is_left_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", said(1, 3, 7, "a"))
    found = accepts(path, "one", 0, "b")
    written(path, said(1, 3, 7, "z"))
    changes, [(tests, text)] = take_over([found], tmp_path)
    assert (changes, tests, contents(path)) == ([], ["one"], ["z"]) and "it was changed during the run" in text


def test_a_dropped_message_takes_its_receptions_with_it_and_leaves_no_cause_behind(tmp_path: Path) -> None:
    heard = said(2, 3, 7, "a") | {"kind": "received", "messager": "m"}
    path = written(
        tmp_path / "a.jsonl",
        said(1, 3, 7, "a") | {"label": 1},
        heard,
        said(3, 3, 7, "a"),
        heard | {"ts": 4},
        said(5, 3, 7, "a") | {"kind": "failed", "cause": 1},
    )
    file = read_recording(path)
    write_lines(path, edits(file, [Pair(file.events[0], None)]).apply(file.lines))
    assert [event.ts for event in read_recording(path).events] == [3, 4, 5]


@pytest.mark.parametrize("payload", [b'{"a": 1}', b'{"a":1}', b"[1, 2]", b'"text"', b"text", b"\xff", b'"\\ud800"'])
def test_a_payload_keeps_its_bytes_in_a_line_that_is_new_or_edited(payload: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = event_line(NewEvent("sent", 1, "a", payload, 3, None))
    write_lines(path, [line, with_payload(json.dumps(said(2, 3, 7, "x")).encode(), None, payload)])
    assert [event.payload for event in read_recording(path).events] == [payload, payload]


def test_the_id_of_a_message_in_an_edited_line_is_that_of_the_new_message() -> None:
    line = json.dumps({**said(1, 3, 7, "x"), "msg_id": "old"}).encode()
    message = {"name": "a", "role": "user", "content": "b", "id": "new", "__module__": "m", "__name__": "Msg"}
    assert json.loads(with_payload(line, None, json.dumps(message).encode()))["msg_id"] == "new"
    assert "msg_id" not in json.loads(with_payload(line, None, b'{"no": "message"}'))
