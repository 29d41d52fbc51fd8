"""Messager over MQTT. Replaces the Messager of AgentSociety 1.0.0."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from typing import Any

import messager.messager as redis_messager

from . import channels
from .brokers.base import Broker
from .brokers.mqtt import topics as names
from .brokers.mqtt.broker import MqttBroker
from .brokers.mqtt.pubsub import MqttPubSub
from .clock import Clock
from .drivers import needed
from .errors import BrokerUnavailable, NotConnected
from .record import MessageRecord

with needed("aiomqtt"):
    from aiomqtt import Message

TRIES = 3
RETRY_SECONDS = 10.0
"""Pause of `connect` between two tries."""
PING = b"ping"
_LOGGED = {
    "topic": "channel",
    "payload": "payload",
    "from_uuid": "from_id",
    "to_uuid": "to_id",
    "start_time": "start_time",
    "consumption": "consumption",
}
"""Names in an entry of `get_log_list`, with those of the list that it is made of."""

log = logging.getLogger("messager")


class Messager(redis_messager.Messager):
    """Sends and receives over MQTT, and passes each message to the log hooks. Contract: AgentSociety 1.0.0.

    `hostname` is the host of the broker, or a `MqttBroker` (such as `messager.open_broker(url)` makes), which `close`
    leaves open. Inherited methods work as well: `mark`, `add_log_hook`, `async with`. `exp_id` is the experiment in
    the topics of `get_subtopic_channel` and similar methods.
    """

    _CONNECT, _ADDRESS = "connect", "hostname"

    def __init__(
        self,
        hostname: str | Broker,
        port: int = 1883,
        username: str | None = None,
        password: str | None = None,
        timeout: float = 60,
        message_interceptor: Any = None,
        *,
        exp_id: str = "",
        log_limit: int | None = 100_000,
        queue_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`timeout` is in seconds. `log_limit` is the maximum number of entries of `get_log_list`; None for no limit.

        `queue_bytes` is as for `messager.Messager`, but messages above it wait in the subscriber, up to 256 MB: an MQTT
        broker keeps few and drops the others silently. Above that the connection is closed, with a `gap`.

        `exp_id`, which the contract does not have, defaults to `MESSAGER_EXP`. Raises `ValueError` for a `hostname`
        that is a URL and for a negative `queue_bytes`, and `TypeError` for a `hostname` that is neither text nor a
        broker.
        """
        if isinstance(hostname, str) and "://" in hostname:
            raise ValueError(
                "hostname is the name of a host, such as localhost, and not a URL. "
                "Give the broker that `messager.open_broker(url)` makes of a URL."
            )
        made = isinstance(hostname, str)
        broker: Broker = (
            MqttBroker(hostname, port, username=username, password=password, timeout=timeout)
            if isinstance(hostname, str)
            else hostname
        )
        exp_id = exp_id or os.environ.get("MESSAGER_EXP", "")
        super().__init__(broker, exp_id, message_interceptor, log_limit=log_limit, queue_bytes=queue_bytes, clock=clock)
        self._owned = made
        self._given = {
            "hostname": hostname,
            "port": port,
            "username": username,
            "password": password,
            "timeout": timeout,
            "exp_id": exp_id,
            "log_limit": log_limit,
            "queue_bytes": queue_bytes,
        }

    def _make(self, given: dict[str, Any]) -> None:
        Messager.__init__(self, **given)

    async def connect(self) -> None:
        """Connect, in three tries. If none succeeds, that is logged and `is_connected` returns False."""
        for number in range(1, TRIES + 1):
            try:
                await self.init()
                return
            except BrokerUnavailable as error:
                log.error("try %d of %d: %s", number, TRIES, error)
            if number < TRIES:
                await asyncio.sleep(RETRY_SECONDS)

    async def disconnect(self) -> None:
        """Wait for messages that are being sent, stop the listener, disconnect. May be called twice."""
        await self.close()

    async def stop(self) -> None:
        """Do the same as `disconnect`."""
        await self.close()

    async def is_connected(self) -> bool:
        """Return True if `connect` has succeeded and `disconnect` was not called since."""
        return self.connected

    async def ping(self) -> None:
        """Publish `ping` on the topic `ping`. It is an event of the log but no entry of `get_log_list`.

        Raises `NotConnected` and `PublishError`.
        """
        if not self.connected:
            raise NotConnected("cannot ping: not connected. Call `await messager.connect()` first.")
        await self._pass(MessageRecord("sent", self.clock.now(), "ping", PING, message="ping"), PING.decode())

    async def subscribe(self, topics: Any, agents: Any = None) -> None:
        """Subscribe to a topic, a list of topics, or a list of (topic, qos). Wildcards are allowed.

        Subscriptions are active when this returns; `start_listening` starts to receive. `agents` is part of the
        contract and ignored. Raises `NotConnected`, `BrokerUnavailable`, and `ValueError` for a pattern that matches
        no topic; then nothing is subscribed to.
        """
        if not self.connected:
            raise NotConnected("cannot subscribe: not connected. Call `await messager.connect()` first.")
        listed = [topics] if isinstance(topics, str | tuple) else list(topics)
        wanted = [(one, None) if isinstance(one, str) else one for one in listed]
        for topic, _ in wanted:
            names.filter_of(topic)
        async with self._subscribing:
            pubsub = self._subscriber()
            for topic, qos in wanted:
                if isinstance(pubsub, MqttPubSub):
                    await pubsub.psubscribe(topic, qos=qos)
                else:
                    await pubsub.psubscribe(topic)
            await self._subscribed([topic for topic, _ in wanted])

    async def start_listening(self) -> None:
        """Start to receive messages of all subscriptions, also later ones. Raises `NotConnected`."""
        if not self.connected:
            raise NotConnected("cannot listen: not connected. Call `await messager.connect()` first.")
        running = self.receive_messages_task
        if running is None or running.done():
            self.receive_messages_task = asyncio.create_task(self.receive_messages())

    async def receive_messages(self) -> None:
        """Queue and log what arrives, until cancelled. `start_listening` runs it."""
        pubsub = self._subscriber()
        try:
            await self._listen_for_messages(pubsub, [])
        finally:
            if self._pubsub is pubsub:
                self._pubsub = None
                self._patterns.clear()

    async def subscribe_and_start_listening(self, channels: Iterable[str]) -> None:
        await self.subscribe(channels)
        await self.start_listening()

    async def fetch_messages(self) -> list[Message]:  # type: ignore[override]
        """Return the messages that arrived since the last call, in order.

        Each is an `aiomqtt.Message`, with `topic` (its `value` is the text), `payload` (bytes), `qos` and `retain`.
        Raises `ListenerDied` if the listener ended with an error and no message is left.
        """
        return [_message(found) for found in await super().fetch_messages()]

    async def send_message(self, topic: str, payload: Any, from_uuid: Any = None, to_uuid: Any = None) -> None:
        """Publish a dict or a `Msg` with QoS 1. Returns when the broker has taken it.

        If both ids are given, the interceptor is asked first. Raises the errors of `messager.Messager.send_message`,
        and `PublishError` for a topic with wildcards.
        """
        await super().send_message(topic, payload, from_uuid, to_uuid)

    def get_log_list(self) -> list[dict[str, Any]]:
        """Return the messages sent, or blocked by an interceptor, since the last clear, oldest first.

        Entries have `topic, payload, from_uuid, to_uuid, start_time` (s since the epoch) and `consumption` (s).
        """
        return [{name: entry[key] for name, key in _LOGGED.items()} for entry in super().get_log_list()]

    def get_subtopic_channel(self, agent_id: Any, subtopic: str) -> str:
        """Return `exps/{exp_id}/agents/{agent_id}/{subtopic}`."""
        return channels.with_separator(super().get_subtopic_channel(agent_id, subtopic), "/")

    def get_user_payback_channel(self) -> str:
        """Return `exps/{exp_id}/user-payback`."""
        return channels.with_separator(super().get_user_payback_channel(), "/")

    def _subscriber(self) -> Any:
        if self._pubsub is None:
            self._pubsub = self.broker.pubsub()
        return self._pubsub


def _message(found: dict[str, Any]) -> Message:
    meta = found.get("meta") or {}
    topic, retained = found["channel"].decode(), bool(meta.get("retained"))
    return Message(topic, found["data"], meta.get("qos", 1), retained, 0, None)
