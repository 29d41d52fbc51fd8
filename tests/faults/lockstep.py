"""Live agents in processes of their own, in lockstep with a recording: killed, disconnected, crashed."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from messager.testing import RedisServer, redis_server
from messager_store import EventLog
from tests.support import Proxy
from tests.support.logs import listed

from .forking import judge_fork
from .living import EACH, LIVE, TICKER, record
from .process import Worker
from .row import Row, Run, fault
from .witness import Witness

EXP, LIVE_EXP = "e1", "e2"
ROUNDS = 12
MESSAGES = {1: 2 * ROUNDS, 2: 2 * ROUNDS, 3: ROUNDS}
"""Messages that an agent says."""
PATIENCE = 1.0
"""Patience of gates and of the replay while something is broken, s."""
FORK_PATIENCE = 5.0
"""Patience of a fork, which stops after it, s."""
LONG_PATIENCE = 30.0
"""Patience while nothing is broken, s."""
CUTS = 5
"""Maximum number of cuts of one agent's connections."""
AWAY = 0.5
"""Maximum time for which the broker is stopped, s."""


@dataclass(slots=True)
class Society:
    """Live agents, and the replay around them."""

    folder: Path
    server: RedisServer
    around: Worker
    agents: dict[int, Worker] = field(default_factory=dict)
    proxies: dict[int, Proxy] = field(default_factory=dict)
    witness: Witness | None = None
    killed: set[int] = field(default_factory=set)
    """Agents that were killed: they have no report."""
    crashed: set[int] = field(default_factory=set)
    """Agents that raise: they have a report, and their process fails."""


Break = Callable[[Run, Society], Awaitable[None]]


@fault("lockstep-killed", "kill -9 of a live agent in lockstep", short=1, long=25)
async def agent_killed(run: Run, row: Row) -> None:
    """The others, and the replay around them, end in a report."""
    await broken(run, row, kill_one)


@fault("lockstep-crashed", "A live agent that raises in lockstep", short=1, long=25)
async def agent_crashed(run: Run, row: Row) -> None:
    """The same; the crashed one has a report too."""
    await broken(run, row, nothing, crash=True)


@fault("lockstep-cut", "Connections of a live agent cut in lockstep", short=1, long=25)
async def agent_cut(run: Run, row: Row) -> None:
    """The same, with all agents."""
    await broken(run, row, cut_one)


@fault("lockstep-broker-killed", "kill -9 of redis-server in lockstep, and a restart", short=1, long=25)
async def broker_killed(run: Run, row: Row) -> None:
    """The same; the replay around them may end with an error, and has a report."""
    await broken(run, row, kill_broker, watched=False)


