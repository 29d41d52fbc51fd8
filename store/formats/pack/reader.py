"""Unpacking: a pack becomes the same experiment again, and every link of its hash chains is checked.

Packs are not trusted. Every value is checked before it is used, memory does not grow with what a pack claims,
and nothing is visible in the store before the end of the pack was read.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from typing import Any

from ...db.codes import KINDS, NO_TEXT, REDACTED, SEQ_BITS
from ...db.schema import VISIBLE
from ...errors import ExperimentExists, StoreError
from ...experiments import validation
from ...experiments.records import Experiment
from ...json_text import escapes_half, is_no_text
from ...log import chain
from ...log.attributes import checked
from ...log.chain_counters import Counters
from ...log.event_log import EventLog
from ...log.names import agent_value
from ...log.redaction_records import RecorderName, RedactionCheck, RedactionRow
from ...maintenance.removal import discard, sweep_unfinished
from ..chain_loader import Chain, Named, check_seal
from ..fields import (
    INT64,
    NO_CHANNEL,
    InvalidEntry,
    bytes_of,
    check_depth,
    encoded,
    integer,
    json_text,
    meta_of,
    text,
    text_of,
)
from ..input_file import InputFile, parse_object
from .layout import (
    BATCH,
    EXPERIMENT,
    FORMAT,
    MOST_RECORDERS,
    MOST_REDACTIONS,
    RECORDER,
    REDACTION,
    row_from_json,
)
from .restoring import HiddenExperiment

_MOST_REDACTION_BYTES = 64 * 1024 * 1024
_MOST_EPOCH = 1 << 30
"""Epochs are raised later. One below zero marks a gathered recorder: none of a pack is one."""
_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_KIND = {kind: code for code, kind in enumerate(KINDS, 1)}
_EVENT_FIELDS = {
    "ts",
    "kind",
    "channel",
    "channel_base64",
    "from_id",
    "from_id_base64",
    "to_id",
    "to_id_base64",
    "flags",
    "attributes",
    "payload",
    "payload_base64",
    "messager",
}


async def unpack(
    log: EventLog,
    path: str | os.PathLike[str],
    *,
    exp_id: str | None = None,
    head: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Experiment:
    """Restore an experiment from a pack (`-` for standard input), with the same recorders and the same head.

    `exp_id` replaces the exp_id of the pack; `head` is the expected head, or its beginning. Everything is checked; if
    anything differs, nothing is imported. Raise `BadFile` with the number of the line, `ExperimentExists`, and
    `RecorderExists` if the store has these recordings already.
    """
    lines = _PackFile(path)
    with lines.opened():
        return await _unpack(log, lines, exp_id, head, progress)


async def _unpack(
    log: EventLog,
    lines: _PackFile,
    exp_id: str | None,
    head: str | None,
    progress: Callable[[int, int], None] | None,
) -> Experiment:
    of, tags, redactions, told = _description(lines)
    wanted = of["exp_id"] if exp_id is None else validation.checked_exp_id(exp_id)
    await sweep_unfinished(log)
    loading = await HiddenExperiment.begin(log.database, of, wanted, tags)
    try:
        await _recorders(lines, loading, of)
        if await log.has_experiment(wanted):  # and it is a different recording
            raise ExperimentExists(wanted, "Unpack it under another --exp.")
        pairs = ((row["uuid"], row["seal"] or row["head_hash"]) for row in loading.claims)
        claimed = chain.head(pairs)
        if claimed != told:
            raise InvalidEntry(f"its recorders have the head {claimed}, but it names {told}")
        if head is not None and not (head and claimed.startswith(head)):
            raise InvalidEntry(f"its head is {claimed}, not {head}")
        seals = await _redactions(lines, loading, redactions)
        loading.check_space()
        await _events(lines, loading, seals, progress)
        lines.check_end()
        await loading.publish(of, wanted)
    except BaseException:
        await discard(log, loading.of)
        raise
    return await log.experiment(wanted)


def _description(lines: _PackFile) -> tuple[dict[str, Any], list[str], int, str]:
    """Return the row of the experiment, its tags, the number of its redactions, and its head."""
    try:
        first = lines.next()
    except InvalidEntry as error:
        raise InvalidEntry(f"not a pack ({error})") from None
    if first.get("format") != FORMAT:
        if str(first.get("format")).startswith("messager/") or "ts" in first:
            raise InvalidEntry("this is an export, not a pack; read it with `messager import`")
        raise InvalidEntry(f"not a pack: it does not begin with the format {FORMAT!r}")
    data = lines.next("experiment", "tags", "redactions", "head")
    of = row_from_json(EXPERIMENT, data["experiment"])
    integer(of["recorders"], "recorders", 0, MOST_RECORDERS)
    if of["status"] not in VISIBLE or (of["status"] == "closed") != (of["closed_at"] is not None):
        raise InvalidEntry(f"the status {of['status']!r} and the time of closing do not fit")
    meta_of(of["meta"])
    _check_parent(of)
    tags = data["tags"]
    if not isinstance(tags, list) or len(tags) > MOST_RECORDERS:
        raise InvalidEntry("tags is not a list of strings")
    try:
        validation.checked_exp_id(of["exp_id"])
        validation.checked_name(of["name"])
        tags = validation.checked_tags(text(word, "a tag") for word in tags)
    except StoreError as error:
        raise InvalidEntry(str(error)) from None
    redactions = integer(data["redactions"], "redactions", 0, MOST_REDACTIONS)
    return of, tags, redactions, text(data["head"], "head")


def _check_parent(of: dict[str, Any]) -> None:
    """Raise `InvalidEntry` if what an experiment says of its parent could not be exported."""
    given = [of.get(key) for key in ("parent_exp_id", "parent_head", "parent_cursor")]
    if any(value is None for value in given) and given != [None, None, None]:
        raise InvalidEntry("parent_exp_id, parent_head and parent_cursor are not all given, or all null")
    if given[1] is not None and len(given[1]) != 32:
        raise InvalidEntry("parent_head is not a SHA-256 in hex")


async def _recorders(lines: _PackFile, loading: HiddenExperiment, of: dict[str, Any]) -> None:
    """Read the rows of the recorders, a page at a time."""
    page: list[dict[str, Any]] = []
    count = of["recorders"]
    for ordinal in range(1, count + 1):
        page.append(_recorder(lines.next("recorder")["recorder"], ordinal))
        if len(page) == 200 or ordinal == count:
            await loading.add_recorders(page, lines.path)
            page = []


async def _redactions(lines: _PackFile, loading: HiddenExperiment, count: int) -> RedactionCheck:
    """Read the records of redactions, which the events are checked against."""
    rows = []
    size = 0
    for _ in range(count):
        row = row_from_json(REDACTION, lines.next("redaction")["redaction"])
        json_text(row["events"], "events", object)
        size += len(row["events"])
        if size > _MOST_REDACTION_BYTES:
            raise InvalidEntry(f"its redactions list events in more than {_MOST_REDACTION_BYTES:,} characters")
        rows.append(RedactionRow(0, **row))
        await loading.add_redaction(row)
    seals = RedactionCheck.of(rows)
    if seals.problems:
        raise InvalidEntry(seals.problems[0])
    return seals


async def _events(
    lines: _PackFile, loading: HiddenExperiment, seals: RedactionCheck, progress: Callable[[int, int], None] | None
) -> None:
    """Read every batch with its events, and check each against the chain before it is added."""
    total = sum(row["last_seq"] for row in loading.claims)
    done = 0
    events = _Events(loading)
    for ordinal, claims in enumerate(loading.claims, 1):
        sealed = Chain(f"recorder {ordinal}", Counters.before(claims["uuid"]))
        named = RecorderName(ordinal, claims["uuid"])
        seals.link(named, 0, chain.first_link(claims["uuid"]))
        size = 0
        while sealed.last_seq < claims["last_seq"]:
            part = row_from_json(BATCH, lines.next("batch")["batch"])
            sealed.begin(part)
            for _ in range(part["count"]):
                ts, kind, names, flags, attributes, payload = events.read(lines.next(), sealed)
                if seals.rows or flags & REDACTED:
                    seals.add(named, claims["role"], sealed.last_seq, flags, attributes, payload)
                    if (problem := seals.first_problem()) is not None:
                        raise InvalidEntry(problem)
                size += len(payload)
                if size > claims["payload_bytes"]:
                    raise InvalidEntry(f"recorder {ordinal} has more bytes of payload than its row")
                done += 1
                place = claims["id"], sealed.last_seq
                if loading.loader.add_event(*place, ts, kind, names, flags, attributes, payload):
                    await loading.flush()
                    if progress:
                        progress(done, total)
            sealed.end()
            seals.link(named, sealed.last_seq, part["chain_hash"])
            loading.loader.add_batch(claims["id"], part)
        sealed.check_row(claims)
        loading.complete(claims)
        if loading.is_full:
            await loading.flush()
    await loading.flush()
    for problem in seals.finish():
        raise InvalidEntry(problem)


def _recorder(data: Any, ordinal: int) -> dict[str, Any]:
    row = row_from_json(RECORDER, data)
    integer(row["epoch"], "epoch", 1, _MOST_EPOCH)
    if row["ordinal"] != ordinal:
        raise InvalidEntry(f"recorder {row['ordinal']} is in the place of recorder {ordinal}")
    if not _UUID.fullmatch(row["uuid"]):
        raise InvalidEntry(f"{row['uuid']!r} is not a uuid of a recorder")
    if not all(isinstance(pattern, str) for pattern in json_text(row["patterns"], "patterns", list)):
        raise InvalidEntry("patterns is not a list of strings")
    meta_of(row["meta"])
    integer(row["last_seq"], "last_seq", 0, (1 << SEQ_BITS) - 1)
    integer(row["payload_bytes"], "payload_bytes", 0, INT64 - 1)
    check_seal(f"recorder {ordinal}", row)
    if row["ended_at"] is None:  # one in the future would be alive for ever
        row["heartbeat_at"] = min(row["heartbeat_at"], time.time_ns())
    return row


_Key = tuple[Any, Any, Any, Any]


class _Events:
    """Checks the lines of events."""

    def __init__(self, loading: HiddenExperiment) -> None:
        self._loading = loading
        self._names: dict[_Key, tuple[bytes, Named, bool]] = {}
        """Checked names, by the texts in a line: for the chain and for the row, and True if there is a channel."""
        self._bytes = 0

    def read(self, data: dict[str, Any], sealed: Chain) -> tuple[int, int, Named, int, str | None, bytes]:
        """Add an event to the chain, and return its ts, kind, names, flags, attributes and payload."""
        plain = data.keys() <= _PLAIN_FIELDS
        if not plain and not data.keys() <= _EVENT_FIELDS:
            raise InvalidEntry(f"unknown field {sorted(data.keys() - _EVENT_FIELDS)[0]!r} of an event")
        get = data.get
        kind, ts, payload = get("kind"), get("ts"), get("payload")
        code = _KIND.get(kind) if isinstance(kind, str) else None
        if code is None:
            raise InvalidEntry(f"kind {kind!r} is none of {', '.join(KINDS)}")
        if ts.__class__ is not int or not -INT64 <= ts < INT64:
            ts = integer(ts, "ts", -INT64, INT64 - 1)
        key = get("channel"), get("from_id"), get("to_id"), get("messager")
        try:
            known = self._names.get(key) if plain or _BASE64_NAMES.isdisjoint(data) else None
        except TypeError:  # a list, for example
            known = None
        of, names, has_channel = known or self._checked_names(data, key)
        if not has_channel and kind not in NO_CHANNEL:
            raise InvalidEntry(f"a {kind} event has no channel")
        if plain and payload.__class__ is str:
            wire, flags, attributes = encoded(payload, "payload"), 0, None
            if escapes_half(wire) and is_no_text(wire):
                raise InvalidEntry("a payload that is not text is not marked as such")
        else:
            wire, flags, attributes = self._rest(data)
        sealed.add(ts, code, flags, of, attributes, wire)
        return ts, code, names, flags, attributes, wire

    def _checked_names(self, data: dict[str, Any], key: _Key) -> tuple[bytes, Named, bool]:
        channel, sender, recipient = (bytes_of(data, field) for field in ("channel", "from_id", "to_id"))
        for agent in (sender, recipient):
            if agent is not None and not self._loading.loader.knows(agent):
                _check_id(agent)
        by = text_of(data, "messager")
        messager = None if by is None else by.encode()
        of = b"".join(map(chain.name, (channel, sender, recipient, messager)))
        found = of, self._loading.loader.named(channel, sender, recipient, messager), channel is not None
        if _BASE64_NAMES.isdisjoint(data):
            if len(self._names) >= _MOST_NAMES or self._bytes > _MOST_NAME_BYTES:
                self._names.clear()
                self._bytes = 0
            self._names[key] = found
            self._bytes += len(of)
        return found

    def _rest(self, data: dict[str, Any]) -> tuple[bytes, int, str | None]:
        """Return the payload, the flags and the attributes."""
        payload = bytes_of(data, "payload") or b""
        flags = integer(data.get("flags", 0), "flags", 0, 255)
        if is_no_text(payload) and not flags & NO_TEXT:
            raise InvalidEntry("a payload that is not text is not marked as such")
        attributes = text_of(data, "attributes")
        try:
            cause = checked(attributes).get("cause")
        except ValueError as error:
            raise InvalidEntry(str(error)) from None
        if isinstance(cause, list) and cause[0] not in {claims["uuid"] for claims in self._loading.claims}:
            raise InvalidEntry("a cause is of a recorder that the pack does not have")
        return payload, flags, attributes


_PLAIN_FIELDS = {"ts", "kind", "channel", "from_id", "to_id", "messager", "payload"}
_BASE64_NAMES = frozenset(("channel_base64", "from_id_base64", "to_id_base64"))
_MOST_NAMES, _MOST_NAME_BYTES = 50_000, 16 * 1024 * 1024


def _check_id(agent: bytes) -> None:
    """Raise `InvalidEntry` for an id that is not JSON in its canonical form."""
    try:
        value = json_text(agent.decode(), "an id", object)
    except UnicodeDecodeError:
        raise InvalidEntry("an id is not UTF-8") from None
    check_depth(value, "an id")
    if agent_value(value) != agent:
        raise InvalidEntry("an id is not JSON in its canonical form")


class _PackFile(InputFile):
    """The lines of a pack, and the hash of all lines before the last one read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._sha = hashlib.sha256()
        self._last = b""
        """The last line read. The hash covers those before."""

    def next(self, *keys: str) -> dict[str, Any]:
        """Return the next line, an object; with `keys`, one of exactly these fields."""
        line = self._line()
        if not line.endswith(b"\n"):
            raise InvalidEntry("the pack ends here, before its last line")
        self._sha.update(self._last)
        self._last = line
        data = parse_object(line)
        if keys and data.keys() != set(keys):
            raise InvalidEntry(f"expected {' and '.join(keys)}")
        return data

    def check_end(self) -> None:
        """Check that the last line has the hash of all lines above, and that nothing follows."""
        said = self.next("end")["end"]
        above = self._sha.hexdigest()
        if said != above:
            raise InvalidEntry(f"the lines above have the SHA-256 {above}, not {said}: they were changed")
        if self._file.readline(1):
            raise InvalidEntry("something follows the end of the pack")
