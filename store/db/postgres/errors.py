"""Errors of PostgreSQL and its driver as `StoreError`: one line, with the remedy."""

from __future__ import annotations

import os
import re
import socket
import ssl
from shlex import quote
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg import exceptions as pg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ...errors import DamagedStore, StoreError, StoreNotFound, StoreUnavailable
from .url import StoreUrl

ERRORS: tuple[type[Exception], ...] = (
    DBAPIError,
    PoolTimeout,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised now and then if the backend is killed
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
    socket.gaierror,
)
ALSO_CONNECTING: tuple[type[Exception], ...] = (*ERRORS, OSError, ValueError)
"""Further errors of connecting: no socket, no certificate, an unknown setting."""

_DENIED = re.compile(r"permission denied for (table|sequence|schema)|must be owner of")

_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
"""Parameters of a URL that name files, like the variables PGSSLROOTCERT and so on."""
_ANOTHER_NAME = (62, 63, 64)
"""OpenSSL's X509_V_ERR codes for a name or an address that does not match the certificate."""
_POOLED = (
    "a pooler in between gives each transaction another connection: have it pool sessions (pool_mode = session), "
    "or connect to the server itself"
)

_BROKE, _SILENT = "the connection broke", "it does not answer"
_REASONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (pg.InvalidPasswordError, "", "the password is wrong, or there is no such user (URL, PGPASSWORD, ~/.pgpass)"),
    (pg.InvalidAuthorizationSpecificationError, 'role (".*") does not exist', "there is no user {0} on the server"),
    (
        pg.InvalidAuthorizationSpecificationError,
        'role (".*") is not permitted to log in',
        "the user {0} may not log in: `ALTER ROLE {0} LOGIN`",
    ),
    (
        pg.InvalidAuthorizationSpecificationError,
        "no encryption",
        "the server does not let this user in from here without TLS (pg_hba.conf): try sslmode=require",
    ),
    (
        pg.InvalidAuthorizationSpecificationError,
        "",
        "the server refuses this user, this host, or a connection of this kind (pg_hba.conf, sslmode)",
    ),
    (
        pg.TooManyConnectionsError,
        'for (role|database) (".*")',
        "the {0} {1} has all the connections that it may have: end some, or `ALTER {0} {1} CONNECTION LIMIT -1`",
    ),
    (pg.TooManyConnectionsError, "", "the server takes no more connections: end some, or raise its max_connections"),
    (pg.DiskFullError, "", "the disk of the server is full"),
    (pg.OutOfMemoryError, "", "the server has no memory left"),
    (
        pg.ReadOnlySQLTransactionError,
        "",
        "the server only reads: it is a replica, or default_transaction_read_only is on; write to the primary",
    ),
    (pg.AdminShutdownError, "", "the server is shutting down, or somebody ended the connection"),
    (pg.CrashShutdownError, "", "the server went down"),
    (pg.CannotConnectNowError, "", "the server takes nobody now, as it starts, recovers or shuts down: try again"),
    (pg.LockNotAvailableError, "", "another program keeps it locked"),
    (pg.DeadlockDetectedError, "", "another program was in the way; try again"),
    (pg.SerializationError, "", "another program was in the way; try again"),
    (pg.QueryCanceledError, "", "the server gave the statement up (statement_timeout)"),
    (pg.UniqueViolationError, "", "another program wrote the same at the same time; try again"),
    (pg.UndefinedTableError, "", "its tables are gone"),
    (pg.UntranslatableCharacterError, "", "its encoding is not UTF8: make the database with ENCODING 'UTF8'"),
    (pg.TargetServerAttributeNotMatched, "", "no server of the URL is of the kind that target_session_attrs asks for"),
    (pg.CantChangeRuntimeParamError, '"ssl"', "the URL asks for TLS with ssl: write sslmode=require"),
    (
        pg.UndefinedObjectError,
        'configuration parameter (".*")',
        "the URL has a parameter {0}, and neither the driver nor the server knows one of that name",
    ),
    (
        pg.ProtocolViolationError,
        "unsupported startup parameter: (.*)",
        "a pooler in between refuses the setting {0}: connect to the server itself",
    ),
    (pg.PostgresConnectionError, "", _BROKE),
    (pg.DuplicatePreparedStatementError, "", _POOLED),
    (pg.InvalidSQLStatementNameError, "", _POOLED),
    (asyncpg.InternalClientError, "", _BROKE),
    (
        asyncpg.InterfaceError,
        "root certificate file",
        "sslmode asks who signed the server's certificate: name the file of that authority with sslrootcert=FILE",
    ),
    (asyncpg.InterfaceError, "", _BROKE),
    (ConnectionRefusedError, "", "nobody listens there: is PostgreSQL running, and is that its port?"),
    (
        ConnectionError,
        "rejected SSL upgrade",
        "the server does not speak TLS, and sslmode asks for it: switch it on there (ssl = on), or use sslmode=prefer; "
        "or it is no PostgreSQL",
    ),
    (ConnectionError, "", _BROKE),
    (TimeoutError, "", _SILENT),
    (PoolTimeout, "", "all connections to it are in use"),
    (socket.gaierror, "", "there is no such host"),
    (FileNotFoundError, "", "there is no such socket: is PostgreSQL running?"),
    (PermissionError, "", "no right to use its socket"),
)
"""A class of errors, a pattern of its message, and the reason to show; `{0}` is the first group of the pattern."""


