"""Redis as a broker: publishing that never repeats itself, listening that notices silence.

Connections, parsing, TLS and authentication are redis-py's; what is done here is what
its client leaves open. Its PUBLISH is sent again when the answer is lost, which doubles
messages, so commands go onto a connection whose retries are off and are never repeated.
Its `PubSub` reconnects without a word and does not notice a network that has gone
silent, so subscribers ping, and tell what they may have missed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from .. import channels
from ..errors import BrokerUnavailable, PublishError
from .base import Backlog, OutputLimits

CONNECT_TIMEOUT = 4.0
"""Seconds a connection may take, so that a broker out of reach is told within five."""
STALE_AFTER = 1.0
"""Seconds after which an idle publishing connection is looked at before it is used."""
OUTPUT_LIMITS = OutputLimits(32 * 1024 * 1024, 8 * 1024 * 1024)
"""Redis' default for what may wait for a subscriber (`client-output-buffer-limit pubsub`), bytes."""
PROVE_NS = 1_000_000_000
"""While messages come, how often a subscriber asks for a proof that it has read all that was sent to it, ns."""
FIRST_BACKOFF, LAST_BACKOFF = 0.05, 1.0
"""Seconds a subscriber waits between two tries to reconnect: the first, and the most."""


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


def _reason(error: BaseException, connection: AbstractConnection | None = None) -> str:
    """An error in a few words, without a password: a server that knows no AUTH repeats what it was sent."""
    text = str(error).strip().rstrip(".") or type(error).__name__
    text = re.split(r",? with args beginning with", text, maxsplit=1)[0]
    for hidden in ("password", "path"):  # the path of a socket, where a password was not escaped
        if secret := getattr(connection, hidden, None):
            text = text.replace(str(secret), "***")
    return "no answer in time" if isinstance(error, asyncio.TimeoutError) and not str(error) else text


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
        self._connection: AbstractConnection | None = None
        self._used = 0.0
        self._lock = asyncio.Lock()

    @classmethod
    def from_url(cls, url: str, **options: Any) -> RedisBroker:
        """A broker at `redis://`, `rediss://` or `unix://`. Raises `ValueError` for any other URL."""
        timeout = float(options.get("timeout", 60.0)) or CONNECT_TIMEOUT
        try:
            if _ambiguous(url) or "@" in urlsplit(url).path:
                raise ValueError  # what follows would repeat parts of it, and connect to another host
            pool = ConnectionPool.from_url(url, **_connection_options(timeout))
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
            **_connection_options(config.timeout or CONNECT_TIMEOUT),
        )
        url = without_credentials(f"redis://{config.server}:{config.port}/{config.db}")
        return cls(pool, url, timeout=config.timeout, **options)

    async def connect(self) -> None:
        async with self._lock:
            await self._ready()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect()

    async def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
        results: list[int | PublishError | None] = []
        async with self._lock:
            try:
                connection = await self._ready()
            except BrokerUnavailable as error:
                return [PublishError(str(error), "not_sent") for _ in messages]
            try:
                async with asyncio.timeout(self._timeout):
                    packed = connection.pack_commands([("PUBLISH", *message) for message in messages])
                    await connection.send_packed_command(packed, check_health=False)
                    for _ in messages:
                        results.append(await _publish_answer(connection))
            except (OSError, RedisError, TimeoutError) as error:
                await self._discard()
                lost = PublishError(f"the answer of {self.url} was lost: {_reason(error)}", "unknown")
                results += [lost] * (len(messages) - len(results))
            except BaseException:
                await self._discard()
                raise
            self._used = time.monotonic()
        return results

    def pubsub(self) -> RedisPubSub:
        return RedisPubSub(self, self._pool.make_connection)

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
            connection = await self._ready()
            try:
                async with asyncio.timeout(self._timeout):
                    await connection.send_command(*command, check_health=False)
                    answer = await connection.read_response(disable_decoding=True)
            except ResponseError:
                return None
            except (OSError, RedisError, TimeoutError) as error:
                await self._discard()
                raise BrokerUnavailable(self.url, _reason(error)) from None
            except BaseException:
                await self._discard()
                raise
        return answer

    async def _ready(self) -> AbstractConnection:
        """The publishing connection, made if there is none or if the server has closed it."""
        connection = self._connection
        if connection is not None and time.monotonic() - self._used > STALE_AFTER and await _is_stale(connection):
            await self._discard()
            connection = None
        if connection is None:
            connection = await open_connection(self._pool.make_connection, self.url)
            self._connection, self._used = connection, time.monotonic()
        return connection

    async def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


