"""The network of AG2, recorded: every envelope that its `Hub` accepts or refuses, and what each agent receives.

    from messager.compat import ag2

    ag2.install()

or `with ag2.install():`, which restores AG2 at the end. An agent has the name of its passport. The channel of an
envelope is `ag2:TYPE:PARTICIPANTS:EVENT`, such as `ag2:discussion:alice,bob:ag2.msg.text`, and its payload is the data
of the event with the names of sender and audience, `from` and `to`. Both are the same in a repeated run; the ids of
AG2, which are not, are in the meta.

An envelope is sent when it is in the hub's log, which comes before its delivery. Only that place sees all of them:
`HubListener.on_envelope_posted` is not called for answers to invitations, nor for the end of a channel. It is received
when the client of an agent gets it, before its handler is called.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..endpoint import Endpoint
from ..payload import to_wire
from ..record import Carrier, MessageRecord
from ..transport import Transport
from .adapter import Adapter
from .patching import Patches

HUB = "ag2.hub"
"""Id of the hub itself, which receives the answers to invitations."""

_ANSWERS = "ag2.channel.invite.ack", "ag2.channel.invite.reject"
_META = (
    *("envelope_id", "channel_id", "causation_id", "task_id", "trace_id"),
    *("priority", "depth", "idempotency_key", "ttl_seconds"),
)
"""Fields of an envelope that are in the meta, unless they have one of these values."""
_USUAL = None, "", 0, "normal"
_CARRIER: Carrier = "stream"
"""The log of a channel, from which each agent is sent what it has not acknowledged."""

_installed: _Ag2 | None = None


def install(transport: Transport | None = None) -> Patches:
    """Record AG2 from now on, through a transport, by default that of the process.

    A second call changes only the transport, if one is given. Raises `ImportError` if AG2 is not installed, and
    `MessagerError` for a version that cannot be recorded.
    """
    global _installed
    if _installed is None or not _installed.active:
        made = _Ag2()
        made.replace_methods()
        _installed = made
    _installed.use(transport)
    return _installed


@dataclass(frozen=True, slots=True)
class _Channel:
    """A channel of AG2: its name in the log, and the names of its participants by their ids, in order."""

    name: str
    participants: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Message:
    """An envelope as it is logged."""

    channel: str
    payload: bytes
    from_id: str
    to_id: str | None
    meta: dict[str, Any]

    def record(self, ts: int) -> MessageRecord:
        """Return it as sent at a time."""
        record = MessageRecord("sent", ts, self.channel, self.payload, self.from_id, self.to_id)
        record.meta, record.carrier = self.meta, _CARRIER
        return record


class _Ag2(Adapter):
    framework = "AG2"

    def __init__(self) -> None:
        super().__init__()
        self._channels: dict[str, _Channel] = {}
        """By id. The hub keeps its channels as long; a name is needed after its agent has gone."""
        self._network: Any = import_module("ag2.network")

    def replace_methods(self) -> None:
        """Replace the methods of AG2 that envelopes pass."""
        agent, human, hub = self._network.AgentClient, self._network.HumanClient, self._network.Hub
        self.wrap(agent, "receive", self._receiving)
        self.wrap(human, "receive", functools.partial(self._receiving, unless="_disconnected"))
        self.wrap(hub, "post_envelope", self._posting)
        self.wrap(hub, "_wal_append", self._appending)

    def _receiving(self, receive: Any, unless: str = "") -> Any:
        """`unless` is the attribute of a client that ignores envelopes while it is true."""

        @functools.wraps(receive)
        async def received(client: Any, envelope: Any) -> None:
            with self.logging():
                if not getattr(client, unless, False):
                    self._received(await self._message(client._hub_client, envelope), client.passport.name)
            await receive(client, envelope)

        return received

    def _posting(self, post: Any) -> Any:
        @functools.wraps(post)
        async def posted(hub: Any, envelope: Any) -> Any:
            before, started = envelope.envelope_id, self.now()
            try:
                return await post(hub, envelope)
            except self._network.NetworkError as error:
                if envelope.envelope_id == before:  # else it was accepted, and something that followed was refused
                    with self.logging():
                        record, endpoint = await self._stamped(hub, envelope, started)
                        endpoint.blocked(record, "Hub", f"{type(error).__name__}: {error}")
                raise

        return posted

    def _appending(self, append: Any) -> Any:
        @functools.wraps(append)
        async def appended(hub: Any, envelope: Any) -> None:
            started = self.now()
            try:
                await append(hub, envelope)
            except Exception as error:
                with self.logging():
                    record, endpoint = await self._stamped(hub, envelope, started)
                    endpoint.failed(record, error, "not_sent")
                raise
            with self.logging():
                record, endpoint = await self._stamped(hub, envelope, started)
                endpoint.tell(record)
                if record.to_id == HUB:
                    self._received(await self._message(hub, envelope), HUB)

        return appended

    async def _stamped(self, hub: Any, envelope: Any, started: int) -> tuple[MessageRecord, Endpoint]:
        """Return the record of a sending with its endpoint. What a client in another process had got is not known."""
        record = (await self._message(hub, envelope)).record(started)
        endpoint = self.transport.endpoint(record.from_id)
        endpoint.stamp(record)
        if not isinstance(hub._endpoint_for(envelope.sender_id), self._network.LocalLinkEndpoint):
            record.arrival = None
        return record, endpoint

    def _received(self, message: _Message, agent: str) -> None:
        endpoint = self.transport.endpoint(agent)
        given = message.channel, message.payload, message.from_id, agent
        endpoint.received(*given, carrier=_CARRIER, **message.meta)

    async def _message(self, hub: Any, envelope: Any) -> _Message:
        """Return an envelope as it is logged. `hub` is a `Hub`, or a `HubClient`, which asks it over the network."""
        channel = await self._channel(hub, envelope)

        def name(agent_id: str) -> str:
            known = channel.participants.get(agent_id)
            return str(hub.name_for(agent_id, default=agent_id)) if known is None else known

        sender = name(envelope.sender_id)
        audience = None if envelope.audience is None else [name(one) for one in envelope.audience]
        others = [one for one in channel.participants.values() if one != sender]
        recipients = [HUB] if envelope.event_type in _ANSWERS else others if audience is None else audience
        return _Message(
            f"ag2:{channel.name}:{envelope.event_type}",
            to_wire({"from": sender, "to": audience, **envelope.event_data}).encode(),
            sender,
            recipients[0] if len(recipients) == 1 else None,
            {key: value for key in _META if (value := getattr(envelope, key)) not in _USUAL},
        )

    async def _channel(self, hub: Any, envelope: Any) -> _Channel:
        known = self._channels.get(envelope.channel_id)
        if known is not None:
            return known
        try:
            metadata = await hub.get_channel(envelope.channel_id)
        except self._network.NetworkError:  # there is no such channel: the envelope is refused
            return _Channel(envelope.channel_id, {})
        ids = metadata.participant_ids()
        names = {one: str(hub.name_for(one, default=one)) for one in ids}
        made = _Channel(f"{metadata.manifest.type}:{','.join(names.values())}", names)
        return self._channels.setdefault(envelope.channel_id, made)
