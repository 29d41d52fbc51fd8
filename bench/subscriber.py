"""A redis-py subscriber as a program of its own: says that it is ready, counts, and says that it is done.

    python -m bench.subscriber PORT PATTERN COUNT

It is redis-py's blocking client, which takes nearly twice as many a second as its asyncio client: what is
measured should be who publishes.
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
    """The program, started; `async with` returns once it is subscribed."""

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
        """Return once it has received everything."""
        await self._line("done")

    async def _line(self, wanted: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(120):
            line = await self._process.stdout.readline()
        if line.decode().strip() != wanted:
            raise RuntimeError(f"the subscriber ended before it was {wanted}")


if __name__ == "__main__":
    _drain(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
