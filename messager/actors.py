"""Who acts in a task: the endpoint that fetched or sent last there, and the agent that `acting` names."""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Iterator
from typing import Any, Protocol


class Actor(Protocol):
    """Part of an `Endpoint` that this module knows."""

    agent: Any


_agent: contextvars.ContextVar[Any] = contextvars.ContextVar("messager_agent", default=None)
_endpoint: contextvars.ContextVar[weakref.ref[Actor] | None] = contextvars.ContextVar("messager_endpoint", default=None)
connected: weakref.WeakSet[Actor] = weakref.WeakSet()
"""Endpoints of the connected Messagers of this process, and of its open transports."""


@contextlib.contextmanager
def acting(agent: Any) -> Iterator[None]:
    """Context of an agent: calls to models in it, and in tasks and threads (`asyncio.to_thread`) begun in it, are its.

    Needed where several agents share a Messager; `agent` is an id with its JSON type.
    """
    token = _agent.set(agent)
    try:
        yield
    finally:
        _agent.reset(token)


def used(endpoint: Actor) -> None:
    """Note that the current task uses an endpoint."""
    known = _endpoint.get()
    if known is None or known() is not endpoint:
        _endpoint.set(weakref.ref(endpoint))


def current() -> tuple[Actor | None, Any]:
    """Return the endpoint and the agent of the current task, each None if it is not known.

    A task that has used no endpoint belongs to that of the process, if it has only one.
    """
    known = _endpoint.get()
    endpoint = None if known is None else known()
    if endpoint is None or endpoint not in connected:
        endpoint = next(iter(connected)) if len(connected) == 1 else None
    agent = _agent.get()
    return endpoint, endpoint.agent if agent is None and endpoint is not None else agent
