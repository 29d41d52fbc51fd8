"""Files in a spool folder that no recorder wrote: each is refused by itself, and nothing of it is written."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import SpoolDamaged
from messager_store.log.attributes import KEYS
from messager_store.maintenance.verify import verify
from messager_store.recording.registration import Registration
from messager_store.recording.spool import Spool
from messager_store.recording.spool_format import EVENT, FORMAT, NOTE, frame
from messager_store.recording.spools import spools
from tests.support.outages import everything_drained, payloads

pytestmark = pytest.mark.sqlite


def registration(uuid: str, /, **changed: Any) -> dict[str, Any]:
    """Return what a recorder of the experiment e-UUID keeps in its spool until it is registered."""
    given = Registration(
        *(uuid, f"e-{uuid}", "append", None, [], {}, "messager", [], "buffered", f"/{uuid}.spool", {}),
        {"host": "h", "pid": 1, "boot_id": "b", "started_at": 1},
    ).as_dict()
    return given | changed


def spooled(folder: Path, store: str, uuid: str, /, **changed: Any) -> Path:
    """Write the spool, with one event, of a recorder that was never registered."""
    path = folder / f"{uuid}.spool"
    spool = Spool(path, {"recorder": uuid, "exp_id": f"e-{uuid}", "store": store})
    spool.registration = registration(uuid, **changed)
    spool.write(1, [NewEvent("sent", 1, "c", b"kept")], 2)
    spool.end(3, 2)
    spool.close()
    return path


HEADERS: dict[str, dict[str, Any]] = {
    "a negative seq": {"first_seq": -5},
    "a huge seq": {"first_seq": 10**30},
    "an object for a number": {"first_seq": {"a": 1}},
    "a list for a format": {"format": []},
    "a text for the offset": {"offset": "7"},
    "a negative offset": {"offset": -1},
    "half a character": {"recorder": "\ud800"},
    "a number for a name": {"exp_id": 7},
    "a list for a store": {"store": []},
    "events before it are lost": {"first_seq": 5},
}
NOTES: dict[str, dict[str, Any]] = {
    "columns that a recorder does not set": {"row": {"started_at": 1, "last_seq": 9}},
    "no start": {"row": {}},
    "a text for a time": {"row": {"started_at": "now"}},
    "a time beyond 64 bits": {"row": {"started_at": 10**30}},
    "a pid beyond 32 bits": {"row": {"started_at": 1, "pid": 1 << 40}},
    "an object for a role": {"role": {}},
    "half a character as a role": {"role": "\udc80"},
    "a list for an exp_id": {"exp_id": []},
    "tags that are none": {"tags": [{}]},
    "another recorder": {"uuid": "another"},
    "an unknown field": {"more": 1},
}


async def test_bad_spools_are_refused_before_anything_of_them_is_written_and_stop_no_other(
    log: EventLog, tmp_path: Path
) -> None:
    folder = tmp_path / "spools"
    for number, changed in enumerate(HEADERS.values()):
        path = spooled(folder, log.location, f"header{number}")
        first, rest = path.read_bytes().split(b"\n", 1)
        path.write_bytes(json.dumps(json.loads(first) | changed).encode() + b"\n" + rest)
    for number, changed in enumerate(NOTES.values()):
        spooled(folder, log.location, f"note{number}", **changed)
    (folder / "folder.spool").mkdir()
    (folder / "deep.spool").write_text("[" * 60000)
    os.mkfifo(folder / "pipe.spool")
    os.symlink("/dev/zero", folder / "device.spool")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.spool"))
    bad = {path.name for path in folder.iterdir()}
    spooled(folder, log.location, "z")
    assert "e-z" in {info.exp_id for info in spools(folder)}  # what `status` lists
    found = await everything_drained(log, folder)
    assert {Path(done.path).name for done in found if done.reason is not None} == bad and len(found) == len(bad) + 1
    assert [of.exp_id for of in await log.experiments()] == ["e-z"]
    assert await payloads(log, "e-z") == [b"kept"]
    assert {path.name for path in folder.iterdir()} == bad


def event(**changed: Any) -> bytes:
    """Return the line of an event, with other values."""
    stored = {KEYS[name]: changed.pop(name) for name in [*changed] if name in KEYS}
    line = {"kind": "sent", "ts": 5, "channel": "c", "from_id": None, "to_id": None, "flags": 0, "messager": None}
    line["attributes"] = json.dumps(stored) if stored else None
    return json.dumps(list((line | changed).values())).encode()


async def test_an_event_of_another_type_is_in_the_log_as_a_gap(log: EventLog, tmp_path: Path) -> None:
    lines = [
        *(event(ts=ts) for ts in ("now", None, 10**30, {})),
        *(event(cause=cause) for cause in ({"a": 1}, "ab", [1], [None, {}], [[], 1])),
        *(event(origin=origin) for origin in ({"a": 1}, [1], [[], 1], 7)),
        *(event(kind=kind) for kind in (7, None, [])),
        *(event(**{name: {"a": []}}) for name in ("channel", "flags", "msg_id", "receivers", "messager", "arrival")),
        *(event(attributes=text) for text in (7, [], "nonsense", '{"z": 1}', '{"m": 5}')),
        event(),
    ]
    path = spooled(tmp_path / "spools", log.location, "a")
    note = frame(NOTE, json.dumps({"last_seq": 1 + len(lines), "complete_until": 9}).encode())
    path.write_bytes(path.read_bytes() + b"".join(frame(EVENT, line, b"more") for line in lines) + note)
    [done] = await everything_drained(log, path.parent)
    assert (done.events, done.reason) == (1 + len(lines), None)
    assert [entry.kind async for entry in log.read("e-a")].count("gap") == len(lines) - 1
    assert await payloads(log, "e-a") == [b"kept", b"more"]
    assert (await verify(log, await log.experiment("e-a"))).problems == []


def test_a_note_of_another_type_is_left_out(tmp_path: Path) -> None:
    path = spooled(tmp_path, "s", "a")
    notes: list[dict[str, Any]] = [{"ended_at": "x"}, {"complete_until": {}}, {"offset": "1", "recorder": "b"}]
    path.write_bytes(path.read_bytes() + b"".join(frame(NOTE, json.dumps(note).encode()) for note in notes))
    spool = Spool.open(path)
    assert (spool.facts["recorder"], spool.ended_at, spool.complete_until, spool.damaged_at) == ("a", 3, 2, None)
    spool.close()


def test_a_first_line_of_another_program_is_no_spool(tmp_path: Path) -> None:
    for line in (b"[]", b"7", b'{"format": "%s"}' % FORMAT.encode(), b"\xff"):
        (tmp_path / "a.spool").write_bytes(line + b"\n")
        with pytest.raises(SpoolDamaged):
            Spool.open(tmp_path / "a.spool")
