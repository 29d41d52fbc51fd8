"""PostgreSQL: one server, many writers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from messager.drivers import needed
from messager.errors import MissingDriver

from ...errors import StoreError
from .log_tables import describe_table
from .views import not_compared, view_differences

if TYPE_CHECKING:
    from .dialect import Postgres

__all__ = ["describe_table", "lock_migrations", "lock_writers", "not_compared", "open_dialect", "view_differences"]

_DRIVERS = ("", "asyncpg")
_MIGRATION_LOCK = 7_104_961_833_297_412_000
"""The key of the advisory lock that a migration holds."""


def open_dialect(store: str) -> Postgres:
    """Return the dialect for a URL. Raises `StoreError` for another driver than asyncpg, or if that is missing."""
    scheme = store.partition("://")[0].lower()
    if scheme.partition("+")[2] not in _DRIVERS:
        raise StoreError(f"PostgreSQL is reached through asyncpg: write postgresql://..., not {scheme}://...")
    try:
        with needed("asyncpg"):
            import_module("asyncpg")
    except MissingDriver as error:
        raise StoreError(str(error)) from None
    from .dialect import Postgres

    return Postgres(store)


def lock_migrations(connection: Connection) -> None:
    """Wait until no other migration runs, and keep others waiting until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})


def lock_writers(connection: Connection) -> None:
    """Wait for all writers of the log, and keep others waiting until the transaction ends: all use this table."""
    connection.execute(text("LOCK TABLE recorder IN ACCESS EXCLUSIVE MODE"))
