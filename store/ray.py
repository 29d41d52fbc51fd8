"""Messager and Ray: recording in every task and actor of a job, and experiments as Datasets.

    os.environ["MESSAGER_STORE"] = "postgresql://..."     # for the driver
    ray.init(runtime_env=messager_store.ray.runtime_env())  # for the workers

    messager_store.ray.dataset("postgresql://...", "town").groupby("channel").count()

Requires Ray at run time; this module does not import it. Outside of the core: without it, jobs of Ray set
MESSAGER_STORE themselves.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

from .db.databases import for_store, in_memory
from .db.one_host import ELSEWHERE, HOST, PER_HOST, refusal
from .errors import StoreError

if TYPE_CHECKING:
    from .log.selection import Filters, Selection

WORKER_SETUP = f"{__name__}.set_up_worker"


def runtime_env(
    store: str | None = None,
    *,
    durability: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    also: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a Ray `runtime_env` that records every `Messager` in a task or an actor.

    Missing arguments are taken from the environment of this process: `MESSAGER_STORE`, `MESSAGER_DURABILITY`,
    `MESSAGER_SPOOL`. The path of a SQLite file is made absolute, as workers run in other folders. With `{host}` in it,
    each host records into a file of its own, to be merged with `messager gather`. `also` is a runtime_env to extend.
    Raises `StoreError` if no store is named, for any other SQLite file while Ray runs on other hosts too, and if `also`
    has a worker setup hook.
    """
    wanted = os.environ.get("MESSAGER_STORE") if store is None else store
    if not wanted:
        raise StoreError("no store to record into. Name one, or set MESSAGER_STORE.")
    made = dict(also or {})
    if made.get("worker_process_setup_hook", WORKER_SETUP) != WORKER_SETUP:
        raise StoreError(
            "`also` has a worker_process_setup_hook, and Ray runs only one. Call "
            f"{WORKER_SETUP}() in that hook, and add it to the returned runtime_env."
        )
    variables = {"MESSAGER_STORE": wanted}
    if in_memory(wanted):
        raise StoreError("a store in memory is visible to one process only. Use a file or PostgreSQL with Ray.")
    mark = uuid4().hex
    path = for_store(wanted.replace(PER_HOST, mark)).one_host_file
    if path is not None and mark in path:  # each host has a file of its own
        variables["MESSAGER_STORE"] = path.replace(mark, PER_HOST)
    elif path is not None:
        variables |= {"MESSAGER_STORE": path, HOST: socket.gethostname()}
        _refuse_other_hosts(path)
    for name, value in (("MESSAGER_DURABILITY", durability), ("MESSAGER_SPOOL", spool)):
        setting = value or os.environ.get(name)
        if setting:
            variables[name] = str(Path(setting).absolute()) if name == "MESSAGER_SPOOL" else str(setting)
    made["env_vars"] = {**made.get("env_vars", {}), **variables}
    made["worker_process_setup_hook"] = WORKER_SETUP
    return made


def set_up_worker() -> None:
    """Turn recording off if the store is a SQLite file of another host. Ray calls this in each new worker process.

    The worker is not recorded; a line on standard error gives the reason. Opening the store there raises
    `StoreError`.
    """
    host = os.environ.get(HOST)
    if host and host != socket.gethostname():
        store = os.environ.pop("MESSAGER_STORE", "") or os.environ.get(ELSEWHERE, "")
        os.environ[ELSEWHERE] = store
        reason = refusal(store, host)
        print(f"messager: nothing on {socket.gethostname()} is recorded: {reason}", file=sys.stderr)


def dataset(
    store: str,
    exp_id: str,
    *,
    selection: Selection | None = None,
    parts: int | None = None,
    events: bool = False,
    **filters: Unpack[Filters],
) -> Any:
    """Return the messages of an experiment, or with `events` all events, as a `ray.data.Dataset`.

    The columns are those of every table (docs/analysis.md). The experiment is divided in replay order into `parts` of
    about equal size, by default of 100,000 events; a task for each reads it from the database, on any node. Tasks end
    in any order: sort by `ts`, `recorder` and `seq` if the order matters. Events that are recorded meanwhile may be
    missing. The selection is given as for `EventLog.read`, without `limit`, `last_per` and `context`. Workers need this
    package, pyarrow, and the environment that the URL of the store relies on, such as PGPASSWORD.

    Raises `StoreError` for a SQLite file while Ray runs on other hosts too; a task on another host raises it as well.
    """
    from .log.selection import selection_of
    from .ray_dataset import read

    return read(store, exp_id, selection_of(selection, filters), parts, events)


def _refuse_other_hosts(path: str) -> None:
    """Raise `StoreError` if Ray runs on other hosts now. Hosts that join later are refused in `set_up_worker`."""
    ray: Any = sys.modules.get("ray")
    here = socket.gethostname()
    if ray is not None and ray.is_initialized():
        others = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]} - {here}
        if others:
            raise StoreError(f"Ray also runs on {', '.join(sorted(others))}: {refusal(path, here)}")
