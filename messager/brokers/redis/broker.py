"""Redis as a broker: where it is, publishing, and what it tells of its subscribers.

A command is never repeated: after a lost answer its fate is unknown, and said to be so.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from redis.asyncio import ConnectionPool
from redis.exceptions import ResponseError

from ...credentials import without_credentials
from ...errors import BrokerUnavailable, PublishError
from ..busy_poll import GLANCE_NS, Glance
from ..picklable import Travelling
from ..protocol import Backlog, OutputLimits
from .addresses import Addresses, addresses_at
from .cluster import Cluster
from .connecting import CONNECT_TIMEOUT, Server, connection_options
from .pubsub import RedisPubSub
from .reasons import missing_right, reason_of
from .url import Address
from .watch import Watcher
from .wire import Wire, publish_commands

STALE_AFTER = 1.0
"""Seconds after which an idle publishing connection is looked at before it is used."""
CHANNELS_TOGETHER = 1000
"""Channels asked for in one command."""
OUTPUT_LIMITS = OutputLimits(32 * 1024 * 1024, 8 * 1024 * 1024)
"""Redis' default for what may wait for a subscriber (`client-output-buffer-limit pubsub`), bytes."""


class RedisConfig(BaseModel):
    """Where Redis is, as AgentSociety's `RedisConfig` says it. `timeout` is in seconds.

    Raises `ValueError` for a `server` that is a URL.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # a URL may hold a password

    server: str = Field(...)
    port: int = Field(default=6379, ge=0, le=65535)
    password: str | None = Field(default=None, repr=False)
    db: int = Field(default=0)
    timeout: float = Field(default=60, ge=0)

    @field_validator("server")
    @classmethod
    def _is_no_url(cls, server: str) -> str:
        return _host(server)


class RedisBroker(Travelling):
    """Redis: one server, the master that sentinels name, or a cluster. `timeout` and the ping times are in seconds.

    A subscriber that has heard nothing for `ping_interval` pings; without any answer
    for `ping_timeout` more, the connection counts as lost and is made again.

    In a cluster, PUBLISH and PSUBSCRIBE reach every node through any one (channels that are
    sharded know no patterns). What it says of subscribers, every node is asked for.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        timeout: float = 60.0,
        ping_interval: float = 5.0,
        ping_timeout: float = 5.0,
    ) -> None:
        self.url = addresses.url
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self.refused: str | None = None
        """What the server has refused to tell, and how to have it told; None where it has refused nothing."""
        self._addresses = addresses
        self._cluster = addresses if isinstance(addresses, Cluster) else None
        self._nodes: dict[Address, RedisBroker] = {}  # of a cluster, to ask each of them
        self._counts = self._cluster is None  # a node knows of its own subscribers only
        self._timeout = timeout or None
        self._wire: Wire | None = None
        self._watcher: Watcher | None = None
        self._superseded = False  # the server is no longer the right one
        self._drained = asyncio.Event()  # nothing is unanswered, for those who wait for that
        self._requests: deque[_Publishing | _Asking] = deque()  # sent and not answered, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._closings = 0
        self._used = 0.0
        self._glance = Glance()
        self._lock = asyncio.Lock()
        self._behind: set[asyncio.Task[Any] | None] = set()  # publishing that waits for a connection, in its order

    @classmethod
    def from_url(cls, url: str, **options: Any) -> RedisBroker:
        """A broker at one of these, and `ValueError` for any other:

            redis://[USER:PASSWORD@]HOST[:PORT][/DB]
            unix://[USER:PASSWORD@]/PATH/OF/SOCKET[?db=DB]
            redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],.../[SERVICE[/DB]]
            redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],...

        With `rediss` in place of `redis` through TLS, to sentinels as to servers. The hosts are those of
        sentinels, which name the master of SERVICE (`mymaster` where it is left out), or of some nodes of the
        cluster, which name the others. USER and PASSWORD are for the servers; sentinels get `?sentinel_username=`
        and `?sentinel_password=`. The other options are redis-py's, as far as `redis_url` lists them: for TLS
        `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile` (files), `ssl_check_hostname` and `ssl_cert_reqs` among them.
        """
        timeout = float(options.get("timeout", 60.0)) or CONNECT_TIMEOUT
        made = cls(addresses_at(url, timeout), **options)
        made._made_from = url, options
        return made

    @classmethod
    def from_config(cls, config: RedisConfig, **options: Any) -> RedisBroker:
        """The broker that a `RedisConfig` describes. Raises `ValueError` for a `server` that is a URL."""
        pool = ConnectionPool(
            host=_host(config.server),
            port=config.port,
            db=config.db,
            password=config.password,
            socket_keepalive=True,
            **connection_options(config.timeout or CONNECT_TIMEOUT),
        )
        url = without_credentials(f"redis://{config.server}:{config.port}/{config.db}")
        return cls(Server(pool.make_connection, url), timeout=config.timeout, **options)

    def _in_use(self) -> bool:
        return self._wire is not None or self._lock.locked() or bool(self._behind)

    async def connect(self) -> None:
        async with self._lock:
            await self._ready()

    async def close(self) -> None:
        self._closings += 1
        wire, self._wire = self._wire, None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._fail("the connection was closed")
        if wire is not None:
            await self._drop(wire)
        while self._nodes:
            await self._nodes.popitem()[1].close()

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> asyncio.Future[list[int | PublishError | None]]:
        wire = self._wire
        if (
            wire is None
            or wire.closed
            or self._superseded
            or self._behind
            or time.monotonic() - self._used > STALE_AFTER
        ):
            task = asyncio.ensure_future(self._publish_anew(messages))
            self._behind.add(task)
            task.add_done_callback(self._behind.discard)
            return task
        return self._published(wire, messages)

    def _published(
        self, wire: Wire, messages: Sequence[tuple[bytes, bytes]]
    ) -> asyncio.Future[list[int | PublishError | None]]:
        request = _Publishing(len(messages), self._counts)
        if not request.done:
            self._send(wire, publish_commands(messages), request)
            if len(messages) == 1 and self._glance.due(len(self._requests)):
                wire.glance(GLANCE_NS)
                self._glance.looked(request.done)
        return request.future

    async def _publish_anew(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
        """Publish on a connection that has to be made, or looked at, before."""
        try:
            async with self._lock:
                wire = await self._ready()
        except BrokerUnavailable as error:
            return [PublishError(str(error), "not_sent") for _ in messages]
        answer = self._published(wire, messages)
        self._behind.discard(asyncio.current_task())
        return await answer

    def pubsub(self) -> RedisPubSub:
        return RedisPubSub(self._addresses, ping_interval=self.ping_interval, ping_timeout=self.ping_timeout)

    async def unheard(self) -> dict[str, int] | None:
        answers = await self._ask_all("INFO", "all")
        if answers is None:
            return None
        counts: Counter[str] = Counter()
        for answer in answers:
            if b"\nrole:slave" not in answer:  # a replica counts what its master passes on
                for command, calls in _PAST_SUBSCRIBERS.findall(answer):
                    counts[command.decode().upper()] += int(calls)
        return {command: calls for command, calls in sorted(counts.items()) if calls}

    async def clock_offset(self) -> int | None:
        before = time.time_ns()
        answer = await self._ask("TIME")
        after = time.time_ns()
        if answer is None:
            return None
        seconds, micros = (int(part) for part in answer)
        return seconds * 1_000_000_000 + micros * 1_000 - (before + after) // 2

    async def backlog(self) -> Backlog | None:
        answers = await self._client_lists()
        if answers is None:
            return None
        slowest, most, subscriptions = b"", -1, 0
        for answer in answers:
            for line in _CLIENT.finditer(answer):
                waiting = int(line["omem"])
                subscriptions = max(subscriptions, min(int(line["sub"]), 1) + int(line["psub"]))
                if waiting > most:
                    slowest, most = line[0], waiting
        return Backlog(max(most, 0), _who(slowest), subscriptions)

    async def output_limits(self) -> OutputLimits:
        answers = await self._ask_all("CONFIG", "GET", "client-output-buffer-limit")
        told = [_PUBSUB_LIMITS.search(answer[1]) for answer in answers or () if len(answer) > 1]
        limits = [(int(found[1]), int(found[2])) for found in told if found is not None]
        if not limits:
            return OUTPUT_LIMITS
        hard, soft = (min((limit for limit in of_each if limit), default=None) for of_each in zip(*limits, strict=True))
        return OutputLimits(hard, soft)

    async def subscriber_count(self, channels: Sequence[bytes]) -> int | None:
        answers = await self._client_lists()
        if answers is None:
            patterns = await self._ask_all("PUBSUB", "NUMPAT")
            return None if patterns is None else sum(map(int, patterns))
        clients = [(int(line["sub"]), int(line["psub"])) for answer in answers for line in _CLIENT.finditer(answer)]
        with_patterns = sum(psub > 0 for _, psub in clients)
        if all(psub for _, psub in clients):
            return with_patterns
        by_name = await self._subscribers_by_name(channels)
        if by_name is None:
            return with_patterns or None
        return with_patterns + max(0, by_name - sum(sub > 0 and psub > 0 for sub, psub in clients))

    async def _subscribers_by_name(self, channels: Sequence[bytes]) -> int | None:
        """Clients subscribed by name to that one of the channels which has most; None where an ACL forbids to ask.

        Not the sum over channels: one client may be subscribed to several.
        """
        most = 0
        for at in range(0, len(channels), CHANNELS_TOGETHER):
            answers = await self._ask_all("PUBSUB", "NUMSUB", *channels[at : at + CHANNELS_TOGETHER])
            if answers is None:
                return None
            # each node answers channel, count, channel, count ... of its own clients
            most = max(most, *(sum(map(int, counts)) for counts in zip(*(one[1::2] for one in answers), strict=True)))
        return most

    async def _client_lists(self) -> list[bytes] | None:
        """The subscribed clients, one a line; None where an ACL or the server does not let us see them."""
        return await self._ask_all("CLIENT", "LIST", "TYPE", "pubsub")

    async def _ask_all(self, *command: str | bytes) -> list[Any] | None:
        """One command to the server, or to every node of a cluster that is up; None where one refuses it.

        Raises `BrokerUnavailable`.
        """
        asked = [self] if self._cluster is None else await self._node_brokers(self._cluster)
        if asked is None:
            return None
        answers = await asyncio.gather(*(broker._ask(*command) for broker in asked), return_exceptions=True)
        told = [answer for answer in answers if not isinstance(answer, BaseException)]
        for answer in answers:  # a node that is out of reach has just died, and its subscribers with it
            if isinstance(answer, BaseException) and not (told and isinstance(answer, BrokerUnavailable)):
                raise answer
        if None in told:
            self.refused = next(broker.refused for broker in asked if broker.refused)
            return None
        return told

    async def _node_brokers(self, cluster: Cluster) -> list[RedisBroker] | None:
        """One broker for each node of a cluster that is up, as it says now; None where an ACL forbids to ask."""
        listed = await self._ask("CLUSTER", "NODES")
        if listed is None:
            return None
        cluster.learn(listed)
        for gone in set(self._nodes) - set(cluster.nodes):
            if (broker := self._nodes.pop(gone, None)) is not None:
                await broker.close()
        for node in cluster.nodes:
            if node not in self._nodes:
                self._nodes[node] = RedisBroker(cluster.at(node), timeout=CONNECT_TIMEOUT)
        return list(self._nodes.values()) or [self]  # a node that has met no other does not know its own address

    async def _ask(self, *command: str | bytes) -> Any:
        """One command on the publishing connection; None where the server refuses it.

        Raises `BrokerUnavailable`.
        """
        async with self._lock:
            wire = await self._ready()
        request = _Asking()
        self._send(wire, wire.packed(*command), request)
        answer = await request.future
        if isinstance(answer, ResponseError):
            words = [word for word in command[:2] if isinstance(word, str)]
            self.refused = f"{' '.join(words)} was refused: {reason_of(answer)}{missing_right(answer, '|'.join(words))}"
            return None
        return answer

    async def _ready(self) -> Wire:
        """The publishing connection, made if there is none or if the server has closed it."""
        closings = self._closings
        wire = self._wire
        if wire is not None and not wire.closed and time.monotonic() - self._used > STALE_AFTER:
            for _ in range(2):  # a loop that was blocked has not seen yet that the server closed it
                await asyncio.sleep(0)
        if wire is not None and self._superseded and self._requests:
            self._drained.clear()
            await self._drained.wait()
        if wire is not None and (wire.closed or self._superseded):
            self._wire = None
            await self._drop(wire)
        if self._wire is None:
            wire = await Wire.open(self._addresses, self._answered, self._fail)
            if closings != self._closings:
                await wire.close()
                raise BrokerUnavailable(self.url, "it was closed meanwhile")
            self._wire, self._superseded = wire, False
            if (watch := self._addresses.watch()) is not None:
                self._watcher = Watcher(watch, wire.connection, self._supersede)
        self._used = time.monotonic()
        return self._wire

    async def _drop(self, wire: Wire) -> None:
        """Close a connection, and end what watches over it."""
        watcher, self._watcher = self._watcher, None
        try:
            if watcher is not None:
                await watcher.stop()
        finally:
            await wire.close()

    def _supersede(self, reason: str, serving: bool) -> None:
        """Publish elsewhere from the next message on; what is unanswered by then has some seconds more."""
        self._superseded = True
        asyncio.get_running_loop().call_later(CONNECT_TIMEOUT, self._give_up, self._wire)

    def _give_up(self, wire: Wire | None) -> None:
        if wire is not None and wire is self._wire and self._requests:
            wire.abort("its server was replaced, and does not answer")

    def _send(self, wire: Wire, data: bytes, request: _Publishing | _Asking) -> None:
        self._requests.append(request)
        wire.write(data)
        if self._timer is None and self._timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue)

    def _answered(self, replies: list[Any]) -> None:
        """Replies came, in the order of the requests."""
        self._used = time.monotonic()
        at = 0
        while at < len(replies) and self._requests:
            request = self._requests[0]
            at += request.take(replies, at)
            if request.done:
                self._requests.popleft()
        if not self._requests:
            self._drained.set()

    def _fail(self, reason: str) -> None:
        """The connection is gone, and with it the answers to what was sent."""
        while self._requests:
            self._requests.popleft().fail(self.url, reason)
        self._drained.set()

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
    """Messages on their way: a reply for each; where the server does not count all who get one, no number."""

    def __init__(self, count: int, counts: bool) -> None:
        self.future: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.done = False
        self._count = count
        self._counts = counts
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
        if not self._counts:
            self._results = [None if result.__class__ is int else result for result in self._results]
        if not self.future.done():  # nobody may wait any more
            self.future.set_result(self._results)


