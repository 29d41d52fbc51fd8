"""Redis as a broker: where it is, publishing, and what it tells of its subscribers.

A command is never repeated: after a lost answer its fate is unknown, and said to be so.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field
from redis.asyncio import ConnectionPool
from redis.exceptions import ResponseError

from ..errors import BrokerUnavailable, PublishError
from .base import Backlog, OutputLimits
from .redis_pubsub import RedisPubSub
from .redis_wire import CONNECT_TIMEOUT, Wire, connection_options, publish_commands, reason_of

STALE_AFTER = 1.0
"""Seconds after which an idle publishing connection is looked at before it is used."""
GLANCE_NS = 100_000
"""For how long (ns) a task that sends one message after another looks for the answer before others get their turn."""
MOST_IN_VAIN = 10
"""Looks in vain after which it looks at every 1024th message only."""
OUTPUT_LIMITS = OutputLimits(32 * 1024 * 1024, 8 * 1024 * 1024)
"""Redis' default for what may wait for a subscriber (`client-output-buffer-limit pubsub`), bytes."""


class RedisConfig(BaseModel):
    """Where Redis is, as AgentSociety's `RedisConfig` says it. `timeout` is in seconds."""

    server: str = Field(...)
    port: int = Field(default=6379, ge=0, le=65535)
    password: str | None = Field(default=None, repr=False)
    db: int = Field(default=0)
    timeout: float = Field(default=60, ge=0)


def without_credentials(url: str) -> str:
    """The URL with its user and password taken out, also where they were not escaped as they should be."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        if _ambiguous(url):
            return f"{scheme}://..."
        host = parts.netloc.rpartition("@")[2]
        whole = (
            parts.hostname and (parts.port is not None or ":" not in host.rpartition("]")[2]) and "@" not in parts.path
        )
        socket = not host and ("@" in parts.netloc or not parts.netloc)
        rest = host + parts.path if whole or socket else rest.rpartition("@")[2]
    except ValueError:
        rest = rest.rpartition("@")[2]
    return f"{scheme}://" + re.split(r"[?#]", rest, maxsplit=1)[0]


def _ambiguous(url: str) -> bool:
    """Whether a password may reach beyond where the URL's host seems to begin."""
    parts = urlsplit(url)
    return "#" in url or "@" in parts.query or (parts.netloc.count("@") > 0 and "@" in parts.path)


_URL_FAULTS = re.compile(
    r"Invalid value for '\w+'|unexpected keyword argument '\w+'"
    r"|Redis URL must specify.*|Port out of range|Invalid IPv6 URL"
)


def _fault(error: Exception) -> str:
    """What is wrong with a URL. Other words may repeat parts of it, and so of a password."""
    found = _URL_FAULTS.search(str(error))
    return found[0] if found else "a port is a number, and / @ : # ? % in a password are written as %2F %40 %3A ..."


