"""The persistent event log of agent societies: record, query, replay.

A module is imported when one of its names is first used, so that `messager --help` loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import StoreError as StoreError
    from .experiments.records import Experiment as Experiment
    from .experiments.records import RecorderRow as RecorderRow
    from .formats.jsonl import export_jsonl as export_jsonl
    from .formats.jsonl import import_jsonl as import_jsonl
    from .formats.pack import pack as pack
    from .formats.pack import unpack as unpack
    from .lockstep.fork import Fork as Fork
    from .lockstep.live_replay import LiveReplay as LiveReplay
    from .lockstep.recorder_thread import RealThread as RealThread
    from .lockstep.recorder_thread import RecorderThread as RecorderThread
    from .lockstep.report import ForkReport as ForkReport
    from .log.channel_map import ChannelMap as ChannelMap
    from .log.event import Cursor as Cursor
    from .log.event import Event as Event
    from .log.event import NewEvent as NewEvent
    from .log.event_log import EventLog as EventLog
    from .log.not_json import NotJson as NotJson
    from .log.selection import Selection as Selection
    from .log.text import normalised as normalised
    from .maintenance.verify import verify as verify
    from .matching.match import Match as Match
    from .privacy.redaction import redact as redact
    from .privacy.redaction_filter import RedactionFilter as RedactionFilter
    from .projection.sql import sql as sql
    from .queries.comparison.compare import compare as compare
    from .queries.comparison.result import Comparison as Comparison
    from .queries.comparison.run_summary import RunsSummary as RunsSummary
    from .queries.comparison.run_summary import summarise as summarise
    from .queries.counting.count import Count as Count
    from .queries.counting.count import Counts as Counts
    from .queries.counting.count import count as count
    from .queries.delays import Delays as Delays
    from .queries.delays import delays as delays
    from .queries.knowledge import Known as Known
    from .queries.knowledge import known_to as known_to
    from .queries.problems import Problems as Problems
    from .queries.problems import problems as problems
    from .queries.silences import Silences as Silences
    from .queries.silences import silences as silences
    from .ray import runtime_env as runtime_env
    from .recording.closing import close as close
    from .recording.recorder import Recorder as Recorder
    from .replay import Replay as Replay
    from .replay import ReplayReport as ReplayReport
    from .run import Run as Run
    from .sharing.json_paths import redactor as redactor

_NAMES = {
    "errors": "StoreError",
    "experiments.records": "Experiment RecorderRow",
    "formats.jsonl": "export_jsonl import_jsonl",
    "formats.pack": "pack unpack",
    "lockstep.fork": "Fork",
    "lockstep.live_replay": "LiveReplay",
    "lockstep.recorder_thread": "RealThread RecorderThread",
    "lockstep.report": "ForkReport",
    "log.channel_map": "ChannelMap",
    "log.event": "Cursor Event NewEvent",
    "log.event_log": "EventLog",
    "log.not_json": "NotJson",
    "log.selection": "Selection",
    "log.text": "normalised",
    "maintenance.verify": "verify",
    "matching.match": "Match",
    "privacy.redaction": "redact",
    "privacy.redaction_filter": "RedactionFilter",
    "projection.sql": "sql",
    "queries.comparison.compare": "compare",
    "queries.comparison.result": "Comparison",
    "queries.comparison.run_summary": "RunsSummary summarise",
    "queries.counting.count": "Count Counts count",
    "queries.delays": "Delays delays",
    "queries.knowledge": "Known known_to",
    "queries.problems": "Problems problems",
    "queries.silences": "Silences silences",
    "ray": "runtime_env",
    "recording.closing": "close",
    "recording.recorder": "Recorder",
    "replay": "Replay ReplayReport",
    "run": "Run",
    "sharing.json_paths": "redactor",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
