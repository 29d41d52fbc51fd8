"""Figures of runs whose messages are never equal, such as those of language models, beside each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Unpack

from ...errors import StoreError
from ...experiments.records import Experiment
from ...html_table import html_table
from ...log.channel_map import ChannelMap
from ...log.event_log import EventLog
from ...log.names import agent_text
from ...log.selection import Filters, Selection
from ...matching.match import Match
from ...projection.query import projected
from ...projection.reading import Reading
from ...projection.schema import agent_of
from ..replies import replies
from .canonical import Canonical
from .side import EitherSpelling, Side, comparable, exp_ids_apart, spelt_apart

__all__ = ["PairFigures", "RunFigures", "RunsSummary", "summarise"]


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of one run."""

    exp_id: str
    messages: int
    duration_s: float
    """Time from the first message to the last one."""
    channels: int
    agents: int
    """Number of senders and recipients."""
    opening: int | None
    """Number of messages, over all channels in replay order, with which this baseline and the last run both begin; None
    for the last run."""


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Messages from one agent to another on one channel, in each run."""

    channel: str
    from_id: Any
    to_id: Any
    """None if the message named no recipient, or the sender is unknown."""
    messages: tuple[int, ...]
    """In the order of the runs."""
    delays_s: tuple[float | None, ...]
    """Median time, in seconds, that the sender took to answer the recipient on this channel: of the `replies` that
    `delays` measures, by nearest rank. None if there was none."""

    @property
    def range(self) -> tuple[int, int]:
        """Return the smallest and the largest number of messages of the baselines."""
        return min(self.messages[:-1]), max(self.messages[:-1])

    @property
    def outside(self) -> int:
        """Return by how many messages the last run is below (negative) or above the range; 0 within it."""
        low, high = self.range
        return min(self.messages[-1] - low, 0) or max(self.messages[-1] - high, 0)

    @property
    def delay_range(self) -> tuple[float, float] | None:
        """Return the smallest and the largest delay of the baselines, in seconds; None if none has any."""
        known = [delay for delay in self.delays_s[:-1] if delay is not None]
        return (min(known), max(known)) if known else None

    @property
    def delay_outside(self) -> float:
        """Return by how many seconds the delay of the last run is outside of the range."""
        now = self.delays_s[-1]
        if now is None or self.delay_range is None:
            return 0.0
        low, high = self.delay_range
        return min(now - low, 0.0) or max(now - high, 0.0)


@dataclass(frozen=True, slots=True)
class RunsSummary:
    """Figures of several runs: the last one is compared with the range of the others, the baselines."""

    runs: tuple[RunFigures, ...]
    pairs: tuple[PairFigures, ...]
    """The pairs whose number of messages is most outside of the range come first, then by delay, then by number."""

    @property
    def outside(self) -> int:
        """Return the number of pairs whose number of messages is outside of the range."""
        return sum(bool(pair.outside) for pair in self.pairs)

    def records(self) -> list[dict[str, Any]]:
        """Return the pairs as records for data frames: ids as text, as in `Run.table`, delays in seconds (s)."""
        return [
            {
                "channel": pair.channel,
                "from": agent_text(pair.from_id),
                "to": agent_text(pair.to_id),
                "messages_min": pair.range[0],
                "messages_max": pair.range[1],
                "messages": pair.messages[-1],
                "outside": pair.outside,
                "delay_min_s": None if pair.delay_range is None else pair.delay_range[0],
                "delay_max_s": None if pair.delay_range is None else pair.delay_range[1],
                "delay_s": pair.delays_s[-1],
            }
            for pair in self.pairs
        ]

    def _repr_html_(self) -> str:
        return html_table(self.records())


@dataclass(slots=True)
class _Run:
    """A run while it is read."""

    first: int = 0
    last: int = 0
    counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """Messages by channel, sender and recipient; the ids are JSON."""
    delays: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Median time of replies, in seconds."""

    @property
    def messages(self) -> int:
        return sum(self.counts.values())

    def figures(self, exp_id: str, opening: int | None) -> RunFigures:
        """Return the figures of the whole run."""
        agents = {agent for _, *both in self.counts for agent in both} - {"null"}
        channels = len({channel for channel, _, _ in self.counts})
        return RunFigures(exp_id, self.messages, (self.last - self.first) / 1e9, channels, len(agents), opening)


