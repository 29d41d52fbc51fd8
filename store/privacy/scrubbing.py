"""Scrubbing: rewrite a store after a redaction, so that free pages and the write-ahead log hold no redacted data."""

from __future__ import annotations

from ..errors import ScrubUnfinished
from ..log.event_log import EventLog


async def scrub(log: EventLog) -> None:
    """Rewrite the store. Raises `ScrubUnfinished`."""
    reason = await log.database.rewrite()
    if reason is not None:
        raise ScrubUnfinished(log.location, reason)


async def finish_scrub(log: EventLog) -> bool:
    """Rewrite the store if a redaction was interrupted before its rewrite; return whether it was.

    Raises `ScrubUnfinished`.
    """
    if not await log.database.rewrite_wanted():
        return False
    await scrub(log)
    return True
