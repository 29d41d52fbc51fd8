"""Whether a replay would be recorded into the very experiment that it replays."""

from __future__ import annotations

import os
from collections.abc import Iterable

from messager import channels
from messager.brokers import kind_of

from ..db.schema import CHANNEL
from ..errors import ReplayRefused
from ..experiments.registry import Experiment, RecorderRow, recorders_of
from ..log.channel_map import ChannelMap
from ..log.event_log import EventLog
from ..log.names import all_names
from ..log.reading import Selection


async def refuse_feedback(
    log: EventLog, of: Experiment, chosen: Selection, mapping: ChannelMap, broker_url: str
) -> None:
    """Raise `ReplayRefused` where a recorder that is alive would append the replay to what is replayed.

    A tap does where one of its patterns fits. What a recorder inside a program is subscribed to
    is not known, so it counts as hearing every channel that the experiment has.
    """
    if of.status != "open":
        return
    alive = [
        row for row in await recorders_of(log.database, of.id) if row.state == "alive" and _may_hear(row, broker_url)
    ]
    if not alive:
        return
    targets = await published_channels(log, of, chosen, mapping)
    own = {channels.encode(channel) for channel in (await all_names(log.database, of.id, CHANNEL)).values()}
    for row in alive:
        heard = _first(target for target in targets if _hears(row, target, own))
        if heard is not None:
            raise ReplayRefused(
                f"recorder {row.ordinal} of {of.exp_id!r} ({row.role}, {row.host}, pid {row.pid}) is recording "
                f"{channels.decode(heard)!r} into it, and would append the replay to what is replayed. Replay "
                "as another experiment with --to-exp, onto other channels with --map, or all the same with --into-live"
            )


async def published_channels(log: EventLog, of: Experiment, chosen: Selection, mapping: ChannelMap) -> list[bytes]:
    """Return the channels that a replay may publish on, sorted. Only patterns of channels choose among them."""
    known = (await all_names(log.database, of.id, CHANNEL)).values()
    chosen = await chosen.as_recorded(log.database, of)
    return sorted({mapping(channel) for channel in known if chosen.takes_channel(channel)})


def _may_hear(row: RecorderRow, broker_url: str) -> bool:
    """Whether it may listen to the broker that is published on. Two names of one Redis cannot be told from
    two servers; what is in the memory of a process is in no other."""
    if row.broker is None:  # it has not met its broker yet: a tap is about to, a program may never
        return row.role == "tap"
    kind = kind_of(broker_url)
    return kind is kind_of(row.broker) and (not kind.in_process or row.pid == os.getpid())


def _hears(row: RecorderRow, target: bytes, own: set[bytes]) -> bool:
    if row.role != "tap":
        return target in own
    if row.broker is None:
        return channels.matches_any(row.patterns, target)
    kind = kind_of(row.broker)
    return any(kind.matches(pattern, target) for pattern in row.patterns)


def _first(found: Iterable[bytes]) -> bytes | None:
    return next(iter(found), None)
