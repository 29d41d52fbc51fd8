"""Internal channels: the names on which a server publishes by itself, one list for each kind of broker.

Messages on them are facts about one server. On another server they are false, and may do harm: sentinels that
read the hello of a foreign sentinel may switch to its master. So they are recorded only for a pattern that names
them, and never replayed.

A Redis module may publish on any name; those it uses for notifications of keys are covered. Nodes of a cluster
talk to each other on a port of their own, not on channels. A sentinel publishes `+switch-master` and the like on
its own port, where it takes no message from others but a hello.
"""

from __future__ import annotations

import re

from .urls import is_mqtt

REDIS = re.compile(
    rb"__sentinel__:hello"  # what sentinels tell each other, on every master and replica
    # Notifications of keys, and since Redis 8.8 of fields; https://redis.io/docs/latest/develop/pubsub/
    rb"|__(?:key(?:space|event)|subkey(?:space|event|spaceitem|spaceevent))@[0-9]+__:.*"
    rb"|__redis__:invalidate"  # client-side caching over RESP2
    rb"|AzureRedisEvents",  # maintenance of a managed server
    re.DOTALL,
)
"""Channels on which Redis, Valkey and their sentinels publish."""
MQTT = re.compile(rb"\$.*", re.DOTALL)
"""Topics for the broker itself to publish, and prefixes of shared subscriptions: MQTT 3.1.1, section 4.7.2."""

_WILDCARDS = frozenset((b"*", b"?", b"["))
"""First characters of a pattern that names no channel."""
INITIALS = frozenset((b"_", b"A"))
"""First characters of Redis' internal channels, for a look at each message that costs little."""


def is_internal(channel: bytes, *urls: str) -> bool:
    """Return whether the server publishes on this channel by itself, at any of the brokers with these URLs."""
    return any((MQTT if is_mqtt(url) else REDIS).fullmatch(channel) for url in urls)


def is_hidden(pattern: bytes, channel: bytes) -> bool:
    """Return whether a subscriber of `pattern` on Redis is not given what comes on an internal channel.

    A pattern that begins with a wildcard does not name internal channels. MQTT has the same rule for topics that
    begin with `$`, and its brokers apply it.
    """
    return pattern[:1] in _WILDCARDS and REDIS.fullmatch(channel) is not None
