"""One file a database: what differs between them, and nothing else."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ..errors import StoreError
from .base import Dialect
from .sqlite import SQLite

SCHEMES = "sqlite:///FILE (or just a file name)"


def for_store(store: str) -> Dialect:
    """The dialect for a store's URL or file name. Raises `StoreError` for a scheme nobody knows."""
    if "://" not in store:
        return SQLite(store)
    try:
        url: URL = make_url(store)
    except (ArgumentError, ValueError):
        raise StoreError(f"{store.split('://')[0]}://... is not a store URL. Known: {SCHEMES}.") from None
    if url.get_backend_name() == "sqlite":
        if url.host:
            raise StoreError(f"sqlite://{url.host} names no file: it takes three slashes, sqlite:///{url.host}")
        return SQLite(url.database or ":memory:")
    raise StoreError(f"no store of scheme {url.drivername!r} is known. Known: {SCHEMES}.")


__all__ = ["Dialect", "SQLite", "for_store"]
