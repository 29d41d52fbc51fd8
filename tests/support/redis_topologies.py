"""Redis with sentinels and as a cluster, on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from messager.testing import RedisServer, find_redis_server, free_port
from messager.testing.server_folder import ServerFolder
from tests.support import until

SLOTS = 16384
FOREVER = 60.0
"""Time limit for a failover or the creation of a cluster, s."""


async def ask(port: int, *command: str | int, **options: Any) -> Any:
    """Return the answer of the server on a port to one command."""
    client: Redis = Redis(port=port, **options)
    try:
        return await client.execute_command(*command)
    finally:
        await client.aclose()


async def is_master(port: int) -> bool:
    """Return True if the server reports this role. Sentinels cut its connections when they promote it."""
    try:
        return bool((await ask(port, "ROLE"))[0] == b"master")
    except RedisError:
        return False


class SentinelServer:
    """Sentinel of a master. The quorum is one more than half of `others`, the number of the other sentinels."""

    def __init__(self, master: int, *settings: str, service: str = "mymaster", others: int = 0) -> None:
        self.port = free_port()
        self._folder = ServerFolder("sentinel")
        self._file = self._folder.path / "sentinel.conf"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self._folder.path}",
            f"sentinel monitor {service} 127.0.0.1 {master} {1 + others // 2}",
            f"sentinel down-after-milliseconds {service} 300",
            f"sentinel failover-timeout {service} 2000",
            *settings,
        ]
        self._file.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        command = [find_redis_server(), str(self._file), "--sentinel"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._folder.runs(self._process)
        await until(self._listens)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(10)
            self._folder.runs(None)

    def remove(self) -> None:
        self.stop()
        self._folder.remove()


class Watched:
    """Master, its replica, and their sentinels."""

    def __init__(self, master: RedisServer, replica: RedisServer, sentinels: list[SentinelServer]) -> None:
        self.master = master
        self.replica = replica
        self.sentinels = sentinels
        self.sentinel = sentinels[0]

    def url(self, *before: int, service: str = "mymaster") -> str:
        """Return the URL of the sentinels, with the ports `before` in front."""
        ports = (*before, *(sentinel.port for sentinel in self.sentinels))
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/{service}"

    async def named(self) -> int:
        """Return the port of the master according to the first sentinel."""
        return int((await ask(self.sentinel.port, "SENTINEL GET-MASTER-ADDR-BY-NAME", "mymaster"))[1])

    async def can_fail_over(self) -> bool:
        """Return True if each sentinel knows the others and a replica that can be promoted."""
        for sentinel in self.sentinels:
            client: Redis = Redis(port=sentinel.port)
            state: Any = (await client.sentinel_masters())["mymaster"]
            replicas: Any = await client.sentinel_slaves("mymaster")
            await client.aclose()
            if state["num-other-sentinels"] != len(self.sentinels) - 1 or "failover" in state["flags"]:
                return False
            if [(one["is_disconnected"], one["master-link-status"]) for one in replicas] != [(False, "ok")]:
                return False
        return True


@contextlib.asynccontextmanager
async def watched(sentinels: int = 1) -> AsyncIterator[Watched]:
    async with contextlib.AsyncExitStack() as stack:
        quick = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        master = RedisServer(*quick)
        stack.callback(master.remove)
        master.start()
        replica = RedisServer(*quick, "--replicaof", "127.0.0.1", str(master.port))
        stack.callback(replica.remove)
        replica.start()

        async def linked() -> bool:
            return (await ask(replica.port, "ROLE"))[3] == b"connected"

        await until(linked, FOREVER)
        watching = [SentinelServer(master.port, others=sentinels - 1) for _ in range(sentinels)]
        for sentinel in watching:
            stack.callback(sentinel.remove)
            await sentinel.start()
        there = Watched(master, replica, watching)
        await until(there.can_fail_over, FOREVER)
        yield there


def _cluster_port_is_free(port: int) -> bool:
    """Return True if the port of the cluster bus, 10000 above, is free."""
    if port + 10_000 > 65_535:
        return False
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.bind(("127.0.0.1", port + 10_000))
        return True
    return False


def _node(node_timeout: int) -> RedisServer:
    while True:
        node = RedisServer("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout))
        if _cluster_port_is_free(node.port):
            return node
        node.remove()


@contextlib.contextmanager
def _nodes(number: int, node_timeout: int) -> Iterator[list[RedisServer]]:
    nodes: list[RedisServer] = []
    try:
        for _ in range(number):
            nodes.append(_node(node_timeout))
            nodes[-1].start()
        yield nodes
    finally:
        for node in nodes:
            node.remove()


@contextlib.asynccontextmanager
async def cluster(number: int = 3, *, node_timeout: int = 15_000) -> AsyncIterator[list[RedisServer]]:
    """Context with masters that form a cluster and share the slots.

    A node that does not answer for half of `node_timeout` (ms) is reconnected to; messages in flight are lost then.
    """
    with _nodes(number, node_timeout) as nodes:
        share = SLOTS // number
        for at, node in enumerate(nodes):
            last = SLOTS if at == number - 1 else (at + 1) * share
            await ask(node.port, "CLUSTER", "ADDSLOTS", *range(at * share, last))
            await ask(node.port, "CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        for node in nodes[1:]:
            await ask(nodes[0].port, "CLUSTER", "MEET", "127.0.0.1", node.port)

        async def whole() -> bool:
            infos = await asyncio.gather(*(ask(node.port, "CLUSTER", "INFO") for node in nodes))
            listed = await asyncio.gather(*(ask(node.port, "CLUSTER", "NODES") for node in nodes))
            well = all(b"cluster_state:ok" in info for info in infos)
            return well and all(one.count(b" connected") == number for one in listed)

        await until(whole, FOREVER)
        yield nodes


def cluster_url(*nodes: RedisServer) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
