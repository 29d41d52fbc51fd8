"""Plain loops: the work of the verbs that walk a whole log, with `sqlite3`, `json` and `hashlib` alone.

They read and write the same columns and tables as the verbs, except batches: events with all columns, names, and the
side tables that an import fills. They make no checks, know one recorder, and trust their input. Each takes the path of
a store or a file and returns the number of events, so that the bench can compare it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from messager_store.db.codes import AGENT, CHANNEL, KINDS
from messager_store.db.statements import EVENT_COLUMNS

PAGE = 5000
"""Rows fetched, or inserted in one transaction."""
_FIELDS = ("ts", "kind", "channel", "from_id", "to_id", "payload")
_NUMBERS = struct.Struct("<qqBBiii")
_COLUMNS = ", ".join(EVENT_COLUMNS)
_KIND = {kind: code for code, kind in enumerate(KINDS, 1)}


def hash_rows(store: Path) -> int:
    """Read the events in order of seq, hash each with its names, and count."""
    count, whole = 0, hashlib.sha256()
    for encoded, _, _ in _encoded(store):
        whole.update(encoded)
        crc32(encoded)
        count += 1
    return count


def compare(one: Path, other: Path) -> int:
    """Read two stores in replay order, compare the digests of their payloads channel by channel, and count both."""
    sides = [_by_channel(one), _by_channel(other)]
    for channel in sides[0].keys() | sides[1].keys():
        for a, b in zip(sides[0].get(channel, []), sides[1].get(channel, []), strict=True):
            if a[2] != b[2]:
                raise ValueError(f"{a[:2]} and {b[:2]} differ")
    return sum(len(seen) for side in sides for seen in side.values())


def _by_channel(store: Path) -> dict[str, list[tuple[int, int, bytes]]]:
    """Return the id, the ts and the digest of each message of each channel."""
    found: dict[str, list[tuple[int, int, bytes]]] = {}
    with _opened(store) as connection:
        names = _texts(connection)
        query = "SELECT id, ts, channel_id, payload FROM event WHERE experiment_id = 1 ORDER BY ts, id"
        for number, ts, channel, payload in _fetched(connection.execute(query)):
            found.setdefault(names[channel], []).append((number, ts, hashlib.sha256(payload).digest()))
    return found


def write_pack(store: Path, path: Path) -> int:
    """Write each event as a line, hash the events and the lines, and count."""
    count, whole, lines = 0, hashlib.sha256(), hashlib.sha256()
    with path.open("wb") as file:
        for encoded, row, names in _encoded(store):
            whole.update(encoded)
            crc32(encoded)
            line = json.dumps(_as_dict(row, names), ensure_ascii=False).encode() + b"\n"
            lines.update(line)
            file.write(line)
            count += 1
    return count


def read_pack(path: Path, store: Path) -> int:
    """Parse the lines of `write_pack`, hash the events and the lines, insert them as `read_lines` does, and count."""
    whole, lines = hashlib.sha256(), hashlib.sha256()
    with path.open("rb") as file, _loading(store) as loading:
        for seq, line in enumerate(file, 1):
            lines.update(line)
            data = json.loads(line)
            payload = data["payload"].encode()
            names = [b"" if data[field] is None else data[field].encode() for field in ("channel", "from_id", "to_id")]
            head = _NUMBERS.pack(seq, data["ts"], _KIND[data["kind"]], 0, *map(len, names))
            encoded = b"".join((head, *names, payload))
            whole.update(encoded)
            crc32(encoded)
            loading.add(seq, data, payload)
    return seq


def write_lines(store: Path, path: Path) -> int:
    """Read the events in replay order, write each as a line, and count."""
    count = 0
    with _opened(store) as connection, path.open("wb") as file:
        names = _texts(connection)
        query = f"SELECT {_COLUMNS} FROM event WHERE experiment_id = 1 ORDER BY ts, id"
        for row in _fetched(connection.execute(query)):
            file.write(json.dumps(_as_dict(row, names), ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def read_lines(path: Path, store: Path) -> int:
    """Parse the lines of `write_lines`, insert the events and their names, and count."""
    with path.open("rb") as file, _loading(store) as loading:
        for number, line in enumerate(file, 1):
            data = json.loads(line)
            loading.add(number, data, data["payload"].encode())
    return number


def _encoded(store: Path) -> Iterator[tuple[bytes, Any, dict[Any, Any]]]:
    """Yield each event in order of seq: its bytes for the hash, its row, and the text of all names."""
    with _opened(store) as connection:
        texts = _texts(connection)
        names = {number: b"" if text is None else json.dumps(text).encode() for number, text in texts.items()}
        for row in _fetched(connection.execute(f"SELECT {_COLUMNS} FROM event ORDER BY id")):
            number, _, ts, kind, channel, sender, recipient, _, flags, attributes, payload = row
            parts = names[channel], names[sender], names[recipient]
            head = _NUMBERS.pack(number, ts, kind, flags, *map(len, parts))
            yield b"".join((head, *parts, (attributes or "").encode(), payload)), row, texts


def _as_dict(row: Any, names: dict[Any, Any]) -> dict[str, Any]:
    _, _, ts, kind, channel, sender, recipient, _, _, _, payload = row
    values = (ts, KINDS[kind - 1], names[channel], names[sender], names[recipient], payload.decode())
    return dict(zip(_FIELDS, values, strict=True))


def _texts(connection: sqlite3.Connection) -> dict[Any, Any]:
    """Return the text of each channel, and the id of each agent, by id of the name."""
    found: dict[Any, Any] = {None: None}
    for number, what, text in connection.execute("SELECT id, what, text FROM name"):
        found[number] = json.loads(text) if what else text
    return found


def _fetched(cursor: sqlite3.Cursor) -> Iterator[Any]:
    while rows := cursor.fetchmany(PAGE):
        yield from rows


@contextmanager
def _opened(store: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(store)) as connection:
        yield connection


class _Loading:
    """Insertion of events and names into a new file, one transaction a page."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[tuple[int, str | None], int | None] = {(CHANNEL, None): None, (AGENT, None): None}
        self._events: list[tuple[Any, ...]] = []
        self._names: list[tuple[int, int, str]] = []

    def add(self, seq: int, data: dict[str, Any], payload: bytes) -> None:
        """Add an event; write a full page."""
        ts, code = data["ts"], _KIND[data["kind"]]
        channel, sender = self._id(CHANNEL, data["channel"]), self._id(AGENT, data["from_id"])
        names = channel, sender, self._id(AGENT, data["to_id"]), None
        self._events.append((seq, 1, ts, code, *names, 0, None, payload))
        if len(self._events) == PAGE:
            self.flush()

    def _id(self, what: int, value: str | None) -> int | None:
        if (what, value) not in self._ids:
            self._ids[what, value] = number = len(self._ids)
            self._names.append((number, what, value or ""))
        return self._ids[what, value]

    def flush(self) -> None:
        """Write the page."""
        insert = self._connection.executemany
        self._connection.execute("BEGIN IMMEDIATE")
        insert("INSERT INTO name VALUES (?, ?, ?)", self._names)
        insert(f"INSERT INTO event VALUES ({', '.join('?' * len(EVENT_COLUMNS))})", self._events)
        self._connection.execute("COMMIT")
        for waiting in (self._names, self._events):
            waiting.clear()


@contextmanager
def _loading(store: Path) -> Iterator[_Loading]:
    """Create a file with the tables, WAL, synchronous FULL; yield the insertion of events."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE name (id INTEGER PRIMARY KEY, what, value, UNIQUE (what, value))")
        connection.execute(f"CREATE TABLE event (id INTEGER PRIMARY KEY, {', '.join(EVENT_COLUMNS[1:])})")
        connection.execute("CREATE INDEX by_ts ON event (experiment_id, ts, id)")
        loading = _Loading(connection)
        yield loading
        loading.flush()
