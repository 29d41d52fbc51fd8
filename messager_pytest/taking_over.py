"""Messages that the tests of a run accept, taken over into their recordings when all of them have ended.

Until then the recordings stay as they are, so that all tests compare with the same messages, also in parallel. Tests
that accept different messages of one agent contradict each other: none of them would be right for the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from .accepting import Edits
from .file_changes import Change
from .recording_file import BadRecording, locked, read_lines, write_lines
from .recording_paths import shown

Accepted = Mapping[str, Any]
"""Edits that a test accepts of what one live agent says, none if it says what was recorded, for its report: path, test,
agent, digest (of the lines that are edited), edits."""


def accepted(path: Path, test: str, agent: str, lines: Sequence[bytes], edits: Edits) -> dict[str, Any]:
    """Return what a test accepts of one agent."""
    return {"path": str(path), "test": test, "agent": agent, "digest": _digest(lines), "edits": edits.to_dict()}


class Refused(NamedTuple):
    """A recording that was left as it was."""

    tests: list[str]
    """Node ids of the tests that accepted something."""
    text: str


def take_over(found: Iterable[Accepted], base: Path) -> tuple[list[Change], list[Refused]]:
    """Rewrite the recordings for which tests accept something. Return the changes, and what was refused.

    Texts name paths for a person in the folder `base`.
    """
    by_path: defaultdict[str, list[Accepted]] = defaultdict(list)
    for one in found:
        by_path[one["path"]].append(one)
    changes: list[Change] = []
    refused: list[Refused] = []
    for path, mine in sorted(by_path.items()):
        try:
            edits = _combined(mine, shown(Path(path), base))
            if edits:
                _rewrite(Path(path), mine[0]["digest"], edits, shown(Path(path), base))
                added = len(edits.added)
                changes.append(Change(path, 0, edits.changed_messages, added, edits.dropped_messages))
        except _Contradiction as error:
            refused.append(Refused(error.tests, str(error)))
        except BadRecording as error:
            tests = {one["test"] for one in mine if Edits.from_dict(one["edits"])}
            refused.append(Refused(sorted(tests), str(error)))
    return changes, refused


class _Contradiction(Exception):
    """Tests that accept different messages."""

    def __init__(self, path: str, agent: str, tests: Iterable[str]) -> None:
        self.tests = sorted(set(tests))
        listed = "".join(f"\n  {test}" for test in self.tests)
        super().__init__(
            f"{path} is left as it is: the tests that share it accept different messages of {agent}:{listed}\n"
            "Give each of them a recording of its own, or run the one that is right alone with --recording=accept."
        )


def _combined(accepted: Sequence[Accepted], path: str) -> Edits:
    """Return the edits that all tests accept."""
    by_agent: defaultdict[str, list[Accepted]] = defaultdict(list)
    for one in accepted:
        by_agent[one["agent"]].append(one)
    combined = Edits()
    places: dict[int, tuple[bytes | None, str]] = {}  # what becomes of each line, and whose message it is
    for agent, group in by_agent.items():
        if any(one["edits"] != group[0]["edits"] for one in group):
            raise _Contradiction(path, agent, [one["test"] for one in group])
        edits = Edits.from_dict(group[0]["edits"])
        for at in edits.replaced.keys() | edits.dropped:
            line, other = places.setdefault(at, (edits.replaced.get(at), agent))
            if line != edits.replaced.get(at):
                raise _Contradiction(path, f"{other} and {agent}", [one["test"] for one in [*by_agent[other], *group]])
        combined.add(edits)
    return combined


def _rewrite(path: Path, digest: str, edits: Edits, name: str) -> None:
    with locked(path):
        try:
            lines = read_lines(path)
        except FileNotFoundError:
            lines = []
        if _digest(lines) != digest:
            raise BadRecording(f"{name} is left as it is: it was changed during the run. Run the tests again.")
        write_lines(path, edits.apply(lines))


def _digest(lines: Iterable[bytes]) -> str:
    return sha256(b"\n".join(lines)).hexdigest()
