"""Columns of a projection: each event once, with the message that it belongs to. docs/analysis.md describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from messager import channels
from messager.drivers import requirement

from ..db.codes import AGENT, KINDS, NO_TEXT, REDACTED, SEQ_BITS, SEQ_MASK
from ..errors import DamagedStore, StoreError
from ..json_text import dump
from ..log.attributes import decode
from ..log.event import Event
from ..log.names import is_utf_8, name_text
from ..log.text import MAX_TEXT, normalised, readable, storable, text_of_meta

ID_TYPES = ("string", "number", "boolean", "array", "object", "json")
"""Values of `from_type` and `to_type`. An id of the type `json` is a string with a lone surrogate, as JSON."""
_GAP, _MARK, _RECEIVED = (KINDS.index(kind) + 1 for kind in ("gap", "mark", "received"))


class Row(NamedTuple):
    """An event of the log. Rows are sorted in replay order."""

    ts: int
    id: int
    kind: int
    channel_id: int | None
    from_id: int | None
    to_id: int | None
    messager_id: int | None
    flags: int
    attributes: str | None
    payload: bytes


Decided = tuple[tuple[Any, ...], str | None, int | None, bool]
"""A `Row`, the label of the last mark before it or at it, the id of the event that represents its message, and True for
a copy. The message of a message is itself; None for an event that belongs to none.

