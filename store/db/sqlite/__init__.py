"""SQLite: one file, one writer at a time."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from ...errors import StoreError
from .dialect import SQLite
from .file import store_of
from .log_tables import describe_table
from .views import not_compared, view_differences

__all__ = [
    "describe_table",
    "lock_migrations",
    "lock_writers",
    "not_compared",
    "open_dialect",
    "store_of",
    "view_differences",
]


def open_dialect(store: str) -> SQLite:
    """Return the dialect for a file name or a URL sqlite:///FILE. Raises `StoreError` for a URL without a file."""
    if "://" not in store:
        return SQLite(store)
    try:
        url = make_url(store)
    except (ArgumentError, ValueError):
        raise StoreError(f"{store.split('://')[0]}://... is not a store URL. Write sqlite:///FILE.") from None
    if not url.host:
        return SQLite(url.database or ":memory:")
    if url.username or "@" in store:  # what SQLAlchemy takes for a host may be a part of a password
        raise StoreError("this SQLite URL names no file: it takes three slashes, sqlite:///FILE")
    raise StoreError(f"sqlite://{url.host} names no file: it takes three slashes, sqlite:///{url.host}")


def lock_migrations(connection: Connection) -> None:
    """Do nothing: the transaction of a migration is the only one that writes."""


def lock_writers(connection: Connection) -> None:
    """Do nothing: as above."""
