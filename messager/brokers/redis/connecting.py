"""Opening one connection to Redis: redis-py makes it, and its errors are told in a few words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ...errors import BrokerUnavailable
from .reasons import reason_of
from .url import Address

CONNECT_TIMEOUT = 4.0
"""Seconds a connection may take, so that a broker out of reach is told within five."""
TRY_TIMEOUT = 1.0
"""Seconds for one of several hosts, before the next one is tried."""


class Server:
    """One server."""

    def __init__(self, make: Callable[[], AbstractConnection], url: str, *, timeout: float = CONNECT_TIMEOUT) -> None:
        self.url = url
        self._make = make
        self._timeout = timeout

    async def connect(self) -> AbstractConnection:
        connection = await opened(self._make(), self.url, self._timeout)
        await let_in(connection, self.url)
        return connection

    def watch(self) -> None:
        """There is no other server to go to."""


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
    """Return a connection as the pool makes them, to another host; not opened yet."""
    options = {**pool.connection_kwargs, "host": address[0], "port": address[1]}
    return pool.connection_class(**options)


async def opened(connection: AbstractConnection, url: str, seconds: float) -> AbstractConnection:
    """Connect, and pass the handshake. Raises `BrokerUnavailable`."""
    try:
        async with asyncio.timeout(seconds):
            await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException as error:
        await connection.disconnect(nowait=True)
        if isinstance(error, OSError | RedisError):
            tls = isinstance(connection, SSLConnection)
            raise BrokerUnavailable(url, reason_of(error, _secrets(connection), tls=tls)) from None
        raise
    return connection


async def let_in(connection: AbstractConnection, url: str) -> None:
    """Redis 7.0 lets through the handshake who has to give a password. Raises `BrokerUnavailable`."""
    try:
        async with asyncio.timeout(TRY_TIMEOUT):
            await connection.send_command("PING")
            await connection.read_response()
    except ResponseError:
        return  # MISCONF and BUSY, say, are signs of life, and keep no message out; NOAUTH is none of these
    except BaseException as error:
        await _refuse(connection, url, error)


async def asked(connection: AbstractConnection, url: str, *command: str) -> Any:
    """The answer to a command on a connection just made; None where an ACL forbids it. Raises `BrokerUnavailable`."""
    try:
        async with asyncio.timeout(TRY_TIMEOUT):
            await connection.send_command(*command)
            return await connection.read_response()
    except NoPermissionError:
        return None
    except BaseException as error:
        await _refuse(connection, url, error)


async def _refuse(connection: AbstractConnection, url: str, error: BaseException) -> NoReturn:
    """Give up a connection on which this was raised."""
    await connection.disconnect(nowait=True)
    if isinstance(error, OSError | RedisError):
        raise BrokerUnavailable(url, reason_of(error, _secrets(connection))) from None
    raise error


def _secrets(connection: AbstractConnection) -> list[str | None]:
    """Texts to be masked: also the path of a socket, in which an unescaped password may be."""
    return [getattr(connection, name, None) for name in ("password", "path")]


def address_of(connection: AbstractConnection) -> Address:
    """Return the host and the port that a connection was made to."""
    return connection.host, connection.port  # type: ignore[attr-defined]
