"""Client of the control socket of a replay (`docs/replay.md`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from ...errors import StoreError

LONGEST_ANSWER = 1 << 20
"""Maximum bytes of a line: a status with many live agents is long."""


async def ask(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request over a connection of its own, and return the answer.

    So another request can end one that waits, such as `step`. Raises `StoreError` if no replay listens or answers.
    """
    try:
        async with _connected(path) as (reader, writer):
            return await _asked(reader, writer, request)
    except (OSError, ValueError):
        raise StoreError("the replay does not answer: it has ended, or its socket is another's") from None


async def listens(path: str) -> bool:
    """Return whether something listens on the socket."""
    try:
        async with _connected(path):
            return True
    except OSError:
        return False


async def statuses(path: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the status of a replay whenever it has changed, at most ten a second, up to its end.

    Raises `OSError` if no replay listens.
    """
    async with _connected(path) as (reader, writer):
        try:
            status = await _asked(reader, writer, {"verb": "subscribe"})
            while True:
                yield {name: value for name, value in status.items() if name not in ("ok", "event")}
                line = await reader.readline()
                if not line:
                    return
                status = json.loads(line)
        except ValueError:  # not JSON, or too long: something else listens there
            return


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: dict[str, Any]) -> dict[str, Any]:
    writer.write(json.dumps(request).encode() + b"\n")
    await writer.drain()
    answer = json.loads(await reader.readline())
    if not isinstance(answer, dict):
        raise ValueError("an answer is an object")
    return answer


@contextlib.asynccontextmanager
async def _connected(path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_ANSWER)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
