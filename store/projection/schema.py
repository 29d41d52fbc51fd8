"""Columns of a projection: each event once, with the message that it belongs to. docs/analysis.md describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
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
    """An event of the log. Rows are plain tuples of these, which the garbage collector does not track."""

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
    """Return the columns of a part. Its rows are in replay order; the first ones may be before the end of the part
    before.
    """
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


def read(rows: Sequence[tuple[Any, ...]], labels: Sequence[str | None], names: Names) -> Any:
    """Return rows of the log, as `Row` names them, as a `pyarrow.Table` for `table`.

    `labels` are those of the last mark before each event or at it.
    """
    pa, of = pyarrow(), _read_schema()
    if not rows:
        return of.empty_table()
    of_row = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
    attributes = of_row.pop("attributes")
    columns: dict[str, Any] = {**of_row, "mark": labels}
    metas: Sequence[Any] = attributes  # all None
    if any(attributes):
        columns |= _attribute_columns(of_row["id"], of_row["kind"], attributes, names)
        metas = columns["meta"]
        columns["meta"] = [None if meta is None else dump(meta) for meta in metas]
    texts = _texts(of_row["kind"], of_row["flags"], metas, of_row["payload"])
    columns["text"], columns["folded"] = zip(*texts, strict=True)
    return pa.Table.from_arrays(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(len(rows), field.type)
            for field in of
        ],
        schema=of,
    )


def table(found: Any, messages: Sequence[int | None], copies: Set[int], names: Names) -> Any:
    """Return events of `read` with the messages that they belong to, as a `pyarrow.Table`.

    The message of each event is the id of the event that represents it, itself for a message, None if it belongs to
    none. `copies` are the ids of copies.
    """
    pa = pyarrow()
    compute, number = pa.compute, found["id"]
    columns = {
        "message_id": pa.array(messages, pa.int64()),
        "is_copy": compute.is_in(number, pa.array(copies, pa.int64())),
        "recorder": _mapped(compute.shift_right(number, SEQ_BITS), names.ordinals),
        "seq": compute.bit_wise_and(number, SEQ_MASK),
        "kind": _mapped(found["kind"], _KINDS),
        "channel": _mapped(found["channel_id"], names.texts),
        "from_id": _mapped(found["from_id"], names.texts),
        "from_type": _mapped(found["from_id"], names.types),
        "to_id": _mapped(found["to_id"], names.texts),
        "to_type": _mapped(found["to_id"], names.types),
        "size": compute.binary_length(found["payload"]),
        "redacted": compute.not_equal(compute.bit_wise_and(found["flags"], pa.scalar(REDACTED, pa.uint8())), 0),
        "messager": _mapped(found["messager_id"], names.texts),
        "mark": found["mark"].combine_chunks().dictionary_encode(),
    }
    return pa.Table.from_arrays(
        [(columns[one.name] if one.name in columns else found[one.name]).cast(one.type) for one in schema()],
        schema=schema(),
    )


_KINDS = dict(enumerate(KINDS, 1))


@cache
def _read_schema() -> Any:
    """Return the columns of `read`: numbers as the log has them, and those of `schema` that are made of attributes."""
    pa = pyarrow()
    numbers = ("ts", "id", "channel_id", "from_id", "to_id", "messager_id")
    as_they_are = ("flags", "payload", "text", "folded", *_OF_ATTRIBUTES)
    return pa.schema(
        [
            *((name, pa.int64()) for name in numbers),
            ("kind", pa.int8()),
            ("mark", pa.string()),
            *(schema().field(name) for name in as_they_are),
        ]
    )


def _mapped(numbers: Any, values: Mapping[Any, Any]) -> Any:
    """Return the values of numbers, of which there are few different ones, with a dictionary."""
    pa = pyarrow()
    encoded = numbers.combine_chunks().dictionary_encode()
    found = pa.array([values[number] for number in encoded.dictionary.to_pylist()])
    if not pa.types.is_string(found.type):
        return found.take(encoded.indices)
    found = found.dictionary_encode()  # several numbers may have one value
    return pa.DictionaryArray.from_arrays(found.indices.take(encoded.indices), found.dictionary)


_OF_ATTRIBUTES = ("msg_id", "heard", "arrival", "cause", "receivers", "duration_ns", "meta", "origin")
_NOTHING: dict[str, Any] = {}


def _attribute_columns(
    ids: Sequence[int], kinds: Sequence[int], texts: Sequence[str | None], names: Names
) -> dict[str, list[Any]]:
    """Return the columns that are made of attributes; `meta` as objects."""
    known = [_NOTHING if text is None else decode(text) for text in texts]
    columns = {name: [attributes.get(name) for attributes in known] for name in _OF_ATTRIBUTES if name != "heard"}
    arrivals = list(zip(kinds, columns["arrival"], strict=True))
    columns["heard"] = [None if kind == _RECEIVED else value for kind, value in arrivals]
    columns["arrival"] = [value if kind == _RECEIVED else None for kind, value in arrivals]
    columns["cause"] = [
        None if cause is None else _cause(cause, names.ordinals[number >> SEQ_BITS], names.by_uuid)
        for number, cause in zip(ids, columns["cause"], strict=True)
    ]
    columns["origin"] = [None if it is None else f"{it[0]}:{it[1]}" for it in columns["origin"]]
    return columns


def _cause(cause: Any, ordinal: int, by_uuid: Mapping[str, int]) -> str:
    return f"{ordinal}:{cause}" if isinstance(cause, int) else f"{by_uuid.get(cause[0], 0)}:{cause[1]}"


def _texts(
    kinds: Sequence[int], flags: Sequence[int], metas: Sequence[Any], payloads: Sequence[bytes]
) -> list[tuple[str | None, str | None]]:
    """Return what each event says, and that folded. A message and its receptions have the same payload."""
    known: dict[bytes, tuple[str | None, str | None]] = {}
    found = []
    for kind, flag, meta, payload in zip(kinds, flags, metas, payloads, strict=True):
        if flag or kind in (_GAP, _MARK):
            found.append(_with_folded(_text(kind, flag, meta, payload)))
            continue
        pair = known.get(payload)
        if pair is None:
            pair = known[payload] = _with_folded(readable(payload))
        found.append(pair)
    return found


def _with_folded(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    text = text[:MAX_TEXT]
    return text, normalised(text)[:MAX_TEXT]


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
