"""JSON Lines: an optional header, then one event a line, in replay order. gzip by file ending.

The header is an object without `ts`: `{"format": "messager/1", "name", "tags", "meta",
"recorders"}`. An event has `ts` (integer ns UTC), `kind`, `channel`, `from_id`, `to_id` and
`payload`: the exact text as a string, or `payload_base64` where the bytes are not UTF-8;
likewise `channel_base64`. Import also takes an object, an array, a number, true, false or
null as `payload` and writes it as the wire would. Optional: `recorder` (its number, 1 where
it is not said), `derived`, `msg_id`, `duration_ns`, `receivers`, `meta`, and `redacted`: true
where the payload was taken out.

Events of equal `ts` keep the order of their lines, within a recorder; seqs are given anew,
in line order, so that there are no holes.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from uuid import uuid4

from messager import channels

from .. import experiments
from ..errors import BadFile, ExperimentExists, StoreError
from ..event import Event, NewEvent
from ..experiments import Experiment, RecorderRow
from ..jsontext import MOST_DEPTH, MOST_PARTS, is_crowded, is_deep
from ..log import EventLog, Writer
from ..messages import causes
from ..names import all_names
from ..removal import remove, sweep_imports
from ..schema import AGENT, FROM_DERIVED, KINDS, REDACTED, TO_DERIVED
from ..seals import SEAL, without_seal
from .files import written
from .sharing import Sharing

FORMAT = "messager/1"
BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024
_INT64 = 2**63
_MOST_RECORDERS = 1000
"""Recorders that an import makes without a header that tells of them."""
MOST_TOLD = 10_000
"""Recorders that a header may tell of."""
MOST_TAGS = 1000
MOST_LINE = 256 * 1024 * 1024
"""Bytes a line may have, unpacked. A longer one is refused when so much of it was read."""
MOST_NAME = 1024 * 1024
"""Bytes that a channel, an id or a text beside the payload may have."""
_HEADER_FIELDS = {"format", "name", "tags", "meta", "recorders"}
_EVENT_FIELDS = {
    "ts",
    "kind",
    "channel",
    "channel_base64",
    "from_id",
    "to_id",
    "payload",
    "payload_base64",
    "recorder",
    "derived",
    "msg_id",
    "duration_ns",
    "receivers",
    "meta",
    "label",
    "cause",
    "redacted",
}


_READABLE = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
"""As `json.dumps` has it, which makes an encoder anew for every line. What comes from a store is in no circle."""


def event_to_dict(entry: Event) -> dict[str, Any]:
    """The part of an event's line that export and `events --json` share."""
    data: dict[str, Any] = {"ts": entry.ts, "kind": entry.kind}
    _put_text(data, "channel", None if entry.channel is None else channels.encode(entry.channel))
    data["from_id"], data["to_id"] = entry.from_id, entry.to_id
    _put_text(data, "payload", entry.payload)
    if entry.redacted:
        data["redacted"] = True
    return data


def _put_text(data: dict[str, Any], field: str, value: bytes | None) -> None:
    try:
        data[field] = None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        data[f"{field}_base64"] = base64.b64encode(value or b"").decode()


def _line(entry: Event, labels: _Labels, *, several: bool) -> bytes:
    data = event_to_dict(entry)
    if several:
        data["recorder"] = entry.recorder
    optional = (
        ("label", labels.given_to(entry)),
        ("cause", labels.of_cause(entry)),
        ("derived", (entry.derived_ids or None) if entry.flags else None),
        ("msg_id", entry.msg_id),
        ("duration_ns", entry.duration_ns),
        ("receivers", entry.receivers),
        ("meta", without_seal(entry.meta) if entry.redacted else entry.meta),
    )
    for key, value in optional:
        if value is not None:
            data[key] = value
    return _dumped(data)


class _Labels:
    """Numbers for those events that later ones name as their cause: seqs are given anew by an import."""

    def __init__(self, causes: set[tuple[int, int]]) -> None:
        self._causes = causes
        self._labels: dict[tuple[int, int], int] = {}

    def given_to(self, entry: Event) -> int | None:
        """The label of an event that is somebody's cause."""
        if not self._causes or (place := (entry.recorder, entry.seq)) not in self._causes:
            return None
        return self._labels.setdefault(place, len(self._labels) + 1)

    def of_cause(self, entry: Event) -> int | None:
        """The label of an event's cause; None where that was not written before it."""
        return None if entry.cause is None else self._labels.get(entry.cause)


def _dumped(data: dict[str, Any]) -> bytes:
    text = _READABLE(data)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in an id or in meta
        return json.dumps(data).encode() + b"\n"


