"""Endpoint of sentinels: the master that they name.

In a failover the sentinels learn of the new master one after the other, and the old one may answer as a master for
some seconds. So all sentinels are asked, and the answer with the highest epoch counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple, cast

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from .error_text import acl_remedy, error_text
from .monitor import Superseded
from .server import TRY_TIMEOUT, address_of, ask, at, connection_options, open_connection
from .url import Address, SeveralHosts, shown


class Sentinels:
    """Endpoint that asks sentinels for the master. A server that reports to be a replica is refused."""

    def __init__(self, pool: ConnectionPool, parts: SeveralHosts, url: str) -> None:
        self.url = url
        self.hosts = list(parts.hosts)
        """Endpoint of sentinels: those of the URL, then others that these named when they were asked last."""
        self._pool = pool
        self._parts = parts

    async def connect(self) -> AbstractConnection:
        check = self.check()
        try:
            answers, reasons = await check.ask()
        finally:
            await check.aclose()
        for master in dict.fromkeys(answer.master for answer in answers if answer.epoch == answers[0].epoch):
            try:
                connection = await open_connection(at(self._pool, master), self.url, TRY_TIMEOUT)
                role = await ask(connection, self.url, "ROLE")
            except BrokerUnavailable as error:
                reasons[error.reason] = None
                continue
            if not isinstance(role, list) or role[:1] == [b"master"]:  # an ACL may forbid ROLE
                return connection
            await connection.disconnect(nowait=True)
            reasons[f"{shown(master)} is no master at the moment"] = None
        raise BrokerUnavailable(self.url, "; ".join(reasons))

    def check(self) -> SentinelCheck:
        return SentinelCheck(self, self._pool, self._parts)


class Answer(NamedTuple):
    """Answer of one sentinel."""

    epoch: int
    """Number of the configuration; a failover increases it."""
    master: Address
    others: list[Address]
    """Other sentinels that it knows and does not consider down."""


class SentinelCheck:
    """Check of a master, with connections to all sentinels."""

    def __init__(self, sentinels: Sentinels, pool: ConnectionPool, parts: SeveralHosts) -> None:
        self._sentinels = sentinels
        self._url = sentinels.url
        self._pool = pool
        self._parts = parts
        self._options = _sentinel_options(pool, parts)
        self._clients: dict[Address, Redis] = {}

    async def ask(self) -> tuple[list[Answer], dict[str, None]]:
        """Ask every sentinel. Return the answers, highest epoch first, and the reasons of those without an answer."""
        found = await asyncio.gather(*map(self._named_by, self._sentinels.hosts), return_exceptions=True)
        reasons: dict[str, None] = {}
        answers: list[Answer] = []
        for one in found:
            if isinstance(one, Answer):
                answers.append(one)
            elif isinstance(one, BrokerUnavailable):
                reasons[one.reason] = None
            else:
                raise one
        others = (other for answer in answers for other in answer.others)
        self._sentinels.hosts = list(dict.fromkeys([*self._parts.hosts, *others]))
        return sorted(answers, key=lambda answer: -answer.epoch), reasons

    async def confirm(self, connection: AbstractConnection) -> None:
        answers, reasons = await self.ask()
        if not answers:
            raise BrokerUnavailable(self._url, "; ".join(reasons))
        named = [answer.master for answer in answers if answer.epoch == answers[0].epoch]
        if address_of(connection) not in named:
            raise Superseded(f"the sentinels name {shown(named[0])} as the master in place of {_shown(connection)}")

    async def serves(self, connection: AbstractConnection) -> bool:
        """Return False if the server reports to be a replica.

        A sentinel that makes it one closes its connections as well, so no answer counts as True.
        """
        try:
            fresh = await open_connection(at(self._pool, address_of(connection)), self._url, TRY_TIMEOUT)
            role = await ask(fresh, self._url, "ROLE")
        except BrokerUnavailable:
            return True
        await fresh.disconnect(nowait=True)
        return not isinstance(role, list) or role[:1] == [b"master"]

    async def aclose(self) -> None:
        while self._clients:
            await self._clients.popitem()[1].aclose()

    async def _named_by(self, sentinel: Address) -> Answer:
        """Ask one sentinel for the master and for other sentinels. Raises `BrokerUnavailable`."""
        secrets = [self._options["password"]]
        client = self._clients.pop(sentinel, None) or Redis(host=sentinel[0], port=sentinel[1], **self._options)
        whole = False
        try:
            async with time_limit(TRY_TIMEOUT):
                masters = cast(dict[str, Any], await client.sentinel_masters())
                state = masters.get(self._parts.service)
                promoted: Any = None
                others: list[Address] = []
                if state is not None:
                    asks: Any = client.execute_command
                    with contextlib.suppress(NoPermissionError):
                        # In a failover this names the new master from its promotion on, earlier than `masters`.
                        promoted = await asks("SENTINEL GET-MASTER-ADDR-BY-NAME", self._parts.service)
                        listed = await asks("SENTINEL SENTINELS", self._parts.service)
                        others = [(str(one["ip"]), int(one["port"])) for one in listed if not one["is_sdown"]]
                    master = str(state["ip"]), int(state["port"])
                    epoch = int(state["config-epoch"])
                    down = not state["is_master"] or state["is_sdown"] or state["is_odown"]
                    if promoted is not None:
                        promoted = _decoded(promoted)
            whole = True
        except ResponseError as error:
            reason = error_text(error, secrets) + acl_remedy(error, "sentinel|masters")
            raise BrokerUnavailable(self._url, f"the sentinel at {shown(sentinel)} says: {reason}") from None
        except (OSError, RedisError) as error:
            raise BrokerUnavailable(
                self._url, f"the sentinel at {shown(sentinel)}: {error_text(error, secrets)}"
            ) from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):  # redis-py could not parse the answer
            raise BrokerUnavailable(self._url, f"{shown(sentinel)} does not answer as a sentinel does") from None
        finally:
            if whole:
                self._clients[sentinel] = client
            else:
                await client.aclose()
        if state is None:
            known = ", ".join(sorted(masters)) or "nothing"
            reason = f"the sentinel at {shown(sentinel)} does not know {self._parts.service!r}, but {known}"
            raise BrokerUnavailable(self._url, reason)
        if promoted is not None and promoted != master:
            return Answer(epoch, promoted, others)
        if down:
            raise BrokerUnavailable(
                self._url, f"the sentinel at {shown(sentinel)} says that {self._parts.service!r} is down"
            )
        return Answer(epoch, master, others)


def _decoded(address: tuple[bytes | str, int]) -> Address:
    host, port = address
    return host.decode() if isinstance(host, bytes) else host, int(port)


def _shown(connection: AbstractConnection) -> str:
    return shown(address_of(connection))


def _sentinel_options(pool: ConnectionPool, parts: SeveralHosts) -> dict[str, Any]:
    """Return the options of a connection to a sentinel: its own credentials, and the certificates of the servers."""
    options = connection_options(TRY_TIMEOUT) | {"socket_timeout": TRY_TIMEOUT}
    if issubclass(pool.connection_class, SSLConnection):
        options |= {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
        options["ssl"] = True
    return options | {"username": parts.sentinel_username, "password": parts.sentinel_password}
