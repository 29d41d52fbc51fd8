"""The agents of AutoGen core, recorded: direct messages, their answers, and messages on topics.

    from messager.compat import autogen

    autogen.install()

or `with autogen.install():`, which restores AutoGen at the end. Call it before a runtime is made. The id of an agent is
the text of its `AgentId`; a message from outside all agents has no sender. Channels, with the class of the message:

    autogen:topic:default/default:Draft     what is published on a topic
    autogen:agent:critic/default:Draft      what is sent to an agent
    autogen:reply:critic/default:Review     what an agent answers, also with an error

The payload has the fields of the message, and `from` and `to`. A message is sent when `send_message` or
`publish_message` is called, by an agent or on a `SingleThreadedAgentRuntime`, and received when `on_message` of an
agent is called: an `InterventionHandler` is asked in between, and does not know who receives what is published. What
it drops or replaces is logged as blocked.
"""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4

from ..endpoint import Endpoint
from ..record import Carrier, MessageRecord, Outcome
from ..transport import Transport
from .adapter import Adapter
from .patching import Patches

_HANDLER = "InterventionHandler"

_installed: _AutoGen | None = None


def install(transport: Transport | None = None) -> Patches:
    """Record AutoGen from now on, through a transport, by default that of the process.

    A second call changes only the transport, if one is given. Raises `ImportError` if AutoGen is not installed, and
    `MessagerError` for a version that cannot be recorded.
    """
    global _installed
    if _installed is None or not _installed.active:
        made = _AutoGen()
        made.replace_methods()
        _installed = made
    _installed.use(transport)
    return _installed


