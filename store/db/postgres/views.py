"""Comparison of the views and functions of a PostgreSQL store with what the statements that make them give.

PostgreSQL keeps no text of a view, so the statements are run in a schema of their own, which is rolled back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, text

_MAY = "SELECT has_database_privilege(current_database(), 'CREATE') AND NOT pg_is_in_recovery()"
_USER = "SELECT quote_ident(current_user), quote_ident(current_database()), pg_is_in_recovery()"

# Names are shown without their schema where the search path finds them, so that both sides read alike.
_VIEWS = """
SELECT relname::text, pg_get_viewdef(oid) FROM pg_class
WHERE relkind = 'v' AND relnamespace = CAST(:schema AS regnamespace)
"""
_FUNCTIONS = r"""
SELECT proname || '(' || pg_get_function_identity_arguments(oid) || ')',
    regexp_replace(pg_get_functiondef(oid), '^CREATE OR REPLACE FUNCTION [^(]*', '')
FROM pg_proc WHERE prokind = 'f' AND proname LIKE 'messager\_%' AND pronamespace = CAST(:schema AS regnamespace)
"""


class _Made(NamedTuple):
    """Definitions of the views and functions of a schema, by name."""

    views: dict[str, str]
    functions: dict[str, str]


def not_compared(connection: Connection) -> str | None:
    """Return a line with the reason if this user cannot compare them; None if it can."""
    if connection.execute(text(_MAY)).scalar_one():
        return None
    user, database, replica = connection.execute(text(_USER)).one()
    if replica:
        return "the views were not compared, because a replica accepts no scratch schema: check the primary server"
    return (
        f"the views were not compared, because the user {user} may not create a scratch schema: "
        f"`GRANT CREATE ON DATABASE {database} TO {user}`, or check as the owner of the tables"
    )


def view_differences(connection: Connection, statements: Iterable[str]) -> list[str]:
    """Return a line for each view and function that is missing, has another definition, or is of another revision."""
    here, path = connection.execute(text("SELECT quote_ident(current_schema()), current_setting('search_path')")).one()
    found = _made(connection, here)
    scratch = f"messager_check_{secrets.token_hex(8)}"
    with connection.begin_nested() as savepoint:
        connection.execute(text(f"CREATE SCHEMA {scratch}"))
        connection.execute(text("SELECT set_config('search_path', :path, true)"), {"path": f"{scratch}, {path}"})
        for statement in statements:
            connection.execute(text(statement))
        wanted = _made(connection, scratch)
        savepoint.rollback()
    lines = _lines("view", wanted.views, found.views) + _lines("function", wanted.functions, found.functions)
    others = sorted(found.functions.keys() - wanted.functions.keys())
    return lines + [f"the function {name} is of another revision" for name in others]


def _made(connection: Connection, schema: str) -> _Made:
    parameters = {"schema": schema}
    views, functions = (connection.execute(text(query), parameters).all() for query in (_VIEWS, _FUNCTIONS))
    return _Made({row[0]: row[1] for row in views}, {row[0]: row[1] for row in functions})


def _lines(what: str, wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    missing = [f"the {what} {name} is missing" for name in sorted(wanted.keys() - found.keys())]
    changed = sorted(name for name in wanted.keys() & found.keys() if found[name] != wanted[name])
    return missing + [f"the {what} {name} has another definition" for name in changed]
