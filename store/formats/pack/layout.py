"""The rows of a pack, and the checks that packing and unpacking share."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger, Table

from ...db.codes import KINDS, SEQ_BITS
from ...db.schema import batch, experiment, recorder, redaction
from ...experiments.seal import seal_of
from ...log import chain
from ...log.chain_walk import kind_of, payload_of, ts_of
from ..fields import InvalidEntry, integer, text

FORMAT = "messager-pack/1"
MOST_RECORDERS = 20_000
MOST_REDACTIONS = 5_000
MOST_BATCH_EVENTS = 1_000_000
_TOGETHER_BYTES = 256 * 1024
"""Bytes of events that are hashed together."""


def _portable(table: Table, *local: str) -> dict[str, Column[Any]]:
    """Return the columns that mean the same in every store."""
    return {column.name: column for column in table.c if column.name not in local}


EXPERIMENT = _portable(experiment, "id")
RECORDER = _portable(recorder, "id", "experiment_id", "spool")
BATCH = _portable(batch, "recorder_id")
REDACTION = _portable(redaction, "id", "experiment_id")

COUNTED = (
    "last_seq",
    "head_hash",
    *(f"{kind}_count" for kind in KINDS),
    "payload_bytes",
    "first_ts",
    "last_ts",
    "worst_unacknowledged",
)
"""The columns of a recorder that are computed from its events."""


def row_to_json(columns: Mapping[str, Column[Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON. Raise `InvalidEntry` for one that could not be read again."""
    data = {key: value.hex() if isinstance(value := row[key], bytes) else value for key in columns}
    row_from_json(columns, data)
    return data


def row_from_json(columns: Mapping[str, Column[Any]], data: Any) -> dict[str, Any]:
    """Return a row with values of the types of its columns."""
    if not isinstance(data, dict):
        raise InvalidEntry("not a JSON object")
    unknown = data.keys() - columns.keys()
    if unknown:
        raise InvalidEntry(f"unknown field {sorted(unknown)[0]!r}; was it packed by a newer messager?")
    return {key: _value(column, data.get(key)) for key, column in columns.items()}


def _value(column: Column[Any], value: Any) -> Any:
    if value is None and column.nullable:
        return None
    if isinstance(column.type, LargeBinary):
        try:
            return bytes.fromhex(value)
        except (TypeError, ValueError):
            raise InvalidEntry(f"{column.name} is not hexadecimal") from None
    if isinstance(column.type, Integer):
        bits = 63 if isinstance(column.type, BigInteger) else 15 if isinstance(column.type, SmallInteger) else 31
        return integer(value, column.name, -(2**bits), 2**bits - 1)
    return text(value, column.name)


def check_seal(row: Mapping[str, Any]) -> None:
    """Raise `InvalidEntry` if the row of a recorder does not have its seal."""
    if row["seal"] != seal_of(row):
        raise InvalidEntry(f"recorder {row['ordinal']}: its row was changed: it does not have its seal")


