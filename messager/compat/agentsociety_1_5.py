"""Messages of an installed AgentSociety 1.5, whose agents talk through queues in one process.

    from messager.compat import agentsociety

    agentsociety.install()

Agents send into the queue of AgentSociety's `Messager`. At the end of a step, an interceptor replaces what it refuses;
at the begin of the next one, the engine hands each message to its agent. Channels are those of 1.3, in the experiment
that is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from .. import channels
from ..hooks import tell
from ..record import Carrier, MessageRecord
from ..transport import Transport, of_process
from .agentsociety_stages import mark_stages
from .patching import Patches
from .quietly import Quietly
from .settings import without_secrets

INTERCEPTOR = "MessageInterceptor"

_quietly = Quietly("AgentSociety")

Method = Callable[..., Coroutine[Any, Any, Any]]


def install(patches: Patches, transport: Transport | None, messager: Any, agent: Any, engine: Any) -> None:
    """Record the messages of AgentSociety's classes `Messager`, `CitizenAgentBase` and `SimulationEngine`, by patches.

    Without a transport, that of the process is used, whose experiment is that of the first `Messager` unless one is
    given. Raises `AttributeError` for classes of another version; nothing is changed then.
    """
    recording = _Recording(transport)
    wrapped: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (messager, "send_message", _after(recording.sent)),
        (messager, "fetch_pending_messages", _after(recording.collected)),
        (messager, "set_received_messages", _after(recording.accepted)),
        (messager, "fetch_received_messages", _after(recording.dispatched)),
        (agent, "_handle_agent_chat_with_storage", _before(recording.received)),
        (
            agent,
            "_handle_interview_with_storage",
            lambda method: _before(recording.received)(_after(recording.answered)(method)),
        ),
        (engine, "__init__", recording.describing),
    ]
    changes = [(owner, name, wrap(getattr(owner, name))) for owner, name, wrap in wrapped]
    mark_stages(patches, engine, recording.mark)
    for change in changes:
        patches.change(*change)


def _after(note: Callable[..., None]) -> Callable[[Method], Method]:
    """Return what wraps a method: `note` is called afterwards, with its arguments and its result."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        async def noting(*args: Any, **kwargs: Any) -> Any:
            result = await method(*args, **kwargs)
            with _quietly:
                note(*args, *kwargs.values(), result)
            return result

        return noting

    return wrap


def _before(note: Callable[..., None]) -> Callable[[Method], Method]:
    """Return what wraps a method: `note` is called before, with its arguments."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        async def noting(*args: Any, **kwargs: Any) -> Any:
            with _quietly:
                note(*args, *kwargs.values())
            return await method(*args, **kwargs)

        return noting

    return wrap


class _Step:
    """Messages of a `Messager` since the last dispatch, by identity: they are handed on as the same objects."""

    def __init__(self) -> None:
        self.sent: dict[int, tuple[Any, MessageRecord]] = {}
        self.collected: dict[int, tuple[Any, MessageRecord]] = {}
        """Those that the engine has taken, and perhaps shows to an interceptor."""
        self.accepted: dict[int, Any] = {}


class _Recording:
    """What is noted of the calls of AgentSociety's methods."""

    def __init__(self, transport: Transport | None) -> None:
        self._transport = transport
        self._steps: WeakKeyDictionary[Any, _Step] = WeakKeyDictionary()

    def sent(self, messager: Any, message: Any, _: None) -> None:
        record = self._send(messager, message, message.from_id, "queue")
        self._step(messager).sent[id(message)] = message, record

    def collected(self, messager: Any, pending: Sequence[Any]) -> None:
        step = self._step(messager)
        step.collected |= {id(message): step.sent.pop(id(message)) for message in pending if id(message) in step.sent}

    def accepted(self, messager: Any, messages: Sequence[Any], _: None) -> None:
        step = self._step(messager)
        collected, step.collected = step.collected, {}
        step.accepted = {id(message): message for message in messages}
        for key, (message, record) in collected.items():
            if key not in step.accepted:
                self._of(messager.exp_id).endpoint(message.from_id).blocked(record, INTERCEPTOR)
        for key, message in step.accepted.items():
            if key not in collected:  # of the interceptor, or of a user
                self._send(messager, message, None, "queue")

    def dispatched(self, messager: Any, messages: Sequence[Any]) -> None:
        for message in messages:
            if _is_for_place(message):  # the engine itself keeps what is announced at a place
                self._receive(messager, message, None, "queue")

    def received(self, agent: Any, message: Any) -> None:
        carrier: Carrier = "queue"
        if id(message) not in self._step(agent.messager).accepted:  # the engine calls the agent for an interview
            carrier = "call"
            self._send(agent.messager, message, None, carrier)
        self._receive(agent.messager, message, agent.id, carrier)

    def answered(self, agent: Any, question: Any, answer: Any) -> None:
        transport = self._of(agent.messager.exp_id)
        channel, payload = channels.payback_channel(transport.exp_id), {"from": agent.id, "content": answer}
        transport.endpoint(agent.id).sent(channel, payload, agent.id, carrier="call")
        transport.endpoint(None).received(channel, payload, agent.id, carrier="call")

    def describing(self, init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def describing(engine: Any, *args: Any, **kwargs: Any) -> None:
            init(engine, *args, **kwargs)
            with _quietly:
                self._describe(engine)

        return describing

    def mark(self, engine: Any, name: str, **fields: Any) -> None:
        with _quietly:
            self._of(engine.exp_id).mark(name, **without_secrets(fields))

    def _of(self, exp_id: str) -> Transport:
        return self._transport or of_process(exp_id)

    def _describe(self, engine: Any) -> None:
        meta = {"config": without_secrets(engine.config)}
        for hook in self._of(engine.exp_id).hooks:
            tell(hook, "described", str(engine.name), meta)

    def _step(self, messager: Any) -> _Step:
        return self._steps.setdefault(messager, _Step())

    def _receive(self, messager: Any, message: Any, endpoint: Any, carrier: Carrier) -> None:
        transport = self._of(messager.exp_id)
        channel, payload = _channel(transport.exp_id, message), _payload(message)
        transport.endpoint(endpoint).received(channel, payload, message.from_id, message.to_id, carrier=carrier)

    def _send(self, messager: Any, message: Any, endpoint: Any, carrier: Carrier) -> MessageRecord:
        transport = self._of(messager.exp_id)
        channel, payload = _channel(transport.exp_id, message), _payload(message)
        return transport.endpoint(endpoint).sent(channel, payload, message.from_id, message.to_id, carrier=carrier)


def _is_for_place(message: Any) -> bool:
    return str(message.kind.value).startswith("aoi")


def _channel(exp_id: str, message: Any) -> str:
    """Return the channel of a message, as `Messager.get_subtopic_channel` and `get_aoi_channel` name it."""
    if _is_for_place(message):
        return f"exps:{exp_id}:aois:{message.to_id}"
    return channels.agent_channel(exp_id, message.to_id, message.kind.value)


def _payload(message: Any) -> dict[str, Any]:
    """Return a payload in the form of 1.3, without the time on the clock of the wall, which no other run has."""
    kind = {"kind": message.kind.value} if _is_for_place(message) else {}
    return {"from": message.from_id, **message.payload, "day": message.day, "t": message.t, **kind}