_CLIENT = re.compile(rb"^.* sub=(?P<sub>\d+) psub=(?P<psub>\d+) .*\bomem=(?P<omem>\d+)\b.*$", re.M)
_PUBSUB_LIMITS = re.compile(rb"\bpubsub (\d+) (\d+) ")


def _who(line: bytes) -> str:
    """A client of CLIENT LIST, as a person finds it: its address, and its name where it has one."""
    fields = dict(field.partition("=")[::2] for field in line.decode("utf-8", "replace").split(" "))
    name = fields.get("name")
    return fields.get("addr", "?") + (f" ({name})" if name else "")


def _connection_options(timeout: float) -> dict[str, Any]:
    return {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": None,
        "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT),
        "health_check_interval": 0,
        "protocol": 2,
    }


async def open_connection(make: Callable[[], AbstractConnection], url: str) -> AbstractConnection:
    """A new connection that has passed its handshake. Raises `BrokerUnavailable`."""
    connection = make()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await connection.connect()  # type: ignore[no-untyped-call]
    except (OSError, RedisError, TimeoutError) as error:
        await connection.disconnect(nowait=True)
        raise BrokerUnavailable(url, _reason(error, connection)) from None
    return connection


async def _publish_answer(connection: AbstractConnection) -> int | PublishError:
    """The answer to one PUBLISH; an error reply means that the server did not deliver it."""
    try:
        return int(await connection.read_response(disable_decoding=True))
    except ResponseError as error:
        return PublishError(f"Redis refused the message: {_reason(error)}", "not_sent", refused=True)


async def _is_stale(connection: AbstractConnection) -> bool:
    """Whether the server closed the connection, or something unasked for lies in it."""
    look = getattr(connection, "can_read", None) or connection.can_read_destructive
    try:
        return bool(await look())
    except (OSError, RedisError):
        return True


def _buffered(connection: AbstractConnection) -> int:
    """Bytes that have arrived but make no whole message yet; 0 where redis-py does not let us see."""
    return len(getattr(getattr(connection, "_reader", None), "_buffer", b""))