Rows are plain tuples: the garbage collector does not track those that hold only values.
"""


def pyarrow() -> Any:
    """Return the module pyarrow with its parts. Raises `StoreError` if it or DuckDB is not installed."""
    try:
        import_module("duckdb")
        for part in ("compute", "csv", "ipc", "parquet"):
            import_module(f"pyarrow.{part}")
        return import_module("pyarrow")
    except ImportError:
        wanted = " ".join(f"'{requirement(name)}'" for name in ("duckdb", "pyarrow"))
        raise StoreError(
            f"questions and tables need DuckDB and pyarrow, which are not installed: `pip install {wanted}`"
        ) from None


@cache
def schema() -> Any:
    """Return the columns of a part. Rows are nearly in replay order: sort by `ts` and `id`."""
    pa = pyarrow()
    name = pa.dictionary(pa.int32(), pa.string())
    few = pa.dictionary(pa.int8(), pa.string())
    return pa.schema(
        [
            ("id", pa.int64()),
            ("message_id", pa.int64()),
            ("is_copy", pa.bool_()),
            ("ts", pa.int64()),
            ("recorder", pa.int32()),
            ("seq", pa.int64()),
            ("kind", few),
            ("channel", name),
            ("from_id", name),
            ("from_type", few),
            ("to_id", name),
            ("to_type", few),
            ("flags", pa.uint8()),
            ("msg_id", pa.string()),
            ("text", pa.string()),
            ("folded", pa.string()),
            ("payload", pa.binary()),
            ("size", pa.int64()),
            ("redacted", pa.bool_()),
            ("mark", name),
            ("messager", name),
            ("heard", pa.int64()),
            ("arrival", pa.int64()),
            ("cause", pa.string()),
            ("receivers", pa.int32()),
            ("duration_ns", pa.int64()),
            ("meta", pa.string()),
            ("origin", pa.string()),
        ]
    )


class _Texts(dict[int | None, str | None]):
    """Texts by the id of a name; a name that the store lacks is damage."""

    def __init__(self, location: str) -> None:
        super().__init__({None: None})
        self._location = location

    def __missing__(self, number: int | None) -> str | None:
        reason = "the name of a channel or an agent is missing; `messager verify` says where"
        raise DamagedStore(self._location, reason)


class Names:
    """Names and recorders of an experiment, as columns have them."""

    def __init__(
        self,
        location: str,
        found: Sequence[tuple[int, int, bytes]],
        ordinals: Mapping[int, int],
        by_uuid: Mapping[str, int],
    ) -> None:
        """`found` are rows of `name`: id, what, value. `ordinals` are by the recorder's id, `by_uuid` by its uuid.

        `location` is that of the store.
        """
        self.ordinals = ordinals
        self.by_uuid = by_uuid
        self.values: dict[int, str] = {}
        """Texts of channels and Messagers, for the rule and for subscriptions."""
        self.texts = _Texts(location)
        self.types = _Texts(location)
        for number, what, value in found:
            if what == AGENT:
                self.texts[number], self.types[number] = id_columns(json.loads(value))
            else:
                self.values[number] = channels.decode(value)
                self.texts[number] = name_text(self.values[number])


def table(decided: Sequence[Decided], names: Names) -> Any:
    """Return events as a `pyarrow.Table`."""
    pa = pyarrow()
    rows, labels, messages, copies = zip(*decided, strict=True) if decided else ((), (), (), ())
    of_row = dict(zip(Row._fields, zip(*rows, strict=True) if rows else [()] * len(Row._fields), strict=True))
    ids, kinds, flags = of_row["id"], of_row["kind"], of_row["flags"]
    recorders = [names.ordinals[number >> SEQ_BITS] for number in ids]

    def named(column: str, values: Mapping[Any, str | None]) -> Any:
        return _mapped(of_row[column], values)

    known = [decode(text) if text is not None else _NOTHING for text in of_row["attributes"]]
    meta, arrivals = _values(known, "meta"), _values(known, "arrival")
    texts = _texts(kinds, flags, meta, of_row["payload"])
    columns: dict[str, Any] = {
        "id": ids,
        "message_id": messages,
        "is_copy": copies,
        "ts": of_row["ts"],
        "recorder": recorders,
        "seq": [number & SEQ_MASK for number in ids],
        "kind": named("kind", _KINDS),
        "channel": named("channel_id", names.texts),
        "from_id": named("from_id", names.texts),
        "from_type": named("from_id", names.types),
        "to_id": named("to_id", names.texts),
        "to_type": named("to_id", names.types),
        "flags": flags,
        "msg_id": _values(known, "msg_id"),
        "text": [text for text, _ in texts],
        "folded": [folded for _, folded in texts],
        "payload": of_row["payload"],
        "size": [len(payload) for payload in of_row["payload"]],
        "redacted": [flag & REDACTED != 0 for flag in flags],
        "mark": labels,
        "messager": named("messager_id", names.texts),
        "heard": [None if kind == _RECEIVED else value for kind, value in zip(kinds, arrivals, strict=True)],
        "arrival": [value if kind == _RECEIVED else None for kind, value in zip(kinds, arrivals, strict=True)],
        "cause": [
            None if cause is None else _cause(cause, recorder, names.by_uuid)
            for recorder, cause in zip(recorders, _values(known, "cause"), strict=True)
        ],
        "receivers": _values(known, "receivers"),
        "duration_ns": _values(known, "duration_ns"),
        "meta": [None if value is None else dump(value) for value in meta],
        "origin": [None if it is None else f"{it[0]}:{it[1]}" for it in _values(known, "origin")],
    }
    arrays = []
    for field in schema():
        if pa.types.is_dictionary(field.type):
            made = columns[field.name]
            made = made if isinstance(made, pa.Array) else pa.array(made, pa.string())
            arrays.append(made.dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(columns[field.name], field.type))
    return pa.Table.from_arrays(arrays, schema=schema())


_KINDS = dict(enumerate(KINDS, 1))


def _mapped(numbers: Sequence[int | None], values: Mapping[Any, str | None]) -> Any:
    """Return the values of numbers, of which there are few different ones, as an array of texts."""
    pa = pyarrow()
    encoded = pa.array(numbers, pa.int64()).dictionary_encode()
    return pa.array([values[number] for number in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


_NOTHING: dict[str, Any] = {}


def _values(known: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [attributes.get(name) for attributes in known]


def _cause(cause: Any, ordinal: int, by_uuid: Mapping[str, int]) -> str:
    return f"{ordinal}:{cause}" if isinstance(cause, int) else f"{by_uuid.get(cause[0], 0)}:{cause[1]}"


def _texts(
    kinds: Sequence[int], flags: Sequence[int], metas: Sequence[Any], payloads: Sequence[bytes]
) -> list[tuple[str | None, str | None]]:
    """Return what each event says, and that folded. A message and its receptions have the same payload."""
    known: dict[bytes, tuple[str | None, str | None]] = {}
    found = []
    for kind, flag, meta, payload in zip(kinds, flags, metas, payloads, strict=True):
        if kind in (_GAP, _MARK) or flag:
            found.append(_with_folded(_text(kind, flag, meta, payload)))
        else:
            pair = known.get(payload)
            if pair is None:
                pair = known[payload] = _with_folded(_text(kind, flag, meta, payload))
            found.append(pair)
    return found


def _with_folded(text: str | None) -> tuple[str | None, str | None]:
    return (None, None) if text is None else (text, normalised(text)[:MAX_TEXT])


def _text(kind: int, flag: int, meta: Any, payload: bytes) -> str | None:
    """Return what an event says; None if it is redacted or binary."""
    if flag & REDACTED:
        return None
    if kind in (_GAP, _MARK):
        return storable(text_of_meta(KINDS[kind - 1], meta or {}))[:MAX_TEXT]
    if flag & NO_TEXT:
        try:
            payload.decode()
        except UnicodeDecodeError:
            return None
    return readable(payload)[:MAX_TEXT]


def text_of(entry: Event) -> str | None:
    """Return what an event says, as the column has it."""
    return _text(KINDS.index(entry.kind) + 1, entry.flags, entry.meta, entry.payload)


def name_columns(events: Sequence[Event]) -> dict[str, list[str | None]]:
    """Return the columns of events that have names of channels, agents and Messagers."""
    senders, recipients = (
        [(None, None) if agent is None else id_columns(agent) for agent in agents]
        for agents in ([entry.from_id for entry in events], [entry.to_id for entry in events])
    )
    return {
        "channel": [None if entry.channel is None else name_text(entry.channel) for entry in events],
        "from_id": [text for text, _ in senders],
        "from_type": [kind for _, kind in senders],
        "to_id": [text for text, _ in recipients],
        "to_type": [kind for _, kind in recipients],
        "messager": [None if entry.messager is None else name_text(entry.messager) for entry in events],
    }


def agent_of(text: str | None, kind: str | None) -> Any:
    """Return the id of an agent, given as `id_columns` returns it; None for none."""
    return text if text is None or kind == "string" else json.loads(text)


def id_columns(agent: Any) -> tuple[str, str]:
    """Return an id as text, and its type. A text is itself, other ids are JSON."""
    if isinstance(agent, str):
        return (agent, "string") if is_utf_8(agent) else (json.dumps(agent), "json")
    kinds = {bool: "boolean", list: "array", dict: "object"}
    text = json.dumps(agent, ensure_ascii=False)
    return (text if is_utf_8(text) else json.dumps(agent)), kinds.get(type(agent), "number")
