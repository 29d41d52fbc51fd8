"""Writes that finish even if their caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

T = TypeVar("T")


async def finish_then_cancel(writing: asyncio.Future[T]) -> T:
    """Return the result of a write. If the caller is cancelled, raise that only after the write has ended."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        while not writing.done():  # the caller must find the write done or failed, not in progress
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([writing])
        if not writing.cancelled():
            writing.exception()
        raise
