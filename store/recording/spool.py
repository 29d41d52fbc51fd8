"""Spool: the events of one recorder on disk while the store is unreachable.

A spool is one file, locked while the process of its recorder runs, so that no other process drains it. Its first
line is JSON: the recorder, its store, and the position of the first event. Frames follow, each with a CRC-32: events,
and notes that change fields of the first line. Events are durable when `write` returns. A frame truncated by a crash
was never acknowledged; it is ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import BadEvent, SpoolDamaged, SpoolFull, SpoolHeld
from ..log.event import NewEvent
from .spool_format import (
    EVENT,
    FORMAT,
    NOTE,
    REGISTRATION,
    cut_short,
    event_line,
    frame,
    lost_event,
    read_event,
    read_frame,
    read_header,
)

SPOOL_BYTES = 1 << 30
"""Default limit of the spool of one recorder, in bytes."""
ENDING = ".spool"


class Spool:
    """Spool of one recorder. The first `write` creates the file, `remove` deletes it.

    The methods block; they are called in a thread, one at a time, except that `read` may run beside `write`.
    """

    def __init__(self, path: Path, facts: dict[str, Any], limit: int = SPOOL_BYTES) -> None:
        """`facts` are the first line: recorder (its uuid), exp_id, store; later also first_seq and offset."""
        self.path = path
        self.facts = facts
        self.first_seq = self.last_seq = 0
        """Positions of the first and the last event; 0 without events. The seq is the position minus `offset`."""
        self.complete_until: int | None = None
        """Time (ns UTC) up to which all accepted events are here or in the store."""
        self.ended_at: int | None = None
        """End of its recorder (ns UTC) if it ended cleanly, else None."""
        self.registration: dict[str, Any] | None = None
        """`Registration` of its recorder while it is not registered in the store."""
        self.damaged_at: int | None = None
        """Byte from which the file cannot be read; None if it is intact or only its last frame is truncated."""
        self._limit = limit
        self._file: BinaryIO | None = None
        self._reader: BinaryIO | None = None  # the same file, with a position of its own
        self._size = 0
        self._next = (0, 0)  # position of the next event to read, and its offset in the file
        self._noted: dict[str, Any] | None = None  # the registration that is in the file

    @classmethod
    def open(cls, path: Path) -> Spool:
        """Open and lock a spool whose recorder has ended.

        Raises `SpoolHeld` while its recorder runs, `SpoolDamaged` if the file is not a spool, and
        `FileNotFoundError` if it was removed.
        """
        file = _opened(path, os.O_RDWR)
        spool = cls(path, {})
        try:
            _hold(file, path)
            if not _is_at(file, path):
                raise FileNotFoundError(path)  # its recorder has just removed it
            spool._reader = _opened(path, os.O_RDONLY)
            spool.facts = read_header(file, path)
            spool._scan(file)
        except BaseException:
            spool.close()
            file.close()
            raise
        spool._file = file
        return spool

    @classmethod
    def seen(cls, path: Path) -> tuple[Spool, bool] | None:
        """Read a spool without locking it; return it and whether it is locked, or None while it is being created.

        Raises `SpoolDamaged` and `OSError`.
        """
        with _opened(path, os.O_RDONLY) as file:
            if not os.fstat(file.fileno()).st_size:
                return None
            held = _is_held(file)
            spool = cls(path, read_header(file, path))
            spool._scan(file)
        return spool, held

    def __len__(self) -> int:
        """Number of events of its present recorder."""
        return self.last_seq - max(self.first_seq, self.offset + 1) + 1 if self.first_seq else 0

    def __bool__(self) -> bool:
        return True

    @property
    def offset(self) -> int:
        """Position of the last event of a former recorder; 0 without one."""
        return self.facts.get("offset") or 0

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    def write(self, first_seq: int, entries: Sequence[NewEvent], complete_until: int) -> None:
        """Append events, the first of them at the position `first_seq`, and sync.

        Raises `SpoolFull`, or `BadEvent` for an event that cannot be encoded; nothing is written then.
        """
        frames = []
        for index, entry in enumerate(entries):
            try:
                frames.append(frame(EVENT, event_line(entry), entry.payload))
            except Exception as error:
                raise BadEvent(index, f"a {entry.kind} event of ts {entry.ts} cannot be spooled: {error}") from None
        last = first_seq + len(entries) - 1
        registration = self.registration
        frames.append(self._note(registration, complete_until=complete_until, last_seq=last))
        data = b"".join(frames)
        if self._size + len(data) > self._limit:
            raise SpoolFull(str(self.path), f"it may hold {self._limit:,} bytes")
        self._append(data, first_seq)
        self._noted = registration
        self.first_seq = self.first_seq or first_seq
        self.last_seq = last
        self.complete_until = complete_until

    def succeed(self, recorder: str, offset: int, registration: dict[str, Any]) -> None:
        """Assign the events behind the position `offset` to another recorder.

        Raises `SpoolFull` and changes nothing then.
        """
        facts = {"recorder": recorder, "offset": offset}
        if self._file is not None:
            self._append(self._note(registration, **facts), offset + 1)
            self._noted = registration
        self.facts.update(facts)
        self.registration = registration

    def end(self, ended_at: int, next_seq: int) -> None:
        """Note that its recorder has ended (ns UTC), with all events in the store or here.

        `next_seq` is the next position that the store needs, for a file without events. Raises `SpoolFull`.
        """
        self._append(self._note(self.registration, ended_at=ended_at), next_seq)
        self.ended_at = ended_at

    def forget_registration(self) -> None:
        """Note that the store has registered the recorder, so that no drain registers it again.

        Raises `SpoolFull`, or `SpoolDamaged` if the file is damaged and cannot be appended to.
        """
        if self.damaged_at is not None:
            raise SpoolDamaged(str(self.path), f"it is damaged from byte {self.damaged_at:,} on")
        self._append(frame(NOTE, json.dumps({REGISTRATION: None}).encode()), 0)
        self.registration = None

    def _note(self, registration: dict[str, Any] | None, **facts: Any) -> bytes:
        news = {} if registration is None or registration is self._noted else {REGISTRATION: registration}
        return frame(NOTE, json.dumps({**facts, **news}, default=str).encode())

    def read(self, seq: int, most: int, most_bytes: int) -> list[NewEvent]:
        """Return the events from the position `seq` on: at most `most`, and `most_bytes` of payload, but at least one.

        Causes are given as seq in the log. A gap event replaces an event damaged on disk. Raises `SpoolDamaged` if
        the events behind a damage cannot be located.
        """
        last = self.last_seq
        at, offset = self._next if self._next[0] and self._next[0] <= seq else (self.first_seq, 0)
        entries: list[NewEvent] = []
        size = 0
        with self._reading() as file:
            if offset:
                file.seek(offset)
            else:
                read_header(file, self.path)
            while at <= last and len(entries) < most and size < most_bytes:
                what, line, payload = read_frame(file, self.path)
                if what == EVENT:
                    if at >= seq:
                        entries.append(lost_event(entries) if line is None else read_event(line, payload))
                        size += len(payload)
                    at += 1
            self._next = (at, file.tell())
        return [rebased(entry, self.offset) for entry in entries] if self.offset else entries

    def remove(self) -> None:
        """Delete the file."""
        if self._file is None or _is_at(self._file, self.path):
            self.path.unlink(missing_ok=True)
        self.close()
        self.first_seq = self.last_seq = self._size = 0
        self._next, self._noted = (0, 0), None
        try:
            self.path.parent.rmdir()  # fails if it holds other spools
        except OSError:
            pass

    def close(self) -> None:
        """Close and unlock the file without deleting it."""
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        self._file = self._reader = None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[BinaryIO]:
        """Open the file from its beginning, also while it is written and after it was unlinked."""
        there = self.path if self._reader is None else self._reader.fileno()
        with open(there, "rb", 1 << 18, closefd=self._reader is None) as file:
            file.seek(0)
            yield file

    def _append(self, data: bytes, first_seq: int) -> None:
        """Append frames and sync. The limit counts events only, which cannot be read without the note behind them."""
        try:
            if self._file is None:
                self.facts["first_seq"] = first_seq
                self._make(json.dumps({"format": FORMAT, **self.facts}).encode() + b"\n")
            elif not _is_at(self._file, self.path):
                self._restore()
            assert self._file is not None
            self._file.truncate(self._size)  # remove a frame truncated by a failed write
            self._file.seek(self._size)
            _write_all(self._file, data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._undo()
            raise SpoolFull(str(self.path), error.strerror or str(error)) from None
        self._size += len(data)

    def _restore(self) -> None:
        """Copy the open file into a new one, because another process unlinked it."""
        assert self._file is not None
        old, reader, size = self._file, self._reader, self._size
        self._file = self._reader = None
        try:
            self._make(b"")
            assert self._file is not None
            for at in range(0, size, 1 << 20):
                _write_all(self._file, os.pread(old.fileno(), min(1 << 20, size - at), at))
        except BaseException:  # nobody else can read the old file, which has events that were promised
            if self._file is not None:
                self.path.unlink(missing_ok=True)
            self.close()
            self._file, self._reader, self._size = old, reader, size
            raise
        self._size = size
        for file in (old, reader):
            if file is not None:
                file.close()

    def _make(self, header: bytes) -> None:
        """Create and lock the file, and sync its folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        file: BinaryIO = os.fdopen(handle, "r+b", buffering=0)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)  # `seen` may hold a shared lock briefly
        self._file = file
        self._reader = _opened(self.path, os.O_RDONLY)
        _write_all(file, header)
        self._size = len(header)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _undo(self) -> None:
        """Truncate a failed write; delete a file without events."""
        if self._file is None:
            return
        try:
            if self.first_seq:
                self._file.truncate(self._size)
            else:
                self.remove()
        except OSError:
            pass

    def _scan(self, file: BinaryIO) -> None:
        """Read the file up to the first incomplete or damaged frame."""
        self._size = file.tell()
        end = os.fstat(file.fileno()).st_size
        first = self.facts["first_seq"]
        count = 0
        while self._size < end:
            try:
                what, line, _ = read_frame(file, self.path)
                fields = json.loads(line) if what == NOTE and line is not None else {}
                if fields.get("last_seq", first + count - 1) != first + count - 1:
                    raise SpoolDamaged(str(self.path), "some of its events are missing")
            except SpoolDamaged:
                if not cut_short(file, self._size, end):
                    self.damaged_at = self._size
                break
            count += what == EVENT
            self.complete_until = fields.get("complete_until", self.complete_until)
            self.ended_at = fields.get("ended_at", self.ended_at)
            self.registration = fields.get(REGISTRATION, self.registration)
            if "recorder" in fields and "offset" in fields:
                self.facts |= {"recorder": fields["recorder"], "offset": fields["offset"]}  # a successor
            self._size = file.tell()
        if count:
            self.first_seq, self.last_seq = first, first + count - 1


def rebased(event: NewEvent, offset: int) -> NewEvent:
    """Return an event with its cause as a seq in the log: the position minus `offset`.

    The cause is None if it belongs to a former recorder, whose experiment is closed.
    """
    cause = event.cause
    if cause is None or cause[0]:
        return event
    return event._replace(cause=(0, cause[1] - offset) if cause[1] > offset else None)


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write without a buffer, so that no part of a failed write is flushed later."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _opened(path: Path, flags: int) -> BinaryIO:
    """Open a regular file. Raises `FileNotFoundError`, and `SpoolDamaged` for anything else that it cannot open."""
    try:
        handle = os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for its other end
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SpoolDamaged(str(path), error.strerror or str(error)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SpoolDamaged(str(path), "it is not a regular file")
    return os.fdopen(handle, "r+b" if flags & os.O_RDWR else "rb")


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Return True if `path` names this open file."""
    opened = os.fstat(file.fileno())
    try:
        named = os.stat(path)
    except OSError:
        return False
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)


def _hold(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SpoolHeld(str(path)) from None
    except OSError:  # a file system without locks
        return


def _is_held(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
