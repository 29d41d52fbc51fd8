"""The messages of an experiment, each once, in replay order. `message_rule` decides which events they are.

A redacted message does not count: there is nothing to publish, and a reception does not replace a redacted sending.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from ..experiments.records import Experiment
from .decisions import Decisions, decisions
from .event import Event
from .event_log import EventLog
from .last_of_each import last_of_each
from .reading import count, pages
from .redaction_records import redactions_of
from .selection import Selection
from .span import Span

ON_THE_WIRE = {"sent", "received", "blocked", "failed"}
"""Kinds of event that hold a message."""


async def message_pages(
    log: EventLog,
    of: Experiment,
    chosen: Selection,
    span: Span,
    *,
    rule: Decisions | None = None,
    redacted: bool = False,
    brief: bool = False,
    backward: bool = False,
) -> AsyncGenerator[list[Event], None]:
    """Yield the messages of an experiment in replay order, or with `backward` from the last to the first.

    With `redacted`, also redacted ones; with `brief`, only with the fields that a comparison needs
    (`event_rows.columns`). `rule` is the result of `decisions` for `chosen.kinds`, made if not given. `span.limit`
    counts messages.
    """
    rule = rule or await decisions(log, of, chosen.kinds)
    left = span.limit
    if left == 0:
        return
    async with aclosing(_backward(rule, span) if backward else rule.parts(span)) as parts:
        async for part in parts:
            wanted = chosen.of_kinds(rule.needed)
            wanted = wanted if redacted else wanted.without_redacted()
            every = "received" not in rule.needed and not rule.retracted
            part = replace(part, limit=left if every else None)
            reading = pages(log.database, of, wanted, part, brief=brief, backward=backward)
            async with aclosing(reading):
                async for page in reading:
                    if not every:
                        page = [entry for entry in page if rule.takes(entry)][:left]
                    left = None if left is None else left - len(page)
                    if page:
                        yield page
                    if left == 0:
                        return


async def _backward(rule: Decisions, span: Span) -> AsyncGenerator[Span, None]:
    await rule.reach(None if span.end is None else span.end.ts)
    yield span


async def last_messages(log: EventLog, of: Experiment, chosen: Selection, span: Span, rule: Decisions) -> list[Event]:
    """Return the last message on each channel in a span, in replay order."""

    def read(chosen: Selection, span: Span, *, backward: bool = False) -> AsyncGenerator[list[Event], None]:
        return message_pages(log, of, chosen, span, rule=rule, backward=backward)

    return await last_of_each(read, log.database, of, chosen, span, "channel")


async def message_count(log: EventLog, of: Experiment, chosen: Selection, span: Span, rule: Decisions) -> int:
    """Return the number of messages that `message_pages` yields."""
    await rule.reach(None if span.end is None else span.end.ts)
    if "received" not in rule.needed and not rule.retracted:
        if chosen.everything and (counted := await _counted(log, of, span, rule.needed)) is not None:
            return counted
        return await count(log.database, of, chosen.of_kinds(rule.needed).without_redacted(), span)
    total = 0
    async for page in message_pages(log, of, chosen, span, rule=rule):
        total += len(page)
    return total


async def certain_count(log: EventLog, of: Experiment, chosen: Selection, span: Span, rule: Decisions) -> int:
    """Return the number of messages that are sendings: all, if `rule.reads` is false."""
    if not rule.reads:
        return await message_count(log, of, chosen, span, rule)
    kinds = rule.kinds - {"received"}
    number = await _counted(log, of, span, kinds) if chosen.everything else None
    if number is None:
        number = await count(log.database, of, chosen.of_kinds(kinds).without_redacted(), span) if kinds else 0
    return max(0, number - len(rule.retracted))


async def _counted(log: EventLog, of: Experiment, span: Span, kinds: set[str]) -> int | None:
    """Return the number of events of kinds from the recorders' counters, in a time that does not depend on it.

    None if the counters do not tell: for a part of the experiment, or if payloads may have been redacted.
    """
    recorders = await log.recorders(of)
    upto = {row.ordinal: row.last_seq for row in recorders}
    if replace(span, last_seqs=None) != Span() or span.last_seqs not in (None, upto):
        return None
    if any(row.role == "import" for row in recorders) or await redactions_of(log.database, of.id):
        return None
    return sum(row.kinds[kind] for row in recorders for kind in kinds)
