"""Lockstep: a replay in which live agents follow the recorded schedule.

Recorded messages are released in replay order, each after the live messages before it. The gates of the live agents
hold back what comes too early, so the order of release matters only to listeners without gates.

| wait for                          | who waits           | given up, after `patience` without progress              |
|-----------------------------------|---------------------|----------------------------------------------------------|
| receptions before the next act | `gate.fetching`     | first: those whose sending was released are lost         |
| the turn of an act              | `gate.sending`      | second: if nobody fetches, it is said nevertheless       |
| a recipient that is not there yet | `releases`, senders | third: it is absent                                      |
| the next live message             | `releases`          | last: it is missing, and so are later ones of its sender |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import Broker
from messager.endpoint import Endpoint

from ..errors import StoreError
from ..log.event import Event
from ..text import plural
from .gate import Company, ScheduleGate
from .policy import LockstepStopped
from .releases import Releases
from .report import Player
from .schedule import Act, Part, Reception
from .shared import Shared
from .virtual_time import VirtualLoop
from .wire import WireObserver

if TYPE_CHECKING:
    from messager import Messager

    from ..replay.flow_control import Message
    from ..replay.pipeline import Due


class LiveAgentFailed(StoreError):
    """The task of a live agent raised. Its error is the cause."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a live agent failed: {type(error).__name__}: {error}")
        self.__cause__ = error


