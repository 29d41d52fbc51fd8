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

import asyncio
import json
import sys
import zlib
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..db.codes import KINDS, NO_TEXT, REDACTED
from ..experiments.records import Experiment
from ..log.cursor import clamped
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.message_rule import EARLY_NS, WITHIN_NS
from ..log.names import agent_text, agent_value, name_text
from ..log.selection import Selection
from ..log.text import storable
from ..projection.query import Progress, Projection, projected
from ..projection.reading import Reading
from ..projection.schema import pyarrow
from ..projection.selecting import Rows

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

Change = Callable[[Event], Event]


def _ascii(text: str) -> str:
    return json.dumps(text)


def _plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


FORMS: tuple[tuple[Callable[[str], str], ...], ...] = (
    *((), (_ascii,), (_plain,)),
    *((_ascii, _ascii), (_plain, _ascii)),
)
"""Ways in which a payload may hold its text: as it is, as JSON, as JSON in JSON. `page/payloads.js` has the same."""


class Reception(NamedTuple):
    """A reception of a message."""

    recorder: int
    """Ordinal."""
    seq: int
    ts: int
    messager: str | None
    arrival: int | None


@dataclass(slots=True)
class Names:
    """Positions of agents, channels and Messagers, from 1, in the order in which they are first used."""

    agents: dict[bytes, int] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    messagers: dict[str, int] = field(default_factory=dict)

    def agent(self, agent: Any) -> int:
        """Return the position of an agent; 0 for none."""
        return 0 if agent is None else self.agents.setdefault(agent_value(agent), len(self.agents) + 1)

    def channel(self, channel: str | None) -> int:
        """Return the position of a channel; 0 for none."""
        return 0 if channel is None else self.channels.setdefault(channel, len(self.channels) + 1)

    def messager(self, messager: str | None) -> int:
        """Return the position of a Messager; 0 for none."""
        return 0 if messager is None else self.messagers.setdefault(messager, len(self.messagers) + 1)

    def listed(self, agents: set[int], channels: set[int], messagers: set[int]) -> dict[str, list[Any]]:
        """Return the names at these positions: `[position, text]`, of an agent also its id as JSON."""
        return {
            "agents": [[at, *_agent(value)] for value, at in self.agents.items() if at in agents],
            "channels": [[at, name_text(value)] for value, at in self.channels.items() if at in channels],
            "messagers": [[at, name_text(value)] for value, at in self.messagers.items() if at in messagers],
        }


def _agent(value: bytes) -> tuple[str, str]:
    return storable(agent_text(json.loads(value)) or ""), value.decode()


