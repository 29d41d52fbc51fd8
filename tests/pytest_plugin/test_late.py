"""Messages that an agent says after they had been given up: why they are late, and how they are accepted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from messager import Messager
from messager.brokers.memory.broker import MemoryBroker
from messager_pytest import loops
from messager_pytest.playing import Played, play
from messager_pytest.recording_file import read_recording
from messager_store import Match

from .shop import TEST, Shop, said, text_of

TALK = [
    line
    for at, fruit in enumerate(("apple", "pear", "plum"))
    for line in (said(2 * at + 1, 7, 3, fruit), said(2 * at + 2, 3, 7, f"{fruit}!"))
]
WITH_SCHEDULE = [
    line
    for number, (asked, answer) in enumerate(zip(TALK[::2], TALK[1::2], strict=True), 1)
    for line in (
        {**asked, "messager": "of 7", "arrival": 0},
        {**asked, "kind": "received", "messager": "of 3", "arrival": number},
        {**answer, "messager": "of 3", "arrival": number},
    )
]
IMPORTS = "import asyncio, json, pytest\n"
LATER = """
async def later(messager):
    heard = []
    while len(heard) < 3:
        heard += [json.loads(message["data"])["content"] for message in await messager.fetch_messages()]
        await asyncio.sleep(0.01)
    for asked in ORDER(heard):
        answer = {"from": 3, "content": f"{asked}!"}
        await messager.send_message(messager.get_agent_chat_channel(7), answer, 3, 7)
"""


def played(path: Path, said_at: list[str], thinks_s: float = 0.0) -> Played:
    """Replay the talk to an agent 3 that says these answers, each after as many messages as it begins with."""
    path.write_text("".join(json.dumps(line) + "\n" for line in TALK))

    async def agent(messager: Messager) -> None:
        heard = 0
        for what in said_at:
            after, _, content = what.partition(":")
            while heard < int(after):
                heard += len(await messager.fetch_messages())
                await asyncio.sleep(0.01)
            await asyncio.sleep(thinks_s)
            await messager.send_message("exps:shop:agents:7:agent-chat", {"from": 3, "content": content}, 3, 7)

    async def playing() -> Played:
        return await play(read_recording(path), {3: agent}, MemoryBroker(), loops.clock(), match=Match(), patience=30.0)

    return loops.run(loops.virtual(1), playing())[0]


@pytest.mark.parametrize(
    ("said_at", "thinks_s", "why"),
    [
        (["3:plum!", "3:pear!", "3:apple!"], 0, "it said message 3 first"),
        (["3:apple!", "3:pear!", "3:plum!"], 0, "it said nothing until it had heard more than in the recording"),
        (["1:apple!", "2:pear!", "3:plum!"], 40, "it said nothing for so long"),
    ],
    ids=["in another order", "after having heard more", "slowly"],
)
def test_a_late_message_has_the_reason_why_it_was_given_up(
    said_at: list[str], thinks_s: float, why: str, tmp_path: Path
) -> None:
    result = played(tmp_path / "shop.jsonl", said_at, thinks_s)
    late = result.report.first
    assert late is not None and (late.kind, late.index) == ("late", 0) and result.why_late(late) == why


@pytest.mark.parametrize("order", ["reversed", "list"])
@pytest.mark.parametrize("schedule", [True, False], ids=["with a schedule", "without a schedule"])
def test_a_message_that_is_said_later_is_accepted_in_the_place_where_it_is_said_now(
    order: str, schedule: bool, shop: Shop
) -> None:
    """The agent answers when it has heard everything."""
    shop.record(WITH_SCHEDULE if schedule else TALK)
    test = LATER.replace("ORDER", order) + TEST.replace("3, seller", "3, later").replace(
        "replay(3", "report = replay(3"
    )
    shop.write(test, IMPORTS)
    shown = text_of(shop.run())
    assert "agent 3 said message 1 of 3 late: it was given up after 30 s, because it said " in shown
    assert "  live       the same\n" in shown and "3 expected: 3 matched, 0 different, 0 missing" in shown
    shop.run("--recording=accept").assert_outcomes(passed=1)
    answers = ["apple!", "pear!", "plum!"]
    assert shop.contents() == ["apple", "pear", "plum", *(answers if order == "list" else answers[::-1])]
    shop.write(test + "    assert report.equal\n", IMPORTS)
    shop.run().assert_outcomes(passed=1)
