"""Replay: one clock, one plan, one engine, one report."""

from ..log.channel_map import ChannelMap
from .clock import ReplayClock
from .engine import Replay, checked_rate, checked_speed
from .report import ReplayReport

__all__ = ["ChannelMap", "Replay", "ReplayClock", "ReplayReport", "checked_rate", "checked_speed"]
