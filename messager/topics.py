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

from . import channels

MOST_BYTES = 65535
"""The longest a topic or a filter may be."""
MOST_PACKET_BYTES = 268_435_455 - 4
"""Bytes of a topic and its payload: what the protocol has room for."""
_SWAP = str.maketrans(":/", "/:")
_GLOB = frozenset("*?[")
# What the standard forbids, and what it lets a server close the connection for (1.5.3), which some do:
# that would take the messages with it that are on their way.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def as_topic(channel: str) -> str:
    """A channel `exps:...` as the topic `exps/...`; any other stays as it is.

    `:` and `/` change places, so that nothing is lost: `as_channel` gives the same channel back.
    """
    return channel.translate(_SWAP) if channel.startswith("exps:") else channel


def as_channel(topic: str) -> str:
    """A topic `exps/...` as the channel `exps:...`; any other stays as it is."""
    return topic.translate(_SWAP) if topic.startswith("exps/") else topic


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
    found = _UNFIT.search(text)
    return None if found is None else f"it holds the character {found[0]!a}"


def is_filter(pattern: str | bytes) -> bool:
    """Whether a pattern is a filter of MQTT's own, with wildcards: a level that is `+`, or a last one that is `#`."""
    text = channels.decode(pattern)
    levels = text.split("/")
    last = levels.pop()
    wild = last in ("+", "#") or "+" in levels
    return wild and not any(char in level for level in (*levels, last) if level not in ("+", "#") for char in "+#*?[\\")


def filter_of(pattern: str | bytes) -> str | None:
    """The filter to subscribe to for a pattern: what it matches, and it may be more, is what the filter brings.

    None where no topic fits: there is nothing to subscribe to. A wildcard of a glob may reach
    over a `/`, so what stands before its level is all that narrows the filter.
    """
    text = channels.decode(pattern)
    if is_filter(text):
        return text if _encodable(text) else None
    literal: list[str] = []
    at = 0
    while at < len(text) and text[at] not in _GLOB:
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
        literal.append(text[at])
        at += 1
    known = "".join(literal)
    if not _encodable(known) or "+" in known or "#" in known:
        return None
    if at == len(text):
        return known or None
    above, slash, _ = known.rpartition("/")
    return f"{above}{slash}#"


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
    if wire[:1] == b"$" and text[:1] != b"$":
        return False
    return _compiled(text).fullmatch(wire) is not None if is_filter(text) else channels.matches(text, wire)


def _encodable(text: str) -> bool:
    return _UNFIT.search(text) is None and len(text.encode()) <= MOST_BYTES


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
