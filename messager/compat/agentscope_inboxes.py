"""MessagerBus: a message bus of AgentScope 2 over Messagers, so that its agents can follow a recorded schedule.

    async with MessagerBus(RedisConfig(server="localhost"), "exp-1", "alice", "bob") as bus:
        alice = Agent("alice", ..., middlewares=[InboxMiddleware(bus)], state=AgentState(session_id="alice"))

| what                     | where it travels                                                  | sent by               |
|--------------------------|-------------------------------------------------------------------|-----------------------|
| inboxes                  | the broker; wait in the Messager of the session, until it drains  | the sender's Messager |
| `publish`, `subscribe`   | the broker                                                        | the sender's Messager |
| other queues, logs       | `state`                                                           | the sender's Messager |
| locks, registries        | `state`                                                           | are no messages       |

An inbox exists from the subscription of its session on: nothing waits for a session of a process that is not there yet.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from agentscope.app.message_bus import InMemoryMessageBus, MessageBus, RedisMessageBus

from .. import channels
from ..clock import Clock
from ..endpoint import Endpoint
from ..errors import NotConnected, PublishError
from ..hooks import LogHook
from ..messager import Messager
from ..payload import to_wire
from ..record import CLOSED
from .agentscope_bus import unrecord
from .agentscope_messages import INBOX, BusLog, Entry, acting, inbox_owner, sender_of, taken

if TYPE_CHECKING:
    from ..brokers.base import Broker
    from ..brokers.redis.config import RedisConfig

log = logging.getLogger("messager")


class MessagerBus(MessageBus):  # type: ignore[misc]
    """Bus of AgentScope with a Messager for each session of this process. An async context manager."""

    def __init__(
        self,
        config: RedisConfig | Broker,
        exp_id: str,
        *sessions: str,
        state: Any = None,
        hooks: Sequence[LogHook] = (),
        clock: Clock | None = None,
    ) -> None:
        """`sessions` are those of this process: they are subscribed when the bus is entered, others when they first
        drain their inbox.

        `state` is the bus of AgentScope, shared by all processes, that has what no Messager carries. Without one, it is
        AgentScope's on the same server if a `RedisConfig` is given, else one in memory, which serves one process. The
        keys there begin with `messager:EXP_ID:`. A bus that is given is neither opened nor closed.
        """
        self.exp_id = exp_id
        self.sessions = sessions
        self._owned = hasattr(config, "server")
        self._broker: Broker = _redis(config) if self._owned else config  # type: ignore[assignment]
        self._state = _state(config) if state is None else state
        self._owns_state = state is None
        self._hooks, self._clock = hooks, clock or Clock()
        unrecord(self._state)  # its messages are logged here
        self._shared = _Shared(self._state, f"messager:{exp_id}:", self._broker)
        self._own: Messager | None = None
        """Messager of senders that are no session here."""
        self._inboxes: dict[str, _Inbox] = {}
        self._readers: dict[str, Endpoint] = {}
        self._opening = asyncio.Lock()
        self._log = BusLog(self._shared, self._speaker, self._reader)

    async def __aenter__(self) -> Self:
        try:
            if self._owns_state:
                await self._state.__aenter__()
            # Senders have their place in the schedule by what their Messager is subscribed to. Nobody publishes there.
            self._own = await self._open(f"agentscope:bus:{','.join(self.sessions)}")
            for session in self.sessions:
                await self._inbox(session)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Close the Messagers, and the broker and the state that are its own."""
        for endpoint in self._readers.values():
            endpoint.mark(CLOSED)
        messagers = [inbox.messager for inbox in self._inboxes.values()]
        for messager in [*messagers, *([] if self._own is None else [self._own])]:
            await messager.close()
        self._own = None
        self._inboxes.clear()
        self._readers.clear()
        if self._owned:
            await self._broker.close()
        if self._owns_state:
            await self._state.aclose()

    async def queue_push(self, key: str, payload: dict[str, Any], *, ttl_secs: int | None = None) -> str:
        """Publish to an inbox, or put into another queue. An inbox does not expire."""
        session = inbox_owner(key)
        if session is None:
            pushed: str = await self._log.queue_push(key, payload, ttl_secs=ttl_secs)
            return pushed
        inbox = self._inboxes.get(session)
        if inbox is not None and inbox.put_back(payload):
            return uuid4().hex
        from_id = sender_of(key, payload) or acting.get()
        await self._messager(from_id).send_message(key, payload, from_id, session)
        return uuid4().hex

    async def queue_drain(self, key: str, max_count: int = 100) -> list[Entry]:
        session = inbox_owner(key)
        if session is None:
            entries: list[Entry] = await self._log.queue_drain(key, max_count)
            return entries
        acting.set(session)
        return await (await self._inbox(session)).drain(max_count)

    async def queue_delete(self, key: str) -> None:
        session = inbox_owner(key)
        if session is None:
            await self._shared.queue_delete(key)
        elif session in self._inboxes:
            self._inboxes[session].clear()

    async def log_append(
        self, key: str, payload: dict[str, Any], *, ttl_secs: int | None = None, max_len: int | None = None
    ) -> str:
        appended: str = await self._log.log_append(key, payload, ttl_secs=ttl_secs, max_len=max_len)
        return appended

    async def log_read(self, key: str, since: str | None = None, max_count: int = 100) -> list[Entry]:
        entries: list[Entry] = await self._log.log_read(key, since, max_count)
        return entries

    async def publish(self, key: str, payload: dict[str, Any]) -> None:
        await self._log.publish(key, payload)

    def subscribe(
        self, key: str, *, on_ready: Callable[[], None] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        return self._log.subscribe(key, on_ready=on_ready)

    def _messager(self, from_id: str | None) -> Messager:
        """Return the Messager of a sender: of its session, else of the session of the running task, else of the bus."""
        for session in (from_id, acting.get()):
            if session is not None and (inbox := self._inboxes.get(session)) is not None:
                return inbox.messager
        if self._own is None:
            raise NotConnected("not sent: the bus is not open. Use it in `async with`.")
        return self._own

    def _speaker(self, from_id: Any) -> Endpoint:
        return self._messager(from_id).endpoint

    def _reader(self, key: str) -> Endpoint:
        """Return the endpoint of those who read a key. No gate holds it: they are no agents."""
        if key not in self._readers:
            self._readers[key] = Endpoint(self.exp_id, agent=key, clock=self._clock)
            self._readers[key].hooks = self._speaker(None).hooks
        return self._readers[key]

    async def _inbox(self, session: str) -> _Inbox:
        async with self._opening:
            if session not in self._inboxes:
                self._inboxes[session] = _Inbox(await self._open(INBOX + session))
            return self._inboxes[session]

    async def _open(self, channel: str) -> Messager:
        made = Messager(self._broker, self.exp_id, log_limit=0, clock=self._clock)
        for hook in self._hooks:
            made.add_log_hook(hook)
        await made.init()
        try:
            await made.subscribe_and_start_listening([channels.literal(channel)])
        except BaseException:
            await made.close()
            raise
        return made


def _of_state(name: str) -> Callable[..., Any]:
    def call(self: MessagerBus, *args: Any, **options: Any) -> Any:
        return getattr(self._shared, name)(*args, **options)

    return call


for _name in sorted(MessageBus.__abstractmethods__ - vars(MessagerBus).keys()):  # locks and registries
    setattr(MessagerBus, _name, _of_state(_name))
MessagerBus.__abstractmethods__ = frozenset()


class _Inbox:
    """Inbox of a session: what its Messager has fetched, and what was not handed over yet."""

    def __init__(self, messager: Messager) -> None:
        self.messager = messager
        self._waiting: list[dict[str, Any]] = []
        self._handed: list[dict[str, Any]] = []  # by the last drain
        self._number = 0

    async def drain(self, max_count: int) -> list[Entry]:
        """Return at most so many entries. If fewer wait, fetch, which waits for the schedule if there is one."""
        if len(self._waiting) < max_count:
            fetched = map(_parsed, await self.messager.fetch_messages())
            self._waiting += [payload for payload in fetched if payload is not None]
        handed, self._waiting = self._waiting[:max_count], self._waiting[max_count:]
        if handed:
            self._handed = list(handed)
        self._note_fetched()
        entries = []
        for payload in handed:
            self._number += 1
            entries.append((f"{self._number}-0", payload))
        return entries

    def put_back(self, payload: dict[str, Any]) -> bool:
        """Let a payload that was handed over wait again; return False if it was not."""
        if taken(self._handed, payload) is None:
            return False
        self._waiting.append(payload)
        self._note_fetched()
        return True

    def clear(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self.messager.message_queue.take_all()

    def _note_fetched(self) -> None:
        """Let the schedule know what was handed over, which may be less than was fetched."""
        behind = len(self._waiting) + self.messager.message_queue.qsize()
        self.messager.endpoint.fetched = self.messager.endpoint.arrived - behind


class _Shared:
    """What no Messager carries: `publish` and `subscribe` over a broker, the rest over a bus, with prefixed keys."""

    def __init__(self, bus: Any, prefix: str, broker: Broker) -> None:
        self._bus = bus
        self._prefix = prefix
        self._broker = broker

    async def publish(self, key: str, payload: dict[str, Any]) -> None:
        (answer,) = await self._broker.publish([(channels.encode(key), to_wire(payload).encode())])
        if isinstance(answer, PublishError):
            raise answer

    async def subscribe(
        self, key: str, *, on_ready: Callable[[], None] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        pubsub = self._broker.pubsub()
        try:
            await pubsub.psubscribe(channels.literal(key))
            if on_ready is not None:
                on_ready()
            while True:
                message = await pubsub.get_message(timeout=pubsub.listen_timeout)
                if message is not None and message["type"] == "pmessage" and (parsed := _parsed(message)) is not None:
                    yield parsed
        finally:
            await asyncio.shield(pubsub.aclose())

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._bus, name))

    def _call(self, operation: Callable[..., Any], *args: Any, **options: Any) -> Any:
        bound = inspect.signature(operation).bind(*args, **options)
        key = next(iter(bound.arguments))
        bound.arguments[key] = self._prefix + bound.arguments[key]
        return operation(*bound.args, **bound.kwargs)


def _parsed(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the payload of a message; None for one that is not of AgentScope."""
    try:
        payload = json.loads(message["data"])
    except ValueError:
        payload = None
    if isinstance(payload, dict):
        return payload
    log.warning("a message on %s is no JSON object: it is left out", channels.decode(message["channel"]))
    return None


def _redis(config: Any) -> Broker:
    from ..brokers.redis.broker import RedisBroker  # slow to import, and not needed with a broker

    return RedisBroker.from_config(config)


def _state(config: Any) -> Any:
    if not hasattr(config, "server"):
        return InMemoryMessageBus()
    return RedisMessageBus(host=config.server, port=config.port, db=config.db, password=config.password)
