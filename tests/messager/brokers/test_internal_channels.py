"""Internal channels, on which servers publish notifications."""

from __future__ import annotations

from messager.brokers import kind_of
from messager.brokers.redis.kind import INTERNAL_INITIALS, is_hidden

REDIS, MQTT = "redis://localhost:6379/0", "mqtt://localhost:1883"


def test_redis_publishes_by_itself_on_these_channels() -> None:
    for channel in [
        b"__sentinel__:hello",
        b"__keyspace@0__:some:key",
        b"__keyspace@15__:",
        b"__keyevent@0__:expired",
        b"__keyspace@0__:line\nbreak \xff",
        b"__subkeyspace@0__:key",
        b"__subkeyevent@0__:hset",
        b"__subkeyspaceitem@0__:key\nfield",
        b"__subkeyspaceevent@0__:hset|key",
        b"__redis__:invalidate",
        b"AzureRedisEvents",
    ]:
        assert kind_of(REDIS).is_internal(channel) and kind_of("memory://").is_internal(channel)
        assert channel[:1] in INTERNAL_INITIALS
        assert not kind_of(MQTT).is_internal(channel)


def test_programs_publish_on_any_other_channel_of_redis() -> None:
    for channel in [
        b"",
        b"exps:e1:agents:1:agent-chat",
        b"__sentinel__",
        b"__sentinel__:hello2",
        b"my__sentinel__:hello",
        b"__keyspace@x__:a",
        b"__keyspace__:a",
        b"keyspace@0__:a",
        b"__agents__:a",
        b"$prices",
    ]:
        assert not kind_of(REDIS).is_internal(channel)


def test_topics_that_begin_with_a_dollar_sign_belong_to_an_mqtt_broker() -> None:
    for topic in [b"$SYS/broker/uptime", b"$share/group/a", b"$CONTROL/dynamic-security/v1", b"$"]:
        assert kind_of(MQTT).is_internal(topic) and kind_of("mqtts://localhost").is_internal(topic)
        assert not kind_of(MQTT).is_internal(topic.removeprefix(b"$"))


def test_a_pattern_that_begins_with_a_wildcard_does_not_name_internal_channels() -> None:
    for pattern, hidden in [
        (b"*", True),
        (b"?*", True),
        (b"[_]*", True),
        (b"__key*", False),
        (b"__keyspace@0__:a", False),
        (b"_*", False),
    ]:
        assert is_hidden(pattern, b"__keyspace@0__:a") is hidden
        assert not is_hidden(pattern, b"exps:e1:a")
