"""Endpoint of a cluster: a node that answers and is a member.

A removed node continues to answer but gets no messages from the others, so the others are asked about it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection

from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from .monitor import Superseded
from .server import CONNECT_TIMEOUT, TRY_TIMEOUT, Server, address_of, ask, at, open_connection
from .url import Address, shown

MOST_NODES = 1000
"""Maximum number of nodes that are used; Redis recommends no more for a cluster."""
WITNESSES = 5
"""Maximum number of other nodes that are asked about one."""
_NODE = re.compile(
    r"^(?P<id>\S+) (?P<ip>[^ @,]*):(?P<port>[0-9]{1,5})(?:@\d+)?(?:,(?P<name>[^ ,]*)[^ ]*)? (?P<flags>\S+)"
    r"(?: \S+){4} (?P<link>\S+)(?P<slots>.*)$",
    re.M,
)
"""A line of CLUSTER NODES. Between the flags and the link: the master, ping sent, pong received, epoch."""


class Member(NamedTuple):
    """State of a node, as another node reports it."""

    ip: str
    name: str | None
    port: int
    flags: frozenset[str]
    linked: bool
    """False without a connection to it at the moment; messages to it are then dropped."""

    @property
    def failed(self) -> bool:
        """True for a node that is reported as failed, is not yet a member, or no longer one."""
        return not self.flags.isdisjoint(("fail", "noaddr", "handshake"))


class View:
    """State of a cluster, as one of its nodes reports it: the answer to CLUSTER NODES."""

    def __init__(self, listed: bytes) -> None:
        self.members: dict[str, Member] = {}
        self.own = ""
        """Id of the node that was asked."""
        self.has_slots = False
        """False if no node has slots, which a node reports after a reset."""
        for line in _NODE.finditer(listed.decode("utf-8", "replace")):
            flags = frozenset(line["flags"].split(","))
            linked = line["link"] == "connected"
            self.members[line["id"]] = Member(line["ip"], line["name"], int(line["port"]), flags, linked)
            self.has_slots = self.has_slots or bool(line["slots"].strip())
            if "myself" in flags:
                self.own = line["id"]


class Cluster:
    """Endpoint that connects to the node that answered last, else to the next.

    Any node serves channels that are not sharded, even a replica: it forwards published messages to all others.
    """

    def __init__(self, pool: ConnectionPool, hosts: list[Address], url: str) -> None:
        self.url = url
        self.nodes: list[Address] = []
        """Nodes that were up in the last answer. Their subscribers get published messages."""
        self.ids: dict[Address, str] = {}
        """Ids of the nodes that connections were made to."""
        self._pool = pool
        self._hosts = hosts
        self._known = list(hosts)
        self._by_name = issubclass(
            pool.connection_class, SSLConnection
        )  # certificates usually name hosts, not addresses

    async def connect(self) -> AbstractConnection:
        return await _first(self._known, self._join, self.url)

    def check(self) -> ClusterCheck:
        return ClusterCheck(self)

    def at(self, node: Address) -> Server:
        """Return the endpoint of one node."""
        return Server(lambda: at(self._pool, node), f"{self.url} ({shown(node)})", timeout=TRY_TIMEOUT)

    def others(self, node: Address, view: View | None = None) -> list[Address]:
        """Return nodes to ask about one: members of `view` or of the last answer, else hosts of the URL.

        A host of the URL may have left the cluster, so it is asked only if no member is known.
        """
        members = [one for one in (self.nodes if view is None else self._healthy(view)) if one != node]
        return (members or [one for one in dict.fromkeys([*self._hosts, *self._known]) if one != node])[:WITNESSES]

    async def node(self, node: Address) -> AbstractConnection:
        """Connect to a node, which need not be a member. Raises `BrokerUnavailable`."""
        return await open_connection(at(self._pool, node), self.url, TRY_TIMEOUT)

    def learn(self, listed: bytes | View) -> None:
        """Keep the nodes of an answer to CLUSTER NODES."""
        self.nodes = self._healthy(listed if isinstance(listed, View) else View(listed))
        there = {*self._hosts, *self.nodes}
        self._known[:] = dict.fromkeys([*filter(there.__contains__, self._known), *self.nodes])

    def _healthy(self, view: View) -> list[Address]:
        hosts = [(one.name if one.name and self._by_name else one.ip, one) for one in view.members.values()]
        return [(host, one.port) for host, one in hosts if host and not one.failed][:MOST_NODES]

    async def _join(self, node: Address) -> AbstractConnection:
        connection = await self.node(node)
        listed = await ask(connection, self.url, "CLUSTER", "NODES")
        if not isinstance(listed, bytes):  # if an ACL forbids the command, the hosts of the URL are used
            return connection
        view = View(listed)
        self.ids[node] = view.own
        check = self.check()
        try:
            await check.confirm(connection, view)
        except Superseded as error:
            await connection.disconnect(nowait=True)
            raise BrokerUnavailable(self.url, str(error)) from None
        except BrokerUnavailable:
            self.learn(view)  # nobody else answers
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await check.aclose()
        return connection


class ClusterCheck:
    """Check of a node, with connections to other nodes of its cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._connections: dict[Address, AbstractConnection] = {}

    async def confirm(self, connection: AbstractConnection, view: View | None = None) -> None:
        node = address_of(connection)
        own = self._cluster.ids.get(node)
        if not own:
            return  # an ACL forbids CLUSTER NODES
        views = await asyncio.gather(*map(self._view, self._cluster.others(node, view)))
        told = [view for view in views if view is not None and view.own != own and view.has_slots]
        states = [view.members.get(own) for view in told]
        good = [state is not None and state.linked and not state.failed for state in states]
        if told and not any(good):
            if not any(states):
                raise Superseded(f"{shown(node)} has left its cluster")
            failed = any(state is not None and state.failed for state in states)
            what = "is reported as failed by the other nodes" if failed else "has no connection to the other nodes"
            raise Superseded(f"{shown(node)} {what} of its cluster")
        if not all(good):
            raise BrokerUnavailable(self._cluster.url, f"the nodes do not agree about {shown(node)}")
        if told:
            self._cluster.learn(told[0])
            return
        alone = await self._view(node)  # the only node, or the only one in reach
        if alone is None or not alone.has_slots:
            raise BrokerUnavailable(self._cluster.url, "no other node answers")
        self._cluster.learn(alone)

    async def serves(self, connection: AbstractConnection) -> bool:
        """Return False: if the node joined again, each message would come twice."""
        return False

    async def aclose(self) -> None:
        while self._connections:
            await self._connections.popitem()[1].disconnect(nowait=True)

    async def _view(self, node: Address) -> View | None:
        """Return the cluster as one node reports it; None without an answer."""
        try:
            connection = self._connections.pop(node, None) or await self._cluster.node(node)
            listed = await ask(connection, self._cluster.url, "CLUSTER", "NODES")
        except BrokerUnavailable:
            return None
        self._connections[node] = connection
        return View(listed) if isinstance(listed, bytes) else None


async def _first(
    known: list[Address], attempt: Callable[[Address], Awaitable[AbstractConnection]], url: str
) -> AbstractConnection:
    """Return the first connection that succeeds; addresses that fail go to the end. Raises `BrokerUnavailable`."""
    reasons: dict[str, None] = {}
    try:
        async with time_limit(CONNECT_TIMEOUT):
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
