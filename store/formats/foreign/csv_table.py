"""CSV with a header, UTF-8, a message a row; fields with tabs between them if the name ends in .tsv.

Columns by name, in any order: `ts` (integer, ns UTC) or `time` (ISO 8601, or seconds since 1970), `channel`, `from_id`,
`to_id`, `payload`, `kind` (by default sent); `COLUMNS` has the other names that are usual for them. Of two names for
one value, the first is used. An empty field is no id. Without a column `from_type` or `to_type`, an id that is written
as an integer is a number, and any other is text, as is one in quotes ("7"); with the type `string` an id is text, with
any other JSON. `payload_base64` holds a payload that is not UTF-8, `meta` a JSON object. So a file of `export` can be
read.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import limits
from ...log.event import NewEvent
from ..fields import INT64, InvalidEntry, bytes_of, integer, meta_of
from ..input_file import InputFile
from .source import Choices, Told, checked
from .times import Clock, seconds

COLUMNS = {
    "ts": ("ts", "time", "timestamp"),
    "channel": ("channel", "topic"),
    "from_id": ("from_id", "from", "sender"),
    "to_id": ("to_id", "to", "receiver", "recipient"),
    "payload": ("payload", "text", "message", "content"),
    "kind": ("kind",),
    "from_type": ("from_type",),
    "to_type": ("to_type",),
    "payload_base64": ("payload_base64",),
    "meta": ("meta",),
}
"""The values of an event, and the names of their columns."""
_KINDS = ("sent", "received", "blocked", "failed", "mark")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}", re.A)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?", re.A)


class Source(InputFile):
    """The messages of a table."""

    format = "csv"

    def __init__(self, path: str | os.PathLike[str], choices: Choices) -> None:
        super().__init__(path)
        self.told = Told()
        self._channel = choices.channel
        self._column = None if choices.column is None else choices.column.strip().lower()
        self.value = ""
        """The field of the last event in the column that was chosen."""
        self._clock = Clock(choices.timezone, self.told)
        self._characters = self._delimiters = 0
        """Of the lines of the row that is being read."""
        name = Path(self.path)
        self._delimiter = "\t" if ".tsv" in (suffix.lower() for suffix in name.suffixes[-2:]) else ","

    def events(self) -> Iterator[NewEvent]:
        """Yield the rows in order. Empty rows are skipped."""
        rows = self._rows()
        header = [name.strip().lower() for name in next(rows, [])]
        places = self._places(header)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise InvalidEntry(f"{len(row)} fields, but the header has {len(header)} columns")
            if self._column is not None:
                self.value = row[header.index(self._column)]
            entry = self._event({name: row[at] for name, at in places.items()})
            if entry is not None:
                yield entry

    def _places(self, header: list[str]) -> dict[str, int]:
        """Return the position of each column that is used, by its value: `ts`, or `time` in another form."""
        if len(set(header)) < len(header):
            raise InvalidEntry(f"two columns have the same name: {', '.join(header):.200}")
        found = {}
        for value, names in COLUMNS.items():
            name = next((name for name in names if name in header), None)
            if name is not None:
                found["time" if value == "ts" != name else value] = header.index(name)
            elif value in ("ts", "payload"):
                raise InvalidEntry(
                    f"no column {', '.join(names[:-1])} or {names[-1]}; the columns are {', '.join(header):.200}"
                )
        if "channel" not in found:
            if self._channel is None:
                raise InvalidEntry("no column channel. Name a channel for all messages with --channel")
            self.told.choose("channel", self._channel, "")
        if self._column is not None and self._column not in header:
            raise InvalidEntry(f"no column {self._column}; the columns are {', '.join(header):.200}")
        known = {self._column, *(name for names in COLUMNS.values() for name in names)}
        if unknown := [name for name in header if name not in known]:
            self.told.left_out[f"columns {', '.join(unknown):.200}"] = len(unknown)
        return found

    def _event(self, row: dict[str, str]) -> NewEvent | None:
        kind = row.get("kind") or "sent"
        if kind in ("gap", "asked", "answered"):
            self.told.left_out[f"rows of kind {kind}"] += 1
            return None
        if kind not in _KINDS:
            raise InvalidEntry(f"kind {kind!r:.60} is none of {', '.join(_KINDS)}")
        said = row["payload"].encode()
        if row.get("payload_base64"):
            said = bytes_of({"payload_base64": row["payload_base64"]}, "payload") or b""
        meta = meta_of(row["meta"]) if row.get("meta") else None
        if kind == "mark":
            return checked(NewEvent(kind, self._ts(row), None, b"", meta=meta or {"name": said.decode(), "fields": {}}))
        channel = row.get("channel", self._channel)
        if not channel:
            raise InvalidEntry("no channel")
        from_id, to_id = _agent(row, "from"), _agent(row, "to")
        return checked(NewEvent(kind, self._ts(row), channel, said, from_id, to_id, meta=meta))

    def _ts(self, row: dict[str, str]) -> int:
        if "ts" in row:
            if not re.fullmatch(r"-?[0-9]{1,19}", row["ts"].strip(), re.A):
                raise InvalidEntry(f"ts {row['ts']!r:.60} is not an integer (ns UTC)")
            return integer(int(row["ts"]), "ts", -INT64, INT64 - 1)
        when = row["time"].strip()
        return seconds(when, "time") if _NUMBER.fullmatch(when) else self._clock.iso(when, "time")

    def _rows(self) -> Iterator[list[str]]:
        """Yield the rows; `line_number` is that of the first line of the row."""
        csv.field_size_limit(2**31 - 1)  # `_lines` has the limits
        reader = csv.reader(self._lines(), delimiter=self._delimiter, strict=True)
        while True:
            begun = self._number + 1
            self._characters = self._delimiters = 0
            try:
                row = next(reader, None)
            except csv.Error as error:
                self._number = begun
                raise InvalidEntry(f"not CSV ({error})") from None
            if row is None:
                return
            read, self._number = self._number, begun
            yield row
            self._number = read

    def _lines(self) -> Iterator[str]:
        """Yield lines, before the parser takes them apart: it has no limit for the fields of a row."""
        while line := self._line():
            self._delimiters += line.count(self._delimiter.encode())
            if self._number == 1 and self._delimiters >= limits.MOST_COLUMNS:
                raise InvalidEntry(f"more than {limits.MOST_COLUMNS:,} columns")
            if self._delimiters > limits.MOST_PARTS:
                raise InvalidEntry(f"a row with more than {limits.MOST_PARTS:,} commas or tabs")
            try:
                text = line.decode("utf-8-sig" if self._number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InvalidEntry("not UTF-8") from None
            self._characters += len(text)
            if self._characters > limits.MOST_CHARACTERS:
                raise InvalidEntry(f"a row longer than {limits.MOST_CHARACTERS:,} characters")
            yield text


def _agent(row: dict[str, str], side: str) -> Any:
    """Return the sender or the recipient of a row."""
    written, kind = row.get(f"{side}_id", ""), row.get(f"{side}_type")
    if not written and not kind:
        return None
    if kind:
        return written if kind == "string" else _json(written, f"{side}_id")
    if _INTEGER.fullmatch(written):
        return int(written)
    return written[1:-1] if len(written) > 1 and written[0] == written[-1] == '"' else written


def _json(written: str, field: str) -> Any:
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        raise InvalidEntry(f"{field} {written!r:.60} is not JSON") from None
