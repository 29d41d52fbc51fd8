"""Connections to one Redis server. redis-py opens them; its errors become `BrokerUnavailable` with a short text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from .error_text import error_text
from .url import Address

CONNECT_TIMEOUT = 4.0
"""Seconds for a connection, so that an unreachable broker is reported within five seconds."""
TRY_TIMEOUT = 1.0
"""Seconds for one of several hosts before the next one is tried."""


class Server:
    """One server at a fixed address (an `Endpoint`)."""

    def __init__(self, make: Callable[[], AbstractConnection], url: str, *, timeout: float = CONNECT_TIMEOUT) -> None:
        self.url = url
        self._make = make
        self._timeout = timeout

    async def connect(self) -> AbstractConnection:
        connection = await open_connection(self._make(), self.url, self._timeout)
        await check_authenticated(connection, self.url, self._timeout)
        return connection

    def check(self) -> None:
        """Return None: there is no other server to connect to."""


def connection_options(timeout: float) -> dict[str, Any]:
    """Options with which redis-py connects and never repeats a command; `timeout` in seconds."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": None,
        "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT),
        "health_check_interval": 0,
        "protocol": 2,
    }


def at(pool: ConnectionPool, address: Address) -> AbstractConnection:
    """Return a connection with the options of the pool to another host, not yet opened."""
    options = {**pool.connection_kwargs, "host": address[0], "port": address[1]}
    return pool.connection_class(**options)


async def open_connection(connection: AbstractConnection, url: str, seconds: float) -> AbstractConnection:
    """Connect, and pass the handshake. Raises `BrokerUnavailable`."""
    try:
        async with time_limit(seconds):
            await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException as error:
        await connection.disconnect(nowait=True)
        if isinstance(error, OSError | RedisError | ValueError | OverflowError):  # of a host or port that is none
            tls = isinstance(connection, SSLConnection)
            raise BrokerUnavailable(url, error_text(error, _secrets(connection), tls=tls)) from None
        raise
    return connection


async def check_authenticated(connection: AbstractConnection, url: str, seconds: float) -> None:
    """Send PING: Redis 7.0 accepts the handshake without authentication. Raises `BrokerUnavailable`."""
    try:
        async with time_limit(seconds):
            await connection.send_command("PING")
            await connection.read_response()
    except ResponseError:
        return  # MISCONF and BUSY, for example, prevent no message; NOAUTH is an AuthenticationError
    except BaseException as error:
        await _refuse(connection, url, error)


async def ask(connection: AbstractConnection, url: str, *command: str) -> Any:
    """Return the answer to a command on a new connection; None if an ACL forbids it. Raises `BrokerUnavailable`."""
    try:
        async with time_limit(TRY_TIMEOUT):
            await connection.send_command(*command)
            return await connection.read_response()
    except NoPermissionError:
        return None
    except BaseException as error:
        await _refuse(connection, url, error)


async def _refuse(connection: AbstractConnection, url: str, error: BaseException) -> NoReturn:
    """Close a connection that raised this error, and raise `BrokerUnavailable` for it."""
    await connection.disconnect(nowait=True)
    if isinstance(error, OSError | RedisError):
        raise BrokerUnavailable(url, error_text(error, _secrets(connection))) from None
    raise error


def _secrets(connection: AbstractConnection) -> list[str | None]:
    """Return texts to mask, with the path of a socket: an unescaped password may be in it."""
    return [getattr(connection, name, None) for name in ("password", "path")]


def address_of(connection: AbstractConnection) -> Address:
    """Return the host and the port of a connection."""
    return connection.host, connection.port  # type: ignore[attr-defined]
