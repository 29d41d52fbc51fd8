"""Live agents in this process: a Messager and a task for each agent function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import Broker, kind_of

from ..errors import StoreError
from .run import LiveAgentFailed, Lockstep
from .schedule import Part

if TYPE_CHECKING:
    from messager import Messager
    from messager.clock import Clock

Agent = Callable[["Messager"], Awaitable[Any]]
"""Async function that plays an agent, or several that share a Messager. It runs until it returns or is cancelled."""
Agents = Mapping[Any, Agent]
"""Agent functions by the id of their agent, or by a tuple of ids."""
END_S = 5.0
"""Time that a cancelled agent has to end."""


class LiveAgents:
    """Runs agent functions, each with a Messager of its own. An async context manager.

    A Messager is connected when its function is called. If the function fetches without having subscribed, the Messager
    is subscribed to what it was subscribed to in the recording, or if that is unknown, to the channels of its agents.
    When the context ends, the functions are cancelled. `connected` is called with each Messager, before its function.
    """

    def __init__(
        self,
        lockstep: Lockstep,
        broker: Broker,
        exp_id: str,
        agents: Agents,
        *,
        clock: Clock | None = None,
        connected: Callable[[Messager], None] = lambda messager: None,
    ) -> None:
        if not agents:
            raise StoreError("no live agent is given: give an async function for each, by the id of its agent")
        self._lockstep = lockstep
        self._broker = broker
        self._exp_id = exp_id
        self._agents = agents
        self._clock = clock
        self._connected = connected
        self._tasks: list[asyncio.Task[None]] = []
        self._messagers: list[Messager] = []
        self._error: BaseException | None = None

    async def __aenter__(self) -> LiveAgents:
        made = []
        for ids, function in self._agents.items():
            messager = self._messager()
            gate = self._lockstep.attach(messager, ids, partial(self._subscribe, messager))
            self._connected(messager)
            made.append((messager, gate.part, function))
        for messager, part, function in made:
            self._messagers.append(messager)
            await messager.init()
            self._tasks.append(asyncio.create_task(self._run(messager, part, function)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_S)
        for messager in self._messagers:
            await messager.close()

    async def returned(self, seconds: float | None = None) -> None:
        """Wait until all functions have returned, at most `seconds`. Raises `LiveAgentFailed` as soon as one raised."""
        left = set(self._tasks)
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while left and self._error is None:
            timeout = None if deadline is None else deadline - asyncio.get_running_loop().time()
            done, left = await asyncio.wait(left, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
        if self._error is not None:
            raise LiveAgentFailed(self._error)

    async def _run(self, messager: Messager, part: Part, function: Agent) -> None:
        try:
            await function(messager)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = self._error or error
            self._lockstep.crashed(part, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._lockstep.returned(part)

    def _messager(self) -> Messager:
        if kind_of(self._broker.url).separator == "/":
            from messager.mqtt import Messager as MqttMessager

            return MqttMessager(self._broker, exp_id=self._exp_id, clock=self._clock)
        from messager import Messager

        return Messager(self._broker, self._exp_id, clock=self._clock)

    async def _subscribe(self, messager: Messager, part: Part) -> None:
        recorded = [channels.decode(self._lockstep.wire(pattern)) for pattern in part.patterns]
        own = [messager.get_subtopic_channel(agent, "*") for agent in part.agents]
        await messager.subscribe_and_start_listening(recorded or own)