class Chain:
    """Checks of the events of one recorder, in order, against its batches, its chain and its counters."""

    def __init__(self, ordinal: int, uuid: str, encoder: chain.Encoder) -> None:
        self.last_seq = 0
        self._name = f"recorder {ordinal}"
        self._encoder = encoder
        self._link = chain.first_link(uuid)
        self._digest = chain.BatchDigest()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._part: Mapping[str, Any] = {}
        self._batch_times: tuple[int, int] | None = None
        self._counts = dict.fromkeys(KINDS, 0)
        self._payload_bytes = 0
        self._times: tuple[int, int] | None = None
        self._worst = 0

    def begin(self, part: Mapping[str, Any], digest: chain.BatchDigest | None = None) -> None:
        """Begin the next batch, given by its row. With a `digest`, which the caller fills, call `count`, not `add`."""
        if part["first_seq"] != self.last_seq + 1:
            raise InvalidEntry(f"{self._name}: the batch after seq {self.last_seq} starts at {part['first_seq']}")
        integer(part["count"], "count", 1, MOST_BATCH_EVENTS)
        if self.last_seq + part["count"] >= 1 << SEQ_BITS:
            raise InvalidEntry(f"{self._name} has more events than a recorder can have")
        self._part = part
        self._digest = chain.BatchDigest() if digest is None else digest
        self._batch_times = None

    def add(
        self,
        ts: int,
        kind: int,
        flags: int,
        names: chain.Names,
        msg_id: str | None,
        duration_ns: int | None,
        receivers: int | None,
        cause: int | None,
        meta: str | None,
        payload: bytes,
        arrival: int | None,
        origin: chain.Reference | None,
    ) -> None:
        """Add the next event of the batch; `names` are those of `chain.names`, `cause` is that of its row."""
        seq, caused_by = self.last_seq + 1, self._encoder.cause(cause)
        head = (seq, ts, kind, flags, *names)
        try:
            encoded = chain.encode_event(
                *head, msg_id, duration_ns, receivers, caused_by, meta, payload, arrival, origin
            )
        except (struct.error, TypeError, AttributeError):
            raise self.unreadable() from None
        self._waiting.append(encoded)
        self._waiting_bytes += len(encoded)
        if self._waiting_bytes > _TOGETHER_BYTES:
            self._hash()
        self.count(ts, kind, payload)

    def _hash(self) -> None:
        """Hash the events that were added."""
        self._digest.extend(self._waiting)
        self._waiting, self._waiting_bytes = [], 0

    def count(self, ts: int, kind: int, payload: bytes) -> None:
        """Count the next event of the batch."""
        if not 1 <= kind <= len(KINDS):
            raise self.unreadable()
        self.last_seq += 1
        self._counts[KINDS[kind - 1]] += 1
        self._payload_bytes += len(payload)
        self._batch_times = _wider(self._batch_times, ts, ts)

    def count_page(self, rows: Sequence[Any]) -> None:
        """Count the next events of the batch, rows of a `WalkedPage` whose values have the right types."""
        for code, count in Counter(map(kind_of, rows)).items():
            if not 1 <= code <= len(KINDS):
                self.last_seq += [*map(kind_of, rows)].index(code)
                raise self.unreadable()
            self._counts[KINDS[code - 1]] += count
        self.last_seq += len(rows)
        self._payload_bytes += sum(map(len, map(payload_of, rows)))
        self._batch_times = _wider(self._batch_times, min(map(ts_of, rows)), max(map(ts_of, rows)))

    def unreadable(self) -> InvalidEntry:
        """Return the error for a next event that cannot be hashed."""
        return InvalidEntry(f"{self._name}: the event of seq {self.last_seq + 1} holds a value of the wrong type")

    def end(self) -> None:
        """Check the complete batch against its row and the chain."""
        self._hash()
        part = self._part
        place = f"{self._name}, batch at seq {part['first_seq']}"
        if self._digest.packed_checks() != part["checks"]:
            raise InvalidEntry(f"{place}: {self._changed(part['checks'])}")
        if self._digest.digest() != part["digest"]:
            raise InvalidEntry(f"{place}: its events do not have its digest")
        if self._batch_times != (part["min_ts"], part["max_ts"]):
            raise InvalidEntry(f"{place}: its events do not have its times")
        self._link = chain.next_link(self._link, part["digest"], *chain.facts(part))
        if self._link != part["chain_hash"]:
            raise InvalidEntry(f"{place}: the chain does not continue that of the batch before it")
        self._times = _wider(self._times, part["min_ts"], part["max_ts"])
        self._worst = max(self._worst, part["unacknowledged"])

    def check_row(self, row: Mapping[str, Any]) -> None:
        """Check the row of the recorder against its counted events."""
        low, high = self._times or (None, None)
        counted: dict[str, Any] = {
            "last_seq": self.last_seq,
            "head_hash": self._link,
            **{f"{kind}_count": count for kind, count in self._counts.items()},
            "payload_bytes": self._payload_bytes,
            "first_ts": low,
            "last_ts": high,
            "worst_unacknowledged": self._worst,
        }
        for what in COUNTED:
            if row[what] != counted[what]:
                raise InvalidEntry(
                    f"{self._name}: its row says {what} {_shown(row[what])}, it is {_shown(counted[what])}"
                )

    def _changed(self, checks: bytes) -> str:
        kept = chain.unpack_checks(checks)
        if len(checks) != 4 * len(self._digest.checks):
            return f"it has {len(checks)} bytes of checks for {len(self._digest.checks)} events"
        at = next(at for at, check in enumerate(self._digest.checks) if check != kept[at])
        return f"the event of seq {self._part['first_seq'] + at} was changed, or its check"


def _wider(span: tuple[int, int] | None, low: int, high: int) -> tuple[int, int]:
    return (low, high) if span is None else (min(span[0], low), max(span[1], high))


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
