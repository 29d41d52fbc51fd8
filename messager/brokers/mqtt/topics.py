"""Topics and filters of MQTT, and the filters for glob patterns.

The rules are those of section 4.7 of MQTT 3.1.1. A topic is a channel in UTF-8 whose levels are separated by `/`. It
contains neither `+` nor `#`, which in a filter stand for one level and for all following levels. So a pattern with
such a level is a filter, and any other is a glob, as on Redis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ... import channels

RULES = "MQTT 3.1.1, section 4.7"
MAX_BYTES = 65535
"""Maximum length of a topic or a filter."""
MAX_PACKET_BYTES = 268_435_455 - 4
"""Maximum length of a topic and its payload, by the protocol."""
_GLOB = re.compile(r"[*?]|\[\^?(?:\\.|[^\]\\]-.|[^\]\\])*\]?|\\(?P<escaped>.)", re.DOTALL)
"""Wildcard of a glob, or an escaped character, as `channels.matches` reads them."""
# Characters that the standard forbids, or for which a server may close the connection (1.5.3). Some servers do, which
# would lose the messages on their way.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def fault(topic: bytes, size: int = 0) -> str | None:
    """Return why a payload of `size` bytes cannot be published on this topic; None if it can."""
    if not topic:
        return "it is empty"
    if len(topic) > MAX_BYTES:
        return f"it has {len(topic):,} bytes, above the maximum of {MAX_BYTES:,}"
    if len(topic) + size > MAX_PACKET_BYTES:
        return f"with its payload of {size:,} bytes it exceeds the maximum of {MAX_PACKET_BYTES:,} bytes of MQTT"
    try:
        text = topic.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if "+" in text or "#" in text:
        return "+ and # are wildcards, for subscriptions only"
    return _topic_problem(text)


def is_filter(pattern: str | bytes) -> bool:
    """Return True for a filter with wildcards: a level that is `+`, or a last level that is `#`."""
    text = channels.decode(pattern)
    levels = text.split("/")
    last = levels.pop()
    if "#" in levels or not (last in ("+", "#") or "+" in levels):
        return False
    return not any(char in level for level in (*levels, last) if level not in ("+", "#") for char in "+#*?[\\")


def filter_of(pattern: str | bytes) -> str:
    """Return the filter to subscribe to for a pattern. It matches what the pattern matches, and maybe more.

    A wildcard of a glob also matches `/`, so only the levels before it narrow the filter. Raises `ValueError` for a
    pattern that matches no topic, and for a shared subscription.
    """
    text = channels.decode(pattern)
    own = is_filter(text)
    before, literal = (None, re.sub("[+#]", "", text)) if own else _literals(text)
    if before is None:
        found = text if own else literal
    else:
        above, slash, _ = before.rpartition("/")
        found = f"{above}{slash}#"
    why = _misfit(text, literal, found)
    if why is not None:
        raise ValueError(f"cannot subscribe to {text[:100]!a}: {why}")
    return found


def _misfit(pattern: str, literal: str, found: str) -> str | None:
    """Return why a pattern with this literal text and this filter matches nothing; None if it may match."""
    if not pattern:
        return "it is empty"
    if pattern.startswith("$share/"):
        return "it shares its messages with other clients, and a subscriber needs all: leave out $share/..."
    if (problem := _topic_problem(literal)) is not None:
        return problem
    if "+" in literal or "#" in literal:
        return f"+ stands for one whole level, # for all that follow, at the end, and neither beside * ? [ ({RULES})"
    if pattern.startswith("$") and not found.startswith("$"):
        return f"topics with $ need their first level written out, as in $SYS/# ({RULES})"
    return f"its filter has more than {MAX_BYTES:,} bytes" if len(found.encode()) > MAX_BYTES else None


def _literals(glob: str) -> tuple[str | None, str]:
    """Return the text before the first wildcard of a glob (None without one), and its text without wildcards."""
    before: str | None = None
    parts: list[str] = []
    at = 0
    for found in _GLOB.finditer(glob):
        parts += glob[at : found.start()], found["escaped"] or ""
        at = found.end()
        if before is None and found["escaped"] is None:
            before = "".join(parts)
    return before, "".join(parts) + glob[at:]


def without_overlap(filters: Iterable[str]) -> list[str]:
    """Return filters that match what these match, with no overlap.

    Some brokers deliver a message that matches two subscriptions of a client twice, others once, and the client cannot
    tell. So two filters that overlap become one that covers both.
    """
    kept: list[str] = []
    for new in filters:
        while (other := next((one for one in kept if overlap(one, new)), None)) is not None:
            kept.remove(other)
            new = _joined(other, new)
        kept.append(new)
    return kept


def fits(pattern: str | bytes, topic: str | bytes) -> bool:
    """Return True if a subscriber of `pattern`, a filter or a glob, gets messages on `topic`.

    A leading wildcard does not match a topic that begins with `$`, on which brokers themselves publish.
    """
    wire, text = channels.encode(topic), channels.encode(pattern)
    if wire[:1] == b"$" and not _names_first_level(text):
        return False
    return _compiled(text).fullmatch(wire) is not None if is_filter(text) else channels.matches(text, wire)


def _names_first_level(pattern: bytes) -> bool:
    try:
        return filter_of(pattern).startswith("$")
    except ValueError:
        return False


def _topic_problem(text: str) -> str | None:
    """Return why no topic may contain this text; None if one may."""
    found = _UNFIT.search(text)
    if found is None:
        return None
    return "it is not UTF-8" if "\ud800" <= found[0] <= "\udfff" else f"it contains the character {found[0]!a}"


@lru_cache(maxsize=4096)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    levels = pattern.split(b"/")
    rest = b""
    if levels[-1] == b"#":
        del levels[-1]
        rest = b"(?:/.*)?" if levels else b".*"
    return re.compile(b"/".join(b"[^/]*" if level == b"+" else re.escape(level) for level in levels) + rest, re.DOTALL)


def overlap(one: str, other: str) -> bool:
    """Return True if a topic exists that matches both filters."""
    mine, its = one.split("/"), other.split("/")
    if any(a[:1] == "$" and b in ("+", "#") for a, b in ((mine[0], its[0]), (its[0], mine[0]))):
        return False
    for a, b in zip(mine, its, strict=False):
        if a == "#" or b == "#":
            return True
        if a != b and "+" not in (a, b):
            return False
    longer = mine if len(mine) > len(its) else its
    return len(mine) == len(its) or longer[min(len(mine), len(its))] == "#"


def _joined(one: str, other: str) -> str:
    """Return the narrowest filter that covers two that overlap."""
    mine, its = one.split("/"), other.split("/")
    levels: list[str] = []
    for a, b in zip(mine, its, strict=False):
        if a == "#" or b == "#":
            return "/".join([*levels, "#"])
        levels.append(a if a == b else "+")
    return "/".join(levels if len(mine) == len(its) else [*levels, "#"])
