"""Base classes of brokers and their subscribers, with defaults for what a broker cannot tell.

Method names and the shape of a received message are those of redis-py's `PubSub`, for every broker. CONTRIBUTING.md
shows a broker that defines only what it must.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import BrokerUnavailable, PublishError
from .kind import no_carrier


class OutputLimits(NamedTuple):
    """Bytes that may wait for one subscriber before the broker disconnects it; None for no limit."""

    hard: int | None
    """Limit at any time."""
    soft: int | None
    """Limit over a period, which is a minute by default on Redis."""
    counted_below: int | None = None
    """Payloads of this size or more are not counted in a `Backlog` (Valkey 9 counts references); None: all are."""


class Backlog(NamedTuple):
    """Messages that wait for the subscribers of a broker."""

    waiting: int
    """Bytes that wait for the slowest subscriber."""
    slowest: str
    """Address of that subscriber, and its name if it has one."""
    subscriptions: int
    """Maximum copies of one message per client: its subscriptions that one message may match."""
    delivered: int | None = None
    """Total bytes that the slowest subscriber has taken; None if the broker does not report it."""


class PubSub(ABC):
    """One subscriber. Messages arrive in the order in which the broker delivered them."""

    listen_timeout: float | None = 1.0
    """Time-out (s) with which a listener calls `get_message`; None if there is no connection to check."""

    @abstractmethod
    async def psubscribe(self, *patterns: str | bytes) -> None:
        """Subscribe to glob patterns; the subscription is active when this returns.

        A pattern that begins with a wildcard does not match internal channels (see `BrokerKind.is_internal`).

        Raises `BrokerUnavailable`, and on MQTT `ValueError` for a pattern that matches no topic. May be called again,
        also while another task waits in `get_message`.
        """

    @abstractmethod
    async def get_message(
        self, ignore_subscribe_messages: bool = True, timeout: float | None = 0.0
    ) -> dict[str, Any] | None:
        """Return the next message, or None after `timeout` (s; None only if `listen_timeout` is None).

        A message is a dict with `type` ("pmessage"), `pattern`, `channel` and `data`, the last three bytes. On MQTT
        it may have `meta`, with `retained: True` and a `qos` other than 1. A lost connection is made again, with its
        subscriptions, and reported as `{"type": "gap", "reason", "since", "until"}`: messages published between these
        times (monotonic ns) may be missing.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Unsubscribe and disconnect. May be called twice."""

    def lost_since(self) -> int | None:
        """Return the time (monotonic ns) since which nothing could arrive; None while the connection stands."""
        return None

    def unconfirmed_since(self) -> int | None:
        """Return the time (monotonic ns) of the last confirmation of the server; None if it is recent.

        On Redis, sentinels and other nodes of a cluster confirm it. On other brokers always None.
        """
        return None

    def unread_since(self) -> int | None:
        """Return a time (monotonic ns) before all unread messages; None if there are none."""
        return None


class StreamReader(ABC):
    """Reader of streams that removes nothing and takes part in no consumer group, so that it disturbs nobody."""

    @abstractmethod
    async def start(self) -> None:
        """Find the streams that there are, and their ends. Raises `BrokerUnavailable`, also if a right is missing."""

    @abstractmethod
    async def get_message(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message, or None after about `timeout` seconds.

        An entry is a dict with `type` ("entry"), `channel` (the key), `data` and `meta`, from which
        `Broker.publish_carried` makes the same entry again. `{"type": "gap", "reason", "since", "until", "count"}`
        says that entries which were added between these times (monotonic ns) may be missing, and how many if that is
        known (else None); `channel` is the key, or None. A lost connection is made again; reading continues where it
        stopped.

        Raises `BrokerUnavailable` if the server refuses a command.
        """

    @abstractmethod
    async def finish(self, timeout: float) -> list[dict[str, Any]]:
        """Return what had been added before this call and was not returned yet, with a gap for what cannot be read."""

    @abstractmethod
    def lost_since(self) -> int | None:
        """Return the time (monotonic ns) since which the server does not answer; None while it does."""

    @abstractmethod
    def complete_until(self) -> int:
        """Return the time (monotonic ns) before which every entry that was added has been returned, or is in a gap."""

    @abstractmethod
    async def aclose(self) -> None:
        """Disconnect. May be called twice."""


