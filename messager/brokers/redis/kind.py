"""Redis as a kind of broker: URL schemes and internal channels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..kind import BrokerKind
from .stream_entry import fields_of
from .url import SCHEMES

INTERNAL = re.compile(
    rb"__sentinel__:hello"  # from each sentinel to the others, on every master and replica
    # Notifications of keys, and since Redis 8.8 of fields; https://redis.io/docs/latest/develop/pubsub/
    rb"|__(?:key(?:space|event)|subkey(?:space|event|spaceitem|spaceevent))@[0-9]+__:.*"
    rb"|__redis__:invalidate"  # client-side caching over RESP2
    rb"|AzureRedisEvents",  # maintenance of a managed server
    re.DOTALL,
)
"""Channels on which Redis, Valkey and their sentinels publish.

A Redis module may publish on any name; the names that modules use for notifications of keys are covered. Nodes of a
cluster use a port of their own and no channels. A sentinel publishes `+switch-master` and the like on its own port,
where it accepts only a hello from others.
"""
INTERNAL_INITIALS = frozenset((b"_", b"A"))
"""First characters of internal channels: a cheap check for each message before `is_hidden`."""
_WILDCARDS = frozenset((b"*", b"?", b"["))


class RedisKind(BrokerKind):
    """One server, sentinels or a cluster."""

    name = "Redis"
    schemes: tuple[str, ...] = SCHEMES
    broker: str | None = ".redis.broker:RedisBroker"
    carriers = frozenset(("stream",))

    def carrier_fault(self, carrier: str | None, payload: bytes, meta: Mapping[str, Any] | None) -> str | None:
        if carrier != "stream":
            return super().carrier_fault(carrier, payload, meta)
        try:
            fields_of(payload, meta)
        except ValueError as error:
            return str(error)
        return None

    def is_internal(self, channel: bytes) -> bool:
        return INTERNAL.fullmatch(channel) is not None


KIND = RedisKind()


def is_hidden(pattern: bytes, channel: bytes) -> bool:
    """Return True for an internal channel and a pattern that begins with a wildcard, and so does not name it.

    Subscribers drop these messages. On MQTT the broker itself applies this rule, to topics that begin with `$`.
    """
    return pattern[:1] in _WILDCARDS and INTERNAL.fullmatch(channel) is not None
