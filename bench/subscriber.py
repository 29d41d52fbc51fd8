"""A redis-py subscriber as a separate program: prints a line when it is ready, counts, and prints a line at the end.

    python -m bench.subscriber PORT PATTERN COUNT

It uses redis-py's blocking client, which receives nearly twice as many messages per second as its asyncio client, so
that the publisher is the bottleneck.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import TracebackType

from redis import Redis


def _drain(port: int, pattern: str, count: int) -> None:
    with Redis(port=port) as client, client.pubsub() as pubsub:
        pubsub.psubscribe(pattern)
        for message in pubsub.listen():
            if message["type"] == "psubscribe":
                print("ready", flush=True)
            elif message["type"] == "pmessage":
                count -= 1
                if not count:
                    break
        print("done", flush=True)


class Subscriber:
    """The running program; `async with` returns when it is subscribed."""

    def __init__(self, port: int, pattern: str, count: int) -> None:
        self._command = [sys.executable, "-m", "bench.subscriber", str(port), pattern, str(count)]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Subscriber:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=subprocess.PIPE)
        await self._line("ready")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if error is not None:
            self._process.kill()
        await self._process.wait()

    async def done(self) -> None:
        """Return when it has received all messages."""
        await self._line("done")

    async def _line(self, wanted: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(120):
            line = await self._process.stdout.readline()
        if line.decode().strip() != wanted:
            raise RuntimeError(f"the subscriber ended before it was {wanted}")


if __name__ == "__main__":
    _drain(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
