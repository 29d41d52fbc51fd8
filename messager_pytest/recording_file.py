"""Recordings in JSON Lines, read and written without a database."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from messager_store import limits
from messager_store.errors import BadFile, StoreError
from messager_store.formats.fields import InvalidEntry
from messager_store.formats.jsonl.parser import Parser
from messager_store.formats.output_file import mode_at
from messager_store.log.event import Event, Fields, NewEvent, recorded


class BadRecording(Exception):
    """A recording that cannot be read or written. The text says what is wrong and what to do."""


@dataclass(slots=True)
class RecordingFile:
    """A recording: its events in the order of its lines."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """Lines that are not empty."""
    line_numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of the line of each event, by (recorder, seq)."""


def read_recording(path: Path) -> RecordingFile:
    """Read a recording. Raises `FileNotFoundError`, and `BadRecording` with the file and the line of what is wrong."""
    found = RecordingFile(path, lines=read_lines(path))
    source = Parser(path)
    try:
        with source.opened():
            found.header = source.header()
            seqs: dict[int, int] = {}
            labelled: dict[int, tuple[int, int]] = {}
            for ordinal, entry, label, cause, _ in source.events():
                seqs[ordinal] = seqs.get(ordinal, 0) + 1
                if label is not None:
                    labelled[label] = ordinal, seqs[ordinal]
                if cause is not None and cause not in labelled:
                    raise InvalidEntry(f"its cause {cause} is not the label of an earlier line")
                found.line_numbers[ordinal, seqs[ordinal]] = source.line_number
                found.events.append(_event(ordinal, seqs[ordinal], entry, None if cause is None else labelled[cause]))
    except BadFile as error:
        if not found.lines:
            raise BadRecording(
                f"{path} is empty. Take it from version control again, or delete it and make it with --recording=new."
            ) from None
        line = f", line {error.line}" if error.line else ""
        raise BadRecording(
            f"{path}{line}: {error.reason}. Correct the line, or take the file from version control again."
        ) from None
    except StoreError as error:
        raise BadRecording(f"{path}: {error}") from None
    _check_payloads(found)
    return found


def _check_payloads(found: RecordingFile) -> None:
    """Refuse messages whose line has no payload, which the format takes for an empty one."""
    lines = found.lines[len(found.lines) - len(found.events) :]
    for event, line in zip(found.events, lines, strict=True):
        is_message = event.kind in ("sent", "received", "blocked")
        if is_message and not event.payload and not event.redacted and b'"payload' not in line:
            raise BadRecording(
                f"{found.path}, line {found.line_numbers[event.recorder, event.seq]}: it has no payload. Correct the "
                "line, or take the file from version control again."
            )


def _event(recorder: int, seq: int, entry: Fields, cause: tuple[int, int] | None) -> Event:
    new = NewEvent._make(entry)
    if isinstance(new.from_id, list | dict):
        raise InvalidEntry(
            f"from_id is {'a list' if isinstance(new.from_id, list) else 'an object'}, not an agent's id"
        )
    return recorded(new, recorder, seq, cause)


def unwritten(lines: list[bytes], path: Path) -> RecordingFile:
    """Return the recording that these lines are when they are written to `path`. Raises `BadRecording`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / path.name
        write_lines(place, lines)
        return replace(read_recording(place), path=path)


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a recording that are not empty, without line feeds.

    Raises `FileNotFoundError`, and `BadRecording`.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(limits.MOST_RECORDING + 1)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise BadRecording(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    if len(text) > limits.MOST_RECORDING:
        raise BadRecording(f"{path} has more than {limits.MOST_RECORDING:,} bytes, uncompressed. Record a shorter run.")
    return [line for line in text.split(b"\n") if line.strip()]


def write_lines(path: Path, lines: list[bytes]) -> None:
    """Write a recording; it replaces an existing one when it is complete. Raises `BadRecording`."""
    text = b"".join(line + b"\n" for line in lines)
    data = gzip.compress(text, mtime=0) if path.suffix == ".gz" else text
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(name, mode_at(path, 0o666))
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
    except OSError as error:
        raise BadRecording(f"cannot write {path}: {error.strerror or error}.") from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep the other processes of a test run from changing the recordings of this folder. Raises `BadRecording`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRecording(f"cannot write {path}: {error.strerror or error}.") from None
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # ends the lock
