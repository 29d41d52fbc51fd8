"""Messager over MQTT. A drop-in for AgentSociety's first one (the contract of its version 1.0.0)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from typing import Any

import messager.messager as redis_messager

from . import channels
from .brokers.mqtt import topics as names
from .brokers.mqtt.broker import MqttBroker
from .brokers.mqtt.pubsub import MqttPubSub
from .brokers.mqtt.session import Message
from .brokers.protocol import Broker
from .errors import BrokerUnavailable, NotConnected
from .record import MessageRecord

TRIES = 3
RETRY_SECONDS = 10.0
"""How long `connect` waits before it tries again."""
PING = b"ping"
_LOGGED = {"channel": "topic", "from_id": "from_uuid", "to_id": "to_uuid"}

log = logging.getLogger("messager")


class Messager(redis_messager.Messager):
    """Sends and receives over MQTT, and tells log hooks of each message as the other `Messager` does.

    `hostname` is where the broker is, or a `MqttBroker` (which stays open when this closes), as
    `MqttBroker.from_url` makes one for a URL, `mqtts://` included. What is
    inherited is there as well: `mark`, `add_log_hook`, `async with`. `exp_id` is for the topics that
    `get_subtopic_channel` and its kin give.
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
    ) -> None:
        """`timeout` is in seconds; `log_limit` is how many entries `get_log_list` keeps, the newest; None for all.

        `queue_bytes` is as for the other `Messager`. Messages then wait in the subscriber, which takes up to 256 MB:
        an MQTT broker keeps few and drops the others silently. Above that the connection is closed, with a `gap`.

        Where there is no `exp_id`, as AgentSociety's contract has none, it is that of `MESSAGER_EXP`. Raises
        `ValueError` for a `hostname` that is a URL or a negative `queue_bytes`, and `TypeError` for a `hostname` that
        is neither text nor a broker.
        """
        if isinstance(hostname, str) and "://" in hostname:
            raise ValueError(
                "hostname is the name of a host, such as localhost, and not a URL: "
                "`MqttBroker.from_url(url)` of messager.brokers makes a broker of one, which will do as well"
            )
        made = isinstance(hostname, str)
        broker: Broker = (
            MqttBroker(hostname, port, username=username, password=password, timeout=timeout)
            if isinstance(hostname, str)
            else hostname
        )
        exp_id = exp_id or os.environ.get("MESSAGER_EXP", "")
        super().__init__(broker, exp_id, message_interceptor, log_limit=log_limit, queue_bytes=queue_bytes)
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
        """Connect, in three tries. Where none succeeds, that is logged, and `is_connected` says so."""
        for number in range(1, TRIES + 1):
            try:
                await self.init()
                return
            except BrokerUnavailable as error:
                log.error("try %d of %d: %s", number, TRIES, error)
            if number < TRIES:
                await asyncio.sleep(RETRY_SECONDS)

    async def disconnect(self) -> None:
        """Let what is being sent leave, end the listener, disconnect. May be called twice."""
        await self.close()

    async def stop(self) -> None:
        """The same as `disconnect`."""
        await self.close()

    async def is_connected(self) -> bool:
        """Whether `connect` has succeeded, and `disconnect` was not called since."""
        return self.connected

    async def ping(self) -> None:
        """Publish `ping` on the topic `ping`: an event of the log, and no entry of `get_log_list`.

        Raises `NotConnected` and `PublishError`.
        """
        if not self.connected:
            raise NotConnected("cannot ping: not connected. Call `await messager.connect()` first.")
        started = self.clock.now()
        await self._publisher.send(MessageRecord("sent", started, "ping", PING, message="ping"), started)

    async def subscribe(self, topics: Any, agents: Any = None) -> None:
        """Subscribe to a topic, a list of topics, or a list of (topic, qos); wildcards are welcome.

        Active when this returns; `start_listening` begins to take messages in. `agents` is there for the
        contract. Raises `NotConnected`, `BrokerUnavailable`, and `ValueError` for what no topic can fit; then nothing
        is subscribed to.
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

    async def start_listening(self) -> None:
        """Take in what comes on the topics that were or will be subscribed to. Raises `NotConnected`."""
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

    async def subscribe_and_start_listening(self, channels: Iterable[str]) -> None:
        await self.subscribe(channels)
        await self.start_listening()

    async def fetch_messages(self) -> list[Message]:  # type: ignore[override]
        """What has arrived since the last call, in order.

        Each is an `aiomqtt.Message`, with `topic` (its `value` is the text), `payload` (bytes), `qos` and `retain`.
        Raises `ListenerDied` where the listener ended on an error and nothing is left to fetch.
        """
        return [_message(found) for found in await super().fetch_messages()]

    async def send_message(self, topic: str, payload: Any, from_uuid: Any = None, to_uuid: Any = None) -> None:
        """Publish a dict or a `Msg`; returns when the broker has taken it.

        With both ids given, the interceptor is asked first. Raises as the other `Messager`'s does, and `PublishError`
        for a topic with wildcards.
        """
        await super().send_message(topic, payload, from_uuid, to_uuid)

    def get_log_list(self) -> list[dict[str, Any]]:
        """What `send_message` sent or an interceptor blocked since the last clear, oldest first.

        Entries have `topic, payload, from_uuid, to_uuid, start_time` (s since the epoch), `consumption` (s) and `sent`.
        """
        return [{_LOGGED.get(name, name): value for name, value in entry.items()} for entry in super().get_log_list()]

    def get_subtopic_channel(self, agent_id: Any, subtopic: str) -> str:
        """`exps/{exp_id}/agents/{agent_id}/{subtopic}`"""
        return channels.with_separator(super().get_subtopic_channel(agent_id, subtopic), "/")

    def get_user_payback_channel(self) -> str:
        """`exps/{exp_id}/user-payback`"""
        return channels.with_separator(super().get_user_payback_channel(), "/")

    def _subscriber(self) -> Any:
        if self._pubsub is None:
            self._pubsub = self.broker.pubsub()
        return self._pubsub

    async def _stop_listening(self) -> None:
        pubsub = self._pubsub
        await super()._stop_listening()
        if pubsub is not None:  # nobody may have listened
            await pubsub.aclose()


def _message(found: dict[str, Any]) -> Message:
    meta = found.get("meta") or {}
    topic, retained = found["channel"].decode(), bool(meta.get("retained"))
    return Message(topic, found["data"], meta.get("qos", 1), retained, 0, None)
