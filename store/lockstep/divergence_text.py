"""Text of a divergence: who, where, what was heard last, and both payloads with the difference marked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..db.codes import FROM_DERIVED
from ..queries.comparison.text_diff import LEAD, common_prefix, shortened
from ..text import safe
from .report import Divergence

_KINDS = {
    "late": "late, said after it had been given up",
    "early": "early, said without what had been heard before it",
}
LONGEST = 160
"""Characters of a payload that are shown of either side."""


def divergence_lines(one: Divergence, others: Iterable[Divergence] = ()) -> list[tuple[str, str]]:
    """Return a divergence as lines, each with its role: title, heard, recorded, live, mark or key.

    `others` are all divergences: one of them may be the same message from another sender or on another channel.
    """
    place = "" if one.index is None else f", message {one.index + 1:,} of {one.of:,}"
    kind = _KINDS.get(one.kind, one.kind)
    lines = [("title", f"{kind}: {safe(one.part)}{place}, on {safe(one.channel)}")]
    for channel, payload in one.heard:
        lines.append(("heard", f"  heard     {safe(channel)}  {_cut(_text(payload), 0)}"))
    recorded = None if one.expected is None else _text(one.expected.payload)
    said = None if one.said is None else _text(one.said)
    at = start = 0
    if recorded is not None and said is not None:
        at = common_prefix(recorded, said)
        start = max(at - LEAD, 0) if max(len(recorded), len(said)) > LONGEST else 0
    for role, text in (("recorded", recorded), ("live", said)):
        lines.append((role, f"  {role:<9} {'(nothing)' if text is None else _cut(text, start)}"))
    if recorded is not None and said is not None and recorded != said:
        marker = f"  {'':<9} {' ' * (at - start + (1 if start else 0))}^"
        lines.append(("mark", f"{marker} {safe(one.path)}" if one.path else marker))
    return lines + [("key", f"  {label:<9} {text}") for label, text in key_differences(one, others)]


def short_lines(one: Divergence, others: Iterable[Divergence] = ()) -> list[str]:
    """Return a divergence in three or four lines: title, both payloads, and the path or key that differs."""
    lines = [text for role, text in divergence_lines(one, others) if role not in ("heard", "mark")]
    return [*lines, f"  differs at {safe(one.path)}"] if one.path not in (None, "$") else lines


def key_differences(one: Divergence, others: Iterable[Divergence]) -> list[tuple[str, str]]:
    """Return the parts of its key in which a message differs from the one in whose place it was said.

    Each is "sender" or "channel", with a text that has both values.

    A message with another sender or on another channel counts as unexpected, and the recorded one as missing. Without
    a missing message of the same payload or the same channel, nothing is returned.
    """
    found = _counterpart(one, others)
    if found is None:
        return []
    live, recorded = (one, found) if one.kind == "unexpected" else (found, one)
    texts = []
    if recorded.expected is not None and not recorded.expected.flags & FROM_DERIVED and not _is(live, recorded):
        texts.append(("sender", f"{_named(live.agent)}; the recording has {_named(recorded.agent)}"))
    if live.channel != recorded.channel:
        texts.append(("channel", f"{safe(live.channel)}; the recording has {safe(recorded.channel)}"))
    return texts


def _counterpart(one: Divergence, others: Iterable[Divergence]) -> Divergence | None:
    """Return the missing message of an unexpected one, or vice versa: of the same payload, or else of the same channel
    and another type of sender."""
    wanted = {"unexpected": "missing", "missing": "unexpected"}.get(one.kind)
    listed = [other for other in others if other.kind == wanted and other.part == one.part]
    content = _value(_payload(one))
    for other in listed:
        if _value(_payload(other)) == content:
            return other
    for other in listed:
        if other.channel == one.channel and str(other.agent) == str(one.agent) and not _is(other, one):
            return other
    return None


def _payload(of: Divergence) -> bytes:
    return of.said if of.said is not None else of.expected.payload if of.expected is not None else b""


def _value(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return payload


def _is(one: Divergence, other: Divergence) -> bool:
    return type(one.agent) is type(other.agent) and bool(one.agent == other.agent)


def _named(agent: Any) -> str:
    if agent is None:
        return "none"
    kind = "text" if isinstance(agent, str) else "number" if isinstance(agent, int | float) else "value"
    return f"{safe(repr(agent))} ({kind})"


def _text(payload: bytes) -> str:
    return safe(payload.decode("utf-8", "backslashreplace"))


def _cut(text: str, start: int) -> str:
    return shortened(text, start, most=LONGEST)
