"""The persistent event log of agent societies: record, query, replay.

A module is imported when one of its names is first used, so that `messager --help` loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import StoreError
    from .experiments.records import Experiment, RecorderRow
    from .formats.jsonl import export_jsonl, import_jsonl
    from .formats.pack import pack, unpack
    from .lockstep.fork import Fork
    from .lockstep.live_replay import LiveReplay
    from .lockstep.recorder_thread import RealThread, RecorderThread
    from .lockstep.report import ForkReport
    from .log.channel_map import ChannelMap
    from .log.event import Cursor, Event, NewEvent
    from .log.event_log import EventLog
    from .log.not_json import NotJson
    from .log.selection import Selection
    from .log.text import normalised
    from .maintenance.verify import verify
    from .matching.match import Match
    from .privacy.redaction import redact
    from .privacy.redaction_filter import RedactionFilter
    from .projection.sql import sql
    from .queries.comparison.compare import compare
    from .queries.comparison.result import Comparison
    from .queries.comparison.run_summary import RunsSummary, summarise
    from .queries.counting.count import Count, Counts, count
    from .queries.delays import Delays, delays
    from .queries.knowledge import Known, known_to
    from .queries.problems import Problems, problems
    from .queries.silences import Silences, silences
    from .ray import runtime_env
    from .recording.closing import close
    from .recording.recorder import Recorder
    from .replay import Replay, ReplayReport
    from .run import Run
    from .sharing.json_paths import redactor

_MODULE_OF = {
    "ChannelMap": "log.channel_map",
    "Comparison": "queries.comparison.result",
    "Count": "queries.counting.count",
    "Counts": "queries.counting.count",
    "Cursor": "log.event",
    "Delays": "queries.delays",
    "Event": "log.event",
    "EventLog": "log.event_log",
    "Experiment": "experiments.records",
    "Fork": "lockstep.fork",
    "ForkReport": "lockstep.report",
    "Known": "queries.knowledge",
    "LiveReplay": "lockstep.live_replay",
    "Match": "matching.match",
    "NewEvent": "log.event",
    "NotJson": "log.not_json",
    "Problems": "queries.problems",
    "RealThread": "lockstep.recorder_thread",
    "Recorder": "recording.recorder",
    "RecorderRow": "experiments.records",
    "RecorderThread": "lockstep.recorder_thread",
    "RedactionFilter": "privacy.redaction_filter",
    "Replay": "replay",
    "ReplayReport": "replay",
    "Run": "run",
    "RunsSummary": "queries.comparison.run_summary",
    "Selection": "log.selection",
    "Silences": "queries.silences",
    "StoreError": "errors",
    "close": "recording.closing",
    "compare": "queries.comparison.compare",
    "count": "queries.counting.count",
    "delays": "queries.delays",
    "export_jsonl": "formats.jsonl",
    "import_jsonl": "formats.jsonl",
    "known_to": "queries.knowledge",
    "normalised": "log.text",
    "pack": "formats.pack",
    "problems": "queries.problems",
    "redact": "privacy.redaction",
    "redactor": "sharing.json_paths",
    "runtime_env": "ray",
    "silences": "queries.silences",
    "sql": "projection.sql",
    "summarise": "queries.comparison.run_summary",
    "unpack": "formats.pack",
    "verify": "maintenance.verify",
}

__all__ = [
    "ChannelMap",
    "Comparison",
    "Count",
    "Counts",
    "Cursor",
    "Delays",
    "Event",
    "EventLog",
    "Experiment",
    "Fork",
    "ForkReport",
    "Known",
    "LiveReplay",
    "Match",
    "NewEvent",
    "NotJson",
    "Problems",
    "RealThread",
    "Recorder",
    "RecorderRow",
    "RecorderThread",
    "RedactionFilter",
    "Replay",
    "ReplayReport",
    "Run",
    "RunsSummary",
    "Selection",
    "Silences",
    "StoreError",
    "close",
    "compare",
    "count",
    "delays",
    "export_jsonl",
    "import_jsonl",
    "known_to",
    "normalised",
    "pack",
    "problems",
    "redact",
    "redactor",
    "runtime_env",
    "silences",
    "sql",
    "summarise",
    "unpack",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
