"""Replay: plan, guard, clock, flow control, waits, control, engine, and report.

A module is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from messager.lazy import lazy_exports

if TYPE_CHECKING:
    from ..log.channel_map import ChannelMap as ChannelMap
    from .clock import ReplayClock as ReplayClock
    from .clock import checked_rate as checked_rate
    from .clock import checked_speed as checked_speed
    from .control import Control as Control
    from .control_socket import ControlSocket as ControlSocket
    from .engine import Replay as Replay
    from .report import ReplayReport as ReplayReport
    from .state import ReplayState as ReplayState

__getattr__, __dir__, __all__ = lazy_exports(
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
