"""What may not be left half way: a write is over, one way or the other, before whoever waits for it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

T = TypeVar("T")


async def finish_then_cancel(writing: asyncio.Future[T]) -> T:
    """Its result. Where the caller is cancelled, that is raised once the writing has ended by itself."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        while not writing.done():  # what follows must find it written, or not, and nobody else writing
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([writing])
        if not writing.cancelled():
            writing.exception()
        raise
