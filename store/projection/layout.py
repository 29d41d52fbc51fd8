"""Files of a projection: a manifest, and for each part its events and the state of the rule behind it.

    FOLDER/manifest.json                what it covers, and its parts
    FOLDER/lock                         held by the process that writes
    FOLDER/5f0c3a9d21be.parquet         never changed; a part that is replaced gets another name
    FOLDER/5f0c3a9d21be.state.json.gz   where the next part begins
    FOLDER/9d21be5f0c3a.tail            the events behind the parts, in the same form

The manifest is replaced by rename, so that a reader sees one or the other. A part that it does not name any more is
deleted an hour later: a question may still read it. A tail is read at once, and deleted when another one is there.

A redaction deletes the whole folder, also while somebody writes. The writer has opened the folder before it read any
event, and makes its files in that one: of what it knows from before the redaction, nothing gets into the next folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from ..log.text import DECODER_VERSION
from .schema import pyarrow, schema

FORMAT = "messager-projection/2"
MANIFEST = "manifest.json"
LOCK = "lock"
EVENTS = "parquet"
STATE = "state.json.gz"
TAIL = "tail"
KEPT_S = 3600.0
"""Time for which a part stays that was replaced."""

Place = tuple[int, int]
"""ts and id of the last event of a part."""


def _format() -> list[Any]:
    """Return what differs in a projection that this version cannot use."""
    return [FORMAT, DECODER_VERSION, schema().names]


@dataclass(slots=True)
class Part:
    """The decisions about the events behind those of the part before, up to its place."""

    name: str
    place: Place
    events: int
    whole: bool
    """True if the next part may follow; False for a last part that is made again with what follows."""
    sha256: dict[str, str]
    """By the ending of the name of a file."""
    hurried: int
    """Messages that were decided early, because too many were undecided (`MessageRule.hurried`)."""


@dataclass(slots=True)
class Manifest:
    """What a projection covers."""

    recorders: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By uuid, the last seq, and the chain hash of its batch: a redaction changes it."""
    retracted: list[int] = field(default_factory=list)
    """Ids of sendings that were retracted."""
    parts: list[Part] = field(default_factory=list)
    tail: str | None = None
    """Name of the file of the tail."""
    hurried: int = 0
    """Messages of the tail that were decided early."""

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Return the manifest of a folder; an empty one if there is none, or it is of another format."""
        try:
            data = json.loads((folder / MANIFEST).read_bytes())
            if data["format"] != _format():
                return cls()
            recorders = {uuid: (seq, head) for uuid, (seq, head) in data["recorders"].items()}
            parts = [Part(**{**part, "place": tuple(part["place"])}) for part in data["parts"]]
            return cls(recorders, data["retracted"], parts, data["tail"], data["hurried"])
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    @property
    def files(self) -> set[str]:
        """Names of the files that it needs."""
        return {f"{self.tail}.{TAIL}", *(f"{part.name}.{ending}" for part in self.parts for ending in part.sha256)}


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """A folder that this process alone writes to. Once it is deleted, each write raises `FileNotFoundError`."""

    path: Path
    descriptor: int
    mode: int
    """That of its files, for any umask."""

    def write(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        """Write a file."""
        with open(name, "wb", opener=self._open) as file:
            os.fchmod(file.fileno(), self.mode)
            write(file)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, self.mode, dir_fd=self.descriptor)

    def replace(self, manifest: Manifest) -> None:
        """Replace the manifest, and delete the files that are not needed any more."""
        data = json.dumps({"format": _format(), **asdict(manifest)}).encode()
        made = f"{uuid4().hex}.new"
        self.write(made, lambda file: file.write(data))
        os.replace(made, MANIFEST, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        self._delete(manifest, lambda name, made: name.endswith(f".{TAIL}") or time.time() - made > KEPT_S)

    def tidy(self, manifest: Manifest) -> None:
        """Delete what is newer than the manifest: an update that failed or was killed has left it."""
        try:
            replaced = os.stat(MANIFEST, dir_fd=self.descriptor).st_mtime
        except FileNotFoundError:
            replaced = -1.0
        self._delete(manifest, lambda _, made: made > replaced)

    def clear(self) -> None:
        """Delete all files."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(MANIFEST, dir_fd=self.descriptor)
        self._delete(Manifest(), lambda *_: True)

    def _delete(self, manifest: Manifest, is_old: Callable[[str, float], bool]) -> None:
        """Delete files that a manifest does not name, by their names and times."""
        for name in set(os.listdir(self.descriptor)) - {MANIFEST, LOCK} - manifest.files:
            with contextlib.suppress(OSError):
                if is_old(name, os.stat(name, dir_fd=self.descriptor).st_mtime):
                    os.unlink(name, dir_fd=self.descriptor)


@contextlib.contextmanager
def writing(folder: Path, mode: int) -> Iterator[OpenFolder]:
    """Make a folder, and hold its lock: one process writes at a time."""
    _make(folder, mode | (mode & 0o444) >> 2)  # one who may read a file may search its folder
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _lock(descriptor, mode) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield OpenFolder(folder, descriptor, mode)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, mode: int) -> BinaryIO:
    try:
        lock = os.open(LOCK, os.O_RDWR, dir_fd=descriptor)
    except FileNotFoundError:
        lock = os.open(LOCK, os.O_CREAT | os.O_RDWR, mode, dir_fd=descriptor)
        os.fchmod(lock, mode)
    return open(lock, "r+b")


def _make(folder: Path, mode: int) -> None:
    """Make a folder, and those above it, unless they exist."""
    if not folder.is_dir():
        _make(folder.parent, mode)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode)
            folder.chmod(mode)


def state_of(folder: Path, part: Part) -> Any:
    """Return the state of the rule behind a part."""
    return json.loads(gzip.decompress((folder / f"{part.name}.{STATE}").read_bytes()))


def tail_of(folder: Path, name: str) -> Any:
    """Return a tail as a `pyarrow.Table`. Raises `FileNotFoundError` if another one is there now."""
    return pyarrow().parquet.read_table(folder / f"{name}.{TAIL}").cast(schema())


def write_tail(folder: OpenFolder, table: Any) -> str:
    """Write a tail; return its name."""
    name = uuid4().hex[:12]
    folder.write(f"{name}.{TAIL}", partial(_write_table, table))
    return name


def _write_table(table: Any, file: BinaryIO) -> None:
    named = [field.name for field in table.schema if pyarrow().types.is_dictionary(field.type)]
    pyarrow().parquet.write_table(table, file, compression="zstd", use_dictionary=named)


def write_part(folder: OpenFolder, table: Any, state: bytes) -> tuple[str, dict[str, str]]:
    """Write the files of a part; return its name, and the SHA-256 of each file."""
    name = uuid4().hex[:12]
    packed = gzip.compress(state, 1, mtime=0)  # equal states have equal files
    folder.write(f"{name}.{EVENTS}", partial(_write_table, table))
    folder.write(f"{name}.{STATE}", lambda file: file.write(packed))
    return name, {ending: digest(folder.path / f"{name}.{ending}") for ending in (EVENTS, STATE)}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        found = sha256()
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()
