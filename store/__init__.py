"""Remembering: the persistent event log of agent societies, and what is done with it.

Heavy modules are imported when a name is first used, so that a command line that only
prints its help pays for none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import StoreError
    from .experiments.registry import Experiment
    from .log.event import Cursor, Event, NewEvent
    from .log.event_log import EventLog
    from .recording.recorder import Recorder
    from .replay import Replay, ReplayReport

_ROOMS = {
    "Cursor": "log.event",
    "Event": "log.event",
    "EventLog": "log.event_log",
    "Experiment": "experiments.registry",
    "NewEvent": "log.event",
    "Recorder": "recording.recorder",
    "Replay": "replay",
    "ReplayReport": "replay",
    "StoreError": "errors",
}

__all__ = [
    "Cursor",
    "Event",
    "EventLog",
    "Experiment",
    "NewEvent",
    "Recorder",
    "Replay",
    "ReplayReport",
    "StoreError",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ROOMS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
