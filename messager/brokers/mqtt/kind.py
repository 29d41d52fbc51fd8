"""MQTT as a kind of broker: URL schemes, topics and filters."""

from __future__ import annotations

from types import MappingProxyType

from ..kind import BrokerKind
from . import topics


class MqttKind(BrokerKind):
    """An MQTT broker. Its channels are topics, and its patterns filters or globs (see `.topics`)."""

    name = "MQTT"
    schemes = ("mqtt", "mqtts")
    broker = ".mqtt.broker:MqttBroker"
    separator = "/"
    reports_subscribers = False
    default_meta = MappingProxyType({"qos": 1})

    def matches(self, pattern: str | bytes, channel: str | bytes) -> bool:
        return topics.fits(pattern, channel)

    def is_own_pattern(self, pattern: str | bytes) -> bool:
        return topics.is_filter(pattern)

    def check_pattern(self, pattern: str | bytes) -> None:
        topics.filter_of(pattern)

    def publish_fault(self, channel: bytes, size: int) -> str | None:
        return topics.fault(channel, size)

    def is_internal(self, channel: bytes) -> bool:
        """Return True for a topic that begins with `$`: of the broker, or of a shared subscription (section 4.7.2)."""
        return channel[:1] == b"$"


KIND = MqttKind()