class RedisPubSub:
    """A subscriber with a connection of its own, which it makes again when it is lost."""

    def __init__(self, broker: RedisBroker, make: Callable[[], AbstractConnection]) -> None:
        self._broker = broker
        self._make = make
        self._connection: AbstractConnection | None = None
        self._patterns: dict[bytes, None] = {}
        self._unconfirmed: set[bytes] = set()
        self._stirred = asyncio.Event()  # a pattern was confirmed, or a reader has left
        self._early: deque[dict[str, Any]] = deque()  # came while psubscribe was reading
        self._reading = asyncio.Lock()
        self._alive = 0  # when something came
        self._proven = 0  # what the broker delivered to us before this moment has been read
        self._unproven = False  # whether anything was read since
        self._pinged_at: int | None = None  # when a ping left that is not answered yet
        self._buffered = 0
        self._lost: tuple[str, int] | None = None
        self._backoff = FIRST_BACKOFF

    async def psubscribe(self, *patterns: str | bytes) -> None:
        wanted = [pattern for pattern in map(channels.encode, patterns) if pattern not in self._patterns]
        if not wanted:
            return
        if self._lost is not None:
            raise BrokerUnavailable(self._broker.url, self._lost[0])
        if self._connection is None:
            self._connection = await open_connection(self._make, self._broker.url)
            self._alive = self._proven = time.monotonic_ns()
        connection = self._connection
        await self._subscribe(connection, wanted)
        if self._connection is not connection:
            raise BrokerUnavailable(self._broker.url, "the connection was lost while subscribing")
        self._patterns.update(dict.fromkeys(wanted))

    async def punsubscribe(self, *patterns: str | bytes) -> None:
        gone = [channels.encode(pattern) for pattern in patterns] or list(self._patterns)
        for pattern in gone:
            self._patterns.pop(pattern, None)
        if self._connection is not None and gone:
            await self._connection.send_command("PUNSUBSCRIBE", *gone, check_health=False)

    async def get_message(self, ignore_subscribe_messages: bool = True, timeout: float = 0.0) -> dict[str, Any] | None:
        try:
            async with self._reading:
                if self._early:
                    return self._early.popleft()
                if self._connection is None:
                    return await self._make_again(timeout)
                return await self._read(self._connection, timeout)
        finally:
            self._stirred.set()

    def lost_since(self) -> int | None:
        return None if self._lost is None else self._lost[1]

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        self._patterns.clear()
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _subscribe(self, connection: AbstractConnection, patterns: list[bytes]) -> None:
        """Send PSUBSCRIBE and return once every pattern is confirmed.

        Where another task is in `get_message`, that one reads the confirmations.
        """
        self._unconfirmed.update(patterns)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await connection.send_command("PSUBSCRIBE", *patterns, check_health=False)
                while not self._unconfirmed.isdisjoint(patterns):
                    if self._reading.locked():
                        self._stirred.clear()
                        await self._stirred.wait()
                        continue
                    async with self._reading:
                        await self._read_early(connection)
        except (OSError, RedisError, TimeoutError) as error:
            raise BrokerUnavailable(self._broker.url, _reason(error)) from None
        finally:
            self._unconfirmed.difference_update(patterns)

    async def _read_early(self, connection: AbstractConnection) -> None:
        """Read one response; a message among them is kept for `get_message`."""
        message = self._understood(await connection.read_response(disable_decoding=True, push_request=True))
        if message is not None:
            self._early.append(message)

    async def _read(self, connection: AbstractConnection, timeout: float) -> dict[str, Any] | None:
        """The next message within `timeout` seconds, pinging where it stays silent for long."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                now = time.monotonic_ns()
                if self._unproven and self._pinged_at is None and now - self._proven >= PROVE_NS:
                    await self._ping(connection)
                since = self._alive if self._pinged_at is None else max(self._alive, self._pinged_at)
                patience = self._broker.ping_interval if self._pinged_at is None else self._broker.ping_timeout
                overdue = since + int(patience * 1e9)
                wait = max(min((overdue - now) / 1e9, deadline - time.monotonic()), 0.001)
                response = await connection.read_response(
                    disable_decoding=True, timeout=wait, disconnect_on_error=False, push_request=True
                )
                if response is not None:
                    self._alive = time.monotonic_ns()
                    message = self._understood(response)
                    if message is not None:
                        self._unproven = True
                        return message
                elif (buffered := _buffered(connection)) != self._buffered:
                    # part of a large message came in: slow, but alive
                    self._buffered, self._alive = buffered, time.monotonic_ns()
                elif time.monotonic_ns() >= overdue:
                    if self._pinged_at is not None:
                        await self._lose(f"no answer to a ping within {self._broker.ping_timeout:g} s")
                        return None
                    await self._ping(connection)
                if time.monotonic() >= deadline:
                    return None
        except (OSError, RedisError, TimeoutError) as error:
            await self._lose(_reason(error))
            return None

    async def _ping(self, connection: AbstractConnection) -> None:
        """Ask for a sign of life, which comes behind everything that was delivered to us before."""
        self._pinged_at = time.monotonic_ns()
        async with asyncio.timeout(self._broker.ping_timeout):
            await connection.send_command("PING", check_health=False)

    def _understood(self, response: Any) -> dict[str, Any] | None:
        """A pushed message as a dict; confirmations and pongs are dealt with here."""
        if response[0] == b"pmessage":
            return {"type": "pmessage", "pattern": response[1], "channel": response[2], "data": response[3]}
        if response[0] == b"psubscribe":
            self._unconfirmed.discard(response[1])
            self._stirred.set()
        if response[0] == b"pong" and self._pinged_at is not None:
            self._proven, self._pinged_at, self._unproven = self._pinged_at, None, False
        return None

    async def _lose(self, reason: str) -> None:
        """The connection is gone: what came since we last had read everything for certain may be missing.

        Not since the last message: others were waiting behind it, in Redis or on the way, and they
        were sent before we read it.
        """
        connection, self._connection = self._connection, None
        self._pinged_at, self._unproven = None, False
        self._lost = (reason, self._proven)
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _make_again(self, timeout: float) -> dict[str, Any] | None:
        """Try once to connect and subscribe again; the gap if that worked, else None after a pause."""
        if self._lost is None:
            raise RuntimeError("psubscribe first: this subscriber has no subscription")
        connection = None
        try:
            connection = await open_connection(self._make, self._broker.url)
            began = time.monotonic_ns()
            async with asyncio.timeout(CONNECT_TIMEOUT):
                self._unconfirmed = set(self._patterns)
                await connection.send_command("PSUBSCRIBE", *self._patterns, check_health=False)
                while self._unconfirmed:
                    await self._read_early(connection)
        except (BrokerUnavailable, OSError, RedisError, TimeoutError):
            self._early.clear()
            if connection is not None:
                await connection.disconnect(nowait=True)
            await asyncio.sleep(min(self._backoff, max(timeout, 0.001)))
            self._backoff = min(self._backoff * 2, LAST_BACKOFF)
            return None
        except BaseException:
            if connection is not None:
                await connection.disconnect(nowait=True)
            raise
        reason, since = self._lost
        self._connection, self._lost, self._backoff = connection, None, FIRST_BACKOFF
        self._alive, self._proven = time.monotonic_ns(), began
        return {"type": "gap", "reason": reason, "since": since, "until": self._alive}
