"""Messages that the tests of a run accept, taken over into their recordings when all of them have ended.

Until then the recordings stay as they are, so that all tests compare with the same messages, also in parallel. Tests
that accept different messages of one agent contradict each other: none of them would be right for the others.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from messager_store.matching.match import Match

from .accepting import Edits
from .file_changes import Change
from .recording_file import BadRecording, locked, read_lines, write_lines
from .recording_paths import shown

_CONTENT = ("payload", "payload_base64", "msg_id")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Edits that a test accepts of what one live agent says; none if it says what was recorded."""

    path: str
    test: str
    agent: str
    live: str
    """All live agents of the replay."""
    rules: tuple[Any, ...]
    """Rules of the comparison, without a judge."""
    is_judged: bool
    digest: str
    """Of the lines that are edited."""
    edits: Edits

    @classmethod
    def of(
        cls, path: Path, test: str, agent: str, live: str, match: Match, lines: Sequence[bytes], edits: Edits
    ) -> Accepted:
        """Return what a test accepts."""
        rules = (_listed(match.ignore), match.tolerance, _listed(match.shape), match.bytes_only)
        return cls(str(path), test, agent, live, rules, match.judge is not None, _digest(lines), edits)

    def to_dict(self) -> dict[str, Any]:
        """Return it as it travels in the report of a test."""
        edits = self.edits
        return {
            **{name: getattr(self, name) for name in ("path", "test", "agent", "live", "is_judged", "digest")},
            "rules": list(self.rules),
            "replaced": [[at, line.decode()] for at, line in edits.replaced.items()],
            "dropped": sorted(edits.dropped),
            "added": [[at, line.decode()] for at, line in edits.added],
            "changed_messages": edits.changed_messages,
            "dropped_messages": edits.dropped_messages,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Accepted:
        """Return what `to_dict` gave."""
        edits = Edits(
            {at: line.encode() for at, line in data["replaced"]},
            set(data["dropped"]),
            [(at, line.encode()) for at, line in data["added"]],
            data["changed_messages"],
            data["dropped_messages"],
        )
        named = {name: data[name] for name in ("path", "test", "agent", "live", "is_judged", "digest")}
        return cls(**named, rules=tuple(data["rules"]), edits=edits)

    def permits(self, other: Accepted) -> bool:
        """Return whether this test would pass after the edits of the other, of the same agent."""
        mine, its = self.edits, other.edits
        if not mine or not its:
            compares_alike = self.rules == other.rules and not self.is_judged and not other.is_judged
            return bool(mine) == bool(its) or self.live != other.live or not compares_alike
        if mine.dropped != its.dropped or mine.replaced.keys() != its.replaced.keys():
            return False
        if [at for at, _ in mine.added] != [at for at, _ in its.added]:
            return False
        pairs = [(line, its.replaced[at]) for at, line in mine.replaced.items()]
        pairs += [(one, another) for (_, one), (_, another) in zip(mine.added, its.added, strict=True)]
        return all(self._same(one, another) for one, another in pairs if one != another)

    def _same(self, one: bytes, other: bytes) -> bool:
        """Return whether two lines say the same by the rules of this test."""
        ignore, tolerance, shape, bytes_only = self.rules
        match = Match(ignore=ignore, tolerance=tolerance, shape=shape, bytes_only=bytes_only)
        a, b = json.loads(one), json.loads(other)
        if {**a, **dict.fromkeys(_CONTENT)} != {**b, **dict.fromkeys(_CONTENT)}:
            return False
        return self.is_judged or match.same(_payload(a), _payload(b))


class Refused(NamedTuple):
    """A recording that was left as it was."""

    tests: list[str]
    """Node ids of the tests that accepted something."""
    text: str


def take_over(found: Iterable[Mapping[str, Any]], base: Path) -> tuple[list[Change], list[Refused]]:
    """Rewrite the recordings for which tests accept something. Return the changes, and what was refused.

    Texts name paths for a person in the folder `base`.
    """
    by_path: defaultdict[str, list[Accepted]] = defaultdict(list)
    for data in found:
        by_path[data["path"]].append(Accepted.from_dict(data))
    changes: list[Change] = []
    refused: list[Refused] = []
    for path, accepted in sorted(by_path.items()):
        tests = sorted({one.test for one in accepted if one.edits})
        try:
            edits = _combined(accepted, shown(Path(path), base))
            if edits:
                _rewrite(Path(path), accepted[0].digest, edits, shown(Path(path), base))
                added = len(edits.added)
                changes.append(Change(path, 0, edits.changed_messages, added, edits.dropped_messages))
        except _Contradiction as error:
            refused.append(Refused(error.tests, str(error)))
        except BadRecording as error:
            refused.append(Refused(tests, str(error)))
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
        by_agent[one.agent].append(one)
    edits = Edits()
    places: dict[int, tuple[bytes | None, Accepted]] = {}  # what becomes of each line, and who says so
    for agent, group in by_agent.items():
        changing = [one for one in group if one.edits]
        chosen = next((one for one in changing if all(other.permits(one) for other in group)), None)
        if changing and chosen is None:
            against = [one for one in group if not all(one.permits(other) for other in changing)]
            raise _Contradiction(path, agent, [one.test for one in [*changing, *against]])
        if chosen is None:
            continue
        for at in chosen.edits.replaced.keys() | chosen.edits.dropped:
            line = chosen.edits.replaced.get(at)
            before = places.setdefault(at, (line, chosen))
            if before[0] != line:
                raise _Contradiction(path, f"{before[1].agent} and {agent}", [before[1].test, chosen.test])
        edits.add(chosen.edits)
    return edits


def _rewrite(path: Path, digest: str, edits: Edits, name: str) -> None:
    with locked(path):
        try:
            lines = read_lines(path)
        except FileNotFoundError:
            lines = []
        if _digest(lines) != digest:
            raise BadRecording(f"{name} is left as it is: it was changed during the run. Run the tests again.")
        write_lines(path, edits.apply(lines))


def _listed(paths: Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _digest(lines: Iterable[bytes]) -> str:
    return sha256(b"\n".join(lines)).hexdigest()


def _payload(data: Mapping[str, Any]) -> bytes:
    value = data.get("payload", data.get("payload_base64"))
    return value.encode(errors="surrogatepass") if isinstance(value, str) else json.dumps(value).encode()
