"""Carriers: how recorded messages travelled. A broker publishes on channels; what travelled otherwise is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from messager.brokers import Broker
from messager.errors import PublishError

from ..log.event import Event
from .flow_control import Message


def carrier_fault(entry: Event) -> str | None:
    """Return why a message cannot be published on a channel; None if it travelled on one."""
    if entry.carrier is None:
        return None
    return f"it travelled through a {entry.carrier}, and a replay publishes on channels, where nobody expects it"


async def publish_as(
    broker: Broker, entries: Sequence[Event], wire: Sequence[Message], how: Sequence[Mapping[str, Any] | None]
) -> list[int | PublishError | None]:
    """Publish messages as `Broker.publish_as` does; those that travelled otherwise are refused in their result."""
    if not any(entry.carrier for entry in entries):
        return await broker.publish_as(wire, how)
    faults = [carrier_fault(entry) for entry in entries]
    kept = [at for at, fault in enumerate(faults) if fault is None]
    answers = await broker.publish_as([wire[at] for at in kept], [how[at] for at in kept]) if kept else []
    found: list[int | PublishError | None] = [
        None if fault is None else PublishError(fault, "not_sent", refused=True) for fault in faults
    ]
    for at, answer in zip(kept, answers, strict=True):
        found[at] = answer
    return found
