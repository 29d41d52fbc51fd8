"""Recording inside Ray: what the workers of a job must know, so that every task and actor records itself.

    os.environ["MESSAGER_STORE"] = "postgresql://..."     # for the driver
    ray.init(runtime_env=messager_store.ray.runtime_env())  # for everybody else

Ray itself is needed where this is used, and never imported here.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .db.databases import for_store, in_memory
from .db.sqlite.dialect import ELSEWHERE, HOST, SQLite, why_not_from_here
from .errors import StoreError

WORKER_SETUP = f"{__name__}.set_up_worker"


def runtime_env(
    store: str | None = None,
    *,
    durability: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    also: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A Ray `runtime_env` with which every `Messager` in a task or an actor records itself.

    What is not given is taken from this process' environment: `MESSAGER_STORE`, `MESSAGER_DURABILITY`,
    `MESSAGER_SPOOL`. The path of a SQLite file is made absolute, as workers run in other folders. `also` is a
    runtime_env to put it into. Raises `StoreError` where no store is named, for a SQLite file while Ray runs on
    other hosts too, and where `also` sets workers up in a way of its own.
    """
    wanted = store or os.environ.get("MESSAGER_STORE")
    if not wanted:
        raise StoreError("there is no store to record into: name one, or set MESSAGER_STORE")
    made = dict(also or {})
    if made.get("worker_process_setup_hook", WORKER_SETUP) != WORKER_SETUP:
        raise StoreError(
            "`also` has a worker_process_setup_hook, and Ray runs only one: call "
            f"{WORKER_SETUP}() in it, and add the hook to what this gives"
        )
    variables = {"MESSAGER_STORE": wanted}
    if in_memory(wanted):
        raise StoreError("a store in memory is seen by one process only: Ray's workers need a file, or PostgreSQL")
    dialect = for_store(wanted)
    if isinstance(dialect, SQLite):
        variables |= {"MESSAGER_STORE": dialect.path, HOST: socket.gethostname()}
        _refuse_other_hosts(dialect.path)
    for name, value in (("MESSAGER_DURABILITY", durability), ("MESSAGER_SPOOL", spool)):
        told = value or os.environ.get(name)
        if told:
            variables[name] = str(Path(told).absolute()) if name == "MESSAGER_SPOOL" else str(told)
    made["env_vars"] = {**made.get("env_vars", {}), **variables}
    made["worker_process_setup_hook"] = WORKER_SETUP
    return made


def set_up_worker() -> None:
    """What Ray calls when a worker process starts: a SQLite file of another host is not written into.

    The worker works all the same, and is not recorded; a line on standard error says why. A program that opens the
    file there in its own code gets a `StoreError`.
    """
    host = os.environ.get(HOST)
    if host and host != socket.gethostname():
        store = os.environ.pop("MESSAGER_STORE", "") or os.environ.get(ELSEWHERE, "")
        os.environ[ELSEWHERE] = store
        reason = why_not_from_here(store, host)
        print(f"messager: nothing on {socket.gethostname()} is recorded: {reason}", file=sys.stderr)


def _refuse_other_hosts(path: str) -> None:
    """As far as that can be seen: Ray may not run yet, and hosts may join later."""
    ray: Any = sys.modules.get("ray")
    here = socket.gethostname()
    if ray is not None and ray.is_initialized():
        others = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]} - {here}
        if others:
            raise StoreError(f"Ray also runs on {', '.join(sorted(others))}: {why_not_from_here(path, here)}")
