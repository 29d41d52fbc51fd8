"""Result of a comparison of two experiments, and its text. The algorithm is in `compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from ...log.event import Event
from ...matching.match import Match, ValueDifference
from ...text import plural, safe
from .channel_differences import Kind
from .similarity import grams, similarity
from .text_diff import LEAD, LONGEST, common_prefix, shortened

FEW = 10
"""Messages of runs that are too short to say how much they share."""
SHOWN = 5
"""Differences that are shown in the text of a comparison."""
CONTEXT = 100
"""Characters of the messages before and after a difference, and of those that moved or are on one side only."""
_EXACT = Match(bytes_only=True)
_NOUNS = {"moved": "moved", "changed": "changed", "only_a": "only in A", "only_b": "only in B"}


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of messages, by what became of them."""

    equal: int = 0
    """On both sides, in the same order on the channel. Redacted messages count as equal to their counterparts."""
    moved: int = 0
    """On both sides, at another place of the channel."""
    changed: int = 0
    """Messages of A with another message of B in their place."""
    only_a: int = 0
    only_b: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            *(self.equal + other.equal, self.moved + other.moved, self.changed + other.changed),
            *(self.only_a + other.only_a, self.only_b + other.only_b),
        )

    @property
    def differing(self) -> int:
        """Return the number of differences."""
        return self.moved + self.changed + self.only_a + self.only_b

    def __str__(self) -> str:
        given = [(number, noun) for kind, noun in _NOUNS.items() if (number := getattr(self, kind))]
        return ", ".join(f"{number:,} {noun}" for number, noun in [(self.equal, "equal"), *given])


@dataclass(frozen=True, slots=True)
class ChannelCounts:
    """A channel that differs; with `by_sender`, a channel and a sender."""

    channel: str
    sender: str
    """The sender as JSON, in a comparison by sender; else empty."""
    messages_a: int
    messages_b: int
    messages: Counts
    first: int
    """Position of its first difference in the replay order of A."""
    by_anchors: bool = False
    """True if both sides have so little of what follows the opening that only anchors were aligned: messages that are
    once on both sides. Others in the same place were paired in order, without regard to their texts."""


