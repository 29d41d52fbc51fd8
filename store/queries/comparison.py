"""Result of a comparison of two experiments, and its text. The algorithm is in `compare`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..log.event import Event
from ..text import plural, safe
from .match import Match, ValueDifference
from .text_diff import LEAD, LONGEST, common_prefix, shortened

SHOWN = 3
"""Channels whose difference is shown in the text of a comparison."""
CONTEXT = 100
"""Characters of the messages before and after a difference."""
_EXACT = Match(bytes_only=True)


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
    match: Match | None = None
    """The rules of the comparison; None: byte for byte."""
    sender: str = ""
    """The sender as JSON, in a comparison by sender; else empty."""

    @property
    def title(self) -> str:
        """Return the channel, the position of the difference and the number of messages."""
        where = safe(self.channel) + (f", from {safe(self.sender)}" if self.sender else "")
        return f"{where}, message {self.index + 1:,} (A has {self.messages_a:,}, B {self.messages_b:,})"

    @property
    def path(self) -> str | None:
        """Return the JSON path of the first value that differs, under the `match` if there is one.

        For the whole payload, and if one is not JSON, `$` with a `match` and None without.
        """
        if self.a is None or self.b is None:
            return None
        found = self._found(self.a, self.b)
        return None if found is None else found.path

    def _found(self, a: Event, b: Event) -> ValueDifference | None:
        """Return the first value that differs, with the path of `path`."""
        if self.match is not None:
            return self.match.first_difference(a.payload, b.payload)
        found = _EXACT.first_difference(a.payload, b.payload)
        return None if found is None or found.path == "$" else found  # A and B are the whole payloads

    def lines(self, *, full: bool = False) -> list[tuple[str, str]]:
        """Return the difference as lines of text, each with its sign.

        " " is the last equal message, A and B are the first different ones, "~" tells where they differ, and
        a and b are the next messages. Long texts are shortened, those of A and B around the first different
        character, unless `full`. "~" has the path with both values; without a path, the character if texts are long.
        """
        lines = [] if self.before is None else [(" ", _context(self.before, full))]
        start, where = 0, ""
        a, b = _texts(self.a, self.b)
        if self.a is not None and self.b is not None and a is not None and b is not None:
            found = self._found(self.a, self.b)
            if found is not None:
                where = _values(found, full)
            if self.match is None and (len(a) > LONGEST or len(b) > LONGEST):
                at = common_prefix(a, b)
                start = max(at - LEAD, 0)
                where = where or f"differs at character {at + 1:,}"
        for sign, entry, text in (("A", self.a, a), ("B", self.b, b)):
            if entry is None or text is None:
                lines.append((sign, "(no message: it ends here)"))
            else:
                lines.append((sign, f"{entry.cursor}  {safe(shortened(text, start, full=full))}"))
        if where:
            lines.append(("~", where))
        lines += [(sign, _context(entry, full)) for sign, entry in (("a", self.a_next), ("b", self.b_next)) if entry]
        return lines


def _values(found: ValueDifference, full: bool) -> str:
    """Return where two payloads differ, and how: long values from shortly before their first different character."""
    where = f"differs in {safe(shortened(found.path, full=full))}"
    if found.path == "$":
        return where
    start = max(common_prefix(found.expected or "", found.actual or "") - LEAD, 0)
    texts = [
        "no value" if text is None else safe(shortened(text, start if len(text) > LONGEST else 0, full=full))
        for text in (found.expected, found.actual)
    ]
    return f"{where}: {texts[0]} in A, {texts[1]} in B"


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
    matched: int = 0
    """Messages that are equal by the `Match`, but not byte for byte."""
    translated: bool = False
    """True if `exps/...` counted as `exps:...`, because the sides come from different kinds of broker."""
    by_sender: bool = False
    """True if the messages of each sender on a channel were compared on their own. `channels` counts these then."""
    absent_paths: list[str] = field(default_factory=list)
    """Paths of the `match` that no JSON payload of either side has, so that they have no effect."""
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
        if self.matched:
            counts += f" ({self.matched:,} equal by value, not byte for byte)"
        if self.equal:
            return f"{counts}, {'of' if self.by_sender else 'on'} {plural(self.channels, self.unit)}"
        return f"{counts}; {self.differing:,} of {self.channels:,} {self.unit}s differ"

    @property
    def unit(self) -> str:
        """Return the name of what `channels` counts."""
        return "sender and channel pair" if self.by_sender else "channel"

    def __str__(self) -> str:
        shown = self.differences[:SHOWN]
        lines = [f"{self.verdict}  {self.counts}"]
        for difference in shown:
            lines += ["", difference.title, *(f"  {sign} {line}" for sign, line in difference.lines())]
        if self.differing > len(shown):
            lines += ["", f"and {plural(self.differing - len(shown), f'more {self.unit}')}"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return one line, which pytest prints for `assert found.equal`."""
        first = f"; first {self.differences[0].title}" if self.differences else ""
        return f"<Comparison {self.verdict}  {self.counts}{first}>"