async def summarise(
    log: EventLog,
    *runs: str | Experiment,
    log_last: EventLog | None = None,
    selection: Selection | None = None,
    mapping: ChannelMap | None = None,
    keep_names: bool = False,
    match: Match | None = None,
    progress: Callable[[int], None] | None = None,
    **filters: Unpack[Filters],
) -> RunsSummary:
    """Return figures of two or more runs, of which the last is the one to judge and the others are its baselines.

    Messages are those that a replay would publish; the selection applies to each run. `mapping` renames the channels
    of the baselines; `log_last` is the log of the last run if it is in another store. `match` says which messages of
    the common opening are equal (its judge is not asked). Names of Redis and MQTT count as the same as in `compare`,
    unless `keep_names`. The projections are brought up to date first. `progress` is called with the number of
    messages read.
    Raises `StoreError` for less than two runs, and for a selection with `context` or `last_per`.
    """
    if len(runs) < 2:
        raise StoreError("one run cannot be compared: give the baselines, and the run to compare with them as the last")
    logs = [log] * (len(runs) - 1) + [log_last or log]
    experiments = [
        run if isinstance(run, Experiment) else await each.experiment(run) for each, run in zip(logs, runs, strict=True)
    ]
    chosen = comparable(selection, filters)
    as_one = not keep_names and await spelt_apart(zip(logs, experiments, strict=True))
    if as_one:
        chosen = EitherSpelling(chosen)

    async def renaming(number: int) -> ChannelMap | None:
        apart = await exp_ids_apart((logs[number], experiments[number]), (logs[-1], experiments[-1]))
        return None if apart is None else ChannelMap(None, apart[1])

    moved = [None if keep_names or mapping is not None else await renaming(number) for number in range(len(runs) - 1)]

    async def side(number: int) -> Side:
        each, of = logs[number], experiments[number]
        renamed = None if number == len(runs) - 1 else mapping or moved[number]
        span = await chosen.span(each.database, of)
        return Side(each, of, chosen, span, renamed, as_one, by_sender=True)

    found = []
    for number in range(len(runs)):
        found.append(await _read(await side(number), logs[number], experiments[number], chosen))
        if progress is not None:
            progress(sum(run.messages for run in found))
    canonical = Canonical(match)
    openings: list[int | None] = [
        await _opening(await side(number), await side(len(runs) - 1), canonical) for number in range(len(runs) - 1)
    ]
    figures = [
        run.figures(of.exp_id, opening) for run, of, opening in zip(found, experiments, [*openings, None], strict=True)
    ]
    return RunsSummary(tuple(figures), tuple(_pairs(found)))


async def _read(side: Side, log: EventLog, of: Experiment, chosen: Selection) -> _Run:
    """Return the figures of one run."""
    key = "e.channel, e.from_id, e.from_type, e.to_id, e.to_type"
    run = _Run()

    def named(channel: str | None, *agents: str | None) -> tuple[str, str, str]:
        return side.name(channel), json.dumps(agent_of(*agents[:2])), json.dumps(agent_of(*agents[2:]))

    async with projected(log, of) as here:
        condition = await Reading(log, of, here, chosen).condition()
        counts = f"SELECT count(*), min(e.ts), max(e.ts), {key} FROM event e WHERE {condition.where} GROUP BY ALL"
        rows = await asyncio.to_thread(here.rows, counts, condition.values)
        for number, _, _, *columns in rows:
            run.counts[named(*columns)] = number
        if rows:
            run.first, run.last = min(row[1] for row in rows), max(row[2] for row in rows)
        if not chosen.kinds:
            both = chosen.without_agents().limited(None)
            among = await Reading(log, of, here, both).condition()
            delays = (
                f"SELECT quantile_disc(e.duration, 0.5), {key} FROM ({replies(among, condition, None)}) e GROUP BY ALL"
            )
            for median, *columns in await asyncio.to_thread(here.rows, delays, {**among.values, **condition.values}):
                run.delays[named(*columns)] = median / 1e9
    return run


def _pairs(runs: Sequence[_Run]) -> list[PairFigures]:
    pairs = []
    for key in sorted({key for run in runs for key in run.counts}):
        channel, sender, recipient = key
        messages = tuple(run.counts.get(key, 0) for run in runs)
        delays = tuple(run.delays.get(key) for run in runs)
        pairs.append(PairFigures(channel, json.loads(sender), json.loads(recipient), messages, delays))
    return sorted(pairs, key=lambda pair: (-abs(pair.outside), -abs(pair.delay_outside), -max(pair.messages)))


async def _opening(a: Side, b: Side, canonical: Canonical) -> int:
    """Return the number of messages that both runs begin with, in replay order over all channels."""
    count = 0
    async with aclosing(_contents(a, canonical)) as one, aclosing(_contents(b, canonical)) as other:
        async for said, digest, numbers in one:
            found = await anext(other, None)
            if found is None or found[:2] != (said, digest) or not canonical.near(numbers, found[2]):
                break
            count += 1
    return count


async def _contents(
    side: Side, canonical: Canonical
) -> AsyncGenerator[tuple[tuple[str, str, str], bytes, tuple[float, ...]], None]:
    """Yield the channel, sender and recipient of each message, its digest, and its numbers."""
    async with aclosing(side.pages) as pages:
        async for page in pages:
            for entry in page:
                agents = json.dumps(entry.from_id), json.dumps(entry.to_id)
                yield (side.name(entry.channel), *agents), *canonical.digest(entry.payload)