@dataclass(slots=True)
class Difference:
    """One difference. Its message of A is in the place of that of B, except if it moved."""

    channel: str
    kind: Kind
    a: Event | None
    """The message of A; None if only B has it."""
    b: Event | None
    index_a: int | None
    """Position among A's messages of the channel, from 0."""
    index_b: int | None
    messages_a: int = 0
    """Messages of A on the channel."""
    messages_b: int = 0
    match: Match | None = None
    """The rules of the comparison; None: byte for byte."""
    sender: str = ""
    """The sender as JSON, in a comparison by sender; else empty."""
    before: Event | None = None
    """The message before, of A (of B if only B has this one). Neighbours are given for the first difference."""
    a_next: Event | None = None
    b_next: Event | None = None

    @property
    def title(self) -> str:
        """Return the channel, the kind and the position of the difference, and the number of messages."""
        where = safe(self.channel) + (f", from {safe(self.sender)}" if self.sender else "")
        return f"{where}: {_NOUNS[self.kind]}, {self.position}"

    @property
    def position(self) -> str:
        """Return the position on the channel as text."""
        a = f"message {(self.index_a or 0) + 1:,} of {self.messages_a:,} in A"
        b = f"{(self.index_b or 0) + 1:,} of {self.messages_b:,} in B"
        if self.index_b is None:
            return f"{a} (B has {self.messages_b:,})"
        return f"message {b} (A has {self.messages_a:,})" if self.index_a is None else f"{a}, {b}"

    @property
    def similarity(self) -> float | None:
        """Return the similarity of the texts of a changed message, from 0 to 1; of the payloads if texts are equal."""
        a, b = _texts(self.a, self.b)
        return None if self.kind != "changed" or a is None or b is None else similarity(grams(a), grams(b))

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

    @property
    def same_text(self) -> bool:
        """Return whether the decoded texts of both messages are equal, so that `similarity` is that of the payloads."""
        return self.a is not None and self.b is not None and self.a.text == self.b.text

    def lines(self, *, full: bool = False) -> list[tuple[str, str]]:
        """Return the difference as lines of text, each with its sign.

        A and B are the messages of both sides, "~" tells how similar they are and where they differ. With neighbours,
        " " is the message before, and a and b are the next ones. Long texts are shortened, those of A and B around the
        first different character, unless `full`. "~" has the path with both values; without a path, the character if
        texts are long.
        """
        lines = [] if self.before is None else [(" ", _context(self.before, full))]
        if self.kind == "changed":
            lines += self._changed(full)
        else:
            lines += [(sign, _context(entry, full)) for sign, entry in (("A", self.a), ("B", self.b)) if entry]
        lines += [(sign, _context(entry, full)) for sign, entry in (("a", self.a_next), ("b", self.b_next)) if entry]
        return lines

    def place(self, *, full: bool = False) -> str:
        """Return the path at which a changed message differs, with both values; without one, the character."""
        a, b = _texts(self.a, self.b)
        if self.a is None or self.b is None or a is None or b is None:
            return ""
        found = self._found(self.a, self.b)
        if found is not None:
            return _values(found, full)
        long = self.match is None and (len(a) > LONGEST or len(b) > LONGEST)
        return f"differs at character {common_prefix(a, b) + 1:,}" if long else ""

    def shown(self, width: int, *, full: bool = False) -> tuple[str, str]:
        """Return the texts of a changed message in at most `width` characters, from before their first difference."""
        a, b = (text or "" for text in _texts(self.a, self.b))
        start = 0
        if self.match is None and (len(a) > width or len(b) > width):
            start = max(common_prefix(a, b) - min(LEAD, width // 3), 0)
        return safe(shortened(a, start, most=width, full=full)), safe(shortened(b, start, most=width, full=full))

    def _changed(self, full: bool) -> list[tuple[str, str]]:
        assert self.a is not None and self.b is not None
        a, b = self.shown(LONGEST, full=full)
        likeness = f"{self.similarity or 0:.0%} similar"
        return [
            ("A", f"{self.a.cursor}  {a}"),
            ("B", f"{self.b.cursor}  {b}"),
            ("~", ", ".join(filter(None, (likeness, self.place(full=full))))),
        ]


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
    messages: Counts = Counts()
    """What became of the messages of all channels."""
    channels: int = 0
    """Channels of both sides together."""
    by_channel: list[ChannelCounts] = field(default_factory=list)
    """The channels that differ, in the order of their first differences."""
    differences: list[Difference] = field(default_factory=list)
    """The first differences, in the replay order of A; a message that only B has stands behind the one before it."""
    redacted: int = 0
    """Messages that are redacted on at least one side, and count as equal."""
    matched: int = 0
    """Messages that are equal by the `Match`, but not byte for byte."""
    translated: bool = False
    """True if `exps/...` counted as `exps:...`, because the sides come from different kinds of broker."""
    by_sender: bool = False
    """True if the messages of each sender on a channel were compared on their own. `channels` counts these then."""
    absent_paths: list[str] = field(default_factory=list)
    """Paths given to the `match` that no JSON payload of either side has, so that they have no effect."""
    exp_ids: tuple[str, str] | None = None
    """The exp_ids in the channels of A and B, if these counted as the same; None if names were compared as recorded."""

    @property
    def equal(self) -> bool:
        """Return whether nothing differs."""
        return not self.messages.differing

    @property
    def differing(self) -> int:
        """Return the number of channels that differ."""
        return len(self.by_channel)

    @property
    def same(self) -> int:
        """Return the number of channels with equal messages in the same order."""
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
        return f"{counts}; {self.messages}; {self.differing:,} of {self.channels:,} {self.unit}s differ"

    @property
    def unit(self) -> str:
        """Return the name of what `channels` counts."""
        return "sender and channel pair" if self.by_sender else "channel"

    @property
    def shares_little(self) -> bool:
        """True if less than a tenth of the messages is equal, of ten or more: figures of the runs tell more then."""
        most = max(self.messages_a, self.messages_b)
        return most >= FEW and self.messages.equal * 10 < most

    @property
    def by_anchors(self) -> list[str]:
        """Return the channels with so little in common that only anchors were aligned."""
        return list(dict.fromkeys(row.channel for row in self.by_channel if row.by_anchors))

    def records(self) -> list[dict[str, Any]]:
        """Return the differences as records of plain values, for data frames; None for what a side does not have."""
        return [
            {
                "channel": one.channel,
                "kind": one.kind,
                "index_a": one.index_a,
                "index_b": one.index_b,
                "text_a": None if one.a is None else one.a.text,
                "text_b": None if one.b is None else one.b.text,
                "path": one.path if one.kind == "changed" else None,
                "similarity": one.similarity,
            }
            for one in self.differences
        ]

    def __str__(self) -> str:
        shown = self.differences[:SHOWN]
        lines = [f"{self.verdict}  {self.counts}"]
        for difference in shown:
            lines += ["", difference.title, *(f"  {sign} {line}" for sign, line in difference.lines())]
        if self.messages.differing > len(shown):
            lines += ["", f"and {plural(self.messages.differing - len(shown), 'more difference')}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __repr__(self) -> str:
        """Return one line, which pytest prints for `assert found.equal`."""
        first = f"; first {self.differences[0].title}" if self.differences else ""
        return f"<Comparison {self.verdict}  {self.counts}{first}>"
