"""What a comparison found, and how it is put into words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..log.event import Event
from ..text import plural, safe

SHOWN = 3
"""Channels whose difference is shown, where a comparison is put into words."""
LONGEST = 400
"""Characters of a text that are shown, unless all of it is wanted."""
CONTEXT = 100
"""Characters of the messages before and after a difference."""
LEAD = 60
"""Characters that are shown ahead of the first that differs, where a text is cut."""


@dataclass(slots=True)
class Difference:
    """Where one channel first differs, with the neighbours on both sides."""

    channel: str
    index: int
    """The place within the channel, from 0."""
    a: Event | None
    """What A has there; None where A has ended."""
    b: Event | None
    before: Event | None
    """The last message that was the same (A's), or None."""
    a_next: Event | None = None
    b_next: Event | None = None
    messages_a: int = 0
    """A's messages on the channel."""
    messages_b: int = 0

    @property
    def title(self) -> str:
        """The channel, which of its messages differs, and how many there are."""
        return f"{safe(self.channel)}, message {self.index + 1:,} (A has {self.messages_a:,}, B {self.messages_b:,})"

    @property
    def path(self) -> str | None:
        """The first value that differs, as `$.items[2].name`; None where not both payloads are JSON objects."""
        if self.a is None or self.b is None:
            return None
        try:
            a, b = json.loads(self.a.payload), json.loads(self.b.payload)
            found = _path(a, b) if isinstance(a, dict) and isinstance(b, dict) else None
        except (ValueError, RecursionError):
            return None
        return None if found is None else f"${found}"

    def lines(self, *, full: bool = False) -> list[tuple[str, str]]:
        """The difference in words, each line with its sign.

        Blank is the last message that was the same, A and B are the first that differ, `~` says where they do, and
        a and b follow them. Long texts are cut, A's and B's around the first character that differs, unless `full`.
        """
        lines = [] if self.before is None else [(" ", _line(self.before, self.before.text, most=CONTEXT, full=full))]
        start, where = 0, ""
        a, b = _texts(self.a, self.b)
        if a is not None and b is not None:
            at = _first_apart(a, b)
            long = len(a) > LONGEST or len(b) > LONGEST
            start = max(at - LEAD, 0) if long else 0
            path = self.path
            if long or path is not None:
                where = f"differs at character {at + 1:,}"
                where += "" if path is None else f", in {safe(_cut(path, full=full))}"
        for sign, entry, text in (("A", self.a, a), ("B", self.b, b)):
            if entry is None or text is None:
                lines.append((sign, "(nothing: it ends here)"))
            else:
                lines.append((sign, _line(entry, text, start, full=full)))
        if where:
            lines.append(("~", where))
        for sign, entry in (("a", self.a_next), ("b", self.b_next)):
            if entry is not None:
                lines.append((sign, _line(entry, entry.text, most=CONTEXT, full=full)))
        return lines


def _line(entry: Event, text: str, start: int = 0, *, most: int = LONGEST, full: bool) -> str:
    return f"{entry.cursor}  {safe(_cut(text, start, most=most, full=full))}"


def _cut(text: str, start: int = 0, *, most: int = LONGEST, full: bool) -> str:
    """What is shown of a text, from `start` on."""
    if full:
        return text
    end = start + most
    return ("…" if start else "") + text[start:end] + ("…" if len(text) > end else "")


def _texts(a: Event | None, b: Event | None) -> tuple[str | None, str | None]:
    """What both sides say: as `events` shows it, or the payloads themselves where only these differ."""
    if a is None or b is None:
        return None if a is None else a.text, None if b is None else b.text
    for say in (_as_text, _as_payload):
        said = say(a), say(b)
        if said[0] != said[1]:
            return said
    return repr(a.payload), repr(b.payload)


def _as_text(entry: Event) -> str:
    return entry.text


def _as_payload(entry: Event) -> str:
    return entry.payload.decode("utf-8", "backslashreplace")


def _first_apart(a: str, b: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _path(a: Any, b: Any) -> str | None:
    """The way to the first value that differs, or None where all are the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key not in a or key not in b:
                return _step(key)
            if (found := _path(a[key], b[key])) is not None:
                return _step(key) + found
        return None
    if isinstance(a, list) and isinstance(b, list):
        for at, (one, other) in enumerate(zip(a, b, strict=False)):
            if (found := _path(one, other)) is not None:
                return f"[{at}]{found}"
        return None if len(a) == len(b) else f"[{min(len(a), len(b))}]"
    return None if type(a) is type(b) and repr(a) == repr(b) else ""


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"


@dataclass(slots=True, repr=False)
class Comparison:
    """What a comparison found. As `str` it is what `messager diff` says, in short: `assert found.equal, str(found)`."""

    a: str
    b: str
    messages_a: int = 0
    messages_b: int = 0
    channels: int = 0
    """Channels that either has."""
    differing: int = 0
    """Channels that differ."""
    differences: list[Difference] = field(default_factory=list)
    """The first `DETAILED` of them, by name."""
    redacted: int = 0
    """Messages of which either side was redacted: taken for the same as what stands across."""
    translated: bool = False
    """Whether `exps/...` counted as `exps:...`, as the sides come from different kinds of broker."""
    exp_ids: tuple[str, str] | None = None
    """What A's and B's channels bear, where no channel is on both sides and `to_exp` of a mapping would change that."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differing

    @property
    def same(self) -> int:
        """Channels with the same payloads in the same order."""
        return self.channels - self.differing

    @property
    def verdict(self) -> str:
        """equal or different"""
        return "equal" if self.equal else "different"

    @property
    def counts(self) -> str:
        """How many messages and channels were compared, and how many differ."""
        a, b = plural(self.messages_a, "message"), plural(self.messages_b, "message")
        counts = f"{safe(self.a)}: {a}, {safe(self.b)}: {b}"
        if self.redacted:
            counts += f" ({self.redacted:,} redacted, not compared)"
        if self.equal:
            return f"{counts}, on {plural(self.channels, 'channel')}"
        return f"{counts}; {self.differing:,} of {self.channels:,} channels differ"

    def __str__(self) -> str:
        shown = self.differences[:SHOWN]
        words = [f"{self.verdict}  {self.counts}"]
        for difference in shown:
            words += ["", difference.title, *(f"  {sign} {line}" for sign, line in difference.lines())]
        if self.differing > len(shown):
            words += ["", f"and {plural(self.differing - len(shown), 'more channel')}"]
        return "\n".join(words)

    def __repr__(self) -> str:
        """One line: it is what pytest prints of `assert found.equal`."""
        first = f"; first {self.differences[0].title}" if self.differences else ""
        return f"<Comparison {self.verdict}  {self.counts}{first}>"
