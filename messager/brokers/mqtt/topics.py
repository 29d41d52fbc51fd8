"""MQTT's names: topics and filters, and how they stand to channels and glob patterns.

The rules are those of section 4.7 of the MQTT 3.1.1 standard. A topic is a channel whose levels are
separated by `/`. Other than a channel it is UTF-8, and holds neither `+` nor `#`, which stand for one
level and for all that follow in a filter. So a pattern with a level of that kind is a filter, and
any other is a glob, as on Redis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ... import channels

RULES = "MQTT 3.1.1, section 4.7"
MOST_BYTES = 65535
"""The longest a topic or a filter may be."""
MOST_PACKET_BYTES = 268_435_455 - 4
"""Bytes of a topic and its payload: what the protocol has room for."""
_GLOB = re.compile(r"[*?]|\[\^?(?:\\.|[^\]\\]-.|[^\]\\])*\]?|\\(?P<escaped>.)", re.DOTALL)
"""A wildcard of a glob, or a character that is escaped, as `channels.matches` reads them."""
# What the standard forbids, and what it lets a server close the connection for (1.5.3), which some do:
# that would take the messages with it that are on their way.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def fault(topic: bytes, size: int = 0) -> str | None:
    """Why no payload of `size` bytes can be published on this topic; None where it can."""
    if not topic:
        return "it is empty"
    if len(topic) > MOST_BYTES:
        return f"it has {len(topic):,} bytes, and {MOST_BYTES:,} are the most"
    if len(topic) + size > MOST_PACKET_BYTES:
        return f"with its payload of {size:,} bytes it is more than the {MOST_PACKET_BYTES:,} that MQTT takes"
    try:
        text = topic.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if "+" in text or "#" in text:
        return "+ and # are wildcards, for subscriptions only"
    return _unfit(text)


def is_filter(pattern: str | bytes) -> bool:
    """Whether a pattern is a filter of MQTT's own, with wildcards: a level that is `+`, or a last one that is `#`."""
    text = channels.decode(pattern)
    levels = text.split("/")
    last = levels.pop()
    if "#" in levels or not (last in ("+", "#") or "+" in levels):
        return False
    return not any(char in level for level in (*levels, last) if level not in ("+", "#") for char in "+#*?[\\")


def filter_of(pattern: str | bytes) -> str:
    """The filter to subscribe to for a pattern: what it matches, and it may be more, is what the filter brings.

    A wildcard of a glob may reach over a `/`, so what stands before its level is all that narrows
    the filter. Raises `ValueError` for a pattern that no topic can fit, and for a subscription that is shared.
    """
    text = channels.decode(pattern)
    wild = is_filter(text)
    before, literal = (None, re.sub("[+#]", "", text)) if wild else _literals(text)
    if before is None:
        found = text if wild else literal
    else:
        above, slash, _ = before.rpartition("/")
        found = f"{above}{slash}#"
    why = _misfit(text, literal, found)
    if why is not None:
        raise ValueError(f"cannot subscribe to {text[:100]!a}: {why}")
    return found


def _misfit(pattern: str, literal: str, found: str) -> str | None:
    """Why a pattern with this text, and this filter, brings nothing; None where it may."""
    if not pattern:
        return "it is empty"
    if pattern.startswith("$share/"):
        return "it shares its messages with others, and a listener wants them all: leave out $share/..."
    if (unfit := _unfit(literal)) is not None:
        return unfit
    if "+" in literal or "#" in literal:
        return f"+ stands for one whole level, # for all that follow, at the end, and neither beside * ? [ ({RULES})"
    if pattern.startswith("$") and not found.startswith("$"):
        return f"what begins with $ comes only where its first level is written out, as in $SYS/# ({RULES})"
    return f"its filter has more than {MOST_BYTES:,} bytes" if len(found.encode()) > MOST_BYTES else None


def _literals(glob: str) -> tuple[str | None, str]:
    """What stands before the first wildcard of a glob (None where there is none), and all that stands for itself."""
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
    """Filters that bring all that these bring, and nothing twice.

    A message that fits two subscriptions of one client is delivered twice by some brokers and once
    by others, and nobody could tell which. So those that overlap become one that covers both.
    """
    kept: list[str] = []
    for new in filters:
        while (other := next((one for one in kept if overlap(one, new)), None)) is not None:
            kept.remove(other)
            new = _joined(other, new)
        kept.append(new)
    return kept


def fits(pattern: str | bytes, topic: str | bytes) -> bool:
    """Whether a subscriber of `pattern`, a filter or a glob, gets what is published on `topic`.

    A wildcard in the first place does not match a topic that begins with `$`, where brokers
    publish what concerns themselves.
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


def _unfit(text: str) -> str | None:
    """Why no topic may hold this text; None where one may."""
    found = _UNFIT.search(text)
    if found is None:
        return None
    return "it is not UTF-8" if "\ud800" <= found[0] <= "\udfff" else f"it holds the character {found[0]!a}"


@lru_cache(maxsize=4096)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    levels = pattern.split(b"/")
    rest = b""
    if levels[-1] == b"#":
        del levels[-1]
        rest = b"(?:/.*)?" if levels else b".*"
    return re.compile(b"/".join(b"[^/]*" if level == b"+" else re.escape(level) for level in levels) + rest, re.DOTALL)


def overlap(one: str, other: str) -> bool:
    """Whether there is a topic that fits both filters."""
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
    """The narrowest filter that covers two that overlap."""
    mine, its = one.split("/"), other.split("/")
    levels: list[str] = []
    for a, b in zip(mine, its, strict=False):
        if a == "#" or b == "#":
            return "/".join([*levels, "#"])
        levels.append(a if a == b else "+")
    return "/".join(levels if len(mine) == len(its) else [*levels, "#"])
