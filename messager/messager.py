"""Messager: what agents talk through. A drop-in for AgentSociety's (its Redis contract)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable
from typing import Any

from . import channels
from .brokers.protocol import Broker, PubSub
from .brokers.redis.broker import RedisBroker, RedisConfig
from .clock import Clock
from .errors import ListenerDied, NotConnected
from .hooks import LogHook, LogList, OfferedHook, offered
from .interceptor import allows
from .message_queue import MessageQueue
from .msg import Msg, as_dict
from .publisher import Publisher
from .record import MessageRecord, mark_record

YIELD_EVERY = 20
"""Messages after which a listener lets others run, on a stream that never pauses."""

log = logging.getLogger("messager")


def _default(value: object) -> Any:
    """What stands for an object that JSON has no form for."""
    message = as_dict(value)
    return str(value) if message is None else message


_encode = json.JSONEncoder(default=_default).encode
"""`json.dumps` with the same options makes an encoder anew for each message."""


def to_wire(payload: Any) -> str:
    """The text a payload travels as: AgentSociety's `json.dumps(payload, default=str)`; a message as its dict."""
    return _encode(payload.to_dict() if payload.__class__ is Msg else payload)


class Messager:
    """Sends and receives the messages of one experiment, and tells log hooks of each.

    `config` is a `RedisConfig`, or any `Broker` (which stays open when this closes).
    The contract is that of AgentSociety 1.3's `agentsociety.message.Messager`.
    """

    _CONNECT, _ADDRESS = "init", "RedisConfig"  # for those who are to be told what to do

    def __init__(
        self,
        config: RedisConfig | Broker,
        exp_id: str,
        message_interceptor: Any = None,
        *,
        log_limit: int | None = 100_000,
        queue_bytes: int | None = None,
    ) -> None:
        """`log_limit` is how many entries `get_log_list` keeps, the newest; None for all.

        `queue_bytes` limits the received messages that wait to be fetched (bytes of channels and payloads): above it
        the listener stops reading until `fetch_messages` has emptied the queue. Messages then wait at the broker,
        and what it drops lies in a `gap`. None is no limit, with one warning in the log above 100 MB.

        Raises `TypeError` for a `config` that is neither, and `ValueError` for a negative `queue_bytes`.
        """
        self._given: dict[str, Any] = {
            "config": config,
            "exp_id": exp_id,
            "log_limit": log_limit,
            "queue_bytes": queue_bytes,
        }
        self._owned = hasattr(config, "server")  # AgentSociety's own RedisConfig will do as well
        if not self._owned and not hasattr(config, "publish"):
            raise TypeError(
                f"a Messager is made with a {self._ADDRESS} or a broker, not with a {type(config).__name__}: "
                "`open_broker(url)` of messager.brokers makes a broker of a URL"
            )
        self.broker: Broker = RedisBroker.from_config(config) if self._owned else config  # type: ignore[arg-type,assignment]
        self.exp_id = exp_id
        self.connected = False
        self.clock = Clock()
        self.message_queue = MessageQueue(exp_id, queue_bytes)
        self.receive_messages_task: asyncio.Task[None] | None = None
        self._message_interceptor = message_interceptor
        self._log_list = LogList(log_limit)
        self._hooks: list[LogHook] = []
        self._offered: list[OfferedHook] = []
        self._name: str | None = None
        self._meta: dict[str, Any] = {}
        self._publisher = Publisher(self.broker, self.clock, self._hooks)
        self._pubsub: PubSub | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it is connected
        self._connecting = asyncio.Lock()
        self._subscribing = asyncio.Lock()
        self._listening = asyncio.Event()
        self._clock_offset: int | None = None

    def __getstate__(self) -> Any:
        """What another process needs to make the same one. Raises `TypeError` once it is in use here.

        `ray.remote(Messager)` derives a class from this one and pickles an object of it on which `__init__` never ran:
        that object is pickled as any other.
        """
        if "_given" not in vars(self):
            return super().__getstate__()
        travels = self._owned or getattr(self.broker, "travels", False)
        if self.connected or not travels or self._hooks:
            raise TypeError(
                f"a Messager goes to another process before {self._CONNECT}() and without log hooks, and made with a "
                f"{self._ADDRESS}, or with a broker that `open_broker(url)` of messager.brokers made of a URL and that "
                "is not connected either: connect it, and add its hooks, where it is used"
            )
        given = {**self._given, "message_interceptor": self._message_interceptor}
        return {"given": given, "name": self._name, "meta": self._meta}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "given" not in state:
            vars(self).update(state)
            return
        self._make(state["given"])
        self._owned = True  # a broker that came along is nobody else's
        self._name, self._meta = state["name"], state["meta"]

    def _make(self, given: dict[str, Any]) -> None:
        """Begin anew with what another one was made with; not with the arguments of a subclass of the user's own."""
        Messager.__init__(self, **given)

    @property
    def message_interceptor(self) -> Any:
        """Who is asked whether an agent's message may pass; None for nobody."""
        return self._message_interceptor

    def set_message_interceptor(self, message_interceptor: Any) -> None:
        """Ask this one from now on: an object with `forward`, or a Ray actor's handle."""
        self._message_interceptor = message_interceptor

    def get_log_list(self) -> list[dict[str, Any]]:
        """What `send_message` sent or an interceptor blocked since the last clear, oldest first (see `LogList`)."""
        return self._log_list.entries()

    def clear_log_list(self) -> None:
        """Forget the entries of `get_log_list`."""
        self._log_list.clear()

    def add_log_hook(self, hook: LogHook) -> None:
        """Tell this hook of every event from now on, except messages that are on their way already.

        A `Recorder` added after `init` replaces the recorder that came with `MESSAGER_STORE`.
        """
        self._hooks.append(hook)
        self._yield()
        if self.connected:
            self._introduce(hook)

    def remove_log_hook(self, hook: LogHook) -> None:
        """Tell this hook nothing more, except of messages that are on their way already."""
        if hook in self._hooks:
            self._hooks.remove(hook)

    async def init(self) -> None:
        """Connect. Raises `BrokerUnavailable`.

        With `MESSAGER_STORE` in the environment, a recorder comes along, without being asked for here.
        """
        async with self._connecting:
            if self.connected:
                return
            await self.broker.connect()
            self._clock_offset = await self.broker.clock_offset()
            if os.environ.get("MESSAGER_STORE"):
                self._offered = await offered(self.exp_id, self._hooks)
                self._hooks += self._offered
                self._yield()  # a recorder may have been added meanwhile
            self._loop = asyncio.get_running_loop()
            self.connected = True
            for hook in self._hooks:
                self._introduce(hook)

    async def close(self) -> None:
        """Let what is being sent leave, end the listener, disconnect. May be called twice, and in any event loop.

        Where that of `init` does not run any more, nothing can be ended in it: its connections are left to it.
        """
        if not self.connected:
            return
        self.connected = False
        loop = self._loop
        if loop is asyncio.get_running_loop():
            await self._disconnect()
        elif loop is not None and loop.is_running():  # in another thread
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._disconnect(), loop))
        else:
            log.warning("closed in another event loop than that of init(), which does not run: its connections stay")
            self.receive_messages_task = self._pubsub = None
        while self._offered:
            hook = self._offered.pop()
            self.remove_log_hook(hook)
            try:
                await hook.stop()
            except Exception:
                log.exception("the log hook %r could not be stopped", hook)

    async def _disconnect(self) -> None:
        await self._publisher.flushed()
        await self._stop_listening()
        if self._owned:
            await self.broker.close()

    async def __aenter__(self) -> Messager:
        await self.init()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def subscribe_and_start_listening(self, channels: Iterable[str]) -> None:
        """Listen on these channels, taken as glob patterns; active when this returns.

        May be called again for more. Raises `NotConnected`, `BrokerUnavailable`, and on MQTT `ValueError` for a
        pattern that no topic can fit.
        """
        if not self.connected:
            raise NotConnected(f"cannot subscribe: not connected. Call `await messager.{self._CONNECT}()` first.")
        wanted = [channels] if isinstance(channels, str | bytes) else list(channels)
        async with self._subscribing:
            running = self.receive_messages_task
            if running is not None and not running.done() and self._pubsub is not None:
                await self._pubsub.psubscribe(*wanted)
                return
            if not wanted:
                return
            self._listening.clear()
            self._pubsub = self.broker.pubsub()
            task = asyncio.create_task(self._listen_for_messages(self._pubsub, wanted))
            self.receive_messages_task = task
            active = asyncio.create_task(self._listening.wait())
            try:
                await asyncio.wait({task, active}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                active.cancel()
            if task.done():
                self.receive_messages_task = None
                task.result()

    async def fetch_messages(self) -> list[dict[str, Any]]:
        """What has arrived since the last call, in order.

        Each is a dict with `type`, `pattern`, `channel` and `data`, the last three bytes.
        Raises `ListenerDied` where the listener ended on an error and nothing is left to fetch.
        """
        messages = self.message_queue.take_all()
        task = self.receive_messages_task
        if not messages and task is not None and task.done() and not task.cancelled() and task.exception():
            raise ListenerDied(f"the listener ended: {task.exception()}. Subscribe again.") from task.exception()
        return messages

    async def send_message(self, channel: str, payload: Any, from_id: Any = None, to_id: Any = None) -> None:
        """Publish a dict or a `Msg`; returns when the broker has taken it.

        With both ids given, the interceptor is asked first; a message it refuses is logged
        as blocked and not published. Raises `NotConnected`, `PublishError` (its `outcome` says
        whether the message may have gone out), and `TypeError` or `ValueError` for a payload
        that JSON cannot hold.
        """
        if not self.connected:
            raise NotConnected(f"cannot send: not connected. Call `await messager.{self._CONNECT}()` first.")
        started = self.clock.now()
        text = to_wire(payload)
        channel = channels.decode(channel)  # bytes as `fetch_messages` gives them are welcome
        channels.encode(channel)  # a channel that has no bytes is refused before anything happens
        record = MessageRecord("sent", started, channel, text.encode(), from_id, to_id, payload)
        interceptor = self._message_interceptor
        if interceptor is not None and from_id is not None and to_id is not None:
            try:
                passes = await allows(interceptor, from_id, to_id, text)
            except Exception as error:
                record.kind = "failed"
                record.meta = {"outcome": "not_sent", "error": f"the interceptor raised: {error!r}"}
                self._publisher.tell(record)
                raise
            if not passes:
                record.kind, record.duration_ns = "blocked", self.clock.now() - started
                self._publisher.tell(record)
                self._log_list.after(record)
                return
            if not self.connected:
                raise NotConnected("not sent: the messager was closed while the interceptor was asked")
        await self._publisher.send(record, started)
        self._log_list.after(record)

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a step, a tick or a note, with whatever fields belong to it.

        Raises `TypeError` or `ValueError` for fields that JSON cannot hold.
        """
        self._publisher.tell(mark_record(self.clock.now(), name, fields))

    def describe(self, name: str | None = None, /, **meta: Any) -> None:
        """Say what this experiment is: a name, and whatever a person may look for later (config, seed).

        What was said before stays. Raises `TypeError` or `ValueError` for meta that JSON cannot hold.
        """
        self._name, self._meta = self._name or name, {**json.loads(json.dumps(meta)), **self._meta}
        if self.connected:
            for hook in self._hooks:
                self._tell_description(hook)

    def get_subtopic_channel(self, agent_id: Any, subtopic: str) -> str:
        """`exps:{exp_id}:agents:{agent_id}:{subtopic}`"""
        return channels.agent_channel(self.exp_id, agent_id, subtopic)

    def get_user_survey_channel(self, agent_id: Any) -> str:
        """Where an agent gets surveys."""
        return self.get_subtopic_channel(agent_id, "user-survey")

    def get_user_chat_channel(self, agent_id: Any) -> str:
        """Where an agent gets a user's questions."""
        return self.get_subtopic_channel(agent_id, "user-chat")

    def get_agent_chat_channel(self, agent_id: Any) -> str:
        """Where an agent gets other agents' messages."""
        return self.get_subtopic_channel(agent_id, "agent-chat")

    def get_user_payback_channel(self) -> str:
        """`exps:{exp_id}:user-payback`"""
        return channels.payback_channel(self.exp_id)

    async def _listen_for_messages(self, pubsub: PubSub, channels: Iterable[str]) -> None:
        """Subscribe, then queue and log what arrives, until cancelled."""
        queue = self.message_queue
        try:
            await pubsub.psubscribe(*channels)
            self._listening.set()
            received = 0
            while True:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
                if message is None:
                    continue
                if message["type"] == "pmessage":
                    self._received(message)
                    received += 1
                    if queue.stops_reading:
                        await queue.emptied()
                    elif received % YIELD_EVERY == 0:
                        await asyncio.sleep(0)
                elif message["type"] == "gap":
                    self._gap(message["reason"], message["since"], message["until"])
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("the listener of experiment %s ended: %s", self.exp_id, error)
            raise
        finally:
            self._tell_unread(pubsub)
            await pubsub.aclose()

    def _tell_unread(self, pubsub: PubSub) -> None:
        """Log a gap if the listener ends while it is disconnected, or with `queue_bytes` before it has read all."""
        since = getattr(pubsub, "lost_since", lambda: None)()
        reason = "the listener ended while disconnected"
        if since is None:
            since = getattr(pubsub, "unconfirmed_since", lambda: None)()
            reason = "the listener ended while nobody confirmed its server"
        if self.message_queue.limit is not None:
            unread = getattr(pubsub, "unread_since", lambda: None)()
            if unread is not None:
                since = unread if since is None else min(since, unread)
                reason = "the listener ended before it had read everything (queue_bytes)"
        if since is not None:
            self._gap(reason, since, None)

    def _received(self, message: dict[str, Any]) -> None:
        channel = channels.decode(message["channel"])
        meta = message.get("meta")
        self._publisher.tell(MessageRecord("received", self.clock.now(), channel, message["data"], meta=meta))
        self.message_queue.put_nowait(message)

    def _gap(self, reason: str, since: int, until: int | None) -> None:
        now = self.clock.now()
        end = now if until is None else self.clock.at(until)
        start = self.clock.at(since)
        meta = {"reason": reason, "since": start, "until": end, "count": None}
        log.warning("messages may be missing for %.3f s: %s", (end - start) / 1e9, reason)
        self._publisher.tell(MessageRecord("gap", now, meta=meta))

    async def _stop_listening(self) -> None:
        task, self.receive_messages_task = self.receive_messages_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._pubsub = None

    def _yield(self) -> None:
        """Remove the offered hooks that yield to another one; they are stopped by `close`, as their last messages
        may be on their way."""
        for mine in self._offered:
            if mine in self._hooks and any(mine.yields_to(hook) for hook in self._hooks):
                self._hooks.remove(mine)

    def _introduce(self, hook: LogHook) -> None:
        connected = getattr(hook, "connected", None)
        if connected is not None:
            try:
                connected(self.broker.url, self.clock, self._clock_offset)
            except Exception:
                log.exception("the log hook %r raised when it was told of the broker", hook)
        self._tell_description(hook)

    def _tell_description(self, hook: LogHook) -> None:
        if (self._name or self._meta) and hasattr(hook, "described"):
            try:
                hook.described(self._name, dict(self._meta))
            except Exception:
                log.exception("the log hook %r raised when it was told what the experiment is", hook)