class RedisBroker:
    """A Redis server. `timeout` and the ping times are in seconds.

    A subscriber that has heard nothing for `ping_interval` pings; without any answer
    for `ping_timeout` more, the connection counts as lost and is made again.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        url: str,
        *,
        timeout: float = 60.0,
        ping_interval: float = 5.0,
        ping_timeout: float = 5.0,
    ) -> None:
        self.url = url
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self._pool = pool
        self._timeout = timeout or None
        self._wire: Wire | None = None
        self._requests: deque[_Publishing | _Asking] = deque()  # sent and not answered, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._closings = 0
        self._used = 0.0
        self._sender = 0  # who published the last message that went alone
        self._in_vain = self._not_looking = 0
        self._lock = asyncio.Lock()

    @classmethod
    def from_url(cls, url: str, **options: Any) -> RedisBroker:
        """A broker at `redis://`, `rediss://` or `unix://`. Raises `ValueError` for any other URL."""
        timeout = float(options.get("timeout", 60.0)) or CONNECT_TIMEOUT
        try:
            if _ambiguous(url) or "@" in urlsplit(url).path:
                raise ValueError  # what follows would repeat parts of it, and connect to another host
            pool = ConnectionPool.from_url(url, **connection_options(timeout))
            pool.make_connection()  # type: ignore[no-untyped-call]  # connects to nothing, but refuses options that it does not know
        except (ValueError, TypeError) as error:
            raise ValueError(f"{without_credentials(url)!r} is not a Redis URL ({_fault(error)})") from None
        return cls(pool, without_credentials(url), **options)

    @classmethod
    def from_config(cls, config: RedisConfig, **options: Any) -> RedisBroker:
        """The broker that a `RedisConfig` describes."""
        pool = ConnectionPool(
            host=config.server,
            port=config.port,
            db=config.db,
            password=config.password,
            socket_keepalive=True,
            **connection_options(config.timeout or CONNECT_TIMEOUT),
        )
        url = without_credentials(f"redis://{config.server}:{config.port}/{config.db}")
        return cls(pool, url, timeout=config.timeout, **options)

    async def connect(self) -> None:
        async with self._lock:
            await self._ready()

    async def close(self) -> None:
        self._closings += 1
        wire, self._wire = self._wire, None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if wire is not None:
            await wire.close()
        self._fail("the connection was closed")

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> asyncio.Future[list[int | PublishError | None]]:
        wire = self._wire
        if wire is None or wire.closed or time.monotonic() - self._used > STALE_AFTER:
            return asyncio.ensure_future(self._publish_anew(messages))
        return self._published(wire, messages)

    def _published(
        self, wire: Wire, messages: Sequence[tuple[bytes, bytes]]
    ) -> asyncio.Future[list[int | PublishError | None]]:
        request = _Publishing(len(messages))
        if not request.done:
            self._send(wire, publish_commands(messages), request)
            if len(messages) == 1:
                self._glance(wire, request)
        return request.future

    async def _publish_anew(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
        """Publish on a connection that has to be made, or looked at, before."""
        try:
            async with self._lock:
                wire = await self._ready()
        except BrokerUnavailable as error:
            return [PublishError(str(error), "not_sent") for _ in messages]
        return await self._published(wire, messages)

    def pubsub(self) -> RedisPubSub:
        return RedisPubSub(
            self._pool.make_connection, self.url, ping_interval=self.ping_interval, ping_timeout=self.ping_timeout
        )

    async def clock_offset(self) -> int | None:
        before = time.time_ns()
        answer = await self._ask("TIME")
        after = time.time_ns()
        if answer is None:
            return None
        seconds, micros = (int(part) for part in answer)
        return seconds * 1_000_000_000 + micros * 1_000 - (before + after) // 2

    async def backlog(self) -> Backlog | None:
        answer = await self._client_list()
        if answer is None:
            return None
        slowest, most, subscriptions = b"", -1, 0
        for line in _CLIENT.finditer(answer):
            waiting = int(line["omem"])
            subscriptions = max(subscriptions, min(int(line["sub"]), 1) + int(line["psub"]))
            if waiting > most:
                slowest, most = line[0], waiting
        return Backlog(max(most, 0), _who(slowest), subscriptions)

    async def output_limits(self) -> OutputLimits:
        answer = await self._ask("CONFIG", "GET", "client-output-buffer-limit")
        found = _PUBSUB_LIMITS.search(answer[1]) if isinstance(answer, list) and len(answer) > 1 else None
        if found is None:
            return OUTPUT_LIMITS
        return OutputLimits(int(found[1]) or None, int(found[2]) or None)

    async def subscriber_count(self) -> int | None:
        answer = await self._client_list()
        if answer is not None:
            return len(answer.splitlines())
        patterns = await self._ask("PUBSUB", "NUMPAT")
        return None if patterns is None else int(patterns)

    async def _client_list(self) -> bytes | None:
        """The subscribed clients, one a line; None where an ACL or the server does not let us see them."""
        answer: bytes | None = await self._ask("CLIENT", "LIST", "TYPE", "pubsub")
        return answer

    async def _ask(self, *command: str) -> Any:
        """One command on the publishing connection; None where the server refuses it.

        Raises `BrokerUnavailable`.
        """
        async with self._lock:
            wire = await self._ready()
        request = _Asking()
        self._send(wire, wire.packed(*command), request)
        return await request.future

    async def _ready(self) -> Wire:
        """The publishing connection, made if there is none or if the server has closed it."""
        wire = self._wire
        if wire is not None and not wire.closed and time.monotonic() - self._used > STALE_AFTER:
            for _ in range(2):  # a loop that was blocked has not seen yet that the server closed it
                await asyncio.sleep(0)
        if wire is not None and wire.closed:
            self._wire = None
            await wire.close()
        if self._wire is None:
            closings = self._closings
            wire = await Wire.open(self._pool.make_connection, self.url, self._answered, self._fail)
            if closings != self._closings:
                await wire.close()
                raise BrokerUnavailable(self.url, "it was closed meanwhile")
            self._wire = wire
        self._used = time.monotonic()
        return self._wire

    def _send(self, wire: Wire, data: bytes, request: _Publishing | _Asking) -> None:
        self._requests.append(request)
        wire.write(data)
        if self._timer is None and self._timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue)

    def _glance(self, wire: Wire, request: _Publishing) -> None:
        """Where one task sends one message after another, look for the answer at once.

        Tasks that send at the same time are better served by the event loop, which lets them gather. Where the
        answer does not come soon, as from another machine, looking stops for a while, each time longer.
        """
        sender, self._sender = self._sender, id(asyncio.current_task())
        if sender != self._sender or len(self._requests) > 1:
            return
        if self._not_looking:
            self._not_looking -= 1
            return
        wire.glance(GLANCE_NS)
        self._in_vain = 0 if request.done else min(self._in_vain + 1, MOST_IN_VAIN)
        self._not_looking = 2**self._in_vain - 1

    def _answered(self, replies: list[Any]) -> None:
        """Replies came, in the order of the requests."""
        self._used = time.monotonic()
        at = 0
        while at < len(replies) and self._requests:
            request = self._requests[0]
            at += request.take(replies, at)
            if request.done:
                self._requests.popleft()

    def _fail(self, reason: str) -> None:
        """The connection is gone, and with it the answers to what was sent."""
        while self._requests:
            self._requests.popleft().fail(self.url, reason)

    def _overdue(self) -> None:
        """The oldest request may have waited for too long."""
        self._timer = None
        if not self._requests or self._timeout is None:
            return
        left = self._requests[0].since + self._timeout - time.monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._overdue)
        elif self._wire is not None:
            self._wire.abort("no answer in time")


class _Publishing:
    """Messages on their way: a reply for each."""

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.done = False
        self._count = count
        self._results: list[int | PublishError | None] = []
        if not count:
            self._finish()

    def take(self, replies: list[Any], at: int) -> int:
        """Take what belongs here, from a place on; how many replies that were."""
        mine = replies[at : at + self._count - len(self._results)]
        self._results += [reply if reply.__class__ is int else _refused(reply) for reply in mine]
        if len(self._results) == self._count:
            self._finish()
        return len(mine)

    def fail(self, url: str, reason: str) -> None:
        lost = PublishError(f"the answer of {url} was lost: {reason}", "unknown")
        self._results += [lost] * (self._count - len(self._results))
        self._finish()

    def _finish(self) -> None:
        self.done = True
        if not self.future.done():  # nobody may wait any more
            self.future.set_result(self._results)


class _Asking:
    """A command other than PUBLISH: one reply, None where the server refuses."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.done = False

    def take(self, replies: list[Any], at: int) -> int:
        self.done = True
        if not self.future.done():
            self.future.set_result(None if isinstance(replies[at], ResponseError) else replies[at])
        return 1

    def fail(self, url: str, reason: str) -> None:
        self.done = True
        if not self.future.done():
            self.future.set_exception(BrokerUnavailable(url, reason))


def _refused(reply: Any) -> PublishError:
    """An error reply to one PUBLISH means that the server did not deliver it."""
    return PublishError(f"Redis refused the message: {reason_of(reply)}", "not_sent", refused=True)


_CLIENT = re.compile(rb"^.* sub=(?P<sub>\d+) psub=(?P<psub>\d+) .*\bomem=(?P<omem>\d+)\b.*$", re.M)
_PUBSUB_LIMITS = re.compile(rb"\bpubsub (\d+) (\d+) ")


def _who(line: bytes) -> str:
    """A client of CLIENT LIST, as a person finds it: its address, and its name where it has one."""
    fields = dict(field.partition("=")[::2] for field in line.decode("utf-8", "replace").split(" "))
    name = fields.get("name")
    return fields.get("addr", "?") + (f" ({name})" if name else "")
