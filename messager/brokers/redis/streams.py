"""Reader of streams: XREAD without a group, looks at the counters of the server, and gaps for what was missed."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from redis.exceptions import ResponseError

from ... import channels
from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from ..base import PubSub, StreamReader
from ..reconnecting import FIRST_BACKOFF, LAST_BACKOFF
from .error_text import acl_remedy, error_text
from .stream_entry import message_of
from .stream_keys import StreamKeys
from .stream_ledger import Begin, Counters, Gap, Id, Info, Ledger, Look

NO_CLUSTER = "streams of a cluster cannot be read, as XREAD reads the keys of one slot only; record in the program"
TOO_OLD = "it does not count the entries of streams, so that losses would pass unnoticed; Redis 7.0, or Valkey, does"
LOOK_SECONDS = 1.0
"""Seconds between two looks at the counters."""
LOOKS_A_SECOND = 1000
"""Streams that are looked at in a second, at most: with more streams, looks are rarer."""
TOGETHER = 200
"""Streams that are looked at in one transaction; of more, the look is not of one moment."""
BLOCK_SECONDS, BLOCK_LISTING_SECONDS = 0.1, 0.01
"""Longest wait of the server for an entry, and while the keys are being listed."""
PAUSE_PER_STREAM = 50e-6
"""Seconds between two readings, for each stream, so that many streams take a small part of the server."""
FIRST_COUNT, LAST_COUNT = 10, 1000
"""Entries of a stream that are read together: first, and maximum."""
SMALL_BYTES, LARGE_BYTES = 1 << 18, 1 << 20
"""Bytes of a reading below which the next one may have more entries, and above which it has fewer."""
_TRANSIENT = ("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "EXECABORT")
_DELETING = "del|unlink|flushdb|flushall|rename|renamenx|move|swapdb|restore|copy|migrate|getdel|delifeq|delex"
_XADD = re.compile(rb"^cmdstat_xadd:calls=(\d{1,18})\b(?:.*\bfailed_calls=(\d{1,18}))?", re.M)
_DELETED = re.compile(rb"^(?:cmdstat_(?:%b):calls=|(?:expired|evicted)_keys:)(\d{1,18})\b" % _DELETING.encode(), re.M)
_RUN = re.compile(rb"^run_id:(\w+)", re.M)
_VERSION = re.compile(rb"^redis_version:(\d{1,4})\.", re.M)
_INFO = ("INFO", "server", "stats", "commandstats")


class Asked(Protocol):
    """Connection of a reader, as far as this module needs it."""

    url: str

    @property
    def database(self) -> int:
        """Number of the database."""

    async def ask_together(self, *commands: Sequence[str | bytes]) -> list[Any]:
        """See `RedisBroker.ask_together`."""

    async def close(self) -> None:
        """Close the connection."""


class _Refused(Exception):
    """The server refuses a command; asking again does not help."""


class RedisStreams(StreamReader):
    """Reads streams whose keys match `patterns` on a connection of its own, and listens to `pubsub` for new ones."""

    def __init__(self, asked: Asked, pubsub: PubSub, patterns: Sequence[str], *, from_start: bool = False) -> None:
        self._asked = asked
        self._keys = StreamKeys(patterns, self._ask, pubsub)
        self._from_start = from_start
        self._ledger = Ledger(self._keys.listed)
        self._inbox: deque[dict[str, Any]] = deque()
        self._others: set[bytes] = set()  # keys that are no streams any more
        self._count = FIRST_COUNT
        self._look_at = self._read_at = 0.0
        self._lost: int | None = None
        self._complete = time.monotonic_ns()
        self._backoff = FIRST_BACKOFF

    async def start(self) -> None:
        try:
            version = _VERSION.search(await self._ask(b"INFO", b"server"))
            if version is not None and int(version[1]) < 7:
                raise _Refused(TOO_OLD)
            await self._keys.listen(self._asked.database)
            self._listed(await self._keys.every_key(), "start" if self._from_start else "end")
            await self._look()
        except _Refused as error:
            raise BrokerUnavailable(self._asked.url, str(error)) from None

    async def get_message(self, timeout: float) -> dict[str, Any] | None:
        if not self._inbox:
            self._complete = self._ledger.complete_until()
            try:
                await self._cycle(timeout)
            except _Refused as error:
                raise BrokerUnavailable(self._asked.url, str(error)) from None
            except BrokerUnavailable:
                if self._lost is None:
                    self._lost = self._complete
                await asyncio.sleep(min(self._backoff, max(timeout, 0.001)))
                self._backoff = min(self._backoff * 2, LAST_BACKOFF)
            else:
                self._lost, self._backoff = None, FIRST_BACKOFF
        return self._inbox.popleft() if self._inbox else None

    async def finish(self, timeout: float) -> list[dict[str, Any]]:
        try:
            async with time_limit(timeout):
                self._listed(await self._keys.every_key(), "new")
                await self._look()
                while self._ledger.pending:
                    await self._read(0)
        except (BrokerUnavailable, TimeoutError, _Refused) as error:
            reason = str(error) if isinstance(error, _Refused) else "the server did not answer at the end"
            self._ledger.gaps.append(Gap(reason, self._ledger.complete_until(), time.monotonic_ns(), None))
        self._ledger.ended(time.monotonic_ns())
        self._put_gaps()
        left = list(self._inbox)
        self._inbox.clear()
        return left

    def lost_since(self) -> int | None:
        return self._lost

    def complete_until(self) -> int:
        return self._complete

    async def aclose(self) -> None:
        await self._keys.aclose()
        await self._asked.close()

    async def _cycle(self, timeout: float) -> None:
        self._listed(await self._keys.found(), "new")
        if time.monotonic() >= self._look_at:
            await self._look()
        longest = min(timeout, BLOCK_LISTING_SECONDS if self._keys.listing else BLOCK_SECONDS)
        early = self._read_at - time.monotonic()
        if early > 0:
            await asyncio.sleep(min(early, longest))
        if early <= longest:
            await self._read(longest)
        self._put_gaps()

    def _listed(self, keys: list[bytes], begin: Begin) -> None:
        for key in keys:
            self._ledger.add(key, begin)
        self._ledger.listed = self._keys.listed

    async def _read(self, block: float) -> None:
        """Read what follows the cursors, or wait for it for `block` seconds."""
        streams = [one for one in self._ledger.streams.values() if one.key not in self._others]
        if not streams:
            self._ledger.took({}, ())
            await asyncio.sleep(block)
            return
        waiting = (b"BLOCK", b"%d" % max(int(block * 1000), 1)) if block else ()
        keys, cursors = [one.key for one in streams], [b"%d-%d" % one.cursor for one in streams]
        [reply] = await self._asked.ask_together(
            (b"XREAD", b"COUNT", b"%d" % self._count, *waiting, b"STREAMS", *keys, *cursors)
        )
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            self._look_at = 0.0  # the look tells which key it is
            await self._look()
            return
        read: dict[bytes, list[Any]] = dict(_checked("XREAD", reply) or ())
        self._ledger.took(
            {key: [_id(entry_id) for entry_id, _ in entries] for key, entries in read.items()},
            [key for key, entries in read.items() if len(entries) >= self._count] + list(self._others),
        )
        size = 0
        found = []
        for key, entries in read.items():
            for entry_id, words in entries:
                if words is None:
                    continue  # an entry of a damaged stream
                payload, meta = message_of(entry_id, words)
                size += len(payload)
                found.append((_id(entry_id), {"type": "entry", "channel": key, "data": payload, "meta": meta}))
        found.sort(key=lambda one: one[0])  # of several streams, in the order in which they were added
        self._inbox.extend(message for _, message in found)
        if size < SMALL_BYTES and any(len(entries) >= self._count for entries in read.values()):
            self._count = min(self._count * 2, LAST_COUNT)
        elif size > LARGE_BYTES:
            self._count = max(self._count // 2, 1)
        self._read_at = time.monotonic() + len(streams) * PAUSE_PER_STREAM

    async def _look(self) -> None:
        """Look at the counters of the server and of all streams."""
        keys = list(self._ledger.streams)
        asked = time.monotonic_ns()
        looks = [(b"XINFO", b"STREAM", key) for key in keys]
        at_once = len(keys) <= TOGETHER
        if at_once:
            *queued, replies = await self._asked.ask_together(("MULTI",), _INFO, *looks, ("EXEC",))
            for command, reply in zip(("MULTI", "INFO", *("XINFO STREAM" for _ in keys)), queued, strict=True):
                _checked(command, reply)
            told, *replies = _checked("EXEC", replies)
        else:
            replies = []
            for at in range(0, len(looks), TOGETHER):
                replies += await self._asked.ask_together(*looks[at : at + TOGETHER])
            [told] = await self._asked.ask_together(_INFO)
        counters = _counters(_checked("INFO", told))
        infos = {key: _info(reply) for key, reply in zip(keys, replies, strict=True)}
        self._others = {key for key, reply in zip(keys, replies, strict=True) if _is_other(reply)}
        self._ledger.looked(Look(asked, time.monotonic_ns(), counters, infos, at_once))
        self._look_at = time.monotonic() + max(LOOK_SECONDS, len(keys) / LOOKS_A_SECOND)

    async def _ask(self, *command: bytes) -> Any:
        [reply] = await self._asked.ask_together(command)
        return _checked(command[0].decode(), reply)

    def _put_gaps(self) -> None:
        for gap in self._ledger.gaps:
            reason = gap.reason if gap.key is None else f"entries of {channels.decode(gap.key)!a}: {gap.reason}"
            times = {"since": gap.since, "until": gap.until, "count": gap.entries}
            self._inbox.append({"type": "gap", "channel": gap.key, "reason": reason, **times})
        self._ledger.gaps.clear()


def _checked(command: str, reply: Any) -> Any:
    """Return a reply. Raises `_Refused` for a refusal, and `BrokerUnavailable` for one that passes."""
    if not isinstance(reply, ResponseError):
        return reply
    if str(reply).startswith(_TRANSIENT):
        raise BrokerUnavailable("the server", error_text(reply))
    raise _Refused(f"{command} was refused: {error_text(reply)}{acl_remedy(reply, command.replace(' ', '|'))}")


def _is_other(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE")


def _info(reply: Any) -> Info | None:
    """Return the state of a stream; None if the key has none."""
    if isinstance(reply, ResponseError) and (_is_other(reply) or str(reply).startswith("no such key")):
        return None
    words = _checked("XINFO STREAM", reply)
    named = dict(zip(words[::2], words[1::2], strict=True))
    if b"entries-added" not in named:
        raise _Refused(TOO_OLD)
    return Info(_id(named[b"last-generated-id"]), int(named[b"entries-added"]), int(named[b"length"]))


def _counters(told: bytes) -> Counters:
    """Return the counters in an answer to INFO."""
    run, xadd = _RUN.search(told), _XADD.search(told)
    calls = 0 if xadd is None else int(xadd[1]) - int(xadd[2] or 0)
    return Counters(b"" if run is None else run[1], calls, sum(map(int, _DELETED.findall(told))))


def _id(text: bytes) -> Id:
    milliseconds, _, number = text.partition(b"-")
    return int(milliseconds), int(number)
