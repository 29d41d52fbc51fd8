"""Replay with live agents: their messages are expected instead of published, and the others follow the schedule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import Broker, kind_of

from ..errors import ReplayFailed, StoreError
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from ..matching.match import Match
from ..replay.engine import Replay
from ..replay.plan import Plan
from ..replay.report import ReplayReport
from ..replay.state import ReplayState
from .announcing import Announcing
from .cast import Live, make_cast
from .cut import load_recording
from .play import Agents, LiveAgents
from .report import CastReport
from .run import Lockstep
from .schedule import Part, key
from .shared import PATIENCE_S
from .to_the_end import OnTimeout, ToTheEnd
from .virtual_time import VirtualLoop, run_in_thread

if TYPE_CHECKING:
    from messager import Messager


@dataclass
class LiveReplayReport(CastReport, ReplayReport):
    """Report of a replay with live agents: what they said, and what was published besides."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, with what the live agents said as `live`."""
        return {**ReplayReport.to_dict(self), "live": CastReport.to_dict(self)}


class LiveReplay(Replay):
    """A `Replay` with live agents, which set its pace. Its report compares what they say with the recording.

    `live` are the agents whose messages are expected instead of published ("all": everybody; None: those that `play`
    is given). Their Messagers follow the recorded schedule (`attach`, or MESSAGER_REPLAY in other processes). `match`,
    `patience` and `on_timeout` are as in `Lockstep` and `ToTheEnd`. The other arguments are those of
    `Replay`, but for what live agents rule out: another speed than 1.0, loops, `max_gap`, and a selection of other
    things than channels.
    """

    report: LiveReplayReport
    FIXED_ORDER = "its live agents follow the recorded order"

    def __init__(
        self,
        log: EventLog,
        exp_id: str | Experiment,
        broker: Broker,
        *,
        live: Live = None,
        match: Match | None = None,
        patience: float = PATIENCE_S,
        on_timeout: OnTimeout = "continue",
        **options: Any,
    ) -> None:
        super().__init__(log, exp_id, broker, **options)
        if self.report.requested_speed != 1.0:
            raise StoreError(
                "live agents set the pace: leave out the speed, or limit the messages with a rate (--rate)"
            )
        if self.settings.loops != 1 or self.settings.max_gap is not None:
            raise StoreError("with live agents, a replay runs once, in lockstep: leave out loops and the maximum gap")
        if not self._selection.whole_channels:
            raise StoreError("a replay with live agents takes all messages of a channel: select by channels only")
        self._live, self._match = live, match
        self._patience, self._on_timeout = patience, on_timeout
        self.lockstep: Lockstep | None = None
        """The schedule of the live agents; known after the first `attach`, or when `run` has begun."""
        self.report.requested_speed = None  # the pace is that of the live agents

    def _new_report(self) -> LiveReplayReport:
        given = self.settings
        return LiveReplayReport("", given.requested_speed, given.dry_run, given.requested_rate)

    def _live_status(self) -> dict[str, Any] | None:
        return None if self.lockstep is None else live_status(self.lockstep)

    async def attach(self, messager: Messager, agents: Iterable[Any] | int | str | None = None) -> None:
        """Let a Messager of this process play these agents, which must be live. Call it before its first message.

        Without `agents`, there must be only one part that no Messager plays. Raises `CastError` and `StoreError`.
        """
        await self._planned()
        self._schedule().attach(messager, agents)

    async def play(
        self,
        agents: Agents,
        *,
        virtual_time: bool = False,
        connected: Callable[[Messager], None] = lambda messager: None,
    ) -> LiveReplayReport:
        """Run with live agents in this process: async functions of a Messager, by the id of their agent.

        With `virtual_time`, agents and replay run in a thread with an event loop whose time jumps to its next timer;
        the broker must be a `MemoryBroker`, and log hooks are called in that thread (use `RecorderThread`). `connected`
        is called with each Messager before its function, for example to add a log hook. The functions are cancelled
        when the replay ends, or the caller is cancelled. Raises as `run` and `attach` do.
        """
        if virtual_time and not kind_of(self._broker.url).in_process:
            raise StoreError("virtual time has no sockets: give the replay a MemoryBroker, or leave out virtual_time")
        if self._live is None:
            self._live = [agent for ids in agents for agent in (ids if isinstance(ids, tuple) else (ids,))]
        plan = await self._planned()
        await self._pipeline.guard.refuse_feedback(plan)
        if not virtual_time:
            return await self._play(plan, agents, connected)
        events = self._schedule().recording.events
        first = events[0].ts if events else None
        return await run_in_thread(lambda: self._play(plan, agents, connected), start_ns=first)

    async def _play(self, plan: Plan, agents: Agents, connected: Callable[[Messager], None]) -> LiveReplayReport:
        await self._broker.connect()
        loop = asyncio.get_running_loop()
        clock = loop.clock if isinstance(loop, VirtualLoop) else None
        async with LiveAgents(self._schedule(), self._broker, self._exp_id, agents, clock=clock, connected=connected):
            await self._run(plan)
        return self.report

    @property
    def _exp_id(self) -> str:
        return self._map.to_exp or self.report.exp_id

    def _schedule(self) -> Lockstep:
        if self.lockstep is None:
            raise StoreError("no agent is live in this replay: give live=[...] or live='all'")
        return self.lockstep

    async def _make_plan(self) -> Plan:
        """Make the plan, read the recording, and find what live agents are expected to say."""
        plan = await super()._make_plan()
        if self._live is None:
            return plan
        recording = await load_recording(self._log, plan)
        self.lockstep = Lockstep(
            recording,
            kind_of(self._broker.url),
            plan.channel_map,
            ToTheEnd(on_timeout=self._on_timeout, continues=self._selection.until is not None),
            live=self._live,
            match=self._match,
            patience=self._patience,
            paused=lambda: self.control.waiting or self.report.state is ReplayState.RATE,
            admit=self.control.admit,
            report=self.report,
        )
        self.report.at_least = False
        self.report.planned = sum(1 for entry in recording.messages if key(entry) not in self.lockstep.cast.expected)
        return plan

    async def _publish_all(self, plan: Plan) -> None:
        """Publish the recorded messages between those of live agents."""
        lockstep = self._schedule()
        without_messager = self.settings.wait_for_subscribers > 0
        async with joined(lockstep, self._broker, self._exp_id, without_messager=without_messager):
            await self._pipeline.run(lockstep, plan)
        self.report.loops = 1


