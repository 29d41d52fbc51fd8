"""One file a database: what differs between them, and nothing else."""

from __future__ import annotations

import re
from importlib import import_module

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from messager.drivers import needed
from messager.errors import MissingDriver

from ..errors import StoreError
from .dialect import Dialect
from .postgres.url import FORM
from .postgres.url import SCHEMES as POSTGRES_SCHEMES
from .sqlite.dialect import SQLite

_NEARLY = re.compile(r"(postgres(ql)?|sqlite)(\+\w+)?(:|//)", re.I)
_IN_MEMORY = re.compile(r":memory:|(?i:sqlite(\+\w+)?)://(/(:memory:)?)?(\?.*)?")
SCHEMES = f"sqlite:///FILE (or just a file name), {FORM}"


def for_store(store: str) -> Dialect:
    """The dialect for a store's URL or file name. Raises `StoreError` for a scheme nobody knows."""
    if "://" not in store:
        if _NEARLY.match(store):  # as the name of a file it would show a password
            raise StoreError(f"this store begins like a URL and has no :// behind its scheme. Known: {SCHEMES}.")
        return SQLite(store)
    scheme = store.partition("://")[0].lower()
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        return _postgres(scheme, store)
    try:
        url: URL = make_url(store)
    except (ArgumentError, ValueError):
        raise StoreError(f"{store.split('://')[0]}://... is not a store URL. Known: {SCHEMES}.") from None
    if url.get_backend_name() == "sqlite":
        if url.host:
            if url.username or "@" in store:  # what SQLAlchemy takes for a host may be a part of a password
                raise StoreError("this SQLite URL names no file: it takes three slashes, sqlite:///FILE")
            raise StoreError(f"sqlite://{url.host} names no file: it takes three slashes, sqlite:///{url.host}")
        return SQLite(url.database or ":memory:")
    raise StoreError(f"no store of scheme {url.drivername!r} is known. Known: {SCHEMES}.")


def in_memory(store: str) -> bool:
    """Whether a store's URL or name means one that is seen by a single process, and gone with it."""
    return _IN_MEMORY.fullmatch(store) is not None


def _postgres(scheme: str, store: str) -> Dialect:
    """Imported when it is asked for: its driver is an extra."""
    if scheme not in POSTGRES_SCHEMES:
        raise StoreError(f"PostgreSQL is reached through asyncpg: write postgresql://..., not {scheme}://...")
    try:
        with needed("asyncpg"):
            import_module("asyncpg")
    except MissingDriver as error:
        raise StoreError(str(error)) from None
    from .postgres.dialect import Postgres

    return Postgres(store)


__all__ = ["Dialect", "SQLite", "for_store", "in_memory"]
