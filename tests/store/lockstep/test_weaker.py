"""Recordings of taps and of older versions, which do not tell what was heard: the order of the replay is used."""

from __future__ import annotations

import asyncio
from typing import Any

from messager import Messager
from tests.support.scenes import Scene, fetched, played


def tapped() -> Scene:
    """Agents 1 and 2 speak on c, 5 on another channel, and 3 answers twice."""
    made = Scene(schedule=False)
    for first, second, said in (("a", "b", "x"), ("c", "d", "y")):
        made.say(1, "c", first)
        made.say(5, "elsewhere", first)
        made.say(2, "c", second)
        made.say(3, "out", said)
    made.say(1, "c", "end")
    return made


def says(who: int, *contents: Any, after: float = 0.0) -> Any:
    async def agent(messager: Messager) -> None:
        for content in contents:
            await asyncio.sleep(after)
            await messager.send_message("c", content, who)

    return agent


def test_a_live_agent_hears_all_on_its_channels_that_precedes_its_next_message_and_that_is_reported_as_weaker() -> None:
    heard: list[Any] = []

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for said in "xy":
            heard.append(await fetched(messager))
            await messager.send_message("out", said, 3)

    result = played(tapped(), {1: says(1, "a", "c", "end"), 2: says(2, "b", "d", after=3), 3: listens})
    assert heard == [["a", "b"], ["c", "d"]]
    assert result.report.equal and result.report.pace == "weaker"
    assert [part.exact for part in result.report.parts] == [False] * 3
    assert result.released == ["a", "c"], "those of agent 5"


def test_agents_may_share_a_live_messager_where_nobody_knows_whether_they_shared_one() -> None:
    async def both(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["out"])
        for content, said in (("a", "x"), ("c", "y")):
            await messager.send_message("c", content, 1)
            assert await fetched(messager) == [said]
        await messager.send_message("c", "end", 1)

    async def three(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for said in "xy":
            await fetched(messager)
            await messager.send_message("out", said, 3)

    async def second(messager: Messager) -> None:
        await asyncio.gather(both(messager), says(2, "b", "d")(messager))

    result = played(tapped(), {(1, 2): second, 3: three})
    assert result.report.equal and result.counts() == {"expected": 7, "matched": 7}


def test_a_message_whose_sending_was_not_recorded_is_published_from_the_recording() -> None:
    """A person wrote to agents 3 and 4 on a channel on which agents are recorded too."""
    made = Scene()
    made.subscribe(3, "c")
    made.subscribe(4, "c")
    made.say(1, "c", "a")
    made.deliver("c", "from a person")
    made.fetch(3, 4)
    made.say(3, "out", "x")
    made.say(4, "out", "y")

    def listens(who: int, said: str) -> Any:
        async def agent(messager: Messager) -> None:
            await messager.subscribe_and_start_listening(["c"])
            assert await fetched(messager) == ["a", "from a person"]
            await messager.send_message("out", said, who)

        return agent

    result = played(made, {3: listens(3, "x"), 4: listens(4, "y")})
    assert result.released == ["a", "from a person"], "once, although two received it"
    assert result.report.equal and result.report.pace == "lockstep"


def test_what_was_received_on_a_channel_to_which_the_live_messager_is_not_subscribed_is_not_awaited() -> None:
    made = Scene()
    made.subscribe(3, "c", "d")
    made.say(1, "c", "a")
    made.say(1, "d", "b")
    made.fetch(3)
    made.say(3, "out", "x")

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        assert await fetched(messager) == ["a"]
        await messager.send_message("out", "x", 3)

    result = played(made, {3: listens}, patience=5)
    assert result.counts() == {"expected": 1, "matched": 1}
    assert [part.unsubscribed for part in result.report.parts] == [1]
