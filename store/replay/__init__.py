"""Replay: plan, guard, clock, flow control, waits, control, engine, and report.

A module is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from messager.lazy import lazy_exports

if TYPE_CHECKING:
    from ..log.channel_map import ChannelMap
    from .clock import ReplayClock, checked_rate, checked_speed
    from .control import Control
    from .control_socket import ControlSocket
    from .engine import Replay
    from .report import ReplayReport
    from .state import ReplayState

__all__ = [
    "ChannelMap",
    "Control",
    "ControlSocket",
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
        "report": "ReplayReport",
        "state": "ReplayState",
    },
)
