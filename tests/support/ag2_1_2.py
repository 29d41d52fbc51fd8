"""Stand-in for the network of AG2 1.2: what an adapter sees of it. Ids are random, as there; delivery is at once."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

ACK = "ag2.channel.invite.ack"
TEXT = "ag2.msg.text"


class NetworkError(Exception):
    """The hub refuses something."""


class LocalLinkEndpoint:
    """Connection of a client in the process of the hub."""


@dataclass
class Envelope:
    channel_id: str
    sender_id: str
    audience: list[str] | None
    event_type: str
    event_data: dict[str, Any]
    envelope_id: str = ""
    task_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    priority: str = "normal"
    depth: int = 0
    idempotency_key: str | None = None
    ttl_seconds: int | None = None


@dataclass
class Channel:
    channel_id: str
    manifest: Any
    participants: list[str]
    open: bool = True

    def participant_ids(self) -> list[str]:
        return self.participants


class _Client:
    def __init__(self, hub: Hub, name: str) -> None:
        self._hub_client, self.passport, self.agent_id = hub, types.SimpleNamespace(name=name), uuid4().hex
        self._disconnected = False
        self.handle: Callable[[Envelope], Awaitable[None]] | None = None
        hub.clients[self.agent_id] = self

    async def take(self, envelope: Envelope) -> None:
        if envelope.event_type == "ag2.channel.invite":
            await self._hub_client.post_envelope(Envelope(envelope.channel_id, self.agent_id, None, ACK, {}))
        elif envelope.event_type == TEXT and self.handle is not None:
            await self.handle(envelope)

    async def say(self, channel: Channel, text: str, *audience: _Client) -> str:
        to = [one.agent_id for one in audience] or None
        return await self._hub_client.post_envelope(
            Envelope(channel.channel_id, self.agent_id, to, TEXT, {"text": text})
        )


class AgentClient(_Client):
    async def receive(self, envelope: Envelope) -> None:
        await self.take(envelope)


class HumanClient(_Client):
    async def receive(self, envelope: Envelope) -> None:
        if not self._disconnected:
            await self.take(envelope)


@dataclass
class Hub:
    clients: dict[str, Any] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    wal: list[Envelope] = field(default_factory=list)
    full: bool = False
    remote: set[str] = field(default_factory=set)
    """Ids of agents whose clients are in other processes."""

    async def get_channel(self, channel_id: str) -> Channel:
        if channel_id not in self.channels:
            raise NetworkError(f"channel not found: {channel_id}")
        return self.channels[channel_id]

    def name_for(self, agent_id: str, *, default: str | None = None) -> str:
        client = self.clients.get(agent_id)
        return (default or agent_id) if client is None else str(client.passport.name)

    def _endpoint_for(self, agent_id: str) -> object:
        return object() if agent_id in self.remote else LocalLinkEndpoint()

    async def post_envelope(self, envelope: Envelope) -> str:
        channel = await self.get_channel(envelope.channel_id)
        if not channel.open:
            raise NetworkError("the channel is closed")
        await self._accept(envelope, channel)
        return envelope.envelope_id

    async def open(self, kind: str, creator: _Client, *others: _Client) -> Channel:
        ids = [one.agent_id for one in (creator, *others)]
        channel = Channel(uuid4().hex, types.SimpleNamespace(type=kind), ids)
        self.channels[channel.channel_id] = channel
        for one in ids[1:]:
            data = {"creator_id": creator.agent_id}
            await self.post_envelope(Envelope(channel.channel_id, ids[0], [one], "ag2.channel.invite", data))
        await self.post_envelope(Envelope(channel.channel_id, ids[0], ids, "ag2.channel.opened", {}))
        return channel

    async def close(self, channel: Channel) -> None:
        channel.open = False
        ids = channel.participants
        await self._accept(Envelope(channel.channel_id, ids[0], ids, "ag2.channel.closed", {}), channel)

    async def _accept(self, envelope: Envelope, channel: Channel) -> None:
        envelope.envelope_id = uuid4().hex
        await self._wal_append(envelope)
        if envelope.event_type == ACK:
            return
        others = [one for one in channel.participants if one != envelope.sender_id]
        for one in others if envelope.audience is None else envelope.audience:
            await self.clients[one].receive(envelope)

    async def _wal_append(self, envelope: Envelope) -> None:
        if self.full:
            raise OSError("the disk is full")
        self.wal.append(envelope)


def module() -> types.ModuleType:
    """Return a new `ag2.network`, with classes of its own that an adapter may change."""
    made = types.ModuleType("ag2.network")
    made.NetworkError, made.LocalLinkEndpoint = NetworkError, LocalLinkEndpoint  # type: ignore[attr-defined]
    for kind in (AgentClient, HumanClient, Hub):
        setattr(made, kind.__name__, kind)
    return made
