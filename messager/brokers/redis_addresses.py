"""Where connections to Redis go: one server, the master that sentinels name, or a node of a cluster that answers.

redis-py makes the connections: sockets, TLS and authentication are its work, and its errors are told in a few words.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, cast

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ..credentials import without_credentials
from ..errors import BrokerUnavailable
from .redis_reasons import missing_right, reason_of
from .redis_url import Address, SeveralHosts, check_options, scheme_of, several_hosts, shown
from .urls import URLFault, fault_of, not_a_url

CONNECT_TIMEOUT = 4.0
"""Seconds a connection may take, so that a broker out of reach is told within five."""
TRY_TIMEOUT = 1.0
"""Seconds for one of several hosts, before the next one is tried."""
_HARMLESS = re.compile(r"Invalid value for '\w+'|unexpected keyword argument '\w+'|Port out of range|Invalid IPv6 URL")
_NODE = re.compile(r"^\S+ (?P<ip>[^ @,]*):(?P<port>\d+)(?:@\d+)?(?:,(?P<name>[^ ,]*)[^ ]*)? (?P<flags>\S+) ", re.M)
"""A line of CLUSTER NODES, up to the flags."""
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Addresses(Protocol):
    """Finds the server to connect to, each time anew."""

    url: str
    """Where it looks, without credentials."""

    async def connect(self) -> AbstractConnection:
        """A connection that has passed its handshake, within `CONNECT_TIMEOUT`. Raises `BrokerUnavailable`."""


class Server:
    """One server."""

    def __init__(self, make: Callable[[], AbstractConnection], url: str, *, timeout: float = CONNECT_TIMEOUT) -> None:
        self.url = url
        self._make = make
        self._timeout = timeout

    async def connect(self) -> AbstractConnection:
        connection = await _opened(self._make(), self.url, self._timeout)
        await _let_in(connection, self.url)
        return connection


class Sentinels:
    """The master that sentinels name.

    A server that says it is a replica is not taken: a sentinel that was cut off may not know of a failover yet.
    """

    def __init__(self, pool: ConnectionPool, parts: SeveralHosts, url: str) -> None:
        self.url = url
        self._pool = pool
        self._sentinels = list(parts.hosts)
        self._service = parts.service
        self._options = _sentinel_options(pool, parts)

    async def connect(self) -> AbstractConnection:
        tried: set[Address] = set()

        async def by(sentinel: Address) -> AbstractConnection:
            master = await self._named_by(sentinel)
            if master in tried:
                raise BrokerUnavailable(self.url, f"{shown(sentinel)} names the same master")
            tried.add(master)
            connection = await _opened(_at(self._pool, master), self.url, TRY_TIMEOUT)
            role = await _asked(connection, self.url, "ROLE")
            if isinstance(role, list) and role[0] != b"master":
                await connection.disconnect(nowait=True)
                raise BrokerUnavailable(self.url, f"{shown(master)} is no master at the moment")
            return connection

        return await _first(self._sentinels, by, self.url)

    async def _named_by(self, sentinel: Address) -> Address:
        """The master, as one sentinel says. Raises `BrokerUnavailable`."""
        secrets = [self._options["password"]]
        client: Redis = Redis(host=sentinel[0], port=sentinel[1], **self._options)
        try:
            async with asyncio.timeout(TRY_TIMEOUT):
                masters = cast(dict[str, Any], await client.sentinel_masters())
        except ResponseError as error:
            reason = reason_of(error, secrets) + missing_right(error, "sentinel|masters")
            raise BrokerUnavailable(self.url, f"the sentinel at {shown(sentinel)} says: {reason}") from None
        except (OSError, RedisError) as error:
            raise BrokerUnavailable(
                self.url, f"the sentinel at {shown(sentinel)}: {reason_of(error, secrets)}"
            ) from None
        except (TypeError, ValueError, KeyError):  # redis-py could not take the answer apart
            raise BrokerUnavailable(self.url, f"{shown(sentinel)} does not answer as a sentinel does") from None
        finally:
            await client.aclose()
        state = masters.get(self._service)
        if state is None:
            known = ", ".join(sorted(masters)) or "nothing"
            reason = f"the sentinel at {shown(sentinel)} does not know {self._service!r}, but {known}"
            raise BrokerUnavailable(self.url, reason)
        if not state["is_master"] or state["is_sdown"] or state["is_odown"]:
            raise BrokerUnavailable(self.url, f"the sentinel at {shown(sentinel)} says that {self._service!r} is down")
        return str(state["ip"]), int(state["port"])


class Cluster:
    """A node of a cluster: the one that answered last, else the next.

    For channels that are not sharded any node will do, be it a replica: it passes on what is published to all others.
    """

    def __init__(self, pool: ConnectionPool, hosts: list[Address], url: str) -> None:
        self.url = url
        self.nodes: list[Address] = []
        """Those that are up, as the cluster said when it was asked last; their subscribers get what is published."""
        self._pool = pool
        self._hosts = hosts
        self._known = list(hosts)
        self._by_name = issubclass(pool.connection_class, SSLConnection)  # certificates are for names, as a rule

    async def connect(self) -> AbstractConnection:
        return await _first(self._known, self._join, self.url)

    def at(self, node: Address) -> Server:
        """One of the nodes."""
        return Server(lambda: _at(self._pool, node), f"{self.url} ({shown(node)})", timeout=TRY_TIMEOUT)

    async def _join(self, node: Address) -> AbstractConnection:
        connection = await _opened(_at(self._pool, node), self.url, TRY_TIMEOUT)
        listed = await _asked(connection, self.url, "CLUSTER", "NODES")
        if isinstance(listed, bytes):  # an ACL may forbid to ask: the hosts of the URL will do
            self.learn(listed)
        return connection

    def learn(self, listed: bytes) -> None:
        """Take in what CLUSTER NODES said."""
        self.nodes = []
        for line in _NODE.finditer(listed.decode("utf-8", "replace")):
            host = line["name"] if line["name"] and self._by_name else line["ip"]
            if host and not {"fail", "noaddr", "handshake"} & set(line["flags"].split(",")):
                self.nodes.append((host, int(line["port"])))
        for gone in set(self._known) - set(self._hosts) - set(self.nodes):
            self._known.remove(gone)
        self._known += [node for node in self.nodes if node not in self._known]


def addresses_at(url: str, timeout: float) -> Addresses:
    """Where a URL leads; a connection may take `timeout` seconds. Raises `ValueError` for what is no Redis URL."""
    try:
        scheme = scheme_of(url)
        if "+" not in scheme:
            check_options(url, scheme)
            pool = _pool_at(url, timeout)
            return Server(pool.make_connection, without_credentials(url))
        parts = several_hosts(url)
        check_options(url, scheme)
        pool = _pool_at(parts.template, timeout)
        if scheme.endswith("+sentinel"):
            return Sentinels(pool, parts, without_credentials(url))
        if pool.connection_kwargs.get("db"):
            raise URLFault("a cluster has the database 0 and no other")
        return Cluster(pool, parts.hosts, without_credentials(url))
    except (ValueError, TypeError, RedisError) as error:
        raise not_a_url(url, "a Redis URL", _fault(error)) from None


def connection_options(timeout: float) -> dict[str, Any]:
    """How redis-py is to connect; `timeout` in seconds."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": None,
        "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT),
        "health_check_interval": 0,
        "protocol": 2,
    }