def _header(of: Experiment, recorders: list[RecorderRow], shared: Sharing | None) -> bytes:
    data = {
        "format": FORMAT,
        "name": of.name,
        "tags": of.tags,
        "meta": of.meta,
        "recorders": [_recorder_entry(row) for row in recorders],
    }
    return _dumped(data if shared is None else shared.header(data))


def _recorder_entry(row: RecorderRow) -> dict[str, Any]:
    """A recorder as the header tells of it; an imported one as it was told of before."""
    if row.role == "import" and row.meta:
        return row.meta
    return {
        "uuid": row.uuid,
        "role": row.role,
        "patterns": row.patterns,
        "host": row.host,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "meta": row.meta,
    }


async def export_jsonl(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int], None] | None = None,
    shared: Sharing | None = None,
    **filters: Any,
) -> int:
    """Write an experiment to a file (`-` for standard output); how many events.

    `filters` are those of `EventLog.read`. The file appears when it is complete; one that
    is there is replaced. The same events give the same bytes; with `shared`, they are changed on the
    way as it says (pseudonyms are others each time).
    """
    of = await log.experiment(exp_id)
    recorders = await experiments.recorders_of(log.database, of.id)
    count = 0
    labels = _Labels(await causes(log.database, of))
    with written(path) as file:
        if shared is not None:
            shared.begin((await all_names(log.database, of.id, AGENT)).values())
        file.write(_header(of, recorders, shared))
        async for entry in log.read(of, **filters):
            entry = entry if shared is None else shared.event(entry)
            file.write(_line(entry, labels, several=len(recorders) > 1))
            count += 1
            if progress and count % 1000 == 0:
                progress(count)
    return count


async def import_jsonl(
    log: EventLog,
    path: str | os.PathLike[str],
    exp_id: str,
    *,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Experiment:
    """Read a file (`-` for standard input) into a new, closed experiment.

    It is invisible until it is complete; where a line cannot be read, nothing of it stays.
    `name`, `tags` and `meta` go before, or beside, those of the header. Raises `BadFile` with
    the number of the line, and `ExperimentExists`.
    """
    experiments.checked_exp_id(exp_id)
    if await experiments.by_exp_id(log.database, exp_id) is not None:
        raise ExperimentExists(exp_id, "Import under another --exp.")
    await sweep_imports(log.database)
    source = _Source(path)
    with source.opened():
        header = source.header()
        of = await experiments.create(
            log.database,
            f"importing {exp_id} {uuid4().hex}",
            name=name or header.get("name"),
            tags={*tags, *header.get("tags", [])},
            meta={**header.get("meta", {}), **(meta or {})},
            status="importing",
        )
        assert of is not None
        try:
            await _import_events(log, of, source, header, progress)
            await experiments.publish_import(log.database, of, exp_id)
        except BaseException:
            await remove(log.database, of)
            raise
    made = await experiments.by_exp_id(log.database, exp_id)
    assert made is not None
    return made


async def _import_events(
    log: EventLog, of: Experiment, source: _Source, header: dict[str, Any], progress: Callable[[int], None] | None
) -> None:
    told = header.get("recorders", [])
    writers: list[Writer] = []

    async def writer(ordinal: int) -> Writer:
        while len(writers) < ordinal:  # ordinals are given in order
            facts = told[len(writers)] if len(writers) < len(told) else {}
            writers.append(await log.register(of, role="import", meta=facts))
        return writers[ordinal - 1]

    await writer(max(1, len(told)))  # also says that this import is alive
    waiting: dict[int, list[NewEvent]] = {}
    held = 0
    labelled: dict[int, tuple[int, int]] = {}
    seqs: dict[int, int] = {}
    for count, (ordinal, entry, label, cause, length) in enumerate(source.events(), 1):
        seqs[ordinal] = seqs.get(ordinal, 0) + 1
        if label is not None:
            labelled[label] = (ordinal, seqs[ordinal])
        if cause is not None:
            if cause not in labelled:
                raise source.bad(f"its cause, {cause}, is the label of no line before it")
            entry = entry._replace(cause=labelled[cause])
        waiting.setdefault(ordinal, []).append(entry)
        held += length
        if count % BATCH_EVENTS == 0 or held >= BATCH_BYTES:
            await _append(log, writer, waiting)
            held = 0
            if progress:
                progress(count)
    await _append(log, writer, waiting)


async def _append(log: EventLog, writer: Callable[[int], Any], waiting: dict[int, list[NewEvent]]) -> None:
    for ordinal in sorted(waiting):
        await log.append(await writer(ordinal), waiting[ordinal])
    waiting.clear()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once each: of two, nobody could say which one was meant."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:100]!r} is there twice")
    return found