class _Asking:
    """A command other than PUBLISH: one reply, which is a `ResponseError` where the server refuses."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.done = False

    def take(self, replies: list[Any], at: int) -> int:
        self.done = True
        if not self.future.done():
            self.future.set_result(replies[at])
        return 1

    def fail(self, url: str, reason: str) -> None:
        self.done = True
        if not self.future.done():
            self.future.set_exception(BrokerUnavailable(url, reason))


def _host(server: str) -> str:
    """The `server` of a configuration, AgentSociety's own included. Raises `ValueError` for a URL."""
    if "://" in server:
        raise ValueError(
            "server is the name of a host, such as localhost, and not a URL: "
            "`open_broker(url)` of messager.brokers makes a broker of one, which will do as well"
        )
    return server


def _refused(reply: Any) -> PublishError:
    """An error reply to one PUBLISH means that the server did not deliver it."""
    reason = reason_of(reply) + missing_right(reply, "publish")
    return PublishError(f"Redis refused the message: {reason}", "not_sent", refused=True)


_CLIENT = re.compile(rb"^.* sub=(?P<sub>\d+) psub=(?P<psub>\d+) .*\bomem=(?P<omem>\d+)\b.*$", re.M)
_PAST_SUBSCRIBERS = re.compile(rb"^cmdstat_(xadd|spublish):calls=(\d+)", re.M)
"""Commands that send messages which PSUBSCRIBE does not bring."""
_PUBSUB_LIMITS = re.compile(rb"\bpubsub (\d+) (\d+) ")


def _who(line: bytes) -> str:
    """A client of CLIENT LIST, as a person finds it: its address, and its name where it has one."""
    fields = dict(field.partition("=")[::2] for field in line.decode("utf-8", "replace").split(" "))
    name = fields.get("name")
    return fields.get("addr", "?") + (f" ({name})" if name else "")
