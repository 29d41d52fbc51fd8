"""Stores that only the processes of one host may open: a file, whose locks work on that host only."""

from __future__ import annotations

import socket

HOST = "MESSAGER_STORE_HOST"
"""Environment variable: the only host whose processes may open the store file, for workers on several hosts."""
ELSEWHERE = "MESSAGER_STORE_ELSEWHERE"
"""Environment variable: the store file on that host, in processes of other hosts."""


PER_HOST = "{host}"
"""In the name of a file: the name of the host, so that the processes of each host share a store of their own."""


def on_this_host(store: str) -> str:
    """Return the name of a file with the name of this host in the place of `PER_HOST`."""
    return store.replace(PER_HOST, socket.gethostname())


def refusal(path: str, host: str) -> str:
    """Return the reason why processes of other hosts may not open a file, and what to do."""
    return (
        f"{path} is a SQLite file on {host}, and SQLite's locks do not reach from one host to another: "
        "record into PostgreSQL (MESSAGER_STORE=postgresql://...), or into a file for each host "
        "(MESSAGER_STORE=/FOLDER/runs-{host}.db, where {host} stays as it is) and merge them with `messager gather`"
    )
