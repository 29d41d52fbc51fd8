"""The master that sentinels name.

In a failover the sentinels learn of the new master one after the other, and the old one may answer as a master for
some seconds more. So all of them are asked, and the answer with the highest epoch counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple, cast

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ...errors import BrokerUnavailable
from .connecting import TRY_TIMEOUT, address_of, asked, at, connection_options, opened
from .reasons import missing_right, reason_of
from .url import Address, SeveralHosts, shown
from .watch import Superseded


class Sentinels:
    """Sentinels, which name the master to connect to. A server that says it is a replica is not connected to."""

    def __init__(self, pool: ConnectionPool, parts: SeveralHosts, url: str) -> None:
        self.url = url
        self.hosts = list(parts.hosts)
        """Addresses of sentinels: those of the URL, then others that these named when they were asked last."""
        self._pool = pool
        self._parts = parts

    async def connect(self) -> AbstractConnection:
        watch = self.watch()
        try:
            answers, reasons = await watch.ask()
        finally:
            await watch.aclose()
        for master in dict.fromkeys(answer.master for answer in answers if answer.epoch == answers[0].epoch):
            try:
                connection = await opened(at(self._pool, master), self.url, TRY_TIMEOUT)
                role = await asked(connection, self.url, "ROLE")
            except BrokerUnavailable as error:
                reasons[error.reason] = None
                continue
            if not isinstance(role, list) or role[0] == b"master":  # an ACL may forbid the question
                return connection
            await connection.disconnect(nowait=True)
            reasons[f"{shown(master)} is no master at the moment"] = None
        raise BrokerUnavailable(self.url, "; ".join(reasons))

    def watch(self) -> SentinelWatch:
        return SentinelWatch(self, self._pool, self._parts)


class Answer(NamedTuple):
    """The master, as one sentinel names it."""

    epoch: int
    """Number of the configuration; each failover makes a higher one."""
    master: Address
    others: list[Address]
    """Sentinels that it knows, and does not call down."""


class SentinelWatch:
    """Connections to all sentinels, for questions."""

    def __init__(self, sentinels: Sentinels, pool: ConnectionPool, parts: SeveralHosts) -> None:
        self._sentinels = sentinels
        self._url = sentinels.url
        self._pool = pool
        self._parts = parts
        self._options = _sentinel_options(pool, parts)
        self._clients: dict[Address, Redis] = {}

    async def ask(self) -> tuple[list[Answer], dict[str, None]]:
        """Ask every sentinel. Return the answers, highest epoch first, and why others gave none."""
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
        """Return False if the server says that it is a replica.

        A sentinel that makes it one ends its connections as well. So it is heard while it does not answer.
        """
        try:
            fresh = await opened(at(self._pool, address_of(connection)), self._url, TRY_TIMEOUT)
            role = await asked(fresh, self._url, "ROLE")
        except BrokerUnavailable:
            return True
        await fresh.disconnect(nowait=True)
        return not isinstance(role, list) or role[0] == b"master"

    async def aclose(self) -> None:
        while self._clients:
            await self._clients.popitem()[1].aclose()

    async def _named_by(self, sentinel: Address) -> Answer:
        """Ask one sentinel for the master, and for other sentinels. Raises `BrokerUnavailable`."""
        secrets = [self._options["password"]]
        client = self._clients.pop(sentinel, None) or Redis(host=sentinel[0], port=sentinel[1], **self._options)
        whole = False
        try:
            async with asyncio.timeout(TRY_TIMEOUT):
                masters = cast(dict[str, Any], await client.sentinel_masters())
                state = masters.get(self._parts.service)
                promoted: Any = None
                others: list[Address] = []
                if state is not None:
                    asks: Any = client.execute_command
                    with contextlib.suppress(NoPermissionError):
                        # During a failover this is the new master from its promotion on, before `masters` has it.
                        promoted = await asks("SENTINEL GET-MASTER-ADDR-BY-NAME", self._parts.service)
                        listed = await asks("SENTINEL SENTINELS", self._parts.service)
                        others = [(str(one["ip"]), int(one["port"])) for one in listed if not one["is_sdown"]]
            whole = True
        except ResponseError as error:
            reason = reason_of(error, secrets) + missing_right(error, "sentinel|masters")
            raise BrokerUnavailable(self._url, f"the sentinel at {shown(sentinel)} says: {reason}") from None
        except (OSError, RedisError) as error:
            raise BrokerUnavailable(
                self._url, f"the sentinel at {shown(sentinel)}: {reason_of(error, secrets)}"
            ) from None
        except (TypeError, ValueError, KeyError, AttributeError):  # redis-py could not take the answer apart
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
        master = str(state["ip"]), int(state["port"])
        if promoted is not None and _decoded(promoted) != master:
            return Answer(int(state["config-epoch"]), _decoded(promoted), others)
        if not state["is_master"] or state["is_sdown"] or state["is_odown"]:
            raise BrokerUnavailable(
                self._url, f"the sentinel at {shown(sentinel)} says that {self._parts.service!r} is down"
            )
        return Answer(int(state["config-epoch"]), master, others)


def _decoded(address: tuple[bytes | str, int]) -> Address:
    host, port = address
    return host.decode() if isinstance(host, bytes) else host, int(port)


def _shown(connection: AbstractConnection) -> str:
    return shown(address_of(connection))


def _sentinel_options(pool: ConnectionPool, parts: SeveralHosts) -> dict[str, Any]:
    """How to connect to a sentinel: with credentials of its own, and with the certificates of the servers."""
    options = connection_options(TRY_TIMEOUT) | {"socket_timeout": TRY_TIMEOUT}
    if issubclass(pool.connection_class, SSLConnection):
        options |= {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
        options["ssl"] = True
    return options | {"username": parts.sentinel_username, "password": parts.sentinel_password}