async def chunks(
    log: EventLog,
    of: Experiment,
    selection: Selection,
    names: Names,
    *,
    change: Change | None = None,
    rows: int = ROWS,
    progress: Progress | None = None,
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield the messages of a selection as chunks in replay order, each with its number of messages.

    A message is there once, by the rule of `log.message_rule`, and so are blocked and failed ones. `change` returns the
    event to show instead of each; `progress` is called while the projection is brought up to date.
    """
    async with projected(log, of, progress) as here:
        writer = _Writer(here, selection, names, change)
        waiting: list[Event] = []
        size = 0
        async with aclosing(Reading(log, of, here, selection, Rows.SHOWN).events()) as pages:
            async for page in pages:
                for entry in page:
                    waiting.append(entry)
                    size += len(entry.payload)
                    if len(waiting) >= rows or size >= CHUNK_BYTES:
                        yield len(waiting), await writer.chunk(waiting)
                        waiting, size = [], 0
        if waiting:
            yield len(waiting), await writer.chunk(waiting)


class _Writer:
    def __init__(self, here: Projection, selection: Selection, names: Names, change: Change | None) -> None:
        self._here = here
        self._text = selection.text_of
        self._names = names
        self._change = change
        self._messagers: dict[str, str | None] = {}

    async def chunk(self, events: Sequence[Event]) -> bytes:
        """Return the chunk of events."""
        receptions = await receptions_of(self._here, events)
        if self._change is not None:
            events = [self._change(entry) for entry in events]
            receptions = [
                [each._replace(messager=self._changed(each.messager)) for each in found] for found in receptions
            ]
        return encode(events, receptions, self._names, self._text)

    def _changed(self, messager: str | None) -> str | None:
        if messager is None or self._change is None:
            return messager
        if messager not in self._messagers:
            self._messagers[messager] = self._change(Event(0, 1, 1, "received", None, b"", messager=messager)).messager
        return self._messagers[messager]


_RECEPTIONS = """
    SELECT s.place, r.recorder, r.seq, r.ts, r.messager, r.arrival
    FROM shown s JOIN event m ON m.recorder = s.recorder AND m.seq = s.seq AND m.ts BETWEEN $first AND $last
    JOIN event r ON r.message_id = m.id AND r.id <> m.id AND NOT r.is_copy AND r.ts BETWEEN $early AND $late
    ORDER BY s.place, r.ts, r.id"""


async def receptions_of(here: Projection, events: Sequence[Event]) -> list[list[Reception]]:
    """Return the receptions of each message; the one that is the message itself is none."""
    found: list[list[Reception]] = [[] for _ in events]
    if not events:
        return found
    pa = pyarrow()
    columns = {"place": range(len(events))} | {
        name: [getattr(entry, name) for entry in events] for name in ("recorder", "seq")
    }
    times = [entry.ts for entry in events]
    first, last = min(times), max(times)
    values = {"first": first, "last": last, "early": clamped(first - EARLY_NS), "late": clamped(last + WITHIN_NS)}

    def read() -> list[tuple[Any, ...]]:
        here.connection.register("shown", pa.table({name: pa.array(one, pa.int64()) for name, one in columns.items()}))
        return here.rows(_RECEPTIONS, values)

    for place, *reception in await asyncio.to_thread(read):
        found[place].append(Reception(*reception))
    return found


def encode(
    events: Sequence[Event],
    receptions: Sequence[Sequence[Reception]],
    names: Names,
    text: Callable[[Event], str],
) -> bytes:
    """Return events, in replay order, with the receptions of each as a chunk."""
    rows: list[tuple[int, ...]] = []
    at: list[tuple[float, ...]] = []
    texts: list[str] = []
    payloads = _Payloads()
    seqs: dict[int, int] = {}
    last = events[0].ts if events else 0
    for entry, found in zip(events, receptions, strict=True):
        said, flags = text(entry), entry.flags & ~(TEXT_CUT | PAYLOAD_CUT)
        if len(said) > MAX_TEXT:
            said, flags = said[:MAX_TEXT], flags | TEXT_CUT
        if len(entry.payload) > MAX_PAYLOAD:
            flags |= PAYLOAD_CUT
        said = storable(said)
        payloads.add(entry.payload, said if not flags & (NO_TEXT | REDACTED | TEXT_CUT) else "")
        texts.append(said)
        rows.append(
            (
                _wrapped(entry.ts - last),
                _CODES[entry.kind],
                names.channel(entry.channel),
                names.agent(entry.from_id),
                names.agent(entry.to_id),
                names.messager(entry.messager),
                flags,
                entry.recorder,
                entry.seq - seqs.get(entry.recorder, 0),
                0 if entry.arrival is None or entry.kind == "received" else entry.arrival + 1,
                *(entry.cause or (0, 0)),
                len(entry.payload),
                len(found),
            )
        )
        last, seqs[entry.recorder] = entry.ts, entry.seq
        at += [(each.recorder, names.messager(each.messager), each.ts - entry.ts, each.arrival or 0) for each in found]
    columns = dict(zip(_MESSAGE, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(_MESSAGE, ())
    columns |= dict(zip(_RECEPTION, zip(*at, strict=True), strict=True)) if at else dict.fromkeys(_RECEPTION, ())
    used = names.listed(
        {*columns["from"], *columns["to"]}, {*columns["channel"]}, {*columns["messager"], *columns["at_messager"]}
    )
    header = {"rows": len(events), "begin": str(events[0].ts if events else 0), "names": used}
    packed = {name: _packed(name, values) for name, values in columns.items()}
    packed["texts"] = ("bytes", "".join(f"{each}\0" for each in texts).encode())
    messages = zlib.compress(block(header, packed), 6)
    return len(messages).to_bytes(4, "little") + messages + zlib.compress(payloads.block(), 6)


def _wrapped(difference: int) -> int:
    """Return the difference of two times modulo 2**64, as 64 bits hold it."""
    return (difference + 2**63) % 2**64 - 2**63


_MESSAGE = (
    *("ts", "kind", "channel", "from", "to", "messager", "flags", "recorder", "seq", "heard"),
    *("cause_recorder", "cause_seq", "size", "receptions"),
)
_RECEPTION = ("at_recorder", "at_messager", "at_delay", "at_arrival")
_CODES = {kind: number for number, kind in enumerate(KINDS, 1)}


class _Payloads:
    """The payloads of a chunk."""

    def __init__(self) -> None:
        self._forms: list[int] = []
        self._ends: list[int] = []
        self._data: list[bytes] = []
        self._size = 0

    def add(self, payload: bytes, text: str) -> None:
        """Add a payload that may hold `text`."""
        payload = payload[:MAX_PAYLOAD]
        form = 0
        if text and b"\1" not in payload:
            for number, escapes in enumerate(FORMS, 1):
                quoted = text
                for escape in escapes:
                    quoted = escape(quoted)
                inner = quoted.encode()
                if payload.count(inner) == 1:
                    payload, form = payload.replace(inner, b"\1"), number
                    break
        self._forms.append(form)
        self._data.append(payload)
        self._size += len(payload)
        self._ends.append(self._size)

    def block(self) -> bytes:
        """Return them as a block."""
        packed = {"form": _packed("form", self._forms), "end": _packed("end", self._ends)}
        return block({}, packed | {"data": ("bytes", b"".join(self._data))})


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


def _packed(name: str, values: Sequence[Any]) -> tuple[str, bytes]:
    """Return the values of a column in the smallest type that holds them."""
    if (kind := _FIXED.get(name)) is None:
        most = max(values, default=0)
        kind = "u8" if most < 1 << 8 else "u16" if most < 1 << 16 else "u32" if most < 1 << 32 else "f64"
    found = array(_TYPES[kind], values)
    if sys.byteorder == "big":
        found.byteswap()
    return kind, found.tobytes()
