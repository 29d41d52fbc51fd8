"""The order of what is accepted: that in which a live agent said it, over all channels."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager import Messager
from messager.brokers.memory.broker import MemoryBroker
from messager_pytest import loops
from messager_pytest.accepting import edits
from messager_pytest.playing import Played, play
from messager_pytest.recording_file import RecordingFile, read_recording, write_lines
from messager_store import Match

from .shop import said

Script = list[tuple[int, int, str]]
"""What agent 3 says: after how many messages, to whom, and what."""
ASKED = ("apple", "pear", "plum")


def scripts(*to: int) -> st.SearchStrategy[Script]:
    """Return what agent 3 may say to these agents."""
    one = st.tuples(st.integers(0, len(ASKED)), st.sampled_from(to), st.sampled_from("abcd"))
    return st.lists(one, min_size=1, max_size=6).map(lambda script: sorted(script, key=lambda said: said[0]))


def recorded(script: Script, *, schedule: bool = True) -> list[dict[str, Any]]:
    """Return the lines of a recording in which agent 7 says three words to agent 3, and hears what that says to it."""
    lines: list[dict[str, Any]] = []
    heard = {3: 0, 7: 0}

    def say(who: int, to: int, content: str) -> None:
        place = {"messager": f"of {who}", "arrival": heard[who]} if schedule else {}
        lines.append(said(len(lines) + 1, who, to, content, **place))
        if to in heard:
            heard[to] += 1
            if schedule:
                place = {"kind": "received", "messager": f"of {to}", "arrival": heard[to]}
                lines.append(said(len(lines) + 1, who, to, content, **place))

    asked = iter(ASKED)
    for need, to, content in script:
        while heard[3] < need:
            say(7, 3, next(asked))
        say(3, to, content)
    for content in asked:
        say(7, 3, content)
    return lines


def played(file: RecordingFile, script: Script) -> Played:
    """Replay a recording to an agent 3 that says this."""

    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["exps:shop:agents:3:*"])
        heard = 0
        for need, to, content in script:
            while heard < need:
                heard += len(await messager.fetch_messages())
                await asyncio.sleep(0.01)
            await messager.send_message(f"exps:shop:agents:{to}:agent-chat", {"from": 3, "content": content}, 3, to)

    async def playing() -> Played:
        return await play(file, {3: agent}, MemoryBroker(), loops.clock(), match=Match(), patience=30.0)

    return loops.run(loops.virtual(1), playing())[0]


def accepted(path: Path, lines: list[dict[str, Any]], script: Script) -> list[dict[str, Any]]:
    """Return the lines of a recording after what an agent says now was accepted; a replay of them must be equal."""
    write_lines(path, [json.dumps(line).encode() for line in lines])
    file = read_recording(path)
    result = played(file, script)
    write_lines(path, edits(file, result.pairs(result.heard[0], file, Match())).apply(file.lines))
    file = read_recording(path)
    again = played(file, script)
    assert again.report.equal, again.report.divergences
    assert not edits(file, again.pairs(again.heard[0], file, Match()))
    return [json.loads(line) for line in file.lines]


def of_agent_3(lines: list[dict[str, Any]]) -> list[tuple[int | None, int, str]]:
    said_by_it = [line for line in lines if line["from_id"] == 3 and line.get("kind", "sent") == "sent"]
    return [(line.get("arrival"), line["to_id"], line["payload"]["content"]) for line in said_by_it]


@pytest.mark.parametrize("schedule", [True, False], ids=["with a schedule", "without a schedule"])
@pytest.mark.parametrize(
    ("before", "now", "heard"),
    [
        ([(1, 7, "one"), (1, 8, "two")], [(1, 8, "two"), (1, 7, "one")], [1, 1]),
        ([(1, 7, "one"), (1, 8, "two")], [(1, 8, "new"), (1, 7, "one"), (1, 8, "changed")], [1, 1, 1]),
        ([(1, 3, "one"), (2, 7, "two")], [(2, 7, "two"), (2, 3, "one")], [4, 4]),
        ([(1, 7, "one"), (2, 8, "two"), (3, 8, "three")], [(1, 7, "one"), (3, 8, "three"), (3, 8, "new")], [1, 3, 3]),
    ],
    ids=["channels exchanged", "a new one before", "its own channel", "said after more was heard"],
)
def test_what_is_accepted_stands_in_the_order_in_which_it_was_said(
    before: Script, now: Script, heard: list[int], schedule: bool, tmp_path: Path
) -> None:
    """`heard` is the number of the last message that was heard before each: an agent that waits in vain for its own
    message hears all others."""
    after = of_agent_3(accepted(tmp_path / "shop.jsonl", recorded(before, schedule=schedule), now))
    assert [(to, content) for _, to, content in after] == [(to, content) for _, to, content in now]
    if schedule:
        assert [arrival for arrival, _, _ in after] == heard


def test_two_messages_that_change_places_on_two_channels_change_one_line(tmp_path: Path) -> None:
    """What others heard of the one that moves stays, if it comes after its new place."""
    lines = recorded([(1, 8, "one"), (1, 7, "two")])
    after = accepted(tmp_path / "shop.jsonl", lines, [(1, 7, "two"), (1, 8, "one")])
    assert [line for line in after if line not in lines] == [
        {**line, "ts": 2, "kind": "sent"} for line in lines if line["to_id"] == 7 and "kind" not in line
    ]
    assert sum(line not in after for line in lines) == 1


@given(scripts(7, 8), scripts(7, 8), st.booleans())
def test_a_replay_after_accepting_is_equal(before: Script, now: Script, schedule: bool) -> None:
    with TemporaryDirectory() as folder:
        accepted(Path(folder) / "shop.jsonl", recorded(before, schedule=schedule), now)
