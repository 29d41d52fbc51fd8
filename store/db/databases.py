"""The registry of databases: one line each."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ..errors import StoreError
from .dialect import Dialect
from .one_host import on_this_host


class _Kind(NamedTuple):
    """A database: the schemes of its URLs, its package, and the form of its URLs.

    The package has `open_dialect(store)`, `lock_migrations(connection)`, which waits until no other migration runs,
    `lock_writers(connection)`, which waits for writers of the log,
    `not_compared(connection)` and `view_differences(connection, statements)`, which compare its views, and
    `describe_table(connection, name)`, from which its tables are compared (`log_tables`);
    that of files also has `store_of(path)`, the store that a file is a part of.
    """

    schemes: tuple[str, ...]
    package: str
    form: str


DATABASES = (
    _Kind(("sqlite",), ".sqlite", "sqlite:///FILE (or just a file name)"),
    _Kind(("postgresql", "postgres"), ".postgres", "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
)
_OF_FILES = DATABASES[0]
"""The database of a store that is given by a file name."""

_KNOWN = f"Known: {', '.join(kind.form for kind in DATABASES)}."
_SCHEMES = "|".join(scheme for kind in DATABASES for scheme in kind.schemes)
_NEARLY = re.compile(rf"({_SCHEMES})(\+\w+)?(:|//)", re.I)
_IN_MEMORY = re.compile(rf":memory:|(?i:({'|'.join(_OF_FILES.schemes)})(\+\w+)?)://(/(:memory:)?)?(\?.*)?")
_SCHEME = re.compile(r"[a-z][a-z0-9.+-]*", re.I)


def for_store(store: str) -> Dialect:
    """Return the dialect for a store's URL or file name.

    Raises `StoreError` for an unknown scheme, a bad URL or an empty name.

    `{host}` in the name of a file stands for the name of this host.
    """
    if not store:
        raise StoreError(f"the name of the store is empty. {_KNOWN}")
    if "://" not in store:
        if _NEARLY.match(store):  # as a file name it would show a password
            raise StoreError(f"this store begins like a URL, but has no :// after the scheme. {_KNOWN}")
        return _open(_OF_FILES, store)
    scheme = store.partition("://")[0].lower()
    for kind in DATABASES:
        if scheme.partition("+")[0] in kind.schemes:
            return _open(kind, store)
    if not _SCHEME.fullmatch(scheme):
        raise StoreError(f"{scheme}://... is not a store URL. {_KNOWN}")
    raise StoreError(f"no store of scheme {scheme!r} is known. {_KNOWN}")


def in_memory(store: str) -> bool:
    """Return whether a store lives in memory: only one process sees it, and it ends with that process."""
    return _IN_MEMORY.fullmatch(store) is not None


def store_of(path: Path) -> Path | None:
    """Return the store of which a file is a part, or None: the store itself, its journal or its spool folder."""
    store: Path | None = _imported(_OF_FILES).store_of(path)
    return store


def package_of(name: str) -> ModuleType:
    """Return the package of the database that SQLAlchemy knows by this name."""
    return _imported(next(kind for kind in DATABASES if name in kind.schemes))


def _open(kind: _Kind, store: str) -> Dialect:
    dialect: Dialect = _imported(kind).open_dialect(on_this_host(store) if kind is _OF_FILES else store)
    return dialect


def _imported(kind: _Kind) -> ModuleType:
    """Import the package of a database on first use: its driver may be an extra."""
    return import_module(kind.package, __package__)