def _pool_at(url: str, timeout: float) -> ConnectionPool:
    """What makes connections to one server. Raises `ValueError`, also for certificates that cannot be used."""
    pool = ConnectionPool.from_url(url, **connection_options(timeout))
    options = pool.connection_kwargs
    if issubclass(pool.connection_class, SSLConnection):
        if options.get("ssl_cert_reqs") not in (None, "none", "optional", "required"):
            raise URLFault("ssl_cert_reqs is none, optional or required")
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")  # redis-py 5 would not
    connection = pool.make_connection()  # type: ignore[no-untyped-call]  # connects to nothing, but refuses unknown options
    if isinstance(connection, SSLConnection):
        _check_certificates(connection, options)
    return pool


def _check_certificates(connection: SSLConnection, options: dict[str, Any]) -> None:
    """Raise `URLFault` for files that are not there or hold no certificate, which would be told once it connects."""
    for name in _FILES:
        if (file := options.get(name)) is not None:
            try:
                open(file, "rb").close()
            except OSError as error:
                raise URLFault(f"{name}={file}: {error.strerror}") from None
    try:
        connection.ssl_context.get()
    except ssl.SSLError as error:
        named = " ".join(f"{name}={options[name]}" for name in _FILES if name in options)
        raise URLFault(f"{named}: {(error.reason or str(error)).replace('_', ' ').lower()}") from None
    except (ValueError, TypeError):
        raise URLFault("its ssl_ options do not go together") from None


def _fault(error: Exception) -> str:
    """What is wrong with a URL, in redis-py's words where those repeat nothing of it."""
    found = None if isinstance(error, URLFault) else _HARMLESS.search(str(error))
    return found[0] if found else fault_of(error)


def _at(pool: ConnectionPool, address: Address) -> AbstractConnection:
    """A connection as the pool makes them, to another host; not opened yet."""
    options = {**pool.connection_kwargs, "host": address[0], "port": address[1]}
    return pool.connection_class(**options)


def _sentinel_options(pool: ConnectionPool, parts: SeveralHosts) -> dict[str, Any]:
    """How to connect to a sentinel: with credentials of its own, and with the certificates of the servers."""
    options = connection_options(TRY_TIMEOUT) | {"socket_timeout": TRY_TIMEOUT}
    if issubclass(pool.connection_class, SSLConnection):
        options |= {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
        options["ssl"] = True
    return options | {"username": parts.sentinel_username, "password": parts.sentinel_password}


async def _opened(connection: AbstractConnection, url: str, seconds: float) -> AbstractConnection:
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


async def _let_in(connection: AbstractConnection, url: str) -> None:
    """Redis 7.0 lets through the handshake who has to give a password. Raises `BrokerUnavailable`."""
    try:
        async with asyncio.timeout(TRY_TIMEOUT):
            await connection.send_command("PING")
            await connection.read_response()
    except ResponseError:
        return  # MISCONF and BUSY, say, are signs of life, and keep no message out; NOAUTH is none of these
    except BaseException as error:
        await _refuse(connection, url, error)


async def _asked(connection: AbstractConnection, url: str, *command: str) -> Any:
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
    """What is not to be shown: also the path of a socket, in which a password may be that was not escaped."""
    return [getattr(connection, name, None) for name in ("password", "path")]


async def _first(
    known: list[Address], attempt: Callable[[Address], Awaitable[AbstractConnection]], url: str
) -> AbstractConnection:
    """The first connection that an address gives; those that give none go to the end. Raises `BrokerUnavailable`."""
    reasons: dict[str, None] = {}
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            for address in list(known):
                try:
                    return await attempt(address)
                except BrokerUnavailable as error:
                    reasons[error.reason] = None
                    if address in known:
                        known.remove(address)
                        known.append(address)
    except TimeoutError:
        reasons["no answer in time"] = None
    raise BrokerUnavailable(url, "; ".join(reasons))
