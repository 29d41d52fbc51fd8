"""Result of a comparison of two experiments, and its text. The algorithm is in `compare`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..log.event import Event
from ..text import plural, safe
from .text_diff import LEAD, LONGEST, common_prefix, differing_path, shortened

SHOWN = 3
"""Channels whose difference is shown in the text of a comparison."""
CONTEXT = 100
"""Characters of the messages before and after a difference."""


@dataclass(slots=True)
class Difference:
    """The first difference on one channel, with the neighbouring messages of both sides."""

    channel: str
    index: int
    """Position within the channel, from 0."""
    a: Event | None
    """Message of A; None if A has ended."""
    b: Event | None
    before: Event | None
    """The last equal message (A's), or None."""
    a_next: Event | None = None
    b_next: Event | None = None
    messages_a: int = 0
    """Messages of A on the channel."""
    messages_b: int = 0

    @property
    def title(self) -> str:
        """Return the channel, the position of the difference and the number of messages."""
        return f"{safe(self.channel)}, message {self.index + 1:,} (A has {self.messages_a:,}, B {self.messages_b:,})"

    @property
    def path(self) -> str | None:
        """Return the JSON path of the first value that differs; None unless both payloads are JSON objects."""
        return None if self.a is None or self.b is None else differing_path(self.a.payload, self.b.payload)

    def lines(self, *, full: bool = False) -> list[tuple[str, str]]:
        """Return the difference as lines of text, each with its sign.

        " " is the last equal message, A and B are the first different ones, "~" tells where they differ, and
        a and b are the next messages. Long texts are shortened, those of A and B around the first different
        character, unless `full`.
        """
        lines = [] if self.before is None else [(" ", _context(self.before, full))]
        start, where = 0, ""
        a, b = _texts(self.a, self.b)
        if a is not None and b is not None:
            at = common_prefix(a, b)
            long = len(a) > LONGEST or len(b) > LONGEST
            start = max(at - LEAD, 0) if long else 0
            path = self.path
            if long or path is not None:
                where = f"differs at character {at + 1:,}"
                where += "" if path is None else f", in {safe(shortened(path, full=full))}"
        for sign, entry, text in (("A", self.a, a), ("B", self.b, b)):
            if entry is None or text is None:
                lines.append((sign, "(no message: it ends here)"))
            else:
                lines.append((sign, f"{entry.cursor}  {safe(shortened(text, start, full=full))}"))
        if where:
            lines.append(("~", where))
        lines += [(sign, _context(entry, full)) for sign, entry in (("a", self.a_next), ("b", self.b_next)) if entry]
        return lines


def _context(entry: Event, full: bool) -> str:
    return f"{entry.cursor}  {safe(shortened(entry.text, most=CONTEXT, full=full))}"


def _texts(a: Event | None, b: Event | None) -> tuple[str | None, str | None]:
    """Return the texts of both events as `events` shows them; if these are equal, the payloads."""
    if a is None or b is None or a.text != b.text:
        return None if a is None else a.text, None if b is None else b.text
    one, other = (entry.payload.decode("utf-8", "backslashreplace") for entry in (a, b))
    return (one, other) if one != other else (repr(a.payload), repr(b.payload))


@dataclass(slots=True, repr=False)
class Comparison:
    """Result of a comparison. `str` gives the text of `messager diff`, shortened: `assert found.equal, str(found)`."""

    a: str
    b: str
    messages_a: int = 0
    messages_b: int = 0
    channels: int = 0
    """Channels of both sides together."""
    differing: int = 0
    """Channels that differ."""
    differences: list[Difference] = field(default_factory=list)
    """The first `DETAILED` differences, by channel name."""
    redacted: int = 0
    """Messages that are redacted on at least one side, and count as equal."""
    translated: bool = False
    """True if `exps/...` counted as `exps:...`, because the sides come from different kinds of broker."""
    exp_ids: tuple[str, str] | None = None
    """The exp_ids in the channels of A and B, if no channel is on both sides and `to_exp` would change that."""

    @property
    def equal(self) -> bool:
        """Return whether no channel differs."""
        return not self.differing

    @property
    def same(self) -> int:
        """Return the number of channels with the same payloads in the same order."""
        return self.channels - self.differing

    @property
    def verdict(self) -> str:
        """Return "equal" or "different"."""
        return "equal" if self.equal else "different"

    @property
    def counts(self) -> str:
        """Return the numbers of messages and channels as text."""
        a, b = plural(self.messages_a, "message"), plural(self.messages_b, "message")
        counts = f"{safe(self.a)}: {a}, {safe(self.b)}: {b}"
        if self.redacted:
            counts += f" ({self.redacted:,} redacted, not compared)"
        if self.equal:
            return f"{counts}, on {plural(self.channels, 'channel')}"
        return f"{counts}; {self.differing:,} of {self.channels:,} channels differ"

    def __str__(self) -> str:
        shown = self.differences[:SHOWN]
        lines = [f"{self.verdict}  {self.counts}"]
        for difference in shown:
            lines += ["", difference.title, *(f"  {sign} {line}" for sign, line in difference.lines())]
        if self.differing > len(shown):
            lines += ["", f"and {plural(self.differing - len(shown), 'more channel')}"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return one line, which pytest prints for `assert found.equal`."""
        first = f"; first {self.differences[0].title}" if self.differences else ""
        return f"<Comparison {self.verdict}  {self.counts}{first}>"
