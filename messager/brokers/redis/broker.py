"""Redis as a broker: publishing, and what the server reports about its subscribers.

A command is never repeated: after a lost answer its outcome is unknown, and is reported as unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from redis.asyncio import ConnectionPool
from redis.exceptions import ResponseError

from ...credentials import without_credentials
from ...errors import BrokerUnavailable, PublishError
from ..base import Backlog, Broker, OutputLimits, merged
from ..busy_poll import BUSY_POLL_NS, BusyPoll
from .cluster import Cluster
from .config import RedisConfig, checked_host
from .endpoint import Endpoint, endpoint_at
from .error_text import acl_remedy, error_text
from .kind import KIND
from .monitor import ServerMonitor
from .pubsub import RedisPubSub
from .replies import (
    Client,
    backlog_of,
    clients_in,
    counts_in,
    output_limits_in,
    text_in,
    texts_in,
    time_in,
    unheard_in,
)
from .requests import CarriedRequest, CommandRequest, PublishRequest
from .server import CONNECT_TIMEOUT, Server, connection_options
from .stream_entry import fields_of
from .streams import NO_CLUSTER, RedisStreams
from .url import Address
from .wire import Wire, carried_commands, publish_commands

T = TypeVar("T")
Entries = Sequence[list[bytes] | None] | None
"""For each message the fields of an entry of a stream, None for a channel; None if all travel on channels."""
Published = asyncio.Future[list[int | PublishError | None]]
CLUSTERED = "it travelled through a stream, and streams of a cluster are not supported: replay it into one server"

STALE_AFTER = 1.0
"""Seconds after which an idle publishing connection is checked before it is used."""
NODES_TOGETHER = 50
"""Maximum number of nodes of a cluster that are asked at the same time."""
CHANNELS_TOGETHER = 1000
"""Maximum number of channels in one PUBSUB NUMSUB."""


class RedisBroker(Broker):
    """Redis: one server, the master that sentinels name, or a cluster. `timeout` and the ping times are in seconds.

    A subscriber pings after `ping_interval` of silence; without an answer within `ping_timeout`, the connection
    counts as lost and is made again.

    In a cluster, PUBLISH and PSUBSCRIBE reach every node through any one, but not sharded channels, which have no
    patterns. Numbers about subscribers are collected from every node.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout: float = 60.0,
        ping_interval: float = 5.0,
        ping_timeout: float = 5.0,
    ) -> None:
        self.url = endpoint.url
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self._endpoint = endpoint
        self._cluster = endpoint if isinstance(endpoint, Cluster) else None
        self._nodes: dict[Address, RedisBroker] = {}  # of a cluster
        self._counts = self._cluster is None  # a node counts only its own subscribers
        self._timeout = timeout or None
        self._wire: Wire | None = None
        self._monitor: ServerMonitor | None = None
        self._superseded = False  # the server is no longer the right one
        self._drained = asyncio.Event()  # set when no request is unanswered
        self._requests: deque[PublishRequest | CommandRequest] = deque()  # sent and unanswered, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._closings = 0
        self._used = 0.0
        self._busy_poll = BusyPoll()
        self._lock = asyncio.Lock()
        self._delayed: set[asyncio.Task[Any] | None] = set()  # `publish` calls that wait for a connection, in order

    @classmethod
    def from_url(cls, url: str, **options: Any) -> RedisBroker:
        """Return the broker at one of these URLs. Raises `ValueError` for any other.

            redis://[USER:PASSWORD@]HOST[:PORT][/DB]
            unix://[USER:PASSWORD@]/PATH/OF/SOCKET[?db=DB]
            redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],.../[SERVICE[/DB]]
            redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],...

        `rediss` in place of `redis` means TLS, to sentinels as to servers. The hosts are sentinels, which name the
        master of SERVICE (default: `mymaster`), or some nodes of the cluster, which name the others. USER and PASSWORD
        are for the servers; sentinels get `?sentinel_username=` and `?sentinel_password=`. Other options are those of
        redis-py that `messager.brokers.redis.url` lists, such as `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`
        (files), `ssl_check_hostname` and `ssl_cert_reqs`.
        """
        timeout = float(options.get("timeout", 60.0)) or CONNECT_TIMEOUT
        made = cls(endpoint_at(url, timeout), **options)
        made._made_from = url, options
        return made

    @classmethod
    def from_config(cls, config: RedisConfig, **options: Any) -> RedisBroker:
        """Return the broker of a `RedisConfig`. Raises `ValueError` for a `server` that is a URL."""
        pool = ConnectionPool(
            host=checked_host(config.server),
            port=config.port,
            db=config.db,
            password=config.password,
            socket_keepalive=True,
            **connection_options(config.timeout or CONNECT_TIMEOUT),
        )
        url = without_credentials(f"redis://{config.server}:{config.port}/{config.db}")
        return cls(Server(pool.make_connection, url), timeout=config.timeout, **options)

    def _in_use(self) -> bool:
        return self._wire is not None or self._lock.locked() or bool(self._delayed)

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
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(broker.close() for broker in nodes.values()))

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> asyncio.Future[list[int | PublishError | None]]:
        return self._publish(messages)

    async def publish_carried(
        self,
        messages: Sequence[tuple[bytes, bytes]],
        how: Sequence[Mapping[str, Any] | None],
        carriers: Sequence[str | None],
    ) -> list[int | PublishError | None]:
        if not any(carriers):
            return await self._publish(messages)
        faults = [
            CLUSTERED if carrier == "stream" and self._cluster else KIND.carrier_fault(carrier, payload, meta)
            for (_, payload), meta, carrier in zip(messages, how, carriers, strict=True)
        ]
        kept = [at for at, fault in enumerate(faults) if fault is None]
        entries = [None if carriers[at] is None else fields_of(messages[at][1], how[at]) for at in kept]
        return merged(faults, await self._publish([messages[at] for at in kept], entries))

    def _publish(self, messages: Sequence[tuple[bytes, bytes]], entries: Entries = None) -> Published:
        """Publish messages; those with fields in `entries` are added to the stream with the name of the channel."""
        wire = self._wire
        if (
            wire is None
            or wire.closed
            or self._superseded
            or self._delayed
            or time.monotonic() - self._used > STALE_AFTER
        ):
            task = asyncio.ensure_future(self._publish_delayed(messages, entries))
            self._delayed.add(task)
            task.add_done_callback(self._delayed.discard)
            return task
        return self._published(wire, messages, entries)

    def _published(self, wire: Wire, messages: Sequence[tuple[bytes, bytes]], entries: Entries) -> Published:
        if entries is None:
            request, commands = PublishRequest(len(messages), self._counts), publish_commands(messages)
        else:
            request, commands = CarriedRequest(entries, self._counts), carried_commands(messages, entries)
        if not request.done:
            self._send(wire, commands, request)
            if len(messages) == 1 and self._busy_poll.due(len(self._requests)):
                wire.poll(BUSY_POLL_NS)
                self._busy_poll.finished(request.done)
        return request.future

    async def _publish_delayed(
        self, messages: Sequence[tuple[bytes, bytes]], entries: Entries
    ) -> list[int | PublishError | None]:
        """Publish on a connection that must be made, or checked, first."""
        try:
            async with self._lock:
                wire = await self._ready()
        except BrokerUnavailable as error:
            return [PublishError(str(error), "not_sent") for _ in messages]
        answer = self._published(wire, messages, entries)
        self._delayed.discard(asyncio.current_task())
        return await answer

    def pubsub(self) -> RedisPubSub:
        return RedisPubSub(self._endpoint, ping_interval=self.ping_interval, ping_timeout=self.ping_timeout)

    def stream_reader(self, patterns: Sequence[str], *, from_start: bool = False) -> RedisStreams:
        if self._cluster is not None:
            raise BrokerUnavailable(self.url, NO_CLUSTER)
        reader = RedisBroker(self._endpoint, timeout=self.ping_interval + self.ping_timeout)
        return RedisStreams(reader, self.pubsub(), patterns, from_start=from_start)

    async def unheard(self) -> dict[str, int] | None:
        answers = await self._ask_all(text_in, "INFO", "all")
        return None if answers is None else unheard_in(answers)

    async def clock_offset(self) -> int | None:
        before = time.time_ns()
        there = await self._ask(time_in, "TIME")
        return None if there is None else there - (before + time.time_ns()) // 2

    async def backlog(self) -> Backlog | None:
        clients = await self._clients()
        return None if clients is None else backlog_of(clients)

    async def output_limits(self) -> OutputLimits:
        limits = await self._ask_all(texts_in, "CONFIG", "GET", "client-output-buffer-limit")
        references = await self._ask_all(texts_in, "CONFIG", "GET", "min-string-size-avoid-copy-reply")
        return output_limits_in(limits, references)

    async def subscriber_count(self, channels: Sequence[bytes]) -> int | None:
        clients = await self._clients()
        if clients is None:
            patterns = await self._ask_all(int, "PUBSUB", "NUMPAT")
            return None if patterns is None else sum(patterns)
        with_patterns = sum(client.patterns > 0 for client in clients)
        if with_patterns == len(clients):
            return with_patterns
        by_name = await self._subscribers_by_name(channels)
        if by_name is None:
            return with_patterns or None
        return with_patterns + max(0, by_name - sum(client.names > 0 and client.patterns > 0 for client in clients))

    async def _subscribers_by_name(self, channels: Sequence[bytes]) -> int | None:
        """Return how many clients are subscribed by name to the most popular channel; None if an ACL forbids it.

        The sum over channels would count a client several times.
        """
        most = 0
        for at in range(0, len(channels), CHANNELS_TOGETHER):
            asked = channels[at : at + CHANNELS_TOGETHER]
            answers = await self._ask_all(partial(counts_in, len(asked)), "PUBSUB", "NUMSUB", *asked)
            if answers is None:
                return None
            most = max(most, *map(sum, zip(*answers, strict=True)))  # each node counts its own clients
        return most

    async def _clients(self) -> list[Client] | None:
        """Return the subscribed clients; None if an ACL or the server does not show them."""
        answers = await self._ask_all(text_in, "CLIENT", "LIST", "TYPE", "pubsub")
        return None if answers is None else clients_in(answers)

    async def _ask_all(self, parse: Callable[[Any], T], *command: str | bytes) -> list[T] | None:
        """Send a command to the server, or to every node of a cluster that is up. Return None if one refuses it.

        Raises `BrokerUnavailable`.
        """
        asked = [self] if self._cluster is None else await self._node_brokers(self._cluster)
        if asked is None:
            return None
        limit = asyncio.Semaphore(NODES_TOGETHER)

        async def ask(broker: RedisBroker) -> T | None:
            async with limit:
                return await broker._ask(parse, *command)

        answers = await asyncio.gather(*map(ask, asked), return_exceptions=True)
        told = [answer for answer in answers if answer is not None and not isinstance(answer, BaseException)]
        for answer in answers:  # an unreachable node has just died, and its subscribers with it
            if isinstance(answer, BaseException) and not (told and isinstance(answer, BrokerUnavailable)):
                raise answer
        if None in answers:
            self.refused = next(broker.refused for broker in asked if broker.refused)
            return None
        return told

    async def _node_brokers(self, cluster: Cluster) -> list[RedisBroker] | None:
        """Return one broker for each node of a cluster that is up; None if an ACL forbids CLUSTER NODES."""
        listed = await self._ask(text_in, "CLUSTER", "NODES")
        if listed is None:
            return None
        cluster.learn(listed)
        for gone in set(self._nodes) - set(cluster.nodes):
            if (broker := self._nodes.pop(gone, None)) is not None:
                await broker.close()
        for node in cluster.nodes:
            if node not in self._nodes:
                self._nodes[node] = RedisBroker(cluster.at(node), timeout=CONNECT_TIMEOUT)
        return list(self._nodes.values()) or [self]  # a node alone does not know its own address

    async def _ask(self, parse: Callable[[Any], T], *command: str | bytes) -> T | None:
        """Send a command on the publishing connection, and parse its answer.

        Return None if the server refuses it, or answers in another form: then `parse` raises `TypeError` or
        `ValueError`.
        Raises `BrokerUnavailable`.
        """
        async with self._lock:
            wire = await self._ready()
        request = CommandRequest()
        self._send(wire, wire.packed(*command), request)
        answer = await request.future
        words = [word for word in command[:2] if isinstance(word, str)]
        if isinstance(answer, ResponseError):
            self.refused = f"{' '.join(words)} was refused: {error_text(answer)}{acl_remedy(answer, '|'.join(words))}"
            return None
        try:
            return parse(answer)
        except (TypeError, ValueError):
            self.refused = f"{' '.join(words)} was answered with {repr(answer)[:60]}, which is no answer of Redis"
            return None

    async def ask_together(self, *commands: Sequence[str | bytes]) -> list[Any]:
        """Send commands one after the other and return their replies; refusals are `ResponseError`s among them.

        Raises `BrokerUnavailable` if one answer is lost.
        """
        async with self._lock:
            wire = await self._ready()
        requests = [CommandRequest() for _ in commands]
        for command, request in zip(commands, requests, strict=True):
            self._send(wire, wire.packed(*command), request)
        answers = await asyncio.gather(*(request.future for request in requests), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BrokerUnavailable):
                raise answer
        return answers

    @property
    def database(self) -> int:
        """Number of the database that the connection has chosen; 0 without a connection."""
        return 0 if self._wire is None else int(getattr(self._wire.connection, "db", 0) or 0)

    async def _ready(self) -> Wire:
        """Return the publishing connection. It is made if there is none, and if the server has closed or left it."""
        closings = self._closings
        wire = self._wire
        if wire is not None and time.monotonic() - self._used > STALE_AFTER:
            await wire.settled()  # a blocked event loop has not noticed yet that the server closed it
        if wire is not None and self._superseded and self._requests:
            self._drained.clear()
            await self._drained.wait()
        if wire is not None and (wire.closed or self._superseded):
            self._wire = None
            await self._drop(wire)
        if self._wire is None:
            wire = await Wire.open(self._endpoint, self._answered, self._fail)
            if closings != self._closings:
                await wire.close()
                raise BrokerUnavailable(self.url, "it was closed while connecting; connect again")
            self._wire, self._superseded = wire, False
            if (check := self._endpoint.check()) is not None:
                self._monitor = ServerMonitor(check, wire.connection, self._supersede)
        self._used = time.monotonic()
        return self._wire

    async def _drop(self, wire: Wire) -> None:
        """Close a connection and its monitor."""
        monitor, self._monitor = self._monitor, None
        try:
            if monitor is not None:
                await monitor.stop()
        finally:
            await wire.close()

    def _supersede(self, reason: str, serving: bool) -> None:
        """Use another connection from the next message on; pending requests have some more seconds."""
        self._superseded = True
        asyncio.get_running_loop().call_later(CONNECT_TIMEOUT, self._give_up, self._wire)

    def _give_up(self, wire: Wire | None) -> None:
        if wire is not None and wire is self._wire and self._requests:
            wire.abort("its server was replaced, and does not answer")

    def _send(self, wire: Wire, data: bytes, request: PublishRequest | CommandRequest) -> None:
        self._requests.append(request)
        wire.write(data)
        if self._timer is None and self._timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue)

    def _answered(self, replies: list[Any]) -> None:
        """Pass replies to their requests, which are in the same order."""
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
        """End all requests: the connection and their answers are lost."""
        while self._requests:
            self._requests.popleft().fail(self.url, reason)
        self._drained.set()

    def _overdue(self) -> None:
        """Abort the connection if the oldest request has waited longer than `timeout`."""
        self._timer = None
        if not self._requests or self._timeout is None:
            return
        left = self._requests[0].since + self._timeout - time.monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._overdue)
        elif self._wire is not None:
            self._wire.abort("no answer in time")
