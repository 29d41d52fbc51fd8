"""What PostgreSQL and its driver complain of, in our words: one line, with what to do about it."""

from __future__ import annotations

import re
import socket
import ssl

import asyncpg
from asyncpg import exceptions as pg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..errors import DamagedStore, StoreError, StoreUnavailable
from .postgres_url import Place

ERRORS: tuple[type[Exception], ...] = (
    DBAPIError,
    PoolTimeout,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a backend that is killed makes of a statement, now and then
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
    socket.gaierror,
)
ALSO_CONNECTING: tuple[type[Exception], ...] = (*ERRORS, OSError, ValueError)
"""What a connection that is being made raises besides: no socket, no certificate, a setting that there is not."""

_DENIED = re.compile(r"permission denied for (table|sequence|schema)|must be owner of")

_PLAIN: tuple[tuple[type[BaseException], str], ...] = (
    (pg.InvalidPasswordError, "the password is wrong, or there is no such user"),
    (pg.TooManyConnectionsError, "the server takes no more connections (max_connections)"),
    (pg.DiskFullError, "the disk of the server is full"),
    (pg.OutOfMemoryError, "the server has no memory left"),
    (pg.ReadOnlySQLTransactionError, "the server only reads: it is a replica, or default_transaction_read_only is on"),
    (pg.AdminShutdownError, "the server is shutting down, or somebody ended the connection"),
    (pg.CrashShutdownError, "the server went down"),
    (pg.CannotConnectNowError, "the server is starting up or shutting down"),
    (pg.LockNotAvailableError, "another program keeps it locked"),
    (pg.DeadlockDetectedError, "another program was in the way; try again"),
    (pg.SerializationError, "another program was in the way; try again"),
    (pg.QueryCanceledError, "the server gave the statement up (statement_timeout)"),
    (pg.UniqueViolationError, "another program wrote the same at the same time; try again"),
    (pg.UndefinedTableError, "its tables are gone"),
    (pg.UntranslatableCharacterError, "its encoding is not UTF8: make the database with ENCODING 'UTF8'"),
    (pg.TargetServerAttributeNotMatched, "no server of the URL is of the kind that target_session_attrs asks for"),
    (pg.PostgresConnectionError, "the connection broke"),
    (asyncpg.InternalClientError, "the connection broke"),
    (asyncpg.InterfaceError, "the connection broke"),
    (ConnectionRefusedError, "nobody listens there: is PostgreSQL running, and is that its port?"),
    (ConnectionError, "the connection broke"),
    (TimeoutError, "it does not answer"),
    (PoolTimeout, "all connections to it are in use"),
    (socket.gaierror, "there is no such host"),
    (FileNotFoundError, "there is no such socket: is PostgreSQL running?"),
    (PermissionError, "no right to use its socket"),
)


def translate(place: Place, error: BaseException, *, connecting: bool = False) -> StoreError:
    """A driver's error as one of ours. Shows no credentials but, in a GRANT, the user's name.

    `connecting` says that a connection was being made: what was sent then may be a password.
    """
    cause = _cause(error)
    wrong = StoreError(f"{place.where}: something in the URL, or in a PG... variable, is wrong")
    if isinstance(cause, UnicodeEncodeError):
        return wrong if connecting else StoreError(f"{cause.object!a} is not valid UTF-8")
    if isinstance(cause, pg.InsufficientPrivilegeError):
        return StoreUnavailable(place.where, _denied(place, _line(str(cause))))
    if isinstance(cause, pg.InvalidCatalogNameError):
        reason = f"there is no database {place.database!r}: make it with `createdb -E UTF8 {place.database}`"
        return StoreUnavailable(place.where, reason)
    if isinstance(cause, pg.DataCorruptedError | pg.IndexCorruptedError):
        return DamagedStore(place.where, _line(str(cause)))
    if isinstance(cause, pg.InvalidAuthorizationSpecificationError) and not isinstance(cause, pg.InvalidPasswordError):
        reason = "the server refuses this user, this host, or a connection of this kind (pg_hba.conf, sslmode)"
        return StoreUnavailable(place.where, reason)
    if isinstance(cause, ssl.SSLError):
        return StoreUnavailable(place.where, f"TLS: {cause.reason or 'it failed'}")
    if connecting and isinstance(cause, ValueError):  # also those of asyncpg's that are an InterfaceError
        return wrong
    for kind, reason in _PLAIN:
        if isinstance(cause, kind):
            return StoreUnavailable(place.where, reason)
    if isinstance(cause, ValueError) and not isinstance(cause, pg.PostgresError):
        return wrong
    if isinstance(cause, OSError):
        return StoreUnavailable(place.where, cause.strerror or "it cannot be reached")
    return StoreUnavailable(place.where, _line(str(cause)))


def _cause(error: BaseException) -> BaseException:
    """What the driver raised, below what SQLAlchemy made of it."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    inner = error.__cause__
    if isinstance(inner, UnicodeEncodeError | asyncpg.PostgresError | asyncpg.InterfaceError):
        return _cause(inner)
    if isinstance(inner, asyncpg.InternalClientError | OSError) and not isinstance(error, asyncpg.PostgresError):
        return inner
    return error


def is_about_rights(error: BaseException) -> bool:
    """Whether the user lacks a right on the tables, or sees no place for them: then it can be asked what is missing."""
    cause = _cause(error)
    denied = isinstance(cause, pg.InsufficientPrivilegeError) and _DENIED.match(str(cause)) is not None
    return denied or isinstance(cause, pg.InvalidSchemaNameError)


def _denied(place: Place, message: str) -> str:
    """A right is missing that the server could not be asked about."""
    if not message.startswith("permission denied for database"):
        return f"a right is missing: {message}"
    to = '"' + (place.user or "USER").replace('"', '""') + '"'
    name = place.database
    return f"the right CONNECT on database {name} is missing: `GRANT CONNECT ON DATABASE {name} TO {to}`"


def _line(message: str) -> str:
    return " ".join(message.split())
