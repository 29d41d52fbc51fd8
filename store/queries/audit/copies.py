"""Receptions without a sending of their own: copies of a message that arrived before, or messages of others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from ...log.matching import WITHIN_NS, Listener
from .receptions import FIRST_NS, Reception, Receptions

TOGETHER = 20_000
"""Receptions without a sending that are looked for together, in one pass over the minute before them."""


class Copy(NamedTuple):
    """A reception by a listener that had received the message before."""

    id: int
    ts: int
    listener: Listener
    sending_id: int
    number: int
    """Number of the receptions of this message by this listener, with this one."""


@dataclass(slots=True)
class _First:
    """The last reception that belongs to a sending, for one listener and content."""

    ts: int
    sending_id: int
    number: int = 1


class Copies:
    """Copies of messages, found among the receptions that belong to no sending.

    A reception is a copy if, in the minute before, the same listener received the same content on the same channel
    from a recorded sending. Channels without recorded sendings, redacted events and retained copies of MQTT do not
    count.
    """

    def __init__(self, receptions: Receptions) -> None:
        self._receptions = receptions
        self.others = 0
        """Receptions without a sending that are no copies."""

    async def read(self) -> AsyncGenerator[list[Copy], None]:
        """Yield the copies in replay order, in lists. Memory use is bounded by `TOGETHER`."""
        found: list[Reception] = []
        async with aclosing(self._receptions.read(unmatched=True)) as pages:
            async for page in pages:
                found += page
                if len(found) >= TOGETHER:
                    yield await self._among(found)
                    found = []
        if found:
            yield await self._among(found)

    async def _among(self, unmatched: list[Reception]) -> list[Copy]:
        """Return the copies among receptions without a sending, which are in replay order."""
        wanted, numbers = {(one.listener, one.content) for one in unmatched}, {one.id for one in unmatched}
        channels = sorted({one.channel_id for one in unmatched})
        first, last = max(unmatched[0].ts - WITHIN_NS, FIRST_NS), unmatched[-1].ts
        before: dict[tuple[Listener, bytes], _First] = {}
        copies: list[Copy] = []
        async with aclosing(self._receptions.read(channels=channels, first=first, last=last)) as pages:
            async for page in pages:
                for one in page:
                    key = one.listener, one.content
                    if key not in wanted or one.retained:
                        continue
                    origin = before.get(key)
                    if one.sending_id is not None:
                        before[key] = _First(one.ts, one.sending_id)
                    elif origin is not None and one.ts - origin.ts <= WITHIN_NS:
                        origin.number += 1
                        if one.id in numbers:
                            copies.append(Copy(one.id, one.ts, one.listener, origin.sending_id, origin.number))
                    elif one.id in numbers:
                        self.others += 1
        return copies
