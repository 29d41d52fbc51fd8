"""Stores that only the processes of one host may open: a file, whose locks work on that host only."""

from __future__ import annotations

HOST = "MESSAGER_STORE_HOST"
"""Environment variable: the only host whose processes may open the store file, for workers on several hosts."""
ELSEWHERE = "MESSAGER_STORE_ELSEWHERE"
"""Environment variable: the store file on that host, in processes of other hosts."""


def refusal(path: str, host: str) -> str:
    """Return the reason why processes of other hosts may not open a file, and what to do."""
    return (
        f"{path} is a SQLite file on {host}, and SQLite's locks do not reach from one host to another: "
        "record into PostgreSQL (MESSAGER_STORE=postgresql://...)"
    )
