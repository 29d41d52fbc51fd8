"""Stand-in for AutoGen core 0.7: what an adapter sees of it. What is published is delivered by `stop_when_idle`."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4


class MessageDroppedException(Exception):
    """An intervention handler has dropped a message."""


class DropMessage:
    """Returned by an intervention handler to drop a message."""


@dataclass(frozen=True)
class AgentId:
    type: str
    key: str = "default"

    def __str__(self) -> str:
        return f"{self.type}/{self.key}"


@dataclass
class MessageContext:
    sender: AgentId | None
    topic_id: str | None
    is_rpc: bool
    message_id: str


class BaseAgent:
    def __init__(self, name: str, runtime: Any) -> None:
        self.id, self.runtime = AgentId(name), runtime
        runtime.agents[self.id] = self

    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        return await self.handle(message, ctx)

    async def handle(self, message: Any, ctx: MessageContext) -> Any:
        """Answer nothing."""

    async def send_message(self, message: Any, recipient: AgentId, *, message_id: str | None = None) -> Any:
        return await self.runtime.send_message(message, recipient, sender=self.id, message_id=message_id)

    async def publish_message(self, message: Any, topic_id: str) -> None:
        await self.runtime.publish_message(message, topic_id, sender=self.id)


class InterventionHandler:
    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        return message

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        return message

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        return message


@dataclass(eq=False)
class _Runtime:
    agents: dict[AgentId, BaseAgent] = field(default_factory=dict)
    published: list[tuple[Any, MessageContext]] = field(default_factory=list)
    intervention_handlers: list[Any] = field(default_factory=list)

    async def send_message(
        self, message: Any, recipient: AgentId, *, sender: AgentId | None = None, message_id: str | None = None
    ) -> Any:
        if recipient not in self.agents:
            raise LookupError("Recipient not found")
        ctx = MessageContext(sender, None, True, message_id or uuid4().hex)
        told = message
        for handler in self.intervention_handlers:
            told = _kept(await handler.on_send(message, message_context=ctx, recipient=recipient))
        answer = given = await self.agents[recipient].on_message(told, ctx)
        for handler in self.intervention_handlers:
            answer = _kept(await handler.on_response(given, sender=recipient, recipient=sender))
        return answer

    async def publish_message(
        self, message: Any, topic_id: str, *, sender: AgentId | None = None, message_id: str | None = None
    ) -> None:
        self.published.append((message, MessageContext(sender, topic_id, False, message_id or uuid4().hex)))

    async def stop_when_idle(self) -> None:
        while self.published:
            message, ctx = self.published.pop(0)
            told = message
            try:
                for handler in self.intervention_handlers:
                    told = _kept(await handler.on_publish(message, message_context=ctx))
            except MessageDroppedException:
                continue
            for agent in list(self.agents.values()):
                if agent.id != ctx.sender:
                    await agent.on_message(told, ctx)


class SingleThreadedAgentRuntime(_Runtime):
    def __init__(self, *, intervention_handlers: list[Any] | None = None) -> None:
        super().__init__(intervention_handlers=intervention_handlers or [])

    async def send_message(self, *given: Any, **named: Any) -> Any:
        return await super().send_message(*given, **named)

    async def publish_message(self, *given: Any, **named: Any) -> None:
        await super().publish_message(*given, **named)


class WorkerRuntime(_Runtime):
    """A runtime of another kind."""


def _kept(result: Any) -> Any:
    if result is DropMessage:
        raise MessageDroppedException
    return result


def modules() -> dict[str, types.ModuleType]:
    """Return new modules by their names."""
    core, exceptions = types.ModuleType("autogen_core"), types.ModuleType("autogen_core.exceptions")
    for kind in (BaseAgent, SingleThreadedAgentRuntime, DropMessage):
        setattr(core, kind.__name__, kind)
    setattr(exceptions, MessageDroppedException.__name__, MessageDroppedException)
    return {module.__name__: module for module in (core, exceptions)}
