"""A first recording: the live agents of a test run together, without a schedule, and what they say is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from messager import channels
from messager.brokers.base import Broker
from messager.clock import Clock
from messager.hooks import LogHook
from messager.messager import Messager
from messager.record import MessageRecord
from messager_store.lockstep.play import Agent
from messager_store.log.event import NewEvent
from messager_store.recording.derived_ids import DEFAULT_SENDER
from messager_store.recording.event_builder import EventBuilder

from .agent_state import AgentState, state_of_agent
from .event_lines import event_line, header_line
from .marks import agents_named
from .playing import AgentCrashed
from .recording_file import BadRecording

QUIET_S, QUIET_REAL_S = 30.0, 1.0
"""Seconds without a message after which a recording in virtual time, or in real time, is complete."""
MOST_MESSAGES = 10_000
"""Messages after which agents that do not end are stopped."""


class _Capture:
    """Log hook that keeps the events of one Messager under the name of its agent."""

    def __init__(self, name: str, events: list[NewEvent]) -> None:
        self._name = name
        self._events = events
        self._builder = EventBuilder(DEFAULT_SENDER, None)

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        fields = self._builder.build(record, record.ts)
        if fields is not None:
            event = NewEvent._make(fields)
            self._events.append(event._replace(messager=self._name, duration_ns=None, receivers=None))


class _PassingGate:
    """Gate that holds nothing back."""

    def check(self, hook: LogHook) -> None:
        """Do nothing."""

    async def subscribed(self, patterns: Sequence[str]) -> None:
        """Do nothing."""

    def arrived(self, message: dict[str, Any]) -> None:
        """Do nothing."""

    async def fetching(self) -> None:
        """Do nothing."""

    async def sending(self, record: MessageRecord) -> None:
        """Do nothing."""

    def passed(self, record: MessageRecord, done: bool) -> None:
        """Do nothing."""

    def marked(self, record: MessageRecord) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def connected(self) -> None:
        """Do nothing."""


class _Early(_PassingGate):
    """Gate of a Messager that is subscribed to the channels of an agent before any agent begins."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.listener: Callable[[dict[str, Any]], None] = self.kept.append

    def arrived(self, message: dict[str, Any]) -> None:
        self.listener(message)


class _Subscribing(_PassingGate):
    """Gate of an agent. If the agent fetches without having subscribed, it gets its own channels, as in a replay.

    It then receives all that was sent there since the beginning, from `early`: a replay loses none of it either.
    """

    def __init__(self, messager: Messager, own: list[str], early: _Early) -> None:
        self._messager = messager
        self._own = own
        self._early = early
        self._subscribed = False
        self._is_own = False

    async def subscribed(self, patterns: Sequence[str]) -> None:
        self._subscribed = True

    def arrived(self, message: dict[str, Any]) -> None:
        if not (self._is_own and channels.matches_any(self._own, message["channel"])):
            self._messager.endpoint.deliver(message)

    async def fetching(self) -> None:
        if not self._subscribed:
            self._is_own = True
            await self._messager.subscribe_and_start_listening(self._own)
            self._early.listener = self._messager.endpoint.deliver
            kept, self._early.kept = self._early.kept, []
            for message in kept:
                self._messager.endpoint.deliver(message)


@dataclass(frozen=True, slots=True)
class Made:
    """A first recording."""

    lines: list[bytes]
    messages: int
    end: str
    """Why the run ended, if not all agents had returned; else empty."""


async def record(
    agents: Mapping[Any, Agent],
    exp_id: str,
    name: str,
    broker: Broker,
    clock: Clock | None,
    quiet: float,
    seconds: float | None,
) -> Made:
    """Run agents together, and return the recording called `name`.

    The run ends when all agents have returned, when no message was said for `quiet` seconds, or after `seconds`.
    Raises `AgentCrashed`, and `BadRecording` if the agents do not end.
    """
    events: list[NewEvent] = []
    messagers: list[Messager] = []
    tasks: dict[asyncio.Task[Any], Any] = {}
    try:
        connected: list[tuple[Any, Agent, Messager]] = []
        for agent, play in agents.items():
            messager, listening = (Messager(broker, exp_id, clock=clock) for _ in range(2))
            own = [messager.get_subtopic_channel(one, "*") for one in (agent if isinstance(agent, tuple) else (agent,))]
            early = _Early()
            listening.set_gate(early)
            messager.add_log_hook(_Capture(agents_named([agent]), events))
            messager.set_gate(_Subscribing(messager, own, early))
            for one in (listening, messager):
                await one.init()
                messagers.append(one)
            await listening.subscribe_and_start_listening(own)
            connected.append((agent, play, messager))
        for agent, play, messager in connected:
            tasks[asyncio.ensure_future(_playing(agent, play, messager))] = agent
        end = await _until_quiet(tasks, events, quiet, seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for messager in messagers:
            await messager.close()
    events.sort(key=lambda event: event.ts)  # a sending is logged when it has landed, after its receptions
    said = sum(1 for event in events if event.kind == "sent")
    return Made([header_line(name), *map(event_line, events)], said, end)


async def _playing(agent: Any, play: Agent, messager: Messager) -> None:
    state_of_agent.set(lambda: AgentState(agents_named([agent])))
    await play(messager)


async def _until_quiet(
    tasks: Mapping[asyncio.Task[Any], Any], events: list[NewEvent], quiet: float, seconds: float | None
) -> str:
    """Wait until the run ends, and return why, if not all agents have returned."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    pending = set(tasks)
    while pending:
        heard = len(events)
        wait = quiet if end is None else min(quiet, end - loop.time())
        done, pending = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                error = task.exception()
                raise AgentCrashed(f"{agents_named([tasks[task]])} raised {error!r}") from error
        left = agents_named(tasks[task] for task in tasks if task in pending)
        if pending and end is not None and loop.time() >= end:
            return f"until {seconds:g} s ({left} had not returned)"
        if not done and len(events) == heard and end is None:
            return f"until {quiet:g} s of silence ({left} had not returned)"
        if len(events) > MOST_MESSAGES:
            raise BadRecording(
                f"the agents have said more than {MOST_MESSAGES:,} messages and do not end. End the recording after a "
                "time, in seconds: @pytest.mark.recording(seconds=60)."
            )
    return ""