@dataclass(frozen=True, slots=True)
class _Said:
    """A message as it is logged."""

    channel: str
    payload: str
    from_id: str | None
    to_id: str | None
    carrier: Carrier | None

    def sent(self, endpoint: Endpoint, **meta: Any) -> _Sent:
        """Log it as sent."""
        record = endpoint.sent(self.channel, self.payload, self.from_id, self.to_id, carrier=self.carrier, **meta)
        return _Sent(self, endpoint, record)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message that was logged as sent."""

    said: _Said
    endpoint: Endpoint
    record: MessageRecord

    def replaced(self, said: _Said, interceptor: str, **meta: Any) -> None:
        """Log that an interceptor has sent another message instead, if it has."""
        if said != self.said:
            self.endpoint.blocked(self.record, interceptor, "replaced")
            said.sent(self.endpoint, **meta)

    def blocked(self, interceptor: str, error: BaseException | None) -> None:
        """Log that an interceptor has dropped it."""
        self.endpoint.blocked(self.record, interceptor, None if error is None else str(error) or type(error).__name__)


@dataclass(slots=True)
class _Call:
    """A direct message that waits for its answer."""

    request: _Sent
    delivered: bool = False
    reply: _Sent | None = None


class _AutoGen(Adapter):
    framework = "AutoGen"

    def __init__(self) -> None:
        super().__init__()
        self._core: Any = import_module("autogen_core")
        self._dropped: Any = import_module("autogen_core.exceptions").MessageDroppedException
        self._calls: dict[str, _Call] = {}
        """By the id of the message."""
        self._published: dict[str, _Sent] = {}
        """Messages on topics about which intervention handlers are asked, by the id of the message."""
        self._intervened: weakref.WeakSet[Any] = weakref.WeakSet()
        """Runtimes with intervention handlers."""

    def replace_methods(self) -> None:
        """Replace the methods of AutoGen that messages pass."""
        agent, runtime = self._core.BaseAgent, self._core.SingleThreadedAgentRuntime
        self.wrap(agent, "on_message", self._handling)
        self.wrap(agent, "send_message", self._sending_of_agent)
        self.wrap(agent, "publish_message", self._publishing_of_agent)
        self.wrap(runtime, "send_message", self._sending)
        self.wrap(runtime, "publish_message", self._publishing)
        self.wrap(runtime, "__init__", self._making)

    def _handling(self, on_message: Any) -> Any:
        @functools.wraps(on_message)
        async def handled(agent: Any, message: Any, ctx: Any) -> Any:
            call = self._calls.get(ctx.message_id) if ctx.topic_id is None else None
            with self.logging():
                self._received(agent.id, message, ctx, call)
            try:
                answer = await on_message(agent, message, ctx)
            except Exception as error:
                with self.logging():
                    if call is not None:
                        self._replied(agent.id, error, ctx, call)
                raise
            with self.logging():
                if ctx.is_rpc:
                    self._replied(agent.id, answer, ctx, call)
            return answer

        return handled

    def _received(self, agent: Any, message: Any, ctx: Any, call: _Call | None) -> None:
        if ctx.topic_id is None:
            said = _said(f"agent:{agent}", message, ctx.sender, agent, "call")
            if call is not None:
                call.delivered = True
                call.request.replaced(said, _HANDLER, message_id=ctx.message_id)
        else:
            said = _said(f"topic:{ctx.topic_id}", message, ctx.sender, None, None)
        self._log_reception(said, agent, ctx.message_id)

    def _replied(self, agent: Any, answer: Any, ctx: Any, call: _Call | None) -> None:
        said = _said(f"reply:{agent}", answer, agent, ctx.sender, "call")
        reply = said.sent(self.transport.endpoint(str(agent)), message_id=ctx.message_id)
        if call is not None:
            call.reply = reply

    def _log_reception(self, said: _Said, agent: Any, message_id: str | None) -> None:
        to_id = _id(agent)
        given = said.channel, said.payload, said.from_id, to_id
        self.transport.endpoint(to_id).received(*given, carrier=said.carrier, **_meta(message_id))

    def _sending(self, send: Any) -> Any:
        @functools.wraps(send)
        async def called(
            runtime: Any,
            message: Any,
            recipient: Any,
            *,
            sender: Any = None,
            message_id: str | None = None,
            **named: Any,
        ) -> Any:
            message_id = message_id or str(uuid4())
            call = functools.partial(send, runtime, message, recipient, sender=sender, message_id=message_id, **named)
            return await self._send(call, message, recipient, sender, message_id, "not_sent")

        return called

    def _sending_of_agent(self, send: Any) -> Any:
        @functools.wraps(send)
        async def called(
            agent: Any, message: Any, recipient: Any, *, message_id: str | None = None, **named: Any
        ) -> Any:
            call = functools.partial(send, agent, message, recipient, message_id=message_id, **named)
            if self._is_recorded(agent.runtime):
                return await call()
            return await self._send(call, message, recipient, agent.id, message_id, "unknown")

        return called

    async def _send(
        self, send: Any, message: Any, recipient: Any, sender: Any, message_id: str | None, outcome: Outcome
    ) -> Any:
        """Await `send()` and log the message and its answer. `outcome` is that of one that was not handled here."""
        call: _Call | None = None
        key = message_id or str(uuid4())
        with self.logging():
            said = _said(f"agent:{recipient}", message, sender, recipient, "call")
            call = _Call(said.sent(self.transport.endpoint(_id(sender)), **_meta(message_id)))
            self._calls[key] = call
        try:
            answer = await send()
        except Exception as error:
            with self.logging():
                if call is not None:
                    self._raised(call, error, recipient, sender, message_id, outcome)
            raise
        finally:
            self._calls.pop(key, None)
        with self.logging():
            said = _said(f"reply:{recipient}", answer, recipient, sender, "call")
            if call is not None and call.reply is not None:
                call.reply.replaced(said, _HANDLER, **_meta(message_id))
            self._log_reception(said, sender, message_id)
        return answer

    def _raised(
        self, call: _Call, error: Exception, recipient: Any, sender: Any, message_id: str | None, outcome: Outcome
    ) -> None:
        """Log what became of a message whose sender gets an error."""
        dropped = isinstance(error, self._dropped)
        if call.reply is not None:
            said = _said(f"reply:{recipient}", error, recipient, sender, "call")
            if said == call.reply.said:
                self._log_reception(said, sender, message_id)
            else:
                call.reply.blocked(_HANDLER, error)
        elif dropped:
            call.request.blocked(_HANDLER, error)
        elif not call.delivered:
            call.request.endpoint.failed(call.request.record, error, outcome)

    def _publishing(self, publish: Any) -> Any:
        @functools.wraps(publish)
        async def called(
            runtime: Any,
            message: Any,
            topic_id: Any,
            *,
            sender: Any = None,
            message_id: str | None = None,
            **named: Any,
        ) -> None:
            message_id = message_id or str(uuid4())
            call = functools.partial(publish, runtime, message, topic_id, sender=sender, message_id=message_id, **named)
            await self._publish(call, message, topic_id, sender, message_id, keep=runtime in self._intervened)

        return called

    def _publishing_of_agent(self, publish: Any) -> Any:
        @functools.wraps(publish)
        async def called(agent: Any, message: Any, topic_id: Any, **named: Any) -> None:
            call = functools.partial(publish, agent, message, topic_id, **named)
            if self._is_recorded(agent.runtime):
                await call()
            else:
                await self._publish(call, message, topic_id, agent.id, None)

        return called

    async def _publish(
        self, publish: Any, message: Any, topic_id: Any, sender: Any, message_id: str | None, *, keep: bool = False
    ) -> None:
        """Await `publish()` and log the message; `keep` it for the intervention handlers."""
        sent: _Sent | None = None
        with self.logging():
            said = _said(f"topic:{topic_id}", message, sender, None, None)
            sent = said.sent(self.transport.endpoint(_id(sender)), **_meta(message_id))
            if keep and message_id is not None:
                self._published[message_id] = sent
        try:
            await publish()
        except Exception as error:
            with self.logging():
                if sent is not None:
                    sent.endpoint.failed(sent.record, error, "unknown")
            raise

    def _is_recorded(self, runtime: Any) -> bool:
        """Return whether the methods of a runtime are replaced: then those of its agents need not log."""
        return isinstance(runtime, self._core.SingleThreadedAgentRuntime)

    def _making(self, init: Any) -> Any:
        @functools.wraps(init)
        def made(runtime: Any, *given: Any, **named: Any) -> None:
            handlers: Sequence[Any] | None = named.get("intervention_handlers")
            if handlers:
                last = len(handlers) - 1
                named["intervention_handlers"] = [_Watched(self, one, n == last) for n, one in enumerate(handlers)]
                self._intervened.add(runtime)
            init(runtime, *given, **named)

        return made

    def intervened(self, handler: Any, ctx: Any, result: Any, *, last: bool) -> None:
        """Log what an intervention handler did with a published message. `result` is an error, if it raised one."""
        name, drop = type(handler).__name__, self._core.DropMessage
        dropped = result is drop or isinstance(result, drop | BaseException)
        if not dropped and not last:
            return  # the next one gets the message that was published, and what the last one returns counts
        sent = self._published.pop(ctx.message_id, None)
        if sent is None:
            return
        if dropped:
            sent.blocked(name, result if isinstance(result, BaseException) else None)
        else:
            said = _said(f"topic:{ctx.topic_id}", result, ctx.sender, None, None)
            sent.replaced(said, name, message_id=ctx.message_id)


class _Watched:
    """Intervention handler, with a look at what it does with published messages. Everything else is its own."""

    def __init__(self, adapter: _AutoGen, handler: Any, last: bool) -> None:
        self._adapter, self._handler, self._last = adapter, handler, last

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._handler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    async def on_publish(self, message: Any, *, message_context: Any) -> Any:
        """Ask the handler, and log what it did."""
        try:
            result = await self._handler.on_publish(message, message_context=message_context)
        except BaseException as error:
            self._log(message_context, error)
            raise
        self._log(message_context, result)
        return result

    def _log(self, ctx: Any, result: Any) -> None:
        with self._adapter.logging():
            self._adapter.intervened(self._handler, ctx, result, last=self._last)


def _id(agent: Any) -> str | None:
    return None if agent is None else str(agent)


def _meta(message_id: str | None) -> dict[str, Any]:
    return {} if message_id is None else {"message_id": message_id}


def _said(place: str, message: Any, sender: Any, recipient: Any, carrier: Carrier | None) -> _Said:
    """Return a message as it is logged. An error is the answer of an agent that raised it."""
    from_id, to_id = _id(sender), _id(recipient)
    plain = {"error": str(message)} if isinstance(message, BaseException) else _plain(message)
    content = plain if isinstance(plain, dict) else {"content": plain}
    payload = json.dumps({"from": from_id, "to": to_id, **content}, default=_plain)
    return _Said(f"autogen:{place}:{type(message).__name__}", payload, from_id, to_id, carrier)


def _plain(value: Any) -> Any:
    """Return a value for JSON: the fields of a model or a dataclass, whose values may need this, too."""
    if value is None or isinstance(value, str | int | float | list | dict):
        return value
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json")
        except ValueError:  # a field has no JSON form
            return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
