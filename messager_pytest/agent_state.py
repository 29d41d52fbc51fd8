"""State of a live agent when something that it started raised."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentState:
    """Messages that a live agent had said and heard."""

    label: str
    """Name of the agent: `agent 3`."""
    said: int | None = None
    """Number of its messages that the recording expects; None without a recording."""
    of: int = 0
    """Number of messages that the recording expects of it."""
    heard: bytes | None = None
    """Payload of the last message that it had received."""


@dataclass(frozen=True, slots=True)
class Unawaited:
    """Exception of a task or callback that nothing has awaited."""

    error: Exception
    started: str
    """`task` or `callback`: the part of the agent that raised."""
    state: AgentState | None
    """State of the agent that started it, when it raised; None if that agent is unknown."""


state_of_agent: ContextVar[Callable[[], AgentState] | None] = ContextVar("state_of_agent", default=None)
"""Set in the task of a live agent, and so in the tasks that it starts: returns its state."""
