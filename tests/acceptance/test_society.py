"""Recording of a program in the style of AgentSociety, with a process per group, by all processes and a tap."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from uuid import uuid4

from messager.testing import RedisServer
from messager_store import EventLog
from messager_store.maintenance.verify import verify
from tests.acceptance.society import AGENTS, ROUNDS
from tests.support import ROOT, messager
from tests.support.forked_program import ForkedProgram


class Member:
    """Process of the program, with lines to it and from it."""

    def __init__(self, role: str, exp_id: str, port: int, store: str, first: int = 0, last: int = 0) -> None:
        given, self._go = os.pipe()
        arguments = [role, exp_id, str(port), store, str(first), str(last)]
        self.program = ForkedProgram("tests.acceptance.society", arguments, ROOT, stdin=given)
        os.close(given)

    def heard(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def tell(self) -> None:
        os.write(self._go, b"go\n")

    def end(self) -> None:
        _, errors = self.program.communicate(timeout=60)
        os.close(self._go)
        assert self.program.returncode == 0, errors


async def test_a_driver_and_groups_in_processes_of_their_own_are_recorded_on_all_sides(
    redis: RedisServer, store: str, tmp_path: Path
) -> None:
    exp_id = str(uuid4())
    everyone = [Member("driver", exp_id, redis.port, store)]
    everyone += [Member("group", exp_id, redis.port, store, first, first + 2) for first in (1, 3, 5)]
    for step in ("ready", "stepped"):
        assert [member.heard() for member in everyone] == [step] * 4
        for member in everyone:
            member.tell()
    reports = [json.loads(member.heard()) for member in everyone]
    for member in everyone:
        member.end()

    pairs = [(a, b) for a in AGENTS for b in AGENTS if a != b and (a, b) != (1, 2)]
    async with EventLog.open(store) as log:
        of = await log.experiment(exp_id)
        recorders = await log.recorders(of)
        assert len(recorders) == 4 and {row.state for row in recorders} == {"ended"}
        events = [entry async for entry in log.read(of)]
        verdict = await verify(log, of)
        assert verdict.problems == []
    kinds = Counter(entry.kind for entry in events)
    chats = ROUNDS * len(pairs)
    surveys = paybacks = len(AGENTS)
    messages = chats + surveys + paybacks
    marks = 2 * len(recorders)  # of the subscription and of the closing of each Messager
    assert kinds == {"sent": messages, "received": messages, "blocked": ROUNDS, "mark": marks}
    assert sum(report["received"] for report in reports) == kinds["received"]
    assert sum(report["log_list"] for report in reports) == kinds["sent"] + kinds["blocked"]

    # no reception before its sending, whoever logged it; and each message in order on its channel
    sent_at: dict[tuple[str | None, bytes], list[int]] = defaultdict(list)
    for entry in events:
        if entry.kind == "sent":
            sent_at[entry.channel, entry.payload].append(entry.ts)
    for entry in events:
        if entry.kind == "received":
            assert sent_at[entry.channel, entry.payload].pop(0) <= entry.ts
    assert not any(sent_at.values())

    # who speaks to whom is known where somebody says so
    for entry in events:
        channel = entry.channel or ""
        if channel.endswith(":agent-chat"):
            assert isinstance(entry.from_id, int) and isinstance(entry.to_id, int)
            assert entry.derived_ids == ([] if entry.kind != "received" else ["from_id", "to_id"])
        elif channel.endswith(":user-payback"):
            assert entry.from_id is None and entry.to_id is None
    assert messager("close", exp_id, "--store", store, cwd=tmp_path).returncode == 0
