"""Replay: plan, guard, clock, flow control, waits, control, engine, report, lockstep, fork, and virtual time.

A module is imported when one of its names is first used, so that virtual time does not wait for a database.
"""

from typing import TYPE_CHECKING

from messager.lazy import lazy_exports

if TYPE_CHECKING:
    from ..log.channel_map import ChannelMap
    from .clock import ReplayClock, checked_rate, checked_speed
    from .control import Control
    from .control_socket import ControlSocket
    from .engine import Replay
    from .fork import Fork
    from .fork_report import ForkReport
    from .report import ReplayReport
    from .state import ReplayState

__all__ = [
    "ChannelMap",
    "Control",
    "ControlSocket",
    "Fork",
    "ForkReport",
    "Replay",
    "ReplayClock",
    "ReplayReport",
    "ReplayState",
    "checked_rate",
    "checked_speed",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    globals(),
    {
        ".log.channel_map": "ChannelMap",
        "clock": "ReplayClock checked_rate checked_speed",
        "control": "Control",
        "control_socket": "ControlSocket",
        "engine": "Replay",
        "fork": "Fork",
        "fork_report": "ForkReport",
        "report": "ReplayReport",
        "state": "ReplayState",
    },
)
