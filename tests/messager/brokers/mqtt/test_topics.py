"""Topics and filters of MQTT, and the corresponding channels and patterns."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from messager import channels
from messager.brokers.mqtt import topics

LEVEL = st.text("ab:*?[]\\$", max_size=3)
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
GLOB = st.text("ab:/*?[]\\$+#", min_size=1, max_size=8)
FILTER = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(st.sampled_from(["a", "b", "", "+", "$s"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool)


def test_a_message_may_be_as_large_as_the_protocol_has_room_for() -> None:
    topic = b"exps/a"
    most = topics.MAX_PACKET_BYTES - len(topic)
    assert topics.fault(topic, most) is None
    why = topics.fault(topic, most + 1)
    assert why is not None and f"{most + 1:,} bytes" in why


@given(st.text())
def test_a_channel_comes_back_from_its_topic(channel: str) -> None:
    for name in (channel, f"exps:{channel}"):
        if not name.startswith("exps/"):
            assert channels.with_separator(channels.with_separator(name, "/"), ":") == name
    for name in (channel, f"exps/{channel}"):
        if not name.startswith("exps:"):
            assert channels.with_separator(channels.with_separator(name, ":"), "/") == name


def test_channels_of_the_grammar_are_topics_of_the_grammar() -> None:
    assert channels.with_separator("exps:e1:agents:7:agent-chat", "/") == "exps/e1/agents/7/agent-chat"
    assert channels.with_separator("exps/e1/user-payback", ":") == "exps:e1:user-payback"
    for other in ("irc:#rust", "exps", "expst:1", "a/b"):
        assert channels.with_separator(other, "/") == other == channels.with_separator(other, ":")


def test_what_is_no_topic_is_told_why() -> None:
    for topic, why in [
        (b"a/+/b", "wildcards"),
        (b"a#", "wildcards"),
        (b"", "empty"),
        (b"x" * 65536, "65,535"),
        (b"a\x00b", "x00"),
        (b"a\nb", "n'"),
        (b"\xff", "not UTF-8"),
        ("\ufffe".encode(), "ufffe"),
    ]:
        fault = topics.fault(topic)
        assert fault is not None and why in fault and "\n" not in fault


def test_any_other_is_a_topic() -> None:
    for topic in [b"a", b"/", b"a b/c:d", "日本/x".encode(), b"x" * 65535, b"$SYS/x"]:
        assert topics.fault(topic) is None


def test_a_pattern_becomes_the_filter_that_brings_what_it_matches() -> None:
    for pattern, subscribed in [
        ("exps/e1/agents/7/*", "exps/e1/agents/7/#"),
        ("exps/*", "exps/#"),
        ("exps*", "#"),
        ("*", "#"),
        ("exps:*", "#"),
        ("a/b?/c", "a/#"),
        ("a/[bc]/d", "a/#"),
        ("plain/topic", "plain/topic"),
        ("a/\\*b", "a/*b"),
        ("exps/+/agents/#", "exps/+/agents/#"),
        ("+", "+"),
        ("a*", "#"),
        ("a/[+#]", "a/#"),
        ("$SYS/*", "$SYS/#"),
        ("$SYS/x", "$SYS/x"),
    ]:
        assert topics.filter_of(pattern) == subscribed


def test_a_pattern_that_no_topic_fits_is_refused_with_the_rule() -> None:
    for pattern, why in [
        ("", "it is empty"),
        ("a/#/b", "4.7"),
        ("#/a", "4.7"),
        ("a#", "4.7"),
        ("a+/b", "4.7"),
        ("#/+", "4.7"),
        ("+/#/b", "4.7"),
        ("a/+b/#", "4.7"),
        ("irc:#rust", "4.7"),
        ("a/+/*", "4.7"),
        ("*/a+b", "4.7"),
        ("[ab]+", "4.7"),
        ("a/\\+", "4.7"),
        ("$SYS*", "first level written out"),
        ("$share/g/a/#", "leave out"),
        ("nul\x00", "x00"),
        ("*/\n", "n'"),
        (b"\xff/*", "not UTF-8"),
        ("x" * 65_536, "65,535"),
    ]:
        with pytest.raises(ValueError, match=r"^cannot subscribe to '.*: ") as caught:
            topics.filter_of(pattern)
        assert why in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


def the_filter(pattern: str) -> str | None:
    try:
        return topics.filter_of(pattern)
    except ValueError:
        return None


def brings(name: str, topic: str) -> bool:
    """Return True if a broker delivers this topic to this filter. Special characters of globs have no meaning in it."""
    if topic.startswith("$") and name.split("/")[0] in ("+", "#"):
        return False
    levels, wanted = topic.split("/"), name.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(levels) == len(wanted) and all(own in ("+", level) for own, level in zip(wanted, levels, strict=True))


@given(st.one_of(GLOB, FILTER), TOPIC)
@example("$?", "$:")
@example("[+]", "+")
@example("[a-]]b", "_b")
def test_no_topic_that_fits_a_pattern_is_missed_by_its_filter(pattern: str, topic: str) -> None:
    name = the_filter(pattern)
    if topics.fault(topic.encode()) is None and topics.fits(pattern, topic):
        assert name is not None and brings(name, topic)


@given(st.lists(st.one_of(GLOB, FILTER), min_size=1, max_size=4), TOPIC)
@example(["/", "\\[/"], "/")
def test_filters_without_overlap_bring_the_same_and_nothing_twice(patterns: list[str], topic: str) -> None:
    filters = [name for name in map(the_filter, patterns) if name is not None]
    apart = topics.without_overlap(filters)
    if topics.fault(topic.encode()) is None:
        wanted = any(brings(name, topic) for name in filters)
        brought = [name for name in apart if brings(name, topic)]
        assert len(brought) <= 1 and (not wanted or brought)


def test_wildcards_match_as_the_standard_has_it() -> None:
    for pattern, topic, fit in [
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a/b/c", False),
        ("a/+", "a", False),
        ("+/b", "/b", True),
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("*", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("$SYS/*", "$SYS/uptime", True),
        ("$SYS*", "$SYS/uptime", False),
        ("exps/*:chat", "exps/1/x:chat", True),
    ]:
        assert topics.fits(pattern, topic) is fit


def test_a_glob_on_mqtt_matches_what_it_matches_on_redis() -> None:
    for pattern in ("a*", "a/[b-d]?", "\\*"):
        for topic in ("a", "a/c1", "*", "a/b"):
            assert topics.fits(pattern, topic) == channels.matches(pattern, topic)
