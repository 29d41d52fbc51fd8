"""Comparison of the views of an SQLite store with the statements that make them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, text


def not_compared(connection: Connection) -> str | None:
    """Return None: every reader can compare them."""
    return None


def view_differences(connection: Connection, statements: Iterable[str]) -> list[str]:
    """Return a line for each view that is missing or was not made by its statement.

    SQLite keeps the text of a statement, without white space around it.
    """
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'view'"
    found: dict[str, str] = {name: sql.strip() for name, sql in connection.execute(text(query))}
    wanted = {statement.split()[2]: statement.strip() for statement in statements}
    missing = [f"the view {name} is missing" for name in sorted(wanted.keys() - found.keys())]
    changed = sorted(name for name in wanted.keys() & found.keys() if found[name] != wanted[name])
    return missing + [f"the view {name} has another definition" for name in changed]