NAMED = 5
"""Maximum number of Messagers, or of channels, that a text names."""


@asynccontextmanager
async def joined(
    lockstep: Lockstep,
    broker: Broker,
    exp_id: str,
    *,
    without_messager: bool = False,
    failed: Callable[[BaseException], None] = lambda error: None,
) -> AsyncIterator[None]:
    """Context in which live programs with this exp_id take the parts that no Messager of this process has.

    It begins when they have announced themselves, or patience ends; with `without_messager`, they are programs that do
    not. `failed` is called with an error while the others can still be told. Programs that play somebody else are noted
    in the report at the end. Raises `ReplayFailed` if nobody came for any of the parts.
    """
    announcing = Announcing(
        *(broker, exp_id, lockstep.presence, kind_of(broker.url)),
        failed=lockstep.stop,
        note=lockstep.report.notes.append,
        stopped=lockstep.policy.stopped_elsewhere,
    )
    async with announcing, lockstep.observer(broker):
        try:
            if remote := [part for part in lockstep.cast.parts if part.key not in lockstep.gates]:
                lockstep.policy.stop_together(announcing)
                await announcing.start(part.key for part in lockstep.cast.parts)
                if without_messager:
                    lockstep.unannounced(remote)
                else:
                    await lockstep.policy.until_there(remote)
                    if not (lockstep.gates or lockstep.policy.holds or lockstep.presence.remote.keys() & _keys(remote)):
                        why = _nobody_came(lockstep, exp_id, remote), announcing.refusals()
                        raise ReplayFailed(". ".join(filter(None, why)))
            yield
        except BaseException as error:
            failed(error)
            raise
        if others := _others(lockstep):
            lockstep.report.notes.append(
                f"live programs of {exp_id} play {others}, whose messages were published from the recording as well"
            )


def _keys(parts: list[Part]) -> set[str]:
    return {part.key for part in parts}


def _nobody_came(lockstep: Lockstep, exp_id: str, remote: list[Part]) -> str:
    seconds = f"{lockstep.patience.seconds:g} s"
    if others := _others(lockstep):
        awaited = "; ".join(part.label for part in remote[:NAMED])
        return (
            f"no live program of {exp_id} came for {awaited} within {seconds}; those that came play {others}. Name the "
            "agents that they play with --live, or start the programs of the others"
        )
    return (
        f"no live program of {exp_id} came within {seconds}. Start it with this exp_id, and with "
        f"MESSAGER_REPLAY={lockstep.recording.exp_id} in its environment, or give --wait-for-subscribers for a program "
        "without a Messager of this package"
    )


def _others(lockstep: Lockstep) -> str:
    """Return a text that names what live programs play although it is not live here; empty if there is nothing."""
    here = {key for part in lockstep.cast.parts for key in (part.key, *part.joined)}
    keys = lockstep.presence.remote.keys() - here
    everybody = make_cast(lockstep.recording, "all", lockstep.wire).parts if keys else []
    return "; ".join([part.label for part in everybody if part.key in keys][:NAMED])


PARTS = 100
"""Maximum number of parts that a status lists; `of` is the number of all."""
_COUNTS = ("expected", "matched", "different", "missing", "unexpected")


def live_status(lockstep: Lockstep) -> dict[str, Any]:
    """Return the live agents and what is awaited from them.

    `parts` are the live Messagers with their counts so far, and whether they are `there`: in this process, announced
    by another one, or observed to have spoken. `waiting_for` is what the replay waits for, empty if for nothing: a
    Messager that has not subscribed yet, or a message that is to be said.
    """
    presence, parts = lockstep.presence, lockstep.cast.parts
    known = {report.key: report for report in lockstep.report.parts}
    listed = []
    for part in parts[:PARTS]:
        report = known.get(part.key)
        counts = {name: 0 if report is None else getattr(report, name) for name in _COUNTS}
        counts["expected"] = counts["expected"] or len(part.sends)
        spoken = counts["matched"] + counts["different"] + counts["unexpected"] > 0
        there = part.key in lockstep.gates or part.key in presence.remote or spoken
        listed.append({"label": part.label, "there": there, **counts})
    waits: list[dict[str, Any]] = []
    absent = presence.awaited
    waits += [{"part": part.label, "for": "subscription"} for part in parts if part.key in absent]
    if (awaited := lockstep.release.awaited) is not None:
        part, act = awaited
        waits.append(
            {
                "part": part.label,
                "for": "message",
                "number": act.index + 1,
                "of": len(part.sends),
                "channel": channels.decode(act.channel),
                "cursor": str(act.event.cursor),
            }
        )
    return {"of": len(parts), "parts": listed, "waiting_for": waits[:PARTS]}
