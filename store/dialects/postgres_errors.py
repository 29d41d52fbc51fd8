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

_DENIED = re.compile(r"permission denied for (\w+) (\S+)")
_OWNER = re.compile(r"must be owner of (\w+) (\S+)")
_VERB = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", re.I)
_APPENDING = {"recorder": "UPDATE"}
"""The right that an append needs on a table, where it is not INSERT."""

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
    statement = error.statement if isinstance(error, DBAPIError) else None
    cause = _cause(error)
    wrong = StoreError(f"{place.where}: something in the URL, or in a PG... variable, is wrong")
    if isinstance(cause, UnicodeEncodeError):
        return wrong if connecting else StoreError(f"{cause.object!a} is not valid UTF-8")
    if isinstance(cause, pg.InsufficientPrivilegeError):
        return StoreUnavailable(place.where, _missing_right(place, str(cause), statement))
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


def _missing_right(place: Place, message: str, statement: str | None) -> str:
    """Which right on what is missing, and who gives it how."""
    to = '"' + (place.user or "USER").replace('"', '""') + '"'
    owner = _OWNER.search(message)
    if owner:
        return (
            f"only the owner of {owner[1]} {owner[2]} may do this: `ALTER {owner[1].upper()} {owner[2]} OWNER TO {to}`"
        )
    found = _DENIED.search(message)
    if not found:
        return f"a right is missing: {_line(message)}"
    what, name = found[1].lower(), found[2].strip('"')
    if what == "schema":
        creating = statement is None or not _VERB.match(statement)
        right = "CREATE" if creating else "USAGE"
        return f"the right {right} on schema {name} is missing: `GRANT USAGE, CREATE ON SCHEMA {name} TO {to}`"
    if what == "database":
        return f"the right CONNECT on database {name} is missing: `GRANT CONNECT ON DATABASE {name} TO {to}`"
    if what == "sequence":
        return f"the right USAGE on sequence {name} is missing: `GRANT USAGE ON SEQUENCE {name} TO {to}`"
    verb = _VERB.match(statement) if statement else None
    right = verb[1].upper() if verb else _APPENDING.get(name, "INSERT")
    if statement and right == "SELECT" and "FOR UPDATE" in statement:
        right = "UPDATE"
    rights = "SELECT, INSERT, UPDATE, DELETE"
    return f"the right {right} on {what} {name} is missing: to record, `GRANT {rights} ON {name} TO {to}`"


def _line(message: str) -> str:
    return " ".join(message.split())
