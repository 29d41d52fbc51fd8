"""Replies: messages that answer an earlier one between the same two agents.

A message from X to Y is a reply if Y has sent X a message that no earlier message of X to Y has answered:

- `heard`: if the schedule of X's Messager is recorded, the message must be among those that had been fetched from it
  when X spoke (`Event.arrival`). The reply answers the last of these; the time begins at its reception there, so one
  clock measures it.
- `next`: otherwise, every message from Y to X that is earlier in replay order counts. The reply answers the last of
  them; the time begins at that message.

Both messages are selected: by channel, time and content. Conditions on agents choose among the replies.

The messages before the one that is answered are answered with it. Each message is answered at most once, and a second
message of X in a row is no reply. Messages to oneself, or without a sender or a recipient, are none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import bindparam, case, null, select

from ..db.codes import KINDS, SEQ_BITS
from ..db.schema import delivery, event
from ..experiments.records import Experiment
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.messages import sources
from ..log.names import NameReader, agent_value
from ..log.reading import pages
from ..log.selection import Selection
from ..log.span import Span

_SENT, _RECEIVED = (KINDS.index(kind) + 1 for kind in ("sent", "received"))
_PLAIN = (int, str, type(None))
"""Types of ids that differ where their JSON does."""
Pair = tuple[Any, Any]
"""Sender and recipient: both as they are, or both as the bytes of their JSON."""


def pair_key(one: Any, other: Any) -> Pair:
    """Return a key for two ids of agents, as they are or as JSON: 5 is not "5", and 1 is not true."""
    if one.__class__ in _PLAIN and other.__class__ in _PLAIN:
        return one, other
    return agent_value(one), agent_value(other)


class Reply(NamedTuple):
    """A reply, and the time since the message that it answers."""

    event: Event
    basis: str
    """heard or next"""
    duration: int
    """ns"""


@dataclass(slots=True)
class _Received:
    """Receptions by one Messager, from one agent to another, that are not answered yet."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    """`Event.arrival`, ascending."""
    times: array[int] = field(default_factory=lambda: array("q"))

    def add(self, number: int, ts: int) -> None:
        if not self.numbers or number > self.numbers[-1]:  # a second recorder may have recorded the same reception
            self.numbers.append(number)
            self.times.append(ts)

    def take(self, heard: int) -> int | None:
        """Remove those up to a number; return the time of the last one, None if there is none."""
        count = bisect_right(self.numbers, heard)
        ts = self.times[count - 1] if count else None
        del self.numbers[:count], self.times[:count]
        return ts


class Replies:
    """The replies among the selected messages. Memory use is bounded by the pairs of agents, and by the messages that
    wait for an answer at one time."""

    def __init__(self, log: EventLog, of: Experiment, selection: Selection) -> None:
        self._log = log
        self._of = of
        self._selection = selection
        self.unaddressed = 0
        """Selected messages without a sender or a recipient."""
        self._listening: set[str] = set()
        """Messagers whose receptions are recorded."""
        self._speaking: set[Pair] = set()
        """Pairs (sender, recipient) of recorded sendings."""
        self._names = NameReader(log.database)
        self._received: dict[tuple[str, Pair], _Received] = {}
        self._last: dict[Pair, int] = {}
        """By (sender, recipient), the time of the last message that is not answered."""

    async def read(self) -> AsyncGenerator[Reply, None]:
        """Yield the replies in replay order. Read it once."""
        database, of = self._log.database, self._of
        chosen = await self._selection.as_recorded(database, of)
        chosen = chosen.of_kinds({"sent", "received"})
        content, span = chosen.content, await chosen.span(database, of)
        skipped = chosen.skipped(database, of)
        await self._survey()
        rule = await sources(self._log, of)
        numbers = {row.ordinal: row.id << SEQ_BITS for row in await self._log.recorders(of)}
        left = span.limit
        reading = pages(database, of, Selection({"sent", "received"}), Span(end=span.end))
        async with aclosing(reading):
            async for page in reading:
                senders = await self._senders(page, numbers)
                for entry in page:
                    if left == 0:
                        return
                    is_message = rule.takes(entry)
                    if entry.cursor not in span or not chosen.takes_channel(entry.channel):
                        continue
                    if content is not None and not content.takes(entry, skipped if is_message else None):
                        continue
                    if entry.kind == "received" and entry.messager is not None and entry.arrival is not None:
                        self._receive(entry, senders.get(numbers[entry.recorder] | entry.seq))
                    if not is_message:
                        continue
                    reply = self._message(entry)
                    unaddressed = entry.from_id is None or entry.to_id is None
                    if (reply is None and not unaddressed) or not chosen.takes(entry):
                        continue
                    self.unaddressed += unaddressed
                    if reply is not None:
                        left = None if left is None else left - 1
                        yield reply

    async def _survey(self) -> None:
        """Find out who listens, and who speaks to whom."""
        spoken = event.c.kind == _SENT
        query = (
            select(
                case((spoken, null()), else_=event.c.messager_id),
                case((spoken, event.c.from_id), else_=null()),
                case((spoken, event.c.to_id), else_=null()),
            )
            .where(event.c.experiment_id == self._of.id, event.c.kind.in_((_SENT, _RECEIVED)))
            .where(event.c.messager_id.is_not(None))
            .distinct()
        )
        async with self._log.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        await self._names.load({number for row in rows for number in row if number is not None})
        known = self._names.values
        for messager, sender, recipient in rows:
            if messager is not None:
                self._listening.add(known[messager])
            elif sender is not None and recipient is not None:
                self._speaking.add(pair_key(known[sender], known[recipient]))

    async def _senders(self, page: list[Event], numbers: dict[int, int]) -> dict[int, tuple[Any, Any]]:
        """Return sender and recipient of the sendings that receptions belong to, by id of the reception.

        A reception itself has only ids that are derived.
        """
        ids = [numbers[entry.recorder] | entry.seq for entry in page if entry.kind == "received" and entry.messager]
        if not ids or not self._speaking:
            return {}
        query = (
            select(delivery.c.event_id, event.c.from_id, event.c.to_id)
            .join(event, event.c.id == delivery.c.sending_id)
            .where(delivery.c.event_id.in_(bindparam(None, ids, expanding=True, literal_execute=True)))
        )
        async with self._log.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return {}
        await self._names.load({number for _, *ids in rows for number in ids if number is not None})
        known = self._names.values
        return {number: (known[sender], known[recipient]) for number, sender, recipient in rows}

    def _receive(self, entry: Event, ids: tuple[Any, Any] | None) -> None:
        """Keep a reception that may be answered."""
        sender, recipient = ids or (entry.from_id, entry.to_id)
        if sender is None or recipient is None or pair_key(recipient, sender) not in self._speaking:
            return
        key = entry.messager or "", pair_key(sender, recipient)
        self._received.setdefault(key, _Received()).add(entry.arrival or 0, entry.ts)

    def _message(self, entry: Event) -> Reply | None:
        """Return the reply that a message is, if it is one."""
        if entry.from_id is None or entry.to_id is None:
            return None
        own, asked = pair_key(entry.from_id, entry.to_id), pair_key(entry.to_id, entry.from_id)
        if own == asked:
            return None
        basis, since = "next", self._last.get(asked)
        if entry.kind == "sent" and entry.arrival is not None and entry.messager in self._listening:
            received = self._received.get((entry.messager, asked))
            basis, since = "heard", received.take(entry.arrival) if received else None
        if since is not None:
            self._last.pop(asked, None)
        self._last[own] = entry.ts
        return None if since is None else Reply(entry, basis, entry.ts - since)
