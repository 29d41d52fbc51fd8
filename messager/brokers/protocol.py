"""What carries messages: one protocol, several carriers.

The verbs and the shape of a received message are redis-py's, so that code written
for its `PubSub` reads the same here, whatever the carrier is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..errors import PublishError


class OutputLimits(NamedTuple):
    """How many bytes may wait for one subscriber before the broker cuts it off; None where there is no limit."""

    hard: int | None
    """At once."""
    soft: int | None
    """For some time: a minute, as Redis has it by default."""


class Backlog(NamedTuple):
    """What waits for the subscribers of a broker."""

    waiting: int
    """Bytes for the slowest one."""
    slowest: str
    """Who that is: an address, and a name where it has one."""
    subscriptions: int
    """The most of one client that one message may fit: so often at the most it gets it."""


class PubSub(Protocol):
    """One subscriber. Messages come in the order in which the broker delivered them."""

    async def psubscribe(self, *patterns: str | bytes) -> None:
        """Subscribe to glob patterns; the subscription is active when this returns.

        A pattern that begins with a wildcard brings nothing from channels on which the server publishes by itself
        (see `BrokerKind.is_internal`); one that names them does.

        Raises `BrokerUnavailable`, and on MQTT `ValueError` for a pattern that no topic can fit. May be
        called again, also while another task waits in `get_message`.
        """

    async def punsubscribe(self, *patterns: str | bytes) -> None:
        """Give patterns up; without arguments, all of them."""

    async def get_message(self, ignore_subscribe_messages: bool = True, timeout: float = 0.0) -> dict[str, Any] | None:
        """The next message, or None when `timeout` (s) has passed.

        A message is a dict with `type` ("pmessage"), `pattern`, `channel` and `data`, the
        last three bytes; and with `meta` where its delivery was not the usual one: on MQTT
        `retained: True`, and a `qos` other than 1. A lost connection is made again, with its subscriptions, and told
        as `{"type": "gap", "reason", "since", "until"}`, both readings of the monotonic
        clock in ns: what was published between them may be missing.
        """

    def lost_since(self) -> int | None:
        """Since when (monotonic ns) nothing could arrive, or None while the connection stands."""

    def unconfirmed_since(self) -> int | None:
        """Since when (monotonic ns) nobody confirms that messages still come here; None while somebody does.

        On Redis: for seconds neither sentinels nor other nodes of the cluster have confirmed the server. On other
        brokers always None.
        """

    def unread_since(self) -> int | None:
        """A moment (monotonic ns) before all messages that arrived and `get_message` has not returned; None without."""

    async def aclose(self) -> None:
        """Give everything up. May be called twice."""


class Broker(Protocol):
    """A carrier of messages. One object serves one event loop."""

    url: str
    """Where it is, without credentials."""

    async def connect(self) -> None:
        """Make sure it answers. Raises `BrokerUnavailable`. May be called twice."""

    async def close(self) -> None:
        """Give the publishing connection up. May be called twice."""

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> Awaitable[list[int | PublishError | None]]:
        """Publish (channel, payload) pairs in order; what became of each.

        May be a coroutine. Where it is a future, the messages are on their way when this returns.

        A result is the number of subscribers the broker says it delivered to (None where
        it does not say), or the error, whose `outcome` tells `not_sent` from `unknown`.
        Nothing is ever sent twice.
        """

    def pubsub(self) -> PubSub:
        """A new subscriber, not yet connected."""

    async def unheard(self) -> dict[str, int] | None:
        """Return how often messages were sent that no subscriber of patterns gets, by command; without those never run.

        On Redis: `XADD` (streams) and `SPUBLISH` (sharded channels), since the servers started; None if it may not be
        asked. On other brokers there are none. Raises `BrokerUnavailable`.
        """

    async def clock_offset(self) -> int | None:
        """How far the broker's clock is ahead of this machine's, ns; None if it has none."""

    async def backlog(self) -> Backlog | None:
        """What waits for the subscribers; None where that may not be asked. Raises `BrokerUnavailable`."""

    async def output_limits(self) -> OutputLimits:
        """When it cuts subscribers off; where that may not be asked, the usual. Raises `BrokerUnavailable`."""

    async def subscriber_count(self, channels: Sequence[bytes]) -> int | None:
        """Return how many clients, at least, are subscribed to one of these channels; None if that may not be asked.

        Redis does not list patterns, so there a client with any pattern counts.
        """


@runtime_checkable
class Retaining(Protocol):
    """A broker that can retain messages for later subscribers, and has qualities of service: an MQTT broker."""

    def publish_as(
        self, messages: Sequence[tuple[bytes, bytes]], how: Sequence[Mapping[str, Any] | None]
    ) -> Awaitable[list[int | PublishError | None]]:
        """As `Broker.publish`, each in the way that its `meta` (see `PubSub.get_message`) says it once came."""
