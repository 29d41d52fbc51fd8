"""Events as rows of the table `event`, and rows as events.

Both directions are hot: recording costs a few microseconds an event, and reading one or two.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, case, func, null, select

from ..db.codes import KINDS, NO_TEXT, SEQ_BITS, SEQ_MASK
from ..db.schema import event
from ..db.statements import Row
from ..errors import BadEvent
from ..json_text import escapes_half, is_no_text
from . import chain
from .attributes import decode, encoder_of
from .event import Event, Fields, NewEvent, clear_attributes, fields
from .names import EventNames
from .writer import Writer

MAX_PAYLOAD = 900_000_000
"""Bytes of an event's payload. SQLite holds a thousand million in a row by default, PostgreSQL 2**30 in a value."""
MAX_FETCHED = 32 * 1024
"""Bytes of a payload that is selected with its row; a larger one is fetched by itself, so that a page stays small."""
_CODE = {kind: code for code, kind in enumerate(KINDS, 1)}
_KIND = (None, *KINDS)
_FIXED = fields("kind", "ts", "payload", "flags", "cause")
_attributes = encoder_of(NewEvent._fields)

Reading = Sequence[Any]
"""A row of `columns`."""


def pack(
    writer: Writer, events: Sequence[Fields], names: Sequence[EventNames], at: int, max_bytes: int
) -> tuple[list[Row], list[bytes], int]:
    """Return events as rows, each event's encoding for the chain, and the sum of their payload bytes.

    The events are those of a batch from index `at` on. Packing stops after the event whose payload makes the sum
    `max_bytes`. Raises `BadEvent` for an event that the log cannot hold.
    """
    base, experiment_id, uuids = writer.id << SEQ_BITS, writer.experiment.id, writer.uuids
    encode = chain.encode_event
    rows: list[Row] = []
    encoded: list[bytes] = []
    size = 0
    seq = first = writer.last_seq + 1 + at
    for new, of in zip(events, names, strict=True):
        kind, ts, payload, flags, cause = _FIXED(new)
        try:
            code = _CODE.get(kind)
            if code is None:
                raise ValueError(f"{kind!r} is not a kind of event")
            if len(payload) > MAX_PAYLOAD:
                raise ValueError(f"its payload has {len(payload):,} bytes, the maximum is {MAX_PAYLOAD:,}")
            if (not payload.isascii() or escapes_half(payload)) and is_no_text(payload):
                flags |= NO_TEXT
            if cause is not None:
                uuid = uuids[cause[0]]
                cause = cause[1] if uuid is None else (uuid, cause[1])
            attributes = _attributes(new, cause)
            encoded.append(encode(seq, ts, code, flags, of.encoded, attributes, payload))
        except Exception as error:  # of any kind: one bad event must not stop the events behind it
            reason = "a number does not fit into 64 bits" if isinstance(error, struct.error) else str(error)
            raise BadEvent(at + seq - first, f"a {kind} event of ts {ts} cannot be kept: {reason}") from None
        rows.append((
            base | seq, experiment_id, ts, code, of.channel_id, of.from_id, of.to_id, of.messager_id,
            flags, attributes, payload,
        ))  # fmt: skip
        seq += 1
        size += len(payload)
        if size >= max_bytes:
            break
    return rows, encoded, size


def columns(*, brief: bool = False) -> Select[Any]:
    """Return the SELECT of rows as `unpack` takes them. A payload above `MAX_FETCHED` bytes is NULL.

    With `brief`, only position, kind, channel, flags and payload are read; all other columns are NULL.
    """
    row, nothing = event.c, null()
    payload = case((func.length(row.payload) <= MAX_FETCHED, row.payload), else_=null())
    if brief:
        return select(row.id, row.ts, row.kind, row.channel_id, nothing, nothing, nothing, row.flags, nothing, payload)
    names = row.channel_id, row.from_id, row.to_id, row.messager_id
    return select(row.id, row.ts, row.kind, *names, row.flags, row.attributes, payload)


def position(row: Reading) -> tuple[int, int]:
    """Return a row's place in replay order, as `replay_place` is compared: its ts and its id."""
    number, ts, *_ = row
    return ts, number


def name_ids(rows: Sequence[Reading]) -> set[int]:
    """Return the ids of all names in rows of `columns`."""
    return {
        number
        for _, _, _, channel, from_id, to_id, messager, *_ in rows
        for number in (channel, from_id, to_id, messager)
        if number is not None
    }


def unpack(
    rows: Sequence[Reading],
    ordinals: Mapping[int, int],
    names: Mapping[int | None, Any],
    last_seqs: Mapping[int, int],
    by_uuid: Mapping[str, int],
) -> list[Event]:
    """Return rows of `columns` as events, without those behind the last seq of their recorder, and of no recorder.

    `ordinals` and `last_seqs` are by recorder id, `names` by name id, `by_uuid` has ordinals by uuid. Raises
    `KeyError` for a name that is not known, and `DamagedAttributes`.
    """
    # The fields are set one by one: a call of Event() with its arguments costs as much as everything else here.
    new, mask, bits, kinds, clear = object.__new__, SEQ_MASK, SEQ_BITS, _KIND, clear_attributes
    recorder = ordinal = last = 0
    events: list[Event] = []
    add = events.append
    for number, ts, kind, channel, from_id, to_id, messager, flags, attributes, payload in rows:
        if number >> bits != recorder:
            recorder = number >> bits
            ordinal, last = ordinals.get(recorder, 0), last_seqs.get(recorder, 0)
        seq = number & mask
        if not 0 < seq <= last:
            continue
        entry = new(Event)
        entry.ts = ts
        entry.recorder = ordinal
        entry.seq = seq
        entry.kind = kinds[kind]  # type: ignore[assignment]
        entry.channel = names[channel]
        entry.payload = payload
        entry.from_id = names[from_id]
        entry.to_id = names[to_id]
        entry.messager = names[messager]
        entry.flags = flags
        clear(entry)
        if attributes is not None:
            for name, value in decode(attributes).items():
                setattr(entry, name, value)
            if entry.cause is not None:
                entry.cause = _cause(entry.cause, ordinal, by_uuid)
            if entry.origin is not None:
                uuid, its_seq = entry.origin
                entry.origin = uuid, its_seq
        add(entry)
    return events


def _cause(stored: Any, ordinal: int, by_uuid: Mapping[str, int]) -> tuple[int, int]:
    """Return (ordinal, seq) of a cause; 0 as the ordinal of a recorder that the experiment does not have."""
    if isinstance(stored, int):
        return ordinal, stored
    uuid, seq = stored
    return by_uuid.get(uuid, 0), seq