def translate(url: StoreUrl, error: BaseException, *, connecting: bool = False) -> StoreError:
    """Return the `StoreError` for an error of the driver. It shows no credentials except the user's name in a GRANT.

    `connecting` means that the error occurred while connecting: the data sent may be a password.
    """
    cause = _cause(error)
    wrong = StoreError(f"{url.location}: something in the URL, or in a PG... variable, is wrong")
    if isinstance(cause, UnicodeEncodeError):
        return wrong if connecting else StoreError(f"{cause.object!a} is not valid UTF-8")
    if isinstance(cause, pg.InsufficientPrivilegeError):
        return StoreUnavailable(url.location, _denied(url, _line(str(cause))))
    if isinstance(cause, pg.InvalidCatalogNameError):
        reason = f"there is no database {url.database!r}: make it with `createdb -E UTF8 {quote(url.database)}`"
        return StoreNotFound(url.location, reason)
    if isinstance(cause, pg.DataCorruptedError | pg.IndexCorruptedError):
        return DamagedStore(url.location, _line(str(cause)))
    if isinstance(cause, ssl.SSLError):
        return StoreUnavailable(url.location, f"TLS: {_about_tls(cause)}")
    if connecting and isinstance(cause, OSError) and (unreadable := _unreadable(url)):
        return StoreUnavailable(url.location, unreadable)
    for kind, says, reason in _REASONS:
        if isinstance(cause, kind) and (found := re.search(says, str(cause))):
            if connecting and isinstance(cause, ValueError) and not says:
                return wrong  # errors of asyncpg that are also an InterfaceError
            asked = ": is that PostgreSQL?" if connecting and reason in (_BROKE, _SILENT) else ""
            return StoreUnavailable(url.location, reason.format(*found.groups()) + asked)
    if isinstance(cause, ValueError) and not isinstance(cause, pg.PostgresError):
        return wrong
    if isinstance(cause, OSError):
        return StoreUnavailable(url.location, cause.strerror or "it cannot be reached")
    told = cause.message if isinstance(cause, pg.PostgresError) else None  # not its details: they may contain payloads
    return StoreUnavailable(url.location, _line(told or str(cause)))


def _cause(error: BaseException) -> BaseException:
    """Return the error of the driver inside that of SQLAlchemy."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    inner = error.__cause__
    if isinstance(inner, UnicodeEncodeError | asyncpg.PostgresError | asyncpg.InterfaceError):
        return _cause(inner)
    if isinstance(inner, asyncpg.InternalClientError | OSError) and not isinstance(error, asyncpg.PostgresError):
        return inner
    return error


def is_about_rights(error: BaseException) -> bool:
    """Return whether the user lacks a right on the tables or the schema. The server can be asked which."""
    cause = _cause(error)
    denied = isinstance(cause, pg.InsufficientPrivilegeError) and _DENIED.match(str(cause)) is not None
    return denied or isinstance(cause, pg.InvalidSchemaNameError)


def _denied(url: StoreUrl, message: str) -> str:
    """Return the reason for a missing right that the server could not be asked about."""
    if not message.startswith("permission denied for database"):
        return f"a right is missing: {message}"
    to = '"' + (url.user or "USER").replace('"', '""') + '"'
    name = url.database
    return f"the right CONNECT on database {name} is missing: `GRANT CONNECT ON DATABASE {name} TO {to}`"


def _about_tls(error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return (error.reason or "it failed").replace("_", " ").lower()
    why = error.verify_message.rstrip(".")
    if error.verify_code in _ANOTHER_NAME:
        return f"the server's certificate is not accepted: {why}; name a host that it is for, or use sslmode=verify-ca"
    return f"the server's certificate is not accepted: {why}; name the file of who signed it with sslrootcert=FILE"


def _unreadable(url: StoreUrl) -> str | None:
    """Return the reason if a file named in the URL or a variable cannot be read; the driver does not name it."""
    given = parse_qs(urlsplit(url.dsn).query)
    for key in _FILES:
        file = given[key][-1] if key in given else os.environ.get(f"PG{key.upper()}")
        if file and not os.access(file, os.R_OK):
            return f"the file {file}, which {key} names, cannot be read"
    return None


def _line(message: str) -> str:
    return " ".join(message.split())
