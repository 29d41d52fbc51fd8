"""The channel grammar: names built, parsed, matched and rewritten in one place.

AgentSociety's channels are `exps:{exp_id}:agents:{agent_id}:{subtopic}` and
`exps:{exp_id}:user-payback` on Redis, and the same with `/` on MQTT.

A channel is any bytes on the wire and a `str` everywhere else: UTF-8 with
`surrogateescape`, which gives every byte string its own text and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Separator = Literal[":", "/"]


def encode(channel: str | bytes) -> bytes:
    """The channel as it is on the wire. Raises `TypeError` for what is neither."""
    if isinstance(channel, str):
        return channel.encode("utf-8", "surrogateescape")
    return _checked(channel)


def decode(channel: str | bytes) -> str:
    """The channel as text; `encode` gives the same bytes back. Raises `TypeError` for what is neither."""
    if isinstance(channel, str):
        return channel
    return _checked(channel).decode("utf-8", "surrogateescape")


def _checked(channel: Any) -> bytes:
    if not isinstance(channel, bytes):
        raise TypeError(f"a channel is a str or bytes, not {channel!r:.100}")
    return channel


def agent_channel(exp_id: str, agent_id: object, subtopic: str) -> str:
    """Where one agent is spoken to."""
    return f"exps:{exp_id}:agents:{agent_id}:{subtopic}"


def payback_channel(exp_id: str) -> str:
    """Where agents tell the driver that a survey or an interview is answered."""
    return f"exps:{exp_id}:user-payback"


@dataclass(frozen=True, slots=True)
class ParsedChannel:
    """What a channel of the grammar says."""

    separator: str
    exp_id: str
    agent_id: int | str | None
    """The agent it belongs to (an int where it is written as one), or None."""
    subtopic: str


_AGENT = re.compile(r"exps(?P<sep>[:/])(?P<exp>.+?)(?P=sep)agents(?P=sep)(?P<agent>[^:/]+)(?P=sep)(?P<sub>.+)", re.S)
_OTHER = re.compile(r"exps(?P<sep>[:/])(?P<exp>.+?)(?P=sep)(?P<sub>.+)", re.S)
_SWAP = str.maketrans(":/", "/:")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.A)


def parse(channel: str) -> ParsedChannel | None:
    """The parts of a channel, or None where it is not of the grammar."""
    found = _AGENT.fullmatch(channel)
    if found:
        agent = found["agent"]
        return ParsedChannel(
            found["sep"], found["exp"], int(agent) if _DECIMAL.fullmatch(agent) else agent, found["sub"]
        )
    found = _OTHER.fullmatch(channel)
    if found:
        return ParsedChannel(found["sep"], found["exp"], None, found["sub"])
    return None


def separator(channel: str) -> Separator | None:
    """Return the separator of a channel that begins as the grammar says; None for any other."""
    return ":" if channel.startswith("exps:") else "/" if channel.startswith("exps/") else None


def with_separator(channel: str, wanted: Separator) -> str:
    """Return a channel of the grammar with this separator; any other channel stays as it is.

    `:` and `/` change places, so the opposite call gives the same channel back.
    """
    return channel if separator(channel) in (None, wanted) else channel.translate(_SWAP)


def with_experiment(channel: str, exp_id: str) -> str:
    """The same channel of another experiment; a channel outside the grammar stays as it is."""
    found = _AGENT.fullmatch(channel) or _OTHER.fullmatch(channel)
    if not found:
        return channel
    return channel[: found.start("exp")] + exp_id + channel[found.end("exp") :]


def with_agent(channel: str, agent_id: object) -> str:
    """The same channel of another agent; one that belongs to no agent stays as it is."""
    found = _AGENT.fullmatch(channel)
    if not found:
        return channel
    return channel[: found.start("agent")] + str(agent_id) + channel[found.end("agent") :]


@lru_cache(maxsize=4096)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    """Redis' glob as a regular expression; the rules are those of `stringmatchlen` in Redis' util.c.

    What stands between two stars has a fixed length, so its first place is as good as any:
    atomic groups keep the match from trying others, which could take forever.
    """
    segments: list[list[bytes]] = [[]]
    at, end = 0, len(pattern)
    while at < end:
        char = pattern[at : at + 1]
        if char == b"*":
            while pattern[at + 1 : at + 2] == b"*":
                at += 1
            segments.append([])
        elif char == b"?":
            segments[-1].append(b".")
        elif char == b"[":
            at, piece = _compiled_class(pattern, at + 1)
            segments[-1].append(piece)
        else:
            if char == b"\\" and at + 1 < end:
                at += 1
                char = pattern[at : at + 1]
            segments[-1].append(re.escape(char))
        at += 1
    first, *others = [b"".join(segment) for segment in segments]
    if others:
        *between, last = others
        first += b"".join(b"(?>.*?" + segment + b")" for segment in between) + b".*" + last
    return re.compile(first, re.DOTALL)


def _compiled_class(pattern: bytes, at: int) -> tuple[int, bytes]:
    """A `[...]` that starts behind `at`: where it ends, and its expression."""
    end = len(pattern)
    negated = pattern[at : at + 1] == b"^"
    if negated:
        at += 1
    members: set[int] = set()
    while at < end:
        if pattern[at] == 0x5C and at + 1 < end:  # backslash
            at += 1
            members.add(pattern[at])
        elif pattern[at] == 0x5D:  # ]
            break
        elif at + 2 < end and pattern[at + 1] == 0x2D:  # a-b
            low, high = sorted((pattern[at], pattern[at + 2]))
            members.update(range(low, high + 1))
            at += 2
        else:
            members.add(pattern[at])
        at += 1
    if not members:
        return at, b"." if negated else b"(?!)"
    body = b"".join(re.escape(bytes((member,))) for member in sorted(members))
    return at, (b"[^" if negated else b"[") + body + b"]"


def matches(pattern: str | bytes, channel: str | bytes) -> bool:
    """Whether Redis would deliver a message on `channel` to a subscriber of `pattern`."""
    return matches_any((pattern,), channel)


def matches_any(patterns: Iterable[str | bytes], channel: str | bytes) -> bool:
    """Whether any of the patterns matches. The empty channel matches the empty pattern alone, not even `*`."""
    wire = encode(channel)
    if not wire:
        return any(not pattern for pattern in patterns)
    return any(_compiled(encode(pattern)).fullmatch(wire) for pattern in patterns)
