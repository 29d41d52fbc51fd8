"""Messages as binary columns: one chunk holds some thousand messages. The file and the server send the same chunks.

A chunk is

| bytes | content |
|---|---|
| 4 | length of the next part, unsigned, little-endian |
| ... | zlib: a `block` of the columns of messages and receptions |
| ... | zlib: a `block` of the payloads, unpacked only when one is shown |

A block is the length of its header (4 bytes), the header (JSON), and its columns, each at a multiple of 8 bytes. The
header has `columns`: `{name: [type, offset, length]}`, with types u8, u16, u32, f64, i64 (little-endian), and `bytes`;
the offset counts from the end of the header, the length is in bytes. `page/chunk.js` reads it.

Columns of messages, one value each: `ts` (i64, ns since the message before, modulo 2**64, the first since `begin` of
the header), `kind` (its number in `KINDS`, from 1), `channel`, `from`, `to`, `messager` (positions in `Names`, from 1;
0 for none), `flags` (see `TEXT_CUT`), `recorder`, `seq` (minus that of the message before of this recorder), `heard`
(plus 1; 0 for unknown), `cause_recorder`, `cause_seq` (0 for none), `size` (bytes of the payload), `receptions` (their
number). `texts` is UTF-8, each text ended by a zero byte.

Columns of receptions, in the order of their messages: `at_recorder`, `at_messager`, `at_delay` (f64, ns after `ts`),
`at_arrival` (0 for unknown).

Payloads: `form` and `end` (the end of each in `data`). With a form above 0, the byte 1 stands for the text, escaped by
`FORMS[form - 1]`: most payloads are short without their text.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..db.codes import KINDS, NO_TEXT, REDACTED
from ..log.names import agent_text, agent_value
from ..log.text import storable
from ..projection.schema import agent_of, pyarrow
from .shown import Shown

ROWS = 16_384
"""Maximum of messages in a chunk."""
CHUNK_BYTES = 8 << 20
"""Payload bytes after which a chunk ends."""
MAX_TEXT = 50_000
"""Characters of a text in the page; a longer one is cut."""
MAX_PAYLOAD = 1 << 20
"""Bytes of a payload in the page; a longer one is cut."""
TEXT_CUT, PAYLOAD_CUT = 16, 32
"""Bits of `flags`, beside those of `db.codes`: the text, or the payload, is cut."""


def _ascii(text: str) -> str:
    return json.dumps(text)


def _plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


FORMS: tuple[tuple[Callable[[str], str], ...], ...] = (
    *((), (_ascii,), (_plain,)),
    *((_ascii, _ascii), (_plain, _ascii)),
)
"""Ways in which a payload may hold its text: as it is, as JSON, as JSON in JSON. `page/payloads.js` has the same."""


@dataclass(slots=True)
class Names:
    """Positions of agents, channels and Messagers, from 1, in the order in which they are first used.

    Channels and Messagers are as `name_text` returns them.
    """

    agents: dict[bytes, int] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    messagers: dict[str, int] = field(default_factory=dict)
    _typed: dict[str, int] = field(default_factory=dict)
    """Positions of agents by type and text, as a projection has them: `number:5`."""
    _shown: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    """Texts of agents that were listed."""

    def agent(self, agent: Any) -> int:
        """Return the position of an agent; 0 for none."""
        return 0 if agent is None else self.agents.setdefault(agent_value(agent), len(self.agents) + 1)

    def typed_agent(self, typed: str) -> int:
        """Return the position of an agent, given as its type, a colon and its text."""
        if (at := self._typed.get(typed)) is None:
            kind, _, text = typed.partition(":")
            at = self._typed[typed] = self.agent(agent_of(text, kind))
        return at

    def channel(self, channel: str | None) -> int:
        """Return the position of a channel; 0 for none."""
        return 0 if channel is None else self.channels.setdefault(channel, len(self.channels) + 1)

    def messager(self, messager: str | None) -> int:
        """Return the position of a Messager; 0 for none."""
        return 0 if messager is None else self.messagers.setdefault(messager, len(self.messagers) + 1)

    def listed(self, agents: set[int], channels: set[int], messagers: set[int]) -> dict[str, list[Any]]:
        """Return the names at these positions: `[position, text]`, of an agent also its id as JSON."""
        return {
            "agents": [[at, *self._text(value)] for value, at in self.agents.items() if at in agents],
            "channels": [[at, value] for value, at in self.channels.items() if at in channels],
            "messagers": [[at, value] for value, at in self.messagers.items() if at in messagers],
        }

    def _text(self, agent: bytes) -> tuple[str, str]:
        if (found := self._shown.get(agent)) is None:
            found = self._shown[agent] = storable(agent_text(json.loads(agent)) or ""), agent.decode()
        return found


class Chunk(NamedTuple):
    """The columns of a chunk."""

    messages: bytes
    """A block."""
    payloads: Any
    texts: Any
    """Of each message; null if its payload does not hold it."""

    def packed(self, *, small: bool = False) -> bytes:
        """Return the chunk. With `small`, which takes longer, payloads are without their texts, and packed better."""
        level = 6 if small else 1
        messages = zlib.compress(self.messages, level)
        payloads = zlib.compress(_payloads(self.payloads, self.texts if small else None), level)
        return len(messages).to_bytes(4, "little") + messages + payloads


def chunk(shown: Shown, names: Names) -> Chunk:
    """Return messages and their receptions as a chunk."""
    pa = pyarrow()
    pc = pa.compute
    messages, receptions = (table.combine_chunks() for table in shown)
    rows = messages.num_rows
    ts, kind, recorder, size = (messages[name] for name in ("ts", "kind", "recorder", "size"))
    text, payload = messages["text"].cast(pa.large_string()), messages["payload"].cast(pa.large_binary())
    long_text, long_payload = pc.greater(pc.utf8_length(text), MAX_TEXT), pc.greater(size, MAX_PAYLOAD)
    if pc.any(long_text).as_py():
        text = pc.utf8_slice_codeunits(text, 0, MAX_TEXT)
    if pc.any(long_payload).as_py():
        payload = pc.binary_slice(payload, 0, MAX_PAYLOAD)
    flags = messages["flags"].cast(pa.int64())
    for bit, cut in ((TEXT_CUT, long_text), (PAYLOAD_CUT, long_payload)):
        flags = pc.bit_wise_or(flags, pc.multiply(cut.cast(pa.int64()), bit))
    none = messages["cause"].null_count == rows
    causes = [] if none else [("0", "0") if at is None else at.split(":") for at in messages["cause"].to_pylist()]
    place = receptions["place"]
    columns = {
        "ts": pc.fill_null(pc.pairwise_diff(_one(ts)), 0),
        "kind": pc.add(pc.index_in(kind.cast(pa.string()), pa.array(KINDS)), 1),
        "channel": _positions(messages["channel"], names.channel),
        "from": _agents(messages, "from", names),
        "to": _agents(messages, "to", names),
        "messager": _positions(messages["messager"], names.messager),
        "flags": flags,
        "recorder": recorder,
        "seq": _since_last(recorder, messages["seq"]),
        "heard": pc.add(pc.fill_null(messages["heard"], -1), 1),
        "cause_recorder": pa.repeat(0, rows) if none else pa.array([int(at) for at, _ in causes], pa.int64()),
        "cause_seq": pa.repeat(0, rows) if none else pa.array([int(seq) for _, seq in causes], pa.int64()),
        "size": size,
        "receptions": _numbers(place, rows),
        "at_recorder": receptions["recorder"],
        "at_messager": _positions(receptions["messager"], names.messager),
        "at_delay": pc.subtract(receptions["ts"], ts.take(place)),
        "at_arrival": pc.fill_null(receptions["arrival"], 0),
    }
    used = names.listed(
        _used(columns["from"]) | _used(columns["to"]),
        _used(columns["channel"]),
        _used(columns["messager"]) | _used(columns["at_messager"]),
    )
    header = {"rows": rows, "begin": str(ts[0].as_py() if rows else 0), "names": used}
    packed = {name: _packed(name, values) for name, values in columns.items()}
    packed["texts"] = ("bytes", _bytes(_joined(text, "", "\0")))
    held = pc.if_else(pc.equal(pc.bit_wise_and(flags, NO_TEXT | REDACTED | TEXT_CUT), 0), text, None)
    return Chunk(block(header, packed), _one(payload), held)


def _one(column: Any) -> Any:
    """Return a column as one array."""
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _positions(column: Any, position: Callable[[Any], int]) -> Any:
    """Return the positions of names; 0 for none."""
    pa = pyarrow()
    column = _one(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    places = pa.array([position(value) for value in column.dictionary.to_pylist()], pa.int64())
    return pa.compute.fill_null(places.take(column.indices), 0)


def _agents(messages: Any, side: str, names: Names) -> Any:
    pa = pyarrow()
    kinds, ids = (messages[f"{side}_{part}"].cast(pa.string()) for part in ("type", "id"))
    return _positions(_joined(kinds, ids, ":"), names.typed_agent)


def _joined(first: Any, second: Any, between: str) -> Any:
    """Return texts that are joined; null if one of them is."""
    pa = pyarrow()
    texts = (pa.scalar(one, first.type) if isinstance(one, str) else one for one in (second, between))
    return pa.compute.binary_join_element_wise(first, *texts)


def _since_last(recorder: Any, seq: Any) -> Any:
    """Return each seq, minus that of the row before of this recorder."""
    pa = pyarrow()
    pc = pa.compute
    rows = pa.table({"recorder": recorder, "at": pa.array(range(len(seq)), pa.int64()), "seq": seq})
    rows = rows.sort_by([("recorder", "ascending"), ("at", "ascending")]).combine_chunks()
    same = pc.equal(pc.pairwise_diff(_one(rows["recorder"])), 0)
    since = pc.if_else(pc.fill_null(same, False), pc.pairwise_diff(_one(rows["seq"])), rows["seq"])
    return since.take(pc.sort_indices(rows["at"]))


def _numbers(places: Any, rows: int) -> Any:
    """Return how often each row is among places."""
    pa = pyarrow()
    found = pa.compute.value_counts(_one(places))
    at = pa.compute.index_in(pa.array(range(rows), pa.int64()), found.field("values"))
    return pa.compute.fill_null(found.field("counts").take(at), 0)


def _used(positions: Any) -> set[int]:
    return set(pyarrow().compute.unique(positions).to_pylist())


def _payloads(payloads: Any, texts: Any) -> bytes:
    """Return the block of payloads; with `texts`, those are without their text."""
    pa = pyarrow()
    forms = pa.repeat(0, len(payloads))
    if texts is not None:
        made = [_without(*row) for row in zip(payloads.to_pylist(), texts.to_pylist(), strict=True)]
        payloads = pa.array([payload for payload, _ in made], pa.large_binary())
        forms = pa.array([form for _, form in made], pa.int64())
    ends = pa.compute.cumulative_sum(pa.compute.binary_length(payloads))
    columns = {"form": _packed("form", forms), "end": _packed("end", ends)}
    return block({}, columns | {"data": ("bytes", _bytes(payloads))})


def _without(payload: bytes, text: str | None) -> tuple[bytes, int]:
    """Return a payload that may hold a text without it, and the number of its form."""
    if text and b"\1" not in payload:
        for number, escapes in enumerate(FORMS, 1):
            quoted = text
            for escape in escapes:
                quoted = escape(quoted)
            inner = quoted.encode()
            if payload.count(inner) == 1:
                return payload.replace(inner, b"\1"), number
    return payload, 0


def block(header: dict[str, Any], columns: dict[str, tuple[str, bytes]]) -> bytes:
    """Return columns behind a header that says where they are."""
    places: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, (kind, data) in columns.items():
        places[name] = [kind, offset, len(data)]
        padded = data + bytes(-len(data) % 8)
        parts.append(padded)
        offset += len(padded)
    text = json.dumps({**header, "columns": places}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return len(text).to_bytes(4, "little") + text + b"".join(parts)


_TYPES = {"u8": "B", "u16": "H", "u32": "I", "f64": "d", "i64": "q"}
_FIXED = {"ts": "i64", "seq": "f64", "at_delay": "f64"}


def _packed(name: str, values: Any) -> tuple[str, bytes]:
    """Return the values of a column in the smallest type that holds them."""
    pa = pyarrow()
    if (kind := _FIXED.get(name)) is None:
        most = pa.compute.max(values).as_py() or 0
        kind = "u8" if most < 1 << 8 else "u16" if most < 1 << 16 else "u32" if most < 1 << 32 else "f64"
    arrow = {"u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "f64": pa.float64(), "i64": pa.int64()}[kind]
    found = array(_TYPES[kind], _buffer(_one(values).cast(arrow, safe=False), arrow.bit_width // 8))
    if sys.byteorder == "big":
        found.byteswap()
    return kind, found.tobytes()


def _buffer(column: Any, width: int) -> bytes:
    """Return the values of a column of numbers."""
    data = column.buffers()[-1]
    return b"" if data is None else data.slice(column.offset * width, len(column) * width).to_pybytes()


def _bytes(column: Any) -> bytes:
    """Return the values of a column of texts or bytes, one behind the other."""
    column = _one(column)
    if not len(column):
        return b""
    _, ends, data = column.buffers()
    bounds = array("q", ends.slice(8 * column.offset, 8 * (len(column) + 1)).to_pybytes())
    return b"" if data is None else data.slice(bounds[0], bounds[-1] - bounds[0]).to_pybytes()