class Broker(ABC):
    """A broker. One object serves one event loop.

    Pickled for another process, such as a Ray actor, it is the URL that it was made from, password included.
    """

    url: str
    """URL without credentials."""
    refused: str | None = None
    """Command that the server refused last, with the remedy; None if it has refused none."""
    sends_with: dict[str, Any] | None = None
    """`meta` of published messages, as a subscriber would get it; None for none."""
    _made_from: tuple[str, dict[str, Any]] | None = None
    """URL and options of `from_url`, which sets it; None if the broker was made in another way."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect and wait for an answer. Raises `BrokerUnavailable`. May be called twice."""

    @abstractmethod
    async def close(self) -> None:
        """Close the publishing connection. May be called twice."""

    @abstractmethod
    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> Awaitable[list[int | PublishError | None]]:
        """Publish (channel, payload) pairs in order. Return one result for each; nothing is ever sent twice.

        A result is the number of subscribers that the broker reports (None if it reports none), or the error, whose
        `outcome` is `not_sent` or `unknown`. If a future is returned, the messages have been written.
        """

    @abstractmethod
    def pubsub(self) -> PubSub:
        """Return a new subscriber, not yet connected."""

    def publish_as(
        self, messages: Sequence[tuple[bytes, bytes]], how: Sequence[Mapping[str, Any] | None]
    ) -> Awaitable[list[int | PublishError | None]]:
        """Publish as `publish` does, each message with its `meta` (see `PubSub.get_message`) if the broker has such."""
        return self.publish(messages)

    async def publish_carried(
        self,
        messages: Sequence[tuple[bytes, bytes]],
        how: Sequence[Mapping[str, Any] | None],
        carriers: Sequence[str | None],
    ) -> list[int | PublishError | None]:
        """Publish as `publish_as` does, in order, each message through its carrier (see `MessageRecord.carrier`).

        The result of a message that was put back through a carrier is None. One that travelled through a carrier which
        the broker does not have (see `BrokerKind.carriers`; by default it has channels only) is refused in its result,
        with what to do; the others are published.
        """
        if not any(carriers):
            return await self.publish_as(messages, how)
        kept = [at for at, carrier in enumerate(carriers) if carrier is None]
        answers = await self.publish_as([messages[at] for at in kept], [how[at] for at in kept]) if kept else []
        return merged([carrier and no_carrier(carrier) for carrier in carriers], answers)

    def pubsub_as_published(self) -> PubSub:
        """Return a subscriber for recording: it gets messages as they were published, as far as it can."""
        return self.pubsub()

    def stream_reader(self, patterns: Sequence[str], *, from_start: bool = False) -> StreamReader:
        """Return a reader of the streams whose keys match glob patterns.

        It reads what is added to a stream from now on; with `from_start`, also what is in it. Raises
        `BrokerUnavailable` if this broker has no streams (see `BrokerKind.carriers`).
        """
        raise BrokerUnavailable(self.url, "this broker has no streams; give the URL of a Redis server")

    async def unheard(self) -> dict[str, int] | None:
        """Return the calls of commands whose messages no pattern subscriber gets, by command, without zeros.

        On Redis: `XADD` (streams) and `SPUBLISH` (sharded channels) since the servers started; None if an ACL forbids
        the question. On other brokers always empty. Raises `BrokerUnavailable`.
        """
        return {}

    async def clock_offset(self) -> int | None:
        """Return how far the clock of the broker is ahead of this machine, ns; None if it reports no time."""
        return None

    async def backlog(self) -> Backlog | None:
        """Return what waits for the subscribers; None if the broker does not report it. Raises `BrokerUnavailable`."""
        return None

    async def output_limits(self) -> OutputLimits:
        """Return the output limits, or their defaults if they are not reported. Raises `BrokerUnavailable`."""
        return OutputLimits(None, None)

    async def subscriber_count(self, channels: Sequence[bytes]) -> int | None:
        """Return a lower bound of the clients subscribed to one of these channels; None if it is not reported.

        Redis does not list patterns, so a client with any pattern counts.
        """
        return None

    @property
    def picklable(self) -> bool:
        """True if the broker was made from a URL and is not connected."""
        return self._made_from is not None and not self._in_use()

    def _in_use(self) -> bool:
        """Return True from the first connection on; for brokers with a `from_url`."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        if not self.picklable:
            raise TypeError(
                f"a {type(self).__name__} can be pickled only before it is connected, and only if it was made from a "
                "URL. Make it with `open_broker(url)` of messager, and connect it in the process that uses it."
            )
        return _made, (type(self), self._made_from)


def _made(kind: Any, made_from: tuple[str, dict[str, Any]]) -> Any:
    url, options = made_from
    return kind.from_url(url, **options)


def merged(
    faults: Sequence[str | None], answers: Sequence[int | PublishError | None]
) -> list[int | PublishError | None]:
    """Return the results of messages of which those with a fault were refused, and the others got these answers."""
    rest = iter(answers)
    return [next(rest) if fault is None else PublishError(fault, "not_sent", refused=True) for fault in faults]
