"""Properties of a kind of broker that are known from its URL, without its driver."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import channels


class BrokerKind:
    """Kind of broker: how it names channels, what its patterns match, and what it reports.

    The defaults describe a broker with glob patterns and no channels of its own. Each folder of `messager.brokers` has
    a `kind.py` with `KIND`, the one object of a subclass; `messager.brokers.factory.kind_of` returns it for a URL.
    """

    name: str
    schemes: tuple[str, ...]
    """Schemes of its URLs, in lower case."""
    broker: str | None
    """Class of the broker, as `module:Class` with the module relative to this package; imported when a URL is opened.

    None if a URL cannot open one.
    """
    separator: channels.Separator = ":"
    """Separator that channels of the grammar (see `messager.channels`) usually have on it."""
    in_process: bool = False
    """True if a broker is reached only from the process that made it."""
    reports_subscribers: bool = True
    """False if it never reports who is subscribed (see `Broker.subscriber_count`)."""
    carriers: frozenset[str] = frozenset()
    """Carriers (see `MessageRecord.carrier`) beside channels that its brokers put messages back through."""
    default_meta: Mapping[str, Any] = MappingProxyType({})
    """`meta` of a delivery that the record of the delivery leaves out, as it is the usual one."""

    def matches(self, pattern: str | bytes, channel: str | bytes) -> bool:
        """Return True if a subscriber of this pattern gets the messages of this channel."""
        return channels.matches(pattern, channel)

    def is_own_pattern(self, pattern: str | bytes) -> bool:
        """Return True for a pattern with wildcards of the broker's own grammar, which are no wildcards of a glob."""
        return False

    def check_pattern(self, pattern: str | bytes) -> None:
        """Raise `ValueError` for a pattern that cannot be subscribed to."""

    def publish_fault(self, channel: bytes, size: int) -> str | None:
        """Return why a payload of `size` bytes cannot be published on this channel; None if it can."""
        return None

    def carrier_fault(self, carrier: str | None, payload: bytes, meta: Mapping[str, Any] | None) -> str | None:
        """Return why a recorded message cannot be put back through its carrier, with the remedy; None if it can."""
        return None if carrier is None or carrier in self.carriers else no_carrier(carrier)

    def is_internal(self, channel: bytes) -> bool:
        """Return True for an internal channel: one on which the server itself publishes.

        Messages on it are facts about one server. On another server they are false and may do harm: a sentinel that
        reads the hello of a foreign sentinel may switch to its master. So they are recorded only for a pattern that
        names the channel, and never replayed.
        """
        return False


def no_carrier(carrier: str) -> str:
    """Return the refusal of a message that travelled through a carrier which a broker does not have."""
    if carrier == "stream":
        return "it travelled through a stream, which this broker does not have: replay it into Redis, --broker redis://HOST"
    return (
        f"it travelled through a {carrier} inside its programs, which no broker has: "
        "replay it into live agents with the adapter of their framework, docs/transports.md"
    )
