"""Guard: all conditions under which a replay is refused because it would do harm.

| condition                                                                     | check                | unless        |
|-------------------------------------------------------------------------------|----------------------|---------------|
| feedback: a live recorder would record the replay into its own source         | `refuse_feedback`    | `into_live`   |
| a payload for which the broker disconnects every subscriber                   | `refuse_oversized`   | `force`       |
| a payload whose copies for one subscriber exceed that limit together          | `refuse_unsafe`      | `force`       |
| no speed and no rate, at a broker that does not report what subscribers read  | `refuse_unsafe`      |               |

A fork has no rate, because its live agents set the pace (`unlimited`); the conditions on payloads apply to it.

Invalid arguments are refused by `Replay` itself and by `plan.make_plan`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from messager import channels
from messager.brokers import Broker, kind_of

from ..errors import ReplayRefused
from ..experiments.records import RecorderRow
from ..log.event import Event
from .flow_control import FlowControl, Message
from .plan import Plan
from .report import ReplayReport

REMEDY = "Leave it out with --exclude, --since and --until, or publish it with --force"


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks of one replay. Each raises `ReplayRefused`."""

    broker: Broker
    flow: FlowControl
    report: ReplayReport
    """The requested speed and rate: without either, the replay is limited by flow control alone."""
    force: bool
    into_live: bool
    unlimited: bool = False
    """True if live agents set the pace, so that neither a speed nor a rate is required."""
    remedy: str = REMEDY
    """What to do about a payload."""

    @property
    def refusal(self) -> str:
        """Return the reason for which the broker does not report its subscribers, such as a missing right, if known."""
        return f" ({self.broker.refused})" if self.broker.refused else ""

    async def refuse_feedback(self, plan: Plan) -> None:
        """Refuse a replay that a live recorder would append to the experiment that is replayed.

        A tap does so if one of its patterns matches. A recorder inside a program may be subscribed to any channel
        of the experiment.
        """
        if self.into_live or (found := await feedback(plan, self.broker)) is None:
            return
        row, heard = found
        raise ReplayRefused(
            f"recorder {row.ordinal} of {plan.of.exp_id!r} ({row.role}, {row.host}, pid {row.pid}) is recording "
            f"{heard!r} and would append the replay to its own source. Replay as another experiment with --to-exp, "
            "onto other channels with --map, or anyway with --into-live"
        )

    async def refuse_oversized(self, plan: Plan) -> None:
        """Refuse a payload that is larger than the output buffer of a subscriber may be."""
        most = self.flow.largest_payload
        if most is not None and plan.payload_bytes > most:
            async for page in plan.large(most):
                self.refuse_large(page)

    def refuse_large(self, messages: Iterable[Event]) -> None:
        """Refuse such a payload among messages that are in memory."""
        most = self.flow.largest_payload
        if self.force or most is None:
            return
        for entry in messages:
            if len(entry.payload) > most and entry.carrier is None:  # a stream has no subscribers
                raise ReplayRefused(
                    f"the payload of {entry.cursor} has {len(entry.payload):,} bytes: above {most:,} the broker "
                    f"disconnects subscribers. {self.remedy}"
                )

    def refuse_unsafe(self, batch: Sequence[Event] = (), wire: Sequence[Message] = ()) -> None:
        """Refuse unlimited speed without flow control, and payloads whose copies for one subscriber are too large."""
        if self.report.requested_speed is None:
            self.refuse_unlimited()
        if any(entry.carrier for entry in batch):
            heard = [at for at, entry in enumerate(batch) if entry.carrier is None]
            batch, wire = [batch[at] for at in heard], [wire[at] for at in heard]
        if self.force or not wire or (at := self.flow.cut_off(wire)) is None:
            return
        raise ReplayRefused(
            f"the payload of {batch[at].cursor} has {len(batch[at].payload):,} bytes, and one subscriber may get it "
            f"{self.flow.copies(wire[at][0])} times: above {self.flow.largest_payload:,} bytes in total the broker "
            f"disconnects it. {self.remedy}"
        )

    def refuse_unlimited(self) -> None:
        """Refuse unlimited speed without flow control and without a rate."""
        if self.report.requested_rate is None and not self.flow.active and not self.unlimited:
            raise ReplayRefused(
                f"{self.broker.url} does not report what its subscribers have not read yet{self.refusal}, so "
                "full speed could disconnect them. Limit the messages per second with --rate"
            )


async def feedback(plan: Plan, broker: Broker) -> tuple[RecorderRow, str] | None:
    """Return a live recorder that would append what is published to the source of a plan, and a channel that it hears.

    None if there is no such recorder.
    """
    log, of = plan.log, plan.of
    if of.status != "open":
        return None
    alive = [row for row in await log.recorders(of) if row.state == "alive" and _may_hear(row, broker.url)]
    if not alive:
        return None
    targets = await plan.published_channels()
    own = {channels.encode(channel) for channel in await log.channels(of)}
    for row in alive:
        heard = next((target for target in targets if _hears(row, target, own)), None)
        if heard is not None:
            return row, channels.decode(heard)
    return None


def _may_hear(row: RecorderRow, broker_url: str) -> bool:
    """Return whether a recorder may listen to the broker that is published on.

    Two names of one Redis server cannot be distinguished from two servers. An in-memory broker is only in its process.
    """
    if row.broker_kind is None:  # not connected yet: a tap is about to connect, a program may never do so
        return row.role == "tap"
    kind = kind_of(broker_url)
    return kind is row.broker_kind and (not kind.in_process or row.pid == os.getpid())


def _hears(row: RecorderRow, target: bytes, own: set[bytes]) -> bool:
    if row.role != "tap":
        return target in own
    kind = row.broker_kind
    if kind is None:
        return channels.matches_any(row.patterns, target)
    return any(kind.matches(pattern, target) for pattern in row.patterns)