@fault("lockstep-forked", "kill -9 of a live agent while a fork repeats its part", short=1, long=25)
async def agent_of_fork_killed(run: Run, row: Row) -> None:
    """The others end in a report, and the part already forked is whole: each event once, with all it depends on."""
    store = run.place("recording") / "log.db"
    await record(store, EXP, ROUNDS, run.dice)
    async with EventLog.open(str(store)) as log:
        recorded = await listed(log.read(EXP))
        with redis_server() as server:
            for number in range(run.tries):
                row.tried += 1
                at = str(run.dice.choice(recorded[len(recorded) // 2 :]).cursor)
                into = f"fork-{number}"
                async with started(run, into, store, server, patience=FORK_PATIENCE, fork_at=at) as society:
                    await kill_one(run, society)
                    reports = await ended(row, society)
                    row.unnoticed += len(set(LIVE) - set(reports) - society.killed)
                    told = json.loads((society.folder / "observed.json").read_text())
                    row.add("forks that stopped", told["stopped"] is not None)
                await judge_fork(row, log, into, 0)
                shutil.rmtree(society.folder)


async def nothing(run: Run, society: Society) -> None:
    """Do nothing: the agent breaks itself."""


async def kill_one(run: Run, society: Society) -> None:
    """Kill a random agent after a random message."""
    victim = run.dice.choice(LIVE)
    society.killed.add(victim)
    await society.agents[victim].heard("said", run.dice.randint(1, MESSAGES[victim] - 1))
    await society.agents[victim].kill()


async def cut_one(run: Run, society: Society) -> None:
    """Cut all connections of a random agent, several times."""
    victim = run.dice.choice(LIVE)
    for number in sorted(run.dice.sample(range(1, MESSAGES[victim]), run.dice.randint(1, CUTS))):
        await society.agents[victim].heard("said", number)
        society.proxies[victim].cut()


async def kill_broker(run: Run, society: Society) -> None:
    """Kill the broker after a random message of a random agent, and start it again."""
    watched = run.dice.choice(LIVE)
    await society.agents[watched].heard("said", run.dice.randint(1, MESSAGES[watched] - 1))
    await asyncio.to_thread(society.server.stop, kill=True)
    await asyncio.sleep(run.dice.uniform(0, AWAY))
    await asyncio.to_thread(society.server.start)


async def broken(run: Run, row: Row, act: Break, *, crash: bool = False, watched: bool = True) -> None:
    """Record a society, then break it again and again; in the long form, reproduce it once without a fault before."""
    recording = run.place("recording") / "log.db"
    await record(recording, EXP, ROUNDS, run.dice)
    with redis_server() as server:
        if not run.short:
            await reproduced(run, row, recording, server)
        for number in range(run.tries):
            row.tried += 1
            victim = run.dice.choice(LIVE) if crash else 0
            async with started(run, f"try-{number}", recording, server, crash=victim, watched=watched) as society:
                await act(run, society)
                since = time.monotonic()
                reports = await ended(row, society)
                row.most("s until the last report", time.monotonic() - since)
                judge(row, society, reports)
            shutil.rmtree(society.folder)


async def reproduced(run: Run, row: Row, recording: Path, server: RedisServer) -> None:
    """Reproduce the society without a fault."""
    async with started(run, "whole", recording, server, patience=LONG_PATIENCE) as society:
        reports = await ended(row, society)
        matched = {me: report["matched"] for me, report in reports.items()}
        if matched != MESSAGES:
            row.problem(f"without a fault, the society was not reproduced: {matched} of {MESSAGES}")


class started:
    """Context with a running society. `crash` is the agent that raises, `fork_at` the point where it is forked."""

    def __init__(
        self,
        run: Run,
        name: str,
        recording: Path,
        server: RedisServer,
        *,
        patience: float = PATIENCE,
        crash: int = 0,
        watched: bool = True,
        fork_at: str | None = None,
    ) -> None:
        self._run, self._name, self._recording, self._server = run, name, recording, server
        self._patience, self._crash, self._watched = patience, crash, watched
        self._fork_at = fork_at
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Society:
        run, folder, server = self._run, self._run.place(self._name), self._server
        settings = {"experiment": EXP, "store": str(self._recording), "live": list(LIVE), "patience": self._patience}
        replay = folder / "replay.json"
        replay.write_text(json.dumps({**settings, "report": str(folder / "reports")}))
        witness = await self._stack.enter_async_context(Witness.watching(server.port)) if self._watched else None
        exp, store = (LIVE_EXP, None) if self._fork_at is None else (self._name, str(self._recording))
        options = {"exp": EXP, "broker": server.url, "to_exp": exp, "patience": self._patience}
        options |= {"store": str(self._recording)} | ({} if self._fork_at is None else {"at": self._fork_at})
        around = await Worker.start("around" if self._fork_at is None else "fork_around", folder, **options)
        society = Society(folder, server, around, witness=witness)
        for me in LIVE:
            proxy = society.proxies[me] = await self._stack.enter_async_context(Proxy(server.port).running())
            crash = run.dice.randint(1, MESSAGES[me]) if me == self._crash else 0
            society.agents[me] = await Worker.start(
                "live",
                folder,
                broker=f"redis://127.0.0.1:{proxy.port}/0",
                exp=exp,
                store=store,
                replay=str(replay),
                me=me,
                rounds=ROUNDS,
                seed=run.dice.randrange(1 << 30),
                crash=crash,
            )
        if self._crash:
            society.crashed.add(self._crash)
        for worker in (society.around, *society.agents.values()):
            await worker.heard("ready")
        (folder / "go").touch()
        return society

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()


async def ended(row: Row, society: Society) -> dict[int, dict[str, Any]]:
    """Wait until every process has ended; return the reports by agent. Raises `Hung`."""
    for me, worker in society.agents.items():
        if me not in society.killed and (await worker.ended() == 0) == (me in society.crashed):
            row.problem(f"the process of agent {me} ended otherwise: {worker.complaint()}")
    if await society.around.ended() != 0:
        row.problem(f"the replay around the live agents failed: {society.around.complaint()}")
    if society.witness is not None:
        await society.witness.caught_up()
    reports = [json.loads(path.read_text()) for path in (society.folder / "reports").glob("*.json")]
    return {report["agents"][0]: report for report in reports}


def judge(row: Row, society: Society, reports: dict[int, dict[str, Any]]) -> None:
    """Count what has no report, and what was matched or published twice."""
    observed = json.loads((society.folder / "observed.json").read_text())
    gated = {me: reports[me] for me in LIVE if me in reports}
    row.unnoticed += len(set(LIVE) - set(gated) - society.killed)
    seen = {part["agents"][0]: part for part in observed["parts"]}
    row.unnoticed += len(set(LIVE) - set(seen))
    calls = {me: society.agents[me].last("said") for me in LIVE}
    for me, report in (*gated.items(), *seen.items()):
        row.offered += MESSAGES[me]
        settled = said(report) + report["missing"]
        row.lost += max(0, MESSAGES[me] - settled)
        row.doubled += max(0, settled - MESSAGES[me])
    row.doubled += sum(max(0, said(report) - calls[me]) for me, report in gated.items())
    # on the wire, a message has no sender: those of two agents on one channel are not told apart
    row.doubled += max(0, sum(map(said, seen.values())) - sum(calls.values()))
    if society.witness is not None:
        copies = Counter(society.witness.saw)
        row.doubled += sum(times - 1 for times in copies.values())
        ticks = sum(1 for n in copies if n // EACH == TICKER)
        row.lost += ROUNDS - ticks
    for name in ("matched", "different", "missing", "unexpected", "late"):
        row.add(name, sum(report[name] for report in gated.values()))
    row.add("replays that ended with an error", len(society.around.said.get("failed", ())))


def said(report: dict[str, Any]) -> int:
    """Return the number of expected messages that were said, equal or not."""
    return int(report["matched"] + report["different"])
