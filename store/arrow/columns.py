"""The columns of a table from those of a reader: names instead of ids, for whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from ..db.codes import AGENT, CHANNEL, FROM_DERIVED, KINDS, MESSAGER, REDACTED, SEQ_BITS, SEQ_MASK, TO_DERIVED
from ..db.schema import name
from ..errors import DamagedStore
from ..experiments.records import Experiment
from ..json_text import dump
from ..log.attributes import KEYS, decode
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.event_query import Recorders
from ..log.mark_labels import MarkLabels
from ..log.messages import Sources
from ..log.names import decoded
from . import rows, schema
from .driver import FLAGS
from .marks import mark_name
from .message_rule import MessageRule

_MARK, _SENT, _RECEIVED = (KINDS.index(kind) + 1 for kind in ("mark", "sent", "received"))


class Names:
    """The names of an experiment, as arrays."""

    def __init__(self, found: list[tuple[int, int, Any]]) -> None:
        pa = schema.pyarrow()
        of = {
            what: [(number, value) for number, kind, value in found if kind == what]
            for what in (CHANNEL, AGENT, MESSAGER)
        }
        self.ids = {what: pa.array([number for number, _ in each], pa.int64()) for what, each in of.items()}
        self.channels: list[str] = [value for _, value in of[CHANNEL]]
        self.texts = {
            what: pa.array([schema.name_text(value) for _, value in of[what]], pa.string())
            for what in (CHANNEL, MESSAGER)
        }
        agents = [schema.id_columns(value) for _, value in of[AGENT]]
        self.agents = pa.array([text for text, _ in agents], pa.string())
        self.types = pa.array([kind for _, kind in agents], pa.int8())


async def names_of(log: EventLog, of: Experiment) -> Names:
    """Return the names of an experiment."""
    query = select(name.c.id, name.c.what, name.c.value).where(name.c.experiment_id == of.id)
    async with log.database.reading() as connection:
        found = (await connection.execute(query)).all()
    return Names([(number, what, decoded(what, value)) for number, what, value in found])


class Columns:
    """Makes record batches of the schema from batches of a reader, in their order."""

    def __init__(
        self,
        location: str,
        names: Names,
        recorders: Recorders,
        *,
        kinds: set[str] | None,
        redacted: bool,
        rule: Sources | None,
        labels: MarkLabels,
        delivered: bool,
        decode_text: Callable[[bytes], str] | None,
    ) -> None:
        """`rule` decides which events are messages; without it, all of `kinds` are taken. `labels` are those of the
        marks before."""
        pa = self._pa = schema.pyarrow()
        self._location = location
        self._names = names
        self._recorder_ids = pa.array(list(recorders.ordinals), pa.int64())
        self._by_uuid = recorders.by_uuid
        self._ordinals = pa.array(list(recorders.ordinals.values()), pa.int64())
        self._last_seqs = pa.array([recorders.last_seqs[number] for number in recorders.ordinals], pa.int64())
        self._kinds = None if kinds is None else pa.array([KINDS.index(kind) + 1 for kind in kinds], pa.int64())
        self._redacted = redacted
        self._rule = None if rule is None else MessageRule(rule, names.channels)
        self._labels = labels
        self._delivered = delivered
        self._decode = decode_text

    def __call__(self, raw: Any) -> Any:
        """Return the selected events of a batch."""
        pa, pc = self._pa, self._pa.compute
        raw = raw.filter(self._is_known(raw["id"]))
        kind = pc.bit_wise_and(raw["code"], FLAGS - 1)
        flags = pc.shift_right(raw["code"], 8)
        seq = pc.bit_wise_and(raw["id"], SEQ_MASK)
        recorder = self._ordinal(raw["id"])
        channel = self._position(CHANNEL, raw["channel_id"])
        attributes = [decode(text) for text in raw["attributes"].to_pylist()]
        values = {name: [known.get(name) for known in attributes] for name in KEYS}
        arrival = pa.array(values["arrival"], pa.int64())
        columns = {
            "ts": raw["ts"],
            "time": self._time(raw["ts"]),
            "recorder": pc.cast(recorder, pa.int32()),
            "seq": seq,
            "kind": pa.DictionaryArray.from_arrays(pc.cast(pc.subtract(kind, 1), pa.int8()), schema.kinds()),
            "channel": pa.DictionaryArray.from_arrays(channel, self._names.texts[CHANNEL]),
            "derived": pc.cast(pc.bit_wise_and(flags, FROM_DERIVED | TO_DERIVED), pa.int8()),
            "msg_id": pa.array(values["msg_id"], pa.string()),
            "text": self._said(raw, kind, flags, values["meta"]),
            "payload": raw["payload"],
            "redacted": pc.not_equal(pc.bit_wise_and(flags, REDACTED), 0),
            **self._receptions(raw, kind),
            "mark": self._marks(kind, values["meta"]),
            "messager": self._dictionary(MESSAGER, raw["messager_id"]),
            "heard": self._where(pc.not_equal(kind, _RECEIVED), arrival),
            "arrival": self._where(pc.equal(kind, _RECEIVED), arrival),
            "cause": self._causes(recorder, values["cause"]),
            "receivers": pa.array(values["receivers"], pa.int64()),
            "duration_ns": pa.array(values["duration_ns"], pa.int64()),
            "meta": pa.array([None if meta is None else dump(meta) for meta in values["meta"]], pa.string()),
            "origin": pa.array([None if it is None else f"{it[0]}:{it[1]}" for it in values["origin"]], pa.string()),
        }
        for column in ("from", "to"):
            at = self._position(AGENT, raw[f"{column}_id"])
            columns[f"{column}_id"] = self._names.agents.take(at)
            columns[f"{column}_type"] = pa.DictionaryArray.from_arrays(self._names.types.take(at), schema.id_types())
        made = pa.RecordBatch.from_arrays([columns[one] for one in schema.schema().names], schema=schema.schema())
        return made.filter(self._is_selected(raw, kind, channel, recorder, seq, columns["redacted"]))

    def _is_selected(self, raw: Any, kind: Any, channel: Any, recorder: Any, seq: Any, redacted: Any) -> Any:
        pc = self._pa.compute
        selected = self._pa.repeat(True, raw.num_rows)
        if self._rule is not None:
            selected = self._rule.takes(kind, channel, recorder, seq, raw["ts"])
        elif self._kinds is not None:
            selected = pc.is_in(kind, value_set=self._kinds)
        if not self._redacted:
            selected = pc.and_(selected, pc.invert(redacted))
        if "wanted" in raw.schema.names:
            selected = pc.and_(selected, pc.equal(raw["wanted"], 1))
        return selected

    def _is_known(self, ids: Any) -> Any:
        """Return which events were committed before the read started."""
        pc = self._pa.compute
        at = pc.index_in(pc.shift_right(ids, SEQ_BITS), value_set=self._recorder_ids)
        seqs = pc.bit_wise_and(ids, SEQ_MASK)
        return pc.fill_null(pc.and_(pc.greater(seqs, 0), pc.less_equal(seqs, self._last_seqs.take(at))), False)

    def _ordinal(self, ids: Any) -> Any:
        pc = self._pa.compute
        return self._ordinals.take(pc.index_in(pc.shift_right(ids, SEQ_BITS), value_set=self._recorder_ids))

    def _position(self, what: int, ids: Any) -> Any:
        """Return the positions of names."""
        found = self._pa.compute.index_in(ids, value_set=self._names.ids[what])
        if found.null_count != ids.null_count:
            reason = "the name of a channel or an agent is missing; `messager verify` says where"
            raise DamagedStore(self._location, reason)
        return found

    def _dictionary(self, what: int, ids: Any) -> Any:
        return self._pa.DictionaryArray.from_arrays(self._position(what, ids), self._names.texts[what])

    def _time(self, ns: Any) -> Any:
        """Return ns as microseconds, rounded down."""
        pa, pc = self._pa, self._pa.compute
        whole = pc.divide(ns, 1000)  # rounds towards zero
        below = pc.less(pc.subtract(ns, pc.multiply(whole, 1000)), 0)
        return pc.cast(pc.subtract(whole, pc.cast(below, pa.int64())), pa.timestamp("us", "UTC"))

    def _where(self, condition: Any, values: Any) -> Any:
        return self._pa.compute.if_else(condition, values, self._pa.scalar(None, values.type))

    def _receptions(self, raw: Any, kind: Any) -> dict[str, Any]:
        pa, pc = self._pa, self._pa.compute
        sent = pc.equal(kind, _SENT)
        first = copies = pa.nulls(raw.num_rows, pa.int64())
        if self._delivered:
            first = self._where(sent, raw["received_at"])
            copies = self._where(sent, pc.fill_null(raw["copies"], 0))
        first = pc.if_else(pc.equal(kind, _RECEIVED), raw["ts"], first)
        return {"received_at": self._time(first), "copies": copies}

    def _marks(self, kind: Any, metas: list[dict[str, Any] | None]) -> Any:
        pa, pc = self._pa, self._pa.compute
        names: list[str | None] = [None] * len(metas)
        if names:
            names[0] = self._labels.last
        for at in pc.indices_nonzero(pc.equal(kind, _MARK)).to_pylist():
            if (name := mark_name(metas[at])) is not None:
                names[at] = self._labels.next(name)
        return pc.fill_null_forward(pa.array(names, pa.string())).dictionary_encode()

    def _causes(self, recorder: Any, causes: list[Any]) -> Any:
        """Return events as `recorder:seq`; `recorder` has the ordinals of the events whose causes these are."""
        found: list[str | None] = [None] * len(causes)
        for at, cause in enumerate(causes):
            if isinstance(cause, int):
                found[at] = f"{recorder[at].as_py()}:{cause}"
            elif cause is not None:
                found[at] = f"{self._by_uuid.get(cause[0], 0)}:{cause[1]}"
        return self._pa.array(found, self._pa.string())

    def _said(self, raw: Any, kind: Any, flags: Any, metas: list[dict[str, Any] | None]) -> Any:
        """Return the texts: those of the side table, and decoded here for events that are not in it."""
        pa, pc = self._pa, self._pa.compute
        found = self._text(raw["text"])
        missing = pc.indices_nonzero(pc.invert(raw["indexed"])).to_pylist()
        if not missing:
            return found
        texts = found.to_pylist()
        for at in missing:
            entry = Event(0, 0, 0, KINDS[kind[at].as_py() - 1], None, raw["payload"][at].as_py())
            entry.flags = flags[at].as_py()
            if entry.kind in ("gap", "mark"):
                entry.meta = metas[at]
            texts[at] = rows.text_of(entry, _text)
        return pa.array(texts, pa.string())

    def _text(self, values: Any) -> Any:
        """Return texts as they were written."""
        pa, pc = self._pa, self._pa.compute
        if self._decode is None:
            return values
        coded = pc.fill_null(pc.match_substring(values, "\x01"), False)
        if not pc.any(coded).as_py():
            return values
        return pa.array([self._decoded(text) for text in values.to_pylist()], pa.string())

    def _decoded(self, text: str | None) -> str | None:
        return text if text is None or self._decode is None else self._decode(text.encode())


def _text(entry: Event) -> str:
    return entry.text