class Lockstep(Shared):
    """One replay with live agents. `wire` gives the channel on which messages of a recorded channel are published.

    `live` are the agents that are live, by id, or "all". `match` decides whether a message is the expected one.
    `patience` is the time (s) without any progress after which `policy` gives up a wait; no time
    counts while `paused` returns True. `admit` is awaited before each message of a live agent of this process, with the
    recorded one in whose place it is said, or None. `instead` is called with each message that was said in the place of
    a recorded one. Raises `CastError`.
    """

    def _set_up(self) -> None:
        self.gates: dict[str, ScheduleGate] = {}
        self.release = Releases(self, self.finish)
        self._begun = False  # True once it is decided which parts are played in other processes
        self._unannounced: set[str] = set()  # keys of parts whose programs have no Messager
        self._observer: WireObserver | None = None
        self.policy.begin(self)

    # Live Messagers

    def attach(
        self,
        messager: Messager | Endpoint,
        agents: Iterable[Any] | int | str | None = None,
        subscribe: Callable[[Part], Awaitable[None]] | None = None,
    ) -> ScheduleGate:
        """Give a Messager of this process, or another endpoint, the part of these agents, and set its gate.

        Call it before its first message. Without `agents`, there must be only one part left. `subscribe` is called with
        the part if the agent fetches before it has subscribed. Raises `StoreError` if no part fits, or several do, if
        the replay has begun, or if the Messager would be recorded into what is replayed.
        """
        if self._begun:
            raise StoreError("the replay has begun: attach Messagers before it runs")
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            self.recording.check_environment(messager.exp_id)
        endpoint = messager if isinstance(messager, Endpoint) else messager.endpoint
        gate = self.take(endpoint, self.cast.parts_of(agents, self.gates), subscribe=subscribe)
        endpoint.set_gate(gate)
        return gate

    def take(
        self,
        endpoint: Endpoint,
        parts: list[Part],
        company: Company | None = None,
        subscribe: Callable[[Part], Awaitable[None]] | None = None,
    ) -> ScheduleGate:
        """Return a gate with which a Messager of this process plays a part, or several weak ones that are joined."""
        part = self.cast.join(parts)
        self.presence.forget(parts[1:])
        gate = ScheduleGate(endpoint, part, self._judged(part, gated=True), self, company, subscribe)
        self.gates[part.key] = gate
        for place, (_, act) in self.cast.expected.items():
            if act.payload is not None:  # said before this Messager had a gate
                gate.expect(place, act.payload)
        self.presence.attached(part, gate.hearing.subscriptions.hears)
        self.patience.start()
        return gate

    def observer(self, broker: Broker) -> WireObserver:
        """Return an observer of the live programs that have no Messager in this process."""
        self._begun = True
        parts = [part for part in self.cast.parts if part.key not in self.gates]
        self._observer = WireObserver(self, broker, parts, self.match)
        return self._observer

    def returned(self, part: Part) -> None:
        """Note that the agents of a part say nothing more."""
        self.ended.add(part.key)
        self.presence.left(part)
        if (awaited := self.release.awaited) is not None and awaited[0] is part:
            self.miss(*awaited)
        self.wake()

    def unannounced(self, parts: Iterable[Part]) -> None:
        """Note that these parts are played by programs that cannot announce themselves: what is said, they say."""
        self._unannounced.update(part.key for part in parts)
        self.presence.unannounced(parts)

    def crashed(self, part: Part, error: BaseException) -> None:
        """Note that the task of a live agent raised: `releases` ends with `LiveAgentFailed`."""
        if isinstance(error, LockstepStopped):  # raised by the gates of a stopped fork
            return
        self.report.crashed[part.label] = f"{type(error).__name__}: {error}"
        self.stop(LiveAgentFailed(error))
        self.returned(part)

    # Recorded messages

    def releases(self) -> AsyncGenerator[list[Event], None]:
        """Yield the recorded messages when they are to be published (see `Releases.messages`)."""
        return self.release.messages()

    async def batches(self) -> AsyncGenerator[Due, None]:
        """Yield the recorded messages for a `Pipeline`, as `releases` does."""
        async with aclosing(self.releases()) as batches:
            async for batch in batches:
                yield batch, []

    def publishing(self, batch: list[Event], wire: list[Message]) -> None:
        """Note messages that are about to be published."""
        if self._observer is not None:
            self._observer.published(wire)

    def published(self, batch: list[Event], dues: list[int] | None) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Note that all Messagers of this process are closed: nothing waits here any more."""
        if self.policy.holds:  # what other processes say does not matter
            for gate in self.gates.values():
                gate.finish()
        self.patience.stop()
        self.presence.close()

    def come_back(self) -> None:
        """Note that one of them was opened again: the replay goes on."""
        self.presence.reopen()
        self.patience.stop()
        self.patience.start()

    def finish(self) -> None:
        """End all schedules: what was not said is missing, and the gates are open."""
        self.patience.stop()
        if self.failed and self.policy.holds:
            return
        self.presence.close()
        for part in self.cast.parts:
            gate = self.gates.get(part.key)
            if gate is not None:
                gate.finish()
                continue
            report = self.observed(part).report
            if unsubscribed := self.presence.unsubscribed(part):
                named = ", ".join(map(channels.decode, unsubscribed))
                self.report.notes.append(f"{part.label} has not subscribed to {named}, where the recorded one received")
            report.player = self._player(part, spoken := report.matched + report.different)
            if report.player is Player.ABSENT and spoken:
                self.report.notes.append(
                    f"no live program plays {part.label}: {plural(spoken, 'message')} in its place came from others"
                )
                report.matched = report.different = 0
                report.missing += spoken
                report.unexpected += spoken
            for act in part.acts:
                if act.awaited and not act.settled:
                    self.miss(part, act)
        if self.cast.without_sender:
            self.report.notes.append(
                f"{self.cast.without_sender} messages have neither Messager nor sender: published from the recording"
            )

    def _player(self, part: Part, spoken: int) -> Player:
        """Return who plays a part that no Messager of this process has, and in whose place so much was said."""
        if part.key in self.presence.remote:
            return Player.ELSEWHERE
        if part.key in self._unannounced:
            return Player.OBSERVED if spoken else Player.NOBODY
        return Player.ABSENT if self.policy.needs(part) else Player.NOBODY

    @property
    def running(self) -> list[ScheduleGate]:
        """Gates of the Messagers of this process whose agents have not returned."""
        return [gate for key, gate in self.gates.items() if key not in self.ended]

    # Waits that are given up

    def _thinking_s(self) -> float:
        """Return the time (s) that the awaited agents took in the recording since they had last spoken.

        Only in virtual time, where it costs nothing: patience begins when the message was due.
        """
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            return 0.0
        if (awaited := self.release.awaited) is not None:
            return self._since_last(*awaited)
        return max((self._since_last(gate.part, gate.place.awaited) for gate in self.gates.values()), default=0.0)

    def _since_last(self, part: Part, act: Act | None) -> float:
        if act is None:
            return 0.0
        before = part.acts[act.number - 1].event if act.number else self._first_of(act.event)
        return max(act.event.ts - before.ts, 0) / 1e9

    def _first_of(self, event: Event) -> Event:
        """Return the first event of the same Messager, or of the same recorder if the Messager is unknown."""
        return next(
            one for one in self.recording.events if (one.recorder, one.messager) == (event.recorder, event.messager)
        )

    def arrives(self, reception: Reception) -> bool:
        """Return whether a message that a gate waits for may still be sent."""
        found = self.cast.expected.get(reception.source)
        if found is None:
            return self.releasing and reception.source not in (self.released or ())
        part, act = found
        gate = self.gates.get(part.key)
        return not act.settled and (self.releasing or (gate is not None and not gate.suspended))