class _Source:
    """The lines of an import file, as a header and events. Raises `BadFile` with the line's number."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._number = 0
        self._file: BinaryIO = io.BytesIO()
        self._length = 0
        self._first: dict[str, Any] | None = None
        self._most_recorders = _MOST_RECORDERS

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the file open, unpacked where it is gzip."""
        try:
            with contextlib.ExitStack() as stack:
                if self.path == "-":
                    raw: Any = sys.stdin.buffer
                else:
                    raw = stack.enter_context(open(self.path, "rb"))
                buffered = io.BufferedReader(raw) if not hasattr(raw, "peek") else raw
                packed = buffered.peek(2)[:2] == b"\x1f\x8b"
                file: Any = stack.enter_context(gzip.GzipFile(fileobj=buffered)) if packed else buffered
                self._file = file
                yield
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):
                raise self.bad(f"the gzip data is damaged ({error})") from None
            raise BadFile(self.path, None, error.strerror or str(error)) from None
        except (EOFError, zlib.error) as error:
            raise self.bad(f"the gzip data is damaged ({error})") from None

    def header(self) -> dict[str, Any]:
        """The header, or an empty one where the first line is an event already."""
        first = self._next()
        if first is None:
            raise BadFile(self.path, None, "it is empty")
        if "ts" in first:
            self._first = first
            return {}
        unknown = first.keys() - _HEADER_FIELDS
        if unknown:
            raise self.bad(f"neither an event (no ts) nor a header (unknown field {sorted(unknown)[0]!r})")
        if first.get("format", FORMAT) != FORMAT:
            raise self.bad(f"format {first['format']!r} is not known, only {FORMAT!r}")
        if not isinstance(first.get("name"), str | None):
            raise self.bad("the name is not a string")
        for field, kind in (("tags", str), ("recorders", dict)):
            items = first.get(field, [])
            if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
                raise self.bad(f"{field} is not a list of {'strings' if kind is str else 'objects'}")
        if not isinstance(first.get("meta", {}), dict):
            raise self.bad("meta is not an object")
        for field, most in (("tags", MOST_TAGS), ("recorders", MOST_TOLD)):
            if len(first.get(field, [])) > most:
                raise self.bad(f"{len(first[field]):,} {field}: there may be {most:,}")
        for text in (first.get("name") or "", *first.get("tags", [])):
            self._plain(text, "name or tag")
        try:
            experiments.checked_name(first.get("name"))
            experiments.checked_tags(first.get("tags", []))
        except StoreError as error:
            raise self.bad(str(error)) from None
        self._shallow(first.get("meta"), "meta")
        for facts in first.get("recorders", []):
            self._shallow(facts, "what is told of a recorder")
        self._most_recorders = max(_MOST_RECORDERS, len(first.get("recorders", [])))
        return first

    def events(self) -> Iterator[tuple[int, NewEvent, int | None, int | None, int]]:
        """(recorder's ordinal, event, its label, the label of its cause, bytes) of every line."""
        data, self._first = self._first or self._next(), None
        while data is not None:
            yield *self._event(data), self._length
            data = self._next()

    def _next(self) -> dict[str, Any] | None:
        """The next line that is not empty, as an object."""
        while line := self._file.readline(MOST_LINE + 1):
            self._number += 1
            self._length = len(line)
            if len(line) > MOST_LINE:
                raise self.bad(f"longer than {MOST_LINE:,} bytes")
            if not line.strip():
                continue
            if is_crowded(line):
                raise self.bad(f"made of more than {MOST_PARTS:,} values")
            try:
                data = json.loads(line, object_pairs_hook=_once)
            except UnicodeDecodeError:
                raise self.bad("not UTF-8") from None
            except (ValueError, RecursionError) as error:
                raise self.bad(f"not JSON ({error})") from None
            if not isinstance(data, dict):
                raise self.bad("not a JSON object")
            return data
        return None

    def _shallow(self, value: Any, field: str) -> None:
        """Refuse what is nested so deep that reading it again could fail."""
        if is_deep(value):
            raise self.bad(f"{field} is nested deeper than {MOST_DEPTH} levels")

    def _event(self, data: dict[str, Any]) -> tuple[int, NewEvent, int | None, int | None]:
        unknown = data.keys() - _EVENT_FIELDS
        if unknown:
            raise self.bad(f"unknown field {sorted(unknown)[0]!r}")
        ts = self._integer(data, "ts", -_INT64, _INT64 - 1)
        if ts is None:
            raise self.bad("no ts (an integer, ns UTC)")
        kind = data.get("kind", "sent")
        if kind not in KINDS:
            raise self.bad(f"kind {kind!r} is none of {', '.join(KINDS)}")
        channel = self._bytes(data, "channel")
        if channel is None and kind not in ("gap", "mark"):
            raise self.bad("no channel")
        for field in ("from_id", "to_id", "meta"):
            self._shallow(data.get(field), field)
        if self._length > MOST_NAME:
            self._short(channel, data)
        meta = data.get("meta")
        if meta is not None and not isinstance(meta, dict):
            raise self.bad("meta is not an object")
        msg_id = data.get("msg_id")
        if msg_id is not None and not isinstance(msg_id, str):
            raise self.bad("msg_id is not a string")
        if msg_id is not None:
            self._plain(msg_id, "msg_id")
        derived = data.get("derived") or []
        if not isinstance(derived, list) or not all(item in ("from_id", "to_id") for item in derived):
            raise self.bad("derived is not a list of from_id and to_id")
        bits = (FROM_DERIVED if "from_id" in derived else 0) | (TO_DERIVED if "to_id" in derived else 0)
        bits |= self._redacted(data)
        ordinal = self._integer(data, "recorder", 1, self._most_recorders)
        entry = NewEvent(
            kind,
            ts,
            None if channel is None else channels.decode(channel),
            self._payload(data),
            data.get("from_id"),
            data.get("to_id"),
            bits,
            msg_id,
            self._integer(data, "duration_ns", 0, _INT64 - 1),
            self._integer(data, "receivers", 0, 2**31 - 1),
            None,
            meta,
        )
        label, cause = (self._integer(data, field, 1, _INT64 - 1) for field in ("label", "cause"))
        return ordinal or 1, entry, label, cause

    def _short(self, channel: bytes | None, data: dict[str, Any]) -> None:
        """Refuse names out of all proportion: each is kept in memory as long as the import lasts."""
        for field in ("channel", "from_id", "to_id", "msg_id"):
            value = channel if field == "channel" else data.get(field)
            size = len(value) if isinstance(value, bytes) else len(json.dumps(value))
            if size > MOST_NAME:
                raise self.bad(f"{field} is longer than {MOST_NAME:,} bytes")

    def _redacted(self, data: dict[str, Any]) -> int:
        """The flag of an event that was redacted where it comes from."""
        if not isinstance(data.get("redacted", False), bool):
            raise self.bad("redacted is not true or false")
        if not data.get("redacted"):
            return 0
        if data.get("payload") or data.get("payload_base64"):
            raise self.bad("it is redacted, but has a payload")
        if SEAL in (data.get("meta") or {}):
            raise self.bad(f"meta.{SEAL} belongs to the log it comes from")
        return REDACTED

    def _payload(self, data: dict[str, Any]) -> bytes:
        if "payload" in data and not isinstance(data["payload"], str):
            if "payload_base64" in data:
                raise self.bad("both payload and payload_base64")
            try:
                return json.dumps(data["payload"]).encode()  # as a Messager would have sent it
            except RecursionError:
                raise self.bad("payload is nested too deep") from None
        return self._bytes(data, "payload") or b""

    def _bytes(self, data: dict[str, Any], field: str) -> bytes | None:
        """A field's exact bytes: of its text, or of its base64."""
        text, packed = data.get(field), data.get(f"{field}_base64")
        if text is not None and packed is not None:
            raise self.bad(f"both {field} and {field}_base64")
        if packed is not None:
            try:
                return base64.b64decode(packed, validate=True)
            except (ValueError, TypeError, binascii.Error):
                raise self.bad(f"{field}_base64 is not base64") from None
        if text is None:
            return None
        if not isinstance(text, str):
            raise self.bad(f"{field} is not a string")
        return self._plain(text, field)

    def _plain(self, text: str, field: str) -> bytes:
        """Text as UTF-8."""
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise self.bad(f"{field} holds half a character (a lone surrogate)") from None

    def _integer(self, data: dict[str, Any], field: str, low: int, high: int) -> int | None:
        value = data.get(field)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(f"{field} is not an integer")
        if not low <= value <= high:
            raise self.bad(f"{field} is not between {low} and {high}")
        return value

    def bad(self, reason: str) -> BadFile:
        """What is wrong with the line that was read last."""
        return BadFile(self.path, self._number or None, reason)
