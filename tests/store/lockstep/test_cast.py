"""The cast: which recorded messages live agents are to say."""

from __future__ import annotations

from typing import Any

import pytest

from messager import channels
from messager_store.db.codes import FROM_DERIVED
from messager_store.lockstep.cast import Cast, CastError, make_cast
from tests.support.scenes import Scene, fetched, played


def cast(scene: Scene, live: Any) -> Cast:
    return make_cast(scene.recording(), live, channels.encode)


def expected(made: Cast) -> list[str]:
    return [entry.event.payload.decode().strip('"') for _, entry in sorted(made.expected.values(), key=_place)]


def _place(found: Any) -> Any:
    return found[1].event.cursor


def two() -> Scene:
    """Agents 1 and 2 have a Messager each, and say two things each."""
    made = Scene()
    for content in ("a", "b"):
        made.say(1, "c", content + "1")
        made.say(2, "c", content + "2")
    return made


def shared(*, senders: bool = True) -> Scene:
    """Agents 1 and 2 share a Messager."""
    made = Scene()
    made.subscribe((1, 2), "c")
    made.say(9, "c", "go")
    made.fetch((1, 2))
    for content, sender in (("a", 1), ("b", 2), ("c", 1)):
        made.say((1, 2), "out", content, sender=sender if senders else None)
    return made


def test_what_live_agents_said_is_expected_and_all_else_is_published() -> None:
    assert expected(cast(two(), [2])) == ["a2", "b2"]
    assert expected(cast(two(), 2)) == ["a2", "b2"]
    assert expected(cast(two(), "all")) == ["a1", "a2", "b1", "b2"]
    assert expected(cast(two(), None)) == []


def test_an_agent_that_says_nothing_in_the_recording_is_refused_with_those_that_do() -> None:
    with pytest.raises(CastError, match=r"agent 7 says nothing in e\. Its senders are 1, 2$"):
        cast(two(), [1, 7])


def test_nothing_is_expected_of_an_agent_that_is_only_subscribed() -> None:
    scene = Scene()
    scene.subscribe(3, "exps:e:agents:3:*")
    scene.say(1, "exps:e:agents:3:agent-chat", "a")
    made = cast(scene, [3])
    assert [part.agents for part in made.parts] == [[3]] and made.exact and not made.expected


def test_a_messager_that_was_only_closed_is_no_part() -> None:
    made = two()
    made.close(5)
    assert [part.agents for part in cast(made, "all").parts] == [[1], [2]]


def test_ids_have_their_json_type() -> None:
    with pytest.raises(CastError, match=r"agent '2' says nothing in e\. Its senders are 1, 2$"):
        cast(two(), ["2"])


def test_some_of_the_agents_of_a_shared_messager_may_be_live() -> None:
    made = cast(shared(), [2])
    assert expected(made) == ["b"]
    assert [part.agents for part in made.parts] == [[2]]


def test_an_agent_of_a_shared_messager_hears_what_the_messager_had_heard() -> None:
    async def second(messager: Any) -> None:
        await messager.subscribe_and_start_listening(["c"])
        assert await fetched(messager) == ["go"]
        await messager.send_message("out", "b", 2)

    result = played(shared(), {2: second})
    assert result.report.equal and result.report.pace == "lockstep"
    assert result.released == ["go", "a", "c"]


def test_to_cast_some_agents_of_a_messager_whose_senders_are_unknown_is_refused_with_the_rule_that_would_help() -> None:
    made = shared(senders=False)
    made.say((1, 2), "out", "d", sender=2)
    made.say((1, 2), "out", "e", sender=1)
    with pytest.raises(CastError) as refused:
        cast(made, [2])
    text = str(refused.value)
    assert "\n" not in text
    assert "3 messages of the Messager" in text and "Recorder(sender=" in text and "Cast all agents" in text


def test_all_agents_of_a_messager_may_be_live_without_senders() -> None:
    made = cast(shared(senders=False), "all")
    assert expected(made) == ["go", "a", "b", "c"]


def test_a_message_without_sender_belongs_to_the_messager_that_sent_it() -> None:
    """As surveys and paybacks of AgentSociety."""
    made = Scene()
    made.say(1, "c", "named")
    made.say(1, "payback", "unnamed", sender=None)
    assert expected(cast(made, [1])) == ["named", "unnamed"]


def test_messages_of_unknown_senders_and_messagers_are_published_and_counted() -> None:
    made = Scene(schedule=False)
    made.say(1, "c", "named")
    made.say(2, "c", "unnamed", sender=None)
    found = cast(made, "all")
    assert expected(found) == ["named"]
    assert found.without_sender == 1


def test_a_derived_sender_need_not_be_given_by_the_live_agent() -> None:
    made = Scene()
    made.say(1, "c", "a", flags=FROM_DERIVED)

    async def nameless(messager: Any) -> None:
        await messager.send_message("c", "a")

    assert played(made, {1: nameless}).counts() == {"expected": 1, "matched": 1}


def test_a_message_of_another_sender_is_not_the_expected_one() -> None:
    async def other(messager: Any) -> None:
        await messager.send_message("out", "a", "1")

    made = Scene()
    made.say(1, "out", "a")
    assert played(made, {1: other}).counts() == {"expected": 1, "missing": 1, "unexpected": 1}
