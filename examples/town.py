"""A made-up recording for the examples of docs/analysis.md: two runs of a small town on the day of a fire.

    python examples/town.py town.db

writes the experiments `town` and `town-again` into a new store, the same events every time. Two groups of agents and a
driver have a recorder each. Some things went wrong: a connection was lost, an interceptor blocked messages, one
message was late, and some never arrived. In the second run every time `t` differs, and four messages do.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import sys
from dataclasses import dataclass, field
from random import Random
from typing import Any

from messager_store import EventLog, NewEvent

S = 1_000_000_000
START = 1_772_352_000 * S
"""2026-03-01 08:00 UTC."""
GROUPS = {"north": ("mayor", "baker", "miller"), "south": ("smith", "doctor", "teacher")}
PEOPLE = [*GROUPS["north"], *GROUPS["south"]]
PHASES = {"morning": 0, "fire": 60, "evening": 150}
END = 240
GAP = 118, 123
"""Seconds in which the group `north` had lost its connection."""
TALK = {
    "morning": (
        "Good morning! Is there bread left?",
        "The mill runs well today.",
        "See you at the market.",
        "¿Qué tal?",
    ),
    "fire": ("Fire at the mill!", "Bring water, quick!", "Is everybody out?", "The bridge is blocked.", "火事だ!"),
    "evening": ("The fire is out.", "Come to the doctor if you are hurt.", "We shall build it again.", "Good night."),
}


@dataclass
class Group:
    """A group of agents, with its Messager and its recorder."""

    name: str
    patterns: list[str]
    arrivals: int = 0
    events: list[NewEvent] = field(default_factory=list)

    def heard(self, at: int, channel: str, payload: bytes, from_id: Any, to_id: Any) -> None:
        self.arrivals += 1
        self.events.append(
            NewEvent("received", at, channel, payload, from_id, to_id, messager=self.name, arrival=self.arrivals)
        )


class Town:
    """One run. The same `run` number gives the same events."""

    def __init__(self, exp_id: str, run: int) -> None:
        self.exp_id = exp_id
        self._run = run
        self._wire = Random(run)
        self.groups = {
            name: Group(name, [f"exps:{exp_id}:agents:{agent}:*" for agent in agents] + [f"exps:{exp_id}:news"])
            for name, agents in GROUPS.items()
        }
        self.groups["south"].patterns.append(f"exps:{exp_id}:agents:doctor:agent-chat")
        self.driver = Group("driver", [f"exps:{exp_id}:user-payback"])
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, str, Any]] = []

    def play(self) -> None:
        """Make the events of the whole day."""
        for phase, second in PHASES.items():
            self._at(second * S, "mark", phase)
            self._at(second * S + S // 2, "news", f"It is {phase}.")
        for number in range(40):
            self._at(int((3 + number * 5.5) * S), "speak", (number, Random(-number).choice(PEOPLE), None))
        while self._due:
            at, _, what, argument = heapq.heappop(self._due)
            getattr(self, f"_{what}")(START + at, argument)
        north = self.groups["north"]
        meta = {"reason": "connection lost", "since": START + GAP[0] * S, "until": START + GAP[1] * S, "count": None}
        north.events.append(NewEvent("gap", START + GAP[1] * S, None, b"", meta=meta))

    def _at(self, at: int, what: str, argument: Any) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), what, argument))

    def _mark(self, at: int, name: str) -> None:
        meta = {"name": name, "fields": {"run": self._run}}
        self.driver.events.append(NewEvent("mark", at, None, b"", meta=meta, messager="driver"))

    def _news(self, at: int, text: str) -> None:
        self._send(at, self.driver, f"exps:{self.exp_id}:news", text, None, None)

    def _speak(self, at: int, argument: tuple[int, str, str | None]) -> None:
        number, who, whom = argument
        choice = Random(number)
        second = (at - START) // S
        phase = next(name for name, begin in reversed(PHASES.items()) if second >= begin)
        whom = whom or choice.choice([*(each for each in PEOPLE if each != who), "ferryman"])
        text = choice.choice(TALK[phase])
        answered, thinks = choice.random() < 0.6, choice.uniform(1, 4)
        if self._run == 2 and number == 12:
            text = "I have seen nothing."
        if self._run == 2 and number == 30:
            return
        group = next(group for name, group in self.groups.items() if who in GROUPS[name])
        self._send(at, group, f"exps:{self.exp_id}:agents:{whom}:agent-chat", text, who, whom)
        if answered and whom in PEOPLE and second < END - 10:
            self._at(at - START + int(thinks * S), "speak", (number + 100, whom, who))

    def _send(self, at: int, group: Group, channel: str, text: str, who: str | None, whom: str | None) -> None:
        second = (at - START) / S
        payload = json.dumps({"content": text, "t": round(second + 0.001 * self._run, 3)}, ensure_ascii=False).encode()
        told = NewEvent("sent", at, channel, payload, who, whom, messager=group.name, arrival=group.arrivals)
        if (who, whom) == ("smith", "miller"):
            group.events.append(told._replace(kind="blocked", meta={"interceptor": "Quarrel"}))
            return
        if who == "baker" and 100 < second < 105:
            error = {"outcome": "not_sent", "error": "ConnectionError: Connection refused"}
            group.events.append(told._replace(kind="failed", meta=error))
            return
        listeners = [each for name, each in self.groups.items() if whom is None or whom in GROUPS[name]]
        group.events.append(told._replace(duration_ns=self._wire.randrange(80_000, 400_000), receivers=len(listeners)))
        for listener in listeners:
            delay = int(self._wire.lognormvariate(0.7, 0.5) * 1_000_000)
            if who == "miller" and 140 < second < 150:
                delay += 2_400_000_000
            lost = listener.name == "north" and GAP[0] <= second < GAP[1]
            if lost or (who == "smith" and 147 < second < 148):
                continue
            for copy in range(2 if whom == "doctor" else 1):
                self._at(at - START + delay + copy * 50_000, "hear", (listener, channel, payload, who, whom))

    def _hear(self, at: int, argument: Any) -> None:
        listener, *message = argument
        listener.heard(at, *message)

    async def write(self, log: EventLog) -> None:
        """Record the run as an experiment of its own."""
        of = await log.create_experiment(self.exp_id, name="a fire at the mill", tags=["made-up"])
        for group in (self.driver, *self.groups.values()):
            row = {"host": "town-hall", "pid": 1, "boot_id": None, "broker": "redis://localhost:6379/0"}
            row["started_at"] = START - S
            writer = await log.register(of, role="messager", patterns=group.patterns, row=row)
            await log.append(writer, sorted(group.events, key=lambda entry: entry.ts))
            await log.touch(writer, heartbeat_at=START + END * S)
            if (group.name, self._run) != ("south", 1):  # its process was killed
                await log.touch(writer, ended_at=START + END * S)


async def main(store: str) -> None:
    async with EventLog.open(store) as log:
        for run, exp_id in enumerate(("town", "town-again"), 1):
            town = Town(exp_id, run)
            town.play()
            await town.write(log)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "town.db"))
