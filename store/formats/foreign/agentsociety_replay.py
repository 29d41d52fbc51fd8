"""Replay files of AgentSociety 2: the folder `replay` of a run, or one file of it.

The folder has `_schema.json`, which describes tables, and rows of JSON in `TABLE.SHARD.jsonl`, 256 shards a table. The
rows of a shard have no order: they are sorted by their time, and then by the columns that the table names. Rows of
event streams (`kind` event_stream, such as `social_media_event`) become messages on a channel with the name of the
table: the sender is the column `entity_key`, the recipient `receiver_id`. Rows of the timeline become marks `step`.
Other tables (profiles, states of agents and environments) are not messages and are left out.

Times are those of the simulation, mostly without a zone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BadFile
from ...log.event import NewEvent
from ..input_file import InputFile, parse_object
from .source import Choices, Told, as_sent, checked
from .times import Clock

SCHEMA = "_schema.json"
_STREAM, _TIMELINE = "event_stream", "simulation_timeline"
_MOST_COLUMNS = 4
"""Maximum number of columns that rows of equal times are sorted by."""


class _Table(NamedTuple):
    """A table of events, as the schema describes it."""

    name: str
    is_timeline: bool
    time: str
    sender: str | None
    order: tuple[str, ...]


class Source:
    """The messages of a replay."""

    format = "agentsociety-replay"

    def __init__(self, path: str | os.PathLike[str], choices: Choices) -> None:
        self.path = str(path)
        self.told = Told()
        self._clock = Clock(choices.timezone, self.told)
        chosen = Path(path)
        self._folder = chosen if chosen.is_dir() else chosen.parent
        self._only = None if chosen.is_dir() else chosen

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Sort the rows into a temporary database, and close it in the end."""
        with contextlib.closing(sqlite3.connect("")) as self._sorted:  # a private file, deleted when closed
            self._sorted.execute("CREATE TABLE entry (ts, a, b, c, d, place INTEGER PRIMARY KEY, name, line)")
            self._tables = self._described()
            for path in self._files():
                self._read(path, path.name.rsplit(".", 2)[0])
            yield

    def events(self) -> Iterator[NewEvent]:
        """Yield the rows of all event streams in the order of their times."""
        for name, line in self._sorted.execute("SELECT name, line FROM entry ORDER BY ts, a, b, c, d, place"):
            yield self._event(self._tables[name], parse_object(line))

    def provenance(self) -> dict[str, str]:
        """Return the name of the folder, or of the file."""
        return {"file": (self._only or self._folder.absolute()).name}

    def _files(self) -> list[Path]:
        """Return the files with rows, in the order of their names."""
        if self._only is not None:
            return [self._only]
        return sorted(path for path in self._folder.glob("*.jsonl") if not path.name.startswith("."))

    def _described(self) -> dict[str, _Table]:
        path = self._folder / SCHEMA
        try:
            schema = json.loads(path.read_bytes())
            return {table.name: table for data in schema["datasets"].values() if (table := _table(data)) is not None}
        except FileNotFoundError:
            raise BadFile(str(path), None, "a replay has this file beside its rows, and it is not there") from None
        except OSError as error:
            raise BadFile(str(path), None, error.strerror or str(error)) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise BadFile(str(path), None, "no schema of a replay (datasets, each with a table_name)") from None

    def _read(self, path: Path, name: str) -> None:
        table, rows = self._tables.get(name), _Rows(path)
        with rows.opened():
            while line := rows.next():
                if table is None:
                    self.told.left_out[f"rows of {name}"] += 1
                    continue
                row = parse_object(line)
                key = [_sortable(row.get(column)) for column in table.order]
                key += [None] * (_MOST_COLUMNS - len(key))
                values = (self._event(table, row).ts, *key, name, line)
                self._sorted.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, NULL, ?, ?)", values)

    def _event(self, table: _Table, row: dict[str, Any]) -> NewEvent:
        ts = self._clock.iso(row.get(table.time), table.time)
        if table.is_timeline:
            fields = {name: value for name, value in row.items() if name != table.time}
            return checked(NewEvent("mark", ts, None, b"", meta={"name": "step", "fields": fields}))
        sender = None if table.sender is None else row.get(table.sender)
        return checked(NewEvent("sent", ts, table.name, as_sent(row), sender, row.get("receiver_id")))


class _Rows(InputFile):
    """The lines of a shard."""

    def next(self) -> bytes:
        """Return the next line that is not empty; nothing at the end."""
        while line := self._line():
            if line.strip():
                return line
        return b""


def _table(data: dict[str, Any]) -> _Table | None:
    """Return the table of a dataset; None if its rows are not events in time. Raises if it describes no table."""
    is_timeline = _TIMELINE in (data.get("capabilities") or ())
    if not data.get("time_key") or not (is_timeline or data.get("kind") == _STREAM):
        return None
    name, time, sender = data["table_name"], data["time_key"], data.get("entity_key")
    if not all(isinstance(text, str) for text in (name, time, "" if sender is None else sender)):
        raise TypeError("names of tables and columns are text")
    order = [column for column in data.get("default_order") or () if isinstance(column, str)]
    return _Table(name, is_timeline, time, sender, tuple(order[:_MOST_COLUMNS]))


def _sortable(value: Any) -> int | float | str | None:
    """Return a value that SQLite can hold and compare."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value if isinstance(value, int | float | str | None) else json.dumps(value)
