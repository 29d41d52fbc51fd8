"""Messager over Redis or any other broker. Replaces the Messager of AgentSociety 1.3."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from . import actors, channels
from .brokers.base import Broker, PubSub
from .clock import Clock
from .endpoint import offered_gate
from .errors import ListenerDied, NotConnected
from .gate import Gate
from .hooks import LogHook, LogList, OfferedHook, offered, stop, tell
from .interceptor import refusal
from .listener import Listener
from .message_queue import MessageQueue
from .payload import to_wire
from .publisher import Publisher
from .record import CLOSED, SUBSCRIBED, MessageRecord, mark_record

if TYPE_CHECKING:
    from .brokers.redis.config import RedisConfig

MOST_POLLS = 100
"""Maximum number of empty fetches within `PAUSE_SECONDS`; each further one lasts that long. Otherwise an agent that
fetches in a loop would let nothing else run, and virtual time would not pass."""
PAUSE_SECONDS = 0.001

log = logging.getLogger("messager")


class Messager:
    """Sends and receives the messages of one experiment, and passes each to the log hooks.

    `config` is a `RedisConfig`, or any `Broker`, which `close` leaves open. Contract: `agentsociety.message.Messager`
    of AgentSociety 1.3.
    """

    _CONNECT, _ADDRESS = "init", "RedisConfig"  # names used in errors

    def __init__(
        self,
        config: RedisConfig | Broker,
        exp_id: str,
        message_interceptor: Any = None,
        *,
        log_limit: int | None = 100_000,
        queue_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`log_limit` is the maximum number of entries of `get_log_list`, the newest; None for no limit.

        `queue_bytes` limits the received messages that wait to be fetched (bytes of channels and payloads). Above it,
        the listener stops reading until `fetch_messages` has emptied the queue; messages wait at the broker, and a
        `gap` covers those that it drops. None is no limit, with one warning in the log above 100 MB.

        `clock` gives all timestamps; it is not pickled.

        Raises `TypeError` for any other `config`, and `ValueError` for a negative `queue_bytes`.
        """
        self._given: dict[str, Any] = {
            "config": config,
            "exp_id": exp_id,
            "log_limit": log_limit,
            "queue_bytes": queue_bytes,
        }
        self._owned = hasattr(config, "server")  # AgentSociety's own RedisConfig is accepted as well
        if not self._owned and not hasattr(config, "publish"):
            raise TypeError(
                f"a Messager is made with a {self._ADDRESS} or a broker, not with a {type(config).__name__}. "
                "Make a broker of a URL with `messager.open_broker(url)`."
            )
        self.broker: Broker = _redis(config) if self._owned else config  # type: ignore[assignment]
        self.exp_id = exp_id
        self._pid = os.getpid()
        self.connected = False
        self.clock = clock or Clock()
        self.message_queue = MessageQueue(exp_id, queue_bytes, self.clock)
        self.endpoint = self.message_queue.endpoint
        """Place of this Messager in the schedule. Add log hooks with `add_log_hook` of the Messager."""
        self.receive_messages_task: asyncio.Task[None] | None = None
        self._message_interceptor = message_interceptor
        self._log_list = LogList(log_limit)
        self._offered: list[OfferedHook] = []
        self._yielding: set[asyncio.Task[None]] = set()  # stop offered hooks that yielded to another one
        self._name: str | None = None
        self._meta: dict[str, Any] = {}
        self._publisher = Publisher(self.broker, self.clock, self.endpoint.hooks, self.endpoint.tell)
        self._patterns: dict[str, None] = {}
        self._pubsub: PubSub | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop of `init`
        self._connecting = asyncio.Lock()
        self._subscribing = asyncio.Lock()
        self._clock_offset: int | None = None
        self._polled_at = 0.0  # time of the event loop at the last fetch without a message
        self._polls = 0  # fetches without a message at that time

    def __getstate__(self) -> Any:
        """Return the arguments with which another process makes the same Messager. Raises `TypeError` if it is in use.

        `ray.remote(Messager)` derives a class and pickles an object of it on which `__init__` never ran. That object is
        pickled as any other.
        """
        if "_given" not in vars(self):
            return super().__getstate__()
        picklable = self._owned or self.broker.picklable
        if self.connected or not picklable or self.endpoint.hooks:
            raise TypeError(
                f"a Messager can be pickled only before {self._CONNECT}() and without log hooks, and made with a "
                f"{self._ADDRESS}, or with a broker of `messager.open_broker(url)` that is not connected either. "
                "Connect it, and add its hooks, in the process that uses it."
            )
        given = {**self._given, "message_interceptor": self._message_interceptor}
        return {"given": given, "name": self._name, "meta": self._meta}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "given" not in state:
            vars(self).update(state)
            return
        self._make(state["given"])
        self._owned = True  # the broker was pickled with it and is not shared
        self._name, self._meta = state["name"], state["meta"]

    def _make(self, given: dict[str, Any]) -> None:
        """Call `__init__` of this class; a subclass of the user may have other arguments."""
        Messager.__init__(self, **given)

    @property
    def id(self) -> str:
        """Identity of this Messager in the log. A copy in another process has another one, from `init` on."""
        return self.endpoint.id

    @property
    def message_interceptor(self) -> Any:
        """Interceptor that permits or refuses messages of agents; None without one."""
        return self._message_interceptor

    def set_message_interceptor(self, message_interceptor: Any) -> None:
        """Replace the interceptor: an object with `forward`, or the handle of a Ray actor."""
        self._message_interceptor = message_interceptor

    def get_log_list(self) -> list[dict[str, Any]]:
        """Return messages sent, or blocked by an interceptor, since the last clear, oldest first (see `LogList`)."""
        return self._log_list.entries()

    def clear_log_list(self) -> None:
        """Remove all entries of `get_log_list`."""
        self._log_list.clear()

    def add_log_hook(self, hook: LogHook) -> None:
        """Add a hook for all later events, except the outcomes of messages in flight.

        A `Recorder` added after `init` replaces the recorder that came with `MESSAGER_STORE`. In a replay, a hook that
        would record into what is replayed is refused with an error.
        """
        self.endpoint.add_log_hook(hook)
        self._yield()
        if self.connected:
            self._introduce(hook)

    def remove_log_hook(self, hook: LogHook) -> None:
        """Remove a hook. It still receives the outcomes of messages in flight."""
        self.endpoint.remove_log_hook(hook)

    def set_gate(self, gate: Gate | None) -> None:
        """Set the gate through which all messages pass, or remove it. Call it before the first message.

        Raises the errors of a gate that refuses one of the log hooks.
        """
        self.endpoint.set_gate(gate)

    async def init(self) -> None:
        """Connect. Raises `BrokerUnavailable`.

        With `MESSAGER_STORE` in the environment, a recorder is added. With `MESSAGER_REPLAY`, a gate is set, unless
        there is one; raises if the schedule cannot be read. After `close`, the gate goes on at its place.
        """
        async with self._connecting:
            if self.connected:
                return
            if self._pid != os.getpid():  # made before a fork: the other processes have the same object
                self.endpoint.id, self._pid = uuid4().hex, os.getpid()
            await self.broker.connect()
            self._clock_offset = await self.broker.clock_offset()
            self._loop = asyncio.get_running_loop()
            endpoint = self.endpoint
            endpoint.gate_loop = self._loop
            try:
                if (given := endpoint.gate) is not None:
                    given.connected()
                elif os.environ.get("MESSAGER_REPLAY"):
                    endpoint.set_gate(await offered_gate(endpoint, self.broker))
                if os.environ.get("MESSAGER_STORE"):
                    self._offered = await offered(self.exp_id, endpoint.hooks)
                    endpoint.hooks += self._offered
                    self._yield()  # a recorder may have been added meanwhile
            except BaseException:
                gate, endpoint.gate = endpoint.gate, given
                if gate is not None:
                    await gate.close()
                if self._owned:
                    await self.broker.close()
                raise
            self.connected = True
            actors.connected.add(endpoint)
            for hook in endpoint.hooks:
                self._introduce(hook)

    async def close(self) -> None:
        """Wait for messages that are being sent, stop the listener, disconnect. May be called twice, in any event loop.

        If it has subscribed, a mark `messager.closed` tells the log hooks what had been fetched by then.

        If the event loop of `init` does not run any more, its connections cannot be closed and are left open.
        """
        if not self.connected:
            return
        self.connected = False
        actors.connected.discard(self.endpoint)
        if self.endpoint.gate is not None:
            await self.endpoint.gate.close()
        loop = self._loop
        if loop is asyncio.get_running_loop():
            await self._disconnect()
        elif loop is not None and loop.is_running():  # in another thread
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._disconnect(), loop))
        else:
            log.warning(
                "closed in another event loop than init(), which does not run any more: its connections stay open"
            )
            self._log_closing()
            self.receive_messages_task = self._pubsub = None
            self._patterns.clear()
        while self._offered:
            hook = self._offered.pop()
            self.remove_log_hook(hook)
            await stop(hook)

    async def _disconnect(self) -> None:
        await self._publisher.flushed()
        self._log_closing()
        await self._stop_listening()
        if self._owned:
            await self.broker.close()

    async def __aenter__(self) -> Messager:
        await self.init()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def subscribe_and_start_listening(self, channels: Iterable[str]) -> None:
        """Subscribe to channels, as glob patterns, and start the listener. Subscriptions are active when this returns.

        May be called again for more channels. Raises `NotConnected`, `BrokerUnavailable`, and on MQTT `ValueError` for
        a pattern that matches no topic.
        """
        if not self.connected:
            raise NotConnected(f"cannot subscribe: not connected. Call `await messager.{self._CONNECT}()` first.")
        wanted = [channels] if isinstance(channels, str | bytes) else list(channels)
        async with self._subscribing:
            running = self.receive_messages_task
            if running is not None and not running.done() and self._pubsub is not None:
                await self._pubsub.psubscribe(*wanted)
                await self._subscribed(wanted)
                return
            if not wanted:
                return
            pubsub = self.broker.pubsub()
            try:
                await pubsub.psubscribe(*wanted)
                if not self.connected:
                    raise NotConnected(
                        "not subscribed: the Messager was closed meanwhile. Subscribe before closing it."
                    )
            except BaseException:
                await pubsub.aclose()
                raise
            self._pubsub = pubsub
            self.receive_messages_task = asyncio.create_task(self._listen_for_messages(pubsub, wanted))
            self._patterns.clear()
            await asyncio.sleep(0)  # the listener starts: it logs a gap if it ends before it has read everything
            await self._subscribed(wanted)

    async def fetch_messages(self) -> list[dict[str, Any]]:
        """Return the messages that arrived since the last call, in order.

        Each is a dict with `type`, `pattern`, `channel` and `data`, the last three bytes. Raises `ListenerDied` if the
        listener ended with an error and no message is left.
        """
        actors.used(self.endpoint)
        if self.endpoint.gate is not None:
            await self.endpoint.gate.fetching()
        messages = self.message_queue.take_all()
        task = self.receive_messages_task
        if not messages and task is not None and task.done() and not task.cancelled() and task.exception():
            raise ListenerDied(f"the listener ended: {task.exception()}. Subscribe again.") from task.exception()
        if not messages and self._polls_without_pause():
            await asyncio.sleep(PAUSE_SECONDS)
        return messages

    def _polls_without_pause(self) -> bool:
        """Return True at many empty fetches within `PAUSE_SECONDS`: they would let nothing else run."""
        now = asyncio.get_running_loop().time()
        if not 0 <= now - self._polled_at < PAUSE_SECONDS:
            self._polled_at, self._polls = now, 0
        self._polls += 1
        return self._polls > MOST_POLLS

    async def send_message(self, channel: str, payload: Any, from_id: Any = None, to_id: Any = None) -> None:
        """Publish a dict or a `Msg`. Returns when the broker has taken it.

        If both ids are given, the interceptor is asked first; a refused message is logged as blocked and not
        published. Raises `NotConnected`, `PublishError` (its `outcome` says whether the message may have been
        published), and `TypeError` or `ValueError` for a payload without a JSON form.
        """
        if not self.connected:
            raise NotConnected(f"cannot send: not connected. Call `await messager.{self._CONNECT}()` first.")
        actors.used(self.endpoint)
        started = self.clock.now()
        text = to_wire(payload)
        channel = channels.decode(channel)  # bytes are accepted, as `fetch_messages` returns them
        channels.encode(channel)  # raises for text without a byte form, before anything happens
        record = MessageRecord("sent", started, channel, text.encode(), from_id, to_id, payload)
        await self._pass(record, text)
        self._log_list.after(record)

    # Each coroutine in a send costs about 3 % of it: the usual path has none of its own.
    def _pass(self, record: MessageRecord, text: str) -> Awaitable[None]:
        """Pass a message through the gate, and publish it."""
        endpoint = self.endpoint
        endpoint.stamp(record)
        if endpoint.gate is None:
            return self._publish(record, record.ts, text)

        async def publish(started: int) -> None:
            if not self.connected:
                raise NotConnected("not sent: the Messager was closed meanwhile. Send before closing it.")
            await self._publish(record, started, text)

        return endpoint.held(endpoint.gate, record, publish)

    def _publish(self, record: MessageRecord, started: int, text: str) -> Awaitable[None]:
        """Ask the interceptor, if both ids are given, and publish or block a message."""
        if self._message_interceptor is None or record.from_id is None or record.to_id is None:
            return self._publisher.send(record, started)
        return self._publish_if_allowed(self._message_interceptor, record, started, text)

    async def _publish_if_allowed(self, interceptor: Any, record: MessageRecord, started: int, text: str) -> None:
        try:
            refused = await refusal(interceptor, record.from_id, record.to_id, text)
        except Exception as error:
            record.kind = "failed"
            record.meta = {"outcome": "not_sent", "error": f"the interceptor raised: {error!r}"}
            self.endpoint.tell(record)
            raise
        if refused is not None:
            record.kind, record.duration_ns, record.meta = "blocked", self.clock.now() - started, refused
            self.endpoint.tell(record)
            return
        if not self.connected:
            raise NotConnected(
                "not sent: the Messager was closed while the interceptor was asked. Send before closing it."
            )
        await self._publisher.send(record, started)

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a mark, such as a step, a tick or a note, with fields of any name. May be called from any thread.

        Raises `TypeError` or `ValueError` for fields without a JSON form.
        """
        self.endpoint.mark(name, **fields)

    def describe(self, name: str | None = None, /, **meta: Any) -> None:
        """Set the name and meta of the experiment, such as its configuration and seed. `ls` and `info` show them.

        Earlier values are kept. Raises `TypeError` or `ValueError` for meta without a JSON form.
        """
        self._name, self._meta = self._name or name, {**json.loads(json.dumps(meta)), **self._meta}
        if self.connected:
            for hook in self.endpoint.hooks:
                self._tell_description(hook)

    def get_subtopic_channel(self, agent_id: Any, subtopic: str) -> str:
        """Return `exps:{exp_id}:agents:{agent_id}:{subtopic}`."""
        return channels.agent_channel(self.exp_id, agent_id, subtopic)

    def get_user_survey_channel(self, agent_id: Any) -> str:
        """Return the channel on which an agent gets surveys."""
        return self.get_subtopic_channel(agent_id, "user-survey")

    def get_user_chat_channel(self, agent_id: Any) -> str:
        """Return the channel on which an agent gets questions of users."""
        return self.get_subtopic_channel(agent_id, "user-chat")

    def get_agent_chat_channel(self, agent_id: Any) -> str:
        """Return the channel on which an agent gets messages of other agents."""
        return self.get_subtopic_channel(agent_id, "agent-chat")

    def get_user_payback_channel(self) -> str:
        """Return `exps:{exp_id}:user-payback`."""
        return channels.payback_channel(self.exp_id)

    async def _listen_for_messages(self, pubsub: PubSub, channels: Iterable[str]) -> None:
        """Subscribe, then queue and log what arrives, until cancelled. Part of the contract.

        `subscribe_and_start_listening` has subscribed already: to do it again has no effect.
        """
        listener = Listener(pubsub, self.message_queue, self.endpoint)
        try:
            if pubsub is not self._pubsub:
                await pubsub.psubscribe(*channels)
            await listener.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("the listener of experiment %s ended: %s", self.exp_id, error)
            raise
        finally:
            listener.log_unread()
            if not isinstance(sys.exception(), GeneratorExit):  # a killed actor: no event loop runs to close it in
                await pubsub.aclose()

    async def _subscribed(self, patterns: Iterable[str | bytes]) -> None:
        """Log new subscriptions, and tell the gate."""
        added = [name for name in dict.fromkeys(map(channels.decode, patterns)) if name not in self._patterns]
        if not added:
            return
        fields = {"patterns": added, **({"added": True} if self._patterns else {})}
        self._patterns.update(dict.fromkeys(added))
        self._tell_mark(SUBSCRIBED, fields)
        if self.endpoint.gate is not None:
            await self.endpoint.gate.subscribed(list(self._patterns))

    def _tell_mark(self, name: str, fields: dict[str, Any], hooks: list[LogHook] | None = None) -> None:
        self.endpoint.tell(self.endpoint.stamp(mark_record(self.clock.now(), name, fields)), hooks)

    def _log_closing(self) -> None:
        """Log what had been fetched, unless there was never anything to fetch: it has not subscribed."""
        if self._patterns or self.endpoint.arrived:
            self._tell_mark(CLOSED, {})

    async def _stop_listening(self) -> None:
        task, self.receive_messages_task = self.receive_messages_task, None
        pubsub, self._pubsub = self._pubsub, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if pubsub is not None:  # the listener, which closes it, may not have started, or be that of a subclass
            await pubsub.aclose()
        self._patterns.clear()

    def _yield(self) -> None:
        """Remove the offered hooks that yield to another one. They are stopped when their last messages have landed;
        outside of the event loop of `init`, by `close`."""
        hooks = self.endpoint.hooks
        for mine in self._offered:
            if mine in hooks and any(mine.yields_to(hook) for hook in hooks):
                hooks.remove(mine)
                if asyncio._get_running_loop() is self._loop is not None:
                    stopping = asyncio.create_task(self._stop_when_flushed(mine))
                    self._yielding.add(stopping)
                    stopping.add_done_callback(self._yielding.discard)

    async def _stop_when_flushed(self, hook: OfferedHook) -> None:
        await self._publisher.flushed()
        await stop(hook)

    def _introduce(self, hook: LogHook) -> None:
        tell(hook, "connected", self.broker.url, self.clock, self._clock_offset)
        self._tell_description(hook)
        if self._patterns:
            self._tell_mark(SUBSCRIBED, {"patterns": list(self._patterns)}, [hook])

    def _tell_description(self, hook: LogHook) -> None:
        if self._name or self._meta:
            tell(hook, "described", self._name, dict(self._meta))


def _redis(config: Any) -> Broker:
    from .brokers.redis.broker import RedisBroker  # slow to import, and not needed with a broker

    return RedisBroker.from_config(config)
