"""The channel grammar."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messager import channels


@given(st.binary())
def test_any_bytes_are_a_channel_and_come_back(wire: bytes) -> None:
    assert channels.encode(channels.decode(wire)) == wire


def test_channels_are_built_and_parsed_as_agentsociety_has_them() -> None:
    channel = channels.agent_channel("e1", 42, "agent-chat")
    assert channel == "exps:e1:agents:42:agent-chat"
    assert channels.parse(channel) == channels.ParsedChannel(":", "e1", 42, "agent-chat")
    assert channels.payback_channel("e1") == "exps:e1:user-payback"
    assert channels.parse("exps:e1:user-payback") == channels.ParsedChannel(":", "e1", None, "user-payback")


def test_mqtt_topics_are_of_the_grammar_too() -> None:
    assert channels.parse("exps/e1/agents/0f-ab/gather") == channels.ParsedChannel("/", "e1", "0f-ab", "gather")


def test_other_channels_are_not_of_the_grammar() -> None:
    for channel in ["", "exps", "exps:e1", "irc:#rust", "Exps:e1:agents:1:x"]:
        assert channels.parse(channel) is None


def test_an_agents_id_is_a_number_only_where_it_is_written_as_one() -> None:
    for text, agent in [("7", 7), ("-1", -1), ("007", "007"), ("a7", "a7"), ("1.5", "1.5")]:
        parsed = channels.parse(f"exps:e1:agents:{text}:x")
        assert parsed is not None and parsed.agent_id == agent


def test_the_experiment_is_replaced_and_nothing_else() -> None:
    assert channels.with_experiment("exps:e1:agents:1:exps:e1", "e2") == "exps:e2:agents:1:exps:e1"
    assert channels.with_experiment("exps/e1/agents/1/x", "e2") == "exps/e2/agents/1/x"
    assert channels.with_experiment("irc:#rust", "e2") == "irc:#rust"


def test_no_pattern_takes_forever() -> None:
    assert not channels.matches("*a" * 30 + "*b", "a" * 2000)
    assert channels.matches("*a" * 30 + "*b", "a" * 2000 + "b")
