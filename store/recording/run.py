"""Run: a program that is recorded without a change to it, with the processes that it starts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

import messager.start
from messager.variables import ALL_HTTP, ALSO, BODIES, CALLS, COMPAT, INTO, RUN, SEED

from ..db.schema import experiment, recorder
from ..experiments.records import recorder_of
from ..log.event_log import EventLog
from .draining import drain, folders_of


@dataclass(frozen=True, slots=True)
class Calls:
    """Which calls of a run are recorded."""

    also: tuple[str, ...] = ()
    """Hosts whose requests are, besides calls to models."""
    all_http: bool = False
    bodies: str = "all"
    """all, or none."""


@dataclass(slots=True)
class Recorded:
    """What was recorded of a run."""

    messages: dict[str, int] = field(default_factory=dict)
    """Number of messages (sent, received, blocked or failed) by exp_id."""
    calls: int = 0
    """Number of calls to models."""
    processes: int = 0
    """Number of processes that recorded something."""


def environment_of(
    run: str,
    store: str,
    exp: str | None,
    compat: Iterable[str] | None,
    durability: str | None,
    calls: Calls | None,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment in which a program of a run is started.

    `store` is an absolute location; `exp` is the exp_id of everything that is recorded, None for those of the
    Messagers. `compat` are the names of the adapters, None for all. Without `calls`, those to models are not recorded;
    with them, the random generators are seeded, so that the run can be reproduced.
    """
    given = {**inherited, RUN: run, "MESSAGER_STORE": store, "PYTHONPATH": start_path(inherited)}
    if durability is not None:
        given["MESSAGER_DURABILITY"] = durability
    if exp is not None:
        given[INTO] = exp
    if compat is not None:
        given[COMPAT] = ",".join(compat)
    if calls is not None:
        seed = secrets.randbelow(2**32)
        given |= {CALLS: "record", SEED: str(seed), "PYTHONHASHSEED": inherited.get("PYTHONHASHSEED") or str(seed)}
        given |= {ALSO: ",".join(calls.also), ALL_HTTP: "1" if calls.all_http else "", BODIES: calls.bodies}
    return given


def start_path(inherited: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of a program of a run, before whose start `messager.start` runs."""
    folder = str(Path(messager.start.__file__).parent)
    return os.pathsep.join(part for part in (folder, inherited.get("PYTHONPATH", "")) if part)


async def drain_all(log: EventLog) -> None:
    """Drain what the processes of a run left in spools."""
    for folder in await folders_of(log):
        async for _ in drain(log, folder):
            pass


async def recorded(log: EventLog, run: str, since: int) -> Recorded:
    """Drain what the processes of a run left in spools, and count what was recorded. `since` is its start, ns UTC."""
    await drain_all(log)
    query = select(recorder, experiment.c.exp_id).join(experiment).where(recorder.c.started_at >= since)
    async with log.database.reading() as connection:
        rows = [(recorder_of(row), row.exp_id) for row in await connection.execute(query)]
    found, processes = Recorded(), set()
    for row, exp_id in rows:
        number = sum(row.kinds[kind] for kind in ("sent", "received", "blocked", "failed"))
        calls = row.kinds["asked"]
        if row.meta.get("run") == run and (number or calls):
            found.messages[exp_id] = found.messages.get(exp_id, 0) + number
            found.calls += calls
            processes.add((row.host, row.pid))
    found.processes = len(processes)
    return found
