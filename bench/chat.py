"""A public chat for the rows about the page: one channel, thousands of senders, years with bursts and long pauses.

The numbers of messages, senders and words, and the share of equal times, are those of a log of an IRC channel.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from messager_store import EventLog, NewEvent

from .workload import BATCH

EXP_ID = "chat"
MESSAGES = 225_671
SENDERS = 18_000
WORDS = 45_000
CHANNEL = "exps:chat:groups:public"
START = 1_089_072_000_000_000_000
"""2004-07-06, ns UTC."""
MINUTE = 60_000_000_000
_SYLLABLES = [first + last for first in "bcdfghklmnprstvwz" for last in ("a", "e", "i", "o", "u", "an", "er", "is")]


class Said(NamedTuple):
    """A message."""

    ts: int
    sender: str
    text: str


def said(count: int = MESSAGES) -> Iterator[Said]:
    """Yield messages, the same ones every time. The numbers of messages of senders, and of words, follow Zipf's law."""
    dice = Random(18)
    names = ["".join(dice.choices(_SYLLABLES, k=3)) for _ in range(SENDERS)]
    words = ["".join(dice.choices(_SYLLABLES, k=dice.choice((1, 2, 2, 3)))) for _ in range(WORDS)]
    by_name = list(itertools.accumulate(1 / (at + 5) for at in range(SENDERS)))
    by_word = list(itertools.accumulate(1 / (at + 2) for at in range(WORDS)))
    ts = START
    for _ in range(count):
        if dice.random() < 0.2:
            ts += MINUTE if dice.random() < 0.999 else dice.randrange(1, 2000) * 1440 * MINUTE // 100
        text = " ".join(dice.choices(words, cum_weights=by_word, k=dice.randrange(1, 20)))
        yield Said(ts, dice.choices(names, cum_weights=by_name)[0], text)


def payload(number: int, one: Said) -> bytes:
    """Return a message on the wire."""
    return json.dumps({"kind": "message", "text": one.text, "src": one.sender, "n": number}).encode()


async def fill(log: EventLog, count: int = MESSAGES) -> None:
    """Record the chat."""
    writer = await log.register(await log.create_experiment(EXP_ID), role="import")
    events = (
        NewEvent("sent", one.ts, CHANNEL, payload(number, one), one.sender) for number, one in enumerate(said(count))
    )
    while batch := list(itertools.islice(events, BATCH)):
        await log.append(writer, batch)


async def make(path: Path, count: int = MESSAGES) -> None:
    """Create a store with the chat."""
    async with EventLog.open(str(path)) as log:
        await fill(log, count)
