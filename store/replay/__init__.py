"""Replay: plan, guard, clock, flow control, waits, engine and report."""

from ..log.channel_map import ChannelMap
from .clock import ReplayClock
from .engine import Replay, checked_rate, checked_speed
from .report import ReplayReport
from .waiting import ReplayState

__all__ = ["ChannelMap", "Replay", "ReplayClock", "ReplayReport", "ReplayState", "checked_rate", "checked_speed"]
