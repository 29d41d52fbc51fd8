"""Grammar of channels: names are built, parsed, matched and rewritten here.

Channels of AgentSociety are `exps:{exp_id}:agents:{agent_id}:{subtopic}` and `exps:{exp_id}:user-payback` on Redis,
and the same with `/` on MQTT.

A channel is bytes on the wire and a `str` everywhere else: UTF-8 with `surrogateescape`, so that each byte string has
its own text and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Separator = Literal[":", "/"]


def encode(channel: str | bytes) -> bytes:
    """Return the channel as bytes. Raises `TypeError` for anything but text and bytes."""
    if isinstance(channel, str):
        return channel.encode("utf-8", "surrogateescape")
    return _checked(channel)


def decode(channel: str | bytes) -> str:
    """Return the channel as text; `encode` is the inverse. Raises `TypeError` for anything but text and bytes."""
    if isinstance(channel, str):
        return channel
    return _checked(channel).decode("utf-8", "surrogateescape")


def _checked(channel: Any) -> bytes:
    if not isinstance(channel, bytes):
        raise TypeError(f"invalid channel: {channel!r:.100}. Give a str or bytes.")
    return channel


def agent_channel(exp_id: str, agent_id: object, subtopic: str) -> str:
    """Return the channel of an agent."""
    return f"exps:{exp_id}:agents:{agent_id}:{subtopic}"


def payback_channel(exp_id: str) -> str:
    """Return the channel on which agents tell the driver that a survey or an interview is answered."""
    return f"exps:{exp_id}:user-payback"


@dataclass(frozen=True, slots=True)
class ParsedChannel:
    """Parts of a channel of the grammar."""

    separator: str
    exp_id: str
    agent_id: int | str | None
    """Agent that it belongs to (an int if written as one), or None."""
    subtopic: str


_AGENT = re.compile(r"exps(?P<sep>[:/])(?P<exp>.+?)(?P=sep)agents(?P=sep)(?P<agent>[^:/]+)(?P=sep)(?P<sub>.+)", re.S)
_OTHER = re.compile(r"exps(?P<sep>[:/])(?P<exp>.+?)(?P=sep)(?P<sub>.+)", re.S)
_SWAP = str.maketrans(":/", "/:")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.A)


def parse(channel: str) -> ParsedChannel | None:
    """Return the parts of a channel; None for a channel outside the grammar."""
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
    """Return the same channel of another experiment; a channel outside the grammar stays as it is."""
    found = _AGENT.fullmatch(channel) or _OTHER.fullmatch(channel)
    if not found:
        return channel
    return channel[: found.start("exp")] + exp_id + channel[found.end("exp") :]


def with_agent(channel: str, agent_id: object) -> str:
    """Return the same channel of another agent; a channel of no agent stays as it is."""
    found = _AGENT.fullmatch(channel)
    if not found:
        return channel
    return channel[: found.start("agent")] + str(agent_id) + channel[found.end("agent") :]


@lru_cache(maxsize=4096)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    """Return a glob of Redis as a regular expression, by the rules of `stringmatchlen` in Redis' util.c.

    The text between two stars has a fixed length, so its first match is as good as any other. Atomic groups prevent
    backtracking, which could take exponential time.
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
    """Return the end and the expression of a `[...]` whose content starts at `at`."""
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
    """Return True if Redis would deliver a message on `channel` to a subscriber of `pattern`."""
    return matches_any((pattern,), channel)


def literal(channel: str | bytes) -> str:
    """Return a glob pattern that matches this channel only."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", decode(channel))


def matches_any(patterns: Iterable[str | bytes], channel: str | bytes) -> bool:
    """Return True if any pattern matches. Only the empty pattern matches the empty channel, as on Redis."""
    wire = encode(channel)
    if not wire:
        return any(not pattern for pattern in patterns)
    return any(_compiled(encode(pattern)).fullmatch(wire) for pattern in patterns)
