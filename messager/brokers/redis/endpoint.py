"""Endpoint of a Redis URL: one server, the master that sentinels name, or a node of a cluster.

redis-py makes the connections: sockets, TLS and authentication are its work.
"""

from __future__ import annotations

import re
import ssl
from typing import Any, Protocol

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import RedisError

from ...credentials import without_credentials
from ..urls import URLFault, fault_of, not_a_url
from .cluster import Cluster
from .monitor import ServerCheck
from .sentinels import Sentinels
from .server import Server, connection_options
from .url import check_options, scheme_of, several_hosts

_HARMLESS = re.compile(r"Invalid value for '\w+'|unexpected keyword argument '\w+'|Port out of range|Invalid IPv6 URL")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Endpoint(Protocol):
    """Finds the server to connect to, anew for each connection."""

    url: str
    """URL without credentials."""

    async def connect(self) -> AbstractConnection:
        """Return a connection after its handshake, within `CONNECT_TIMEOUT`. Raises `BrokerUnavailable`."""

    def check(self) -> ServerCheck | None:
        """Return a check that a connection still leads to the right server; None if there is only one server."""


def endpoint_at(url: str, timeout: float) -> Endpoint:
    """Return the endpoint of a URL; a connection may take `timeout` seconds. Raises `ValueError` for any other text."""
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


def _pool_at(url: str, timeout: float) -> ConnectionPool:
    """Return a pool, which makes connections to one server. Raises `ValueError`, also for unusable certificates."""
    pool = ConnectionPool.from_url(url, **connection_options(timeout))
    options = pool.connection_kwargs
    if issubclass(pool.connection_class, SSLConnection):
        if options.get("ssl_cert_reqs") not in (None, "none", "optional", "required"):
            raise URLFault("ssl_cert_reqs is none, optional or required")
        options.setdefault(
            "ssl_check_hostname", options.get("ssl_cert_reqs") != "none"
        )  # the default of redis-py 5 is False
    connection = pool.make_connection()  # type: ignore[no-untyped-call]  # does not connect, but refuses unknown options
    if isinstance(connection, SSLConnection):
        _check_certificates(connection, options)
    return pool


def _check_certificates(connection: SSLConnection, options: dict[str, Any]) -> None:
    """Raise `URLFault` for files that are missing or hold no certificate, before the first connection."""
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
    """Return what is wrong with a URL: the text of redis-py if it repeats no part of the URL."""
    found = None if isinstance(error, URLFault) else _HARMLESS.search(str(error))
    return found[0] if found else fault_of(error)
