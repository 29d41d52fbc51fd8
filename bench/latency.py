"""A proxy that delays a connection: `python -m bench.latency HOST PORT MILLISECONDS` prints its port.

It runs as a separate process, so that it does not slow the measured ones. It ends when its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

from .peers import ROOT


class _Delay(asyncio.Protocol):
    """Forwards data to its peer, in order, after a delay."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.peer: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, self._forward, data)
        else:
            self._forward(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.peer is not None:
            self.peer.close()

    def _forward(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.write(data)


async def _serve(host: str, port: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()

    async def join(near: _Delay) -> None:
        far, protocol = await loop.create_connection(lambda: _Delay(0), host, port)
        near.peer, protocol.peer = far, near.transport
        assert near.transport is not None
        near.transport.resume_reading()

    class Near(_Delay):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert self.transport is not None
            self.transport.pause_reading()
            self.joining = loop.create_task(join(self))

    server = await loop.create_server(lambda: Near(seconds), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def delayed(host: str, port: int, milliseconds: float) -> Iterator[int]:
    """Run a proxy that adds this delay to every round trip, and yield its port."""
    command = [sys.executable, "-m", "bench.latency", host, str(port), str(milliseconds)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000))
