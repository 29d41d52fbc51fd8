"""The mark `recording` of a test: its arguments, merged with those of its class and its module."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .recording_paths import default_path, named_path

if TYPE_CHECKING:
    import pytest

    from messager_store import Match

MARK = "recording"
PATIENCE = 30.0
"""Seconds. They are real in an async test and on a broker, else virtual."""
SIGNATURE = f"""\
{MARK}(path=None, *, match=None, patience={PATIENCE:g}, seconds=None, broker=None): \
the recording that `replay` plays, and how what is said is compared"""


class BadMark(Exception):
    """A mark `recording` with arguments that it does not have."""


@dataclass(frozen=True, slots=True)
class RecordingMark:
    """Arguments of the mark."""

    path: Path
    """Path of the recording."""
    match: Match | None = None
    """Rules by which recorded and live messages are compared; None: as JSON values."""
    patience: float = PATIENCE
    """Seconds without progress after which an awaited message counts as missing. In virtual time, they begin when the
    message is due: after so long a silence as in the recording."""
    seconds: float | None = None
    """Length of a first recording in seconds of virtual time; None: until the agents say nothing more."""
    broker: str | None = None
    """URL of a broker, in place of the one in memory."""
    given: bool = True
    """False if the test has no mark."""


def mark_of(item: pytest.Item) -> RecordingMark:
    """Return the arguments of the marks of a test; a mark nearer to the test has precedence. Raises `BadMark`."""
    named: str | os.PathLike[str] | None = None
    given: dict[str, Any] = {}
    is_marked = False
    for mark in item.iter_markers(MARK):
        is_marked = True
        path, options = _arguments(*mark.args, **mark.kwargs)
        named = path if named is None else named
        given = {**options, **given}
    place = default_path(item.path, test_name(item)) if named is None else named_path(item.path, named)
    return RecordingMark(place, **given, given=is_marked)


def agents_named(agents: Iterable[Any]) -> str:
    """Return the names of agents: `agent 3`, `agents 3, 7`."""
    ids = [str(one) for agent in agents for one in (agent if isinstance(agent, tuple) else (agent,))]
    return f"agent{'s' if len(ids) > 1 else ''} {', '.join(ids)}"


def test_name(item: pytest.Item) -> str:
    """Return the name of a test within its file, with classes and parameters."""
    return item.nodeid.partition("::")[2] or item.name


def _arguments(*arguments: Any, **options: Any) -> tuple[str | os.PathLike[str] | None, dict[str, Any]]:
    path = options.pop("path", None) if not arguments else arguments[0]
    if len(arguments) > 1 or not isinstance(path, str | os.PathLike | None):
        raise BadMark(f"the mark `{MARK}` takes one path, the name of a recording. Its form is {SIGNATURE}.")
    unknown = options.keys() - {"match", "patience", "seconds", "broker"}
    if unknown:
        raise BadMark(f"the mark `{MARK}` has no argument {sorted(unknown)[0]!r}. Its form is {SIGNATURE}.")
    if options.get("match") is not None:
        from messager_store.matching.match import Match

        if not isinstance(options["match"], Match):
            raise BadMark(
                f"match={options['match']!r} in the mark `{MARK}` is not a Match: give its rules, for example "
                'match=Match(ignore=["id"]), with `from messager_store import Match`.'
            )
    for name in ("patience", "seconds"):
        value = options.get(name)
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise BadMark(f"{name}={value!r} in the mark `{MARK}` is not a time: give seconds, more than zero.")
    return path, options
