"""Status of the live agents of a running replay, as JSON data: who is there, and what the replay waits for."""

from __future__ import annotations

from typing import Any

from messager import channels

from .run import Lockstep

PARTS = 100
"""Maximum number of parts that a status lists; `of` is the number of all."""
_COUNTS = ("expected", "matched", "different", "missing", "unexpected")


def live_status(lockstep: Lockstep) -> dict[str, Any]:
    """Return the live agents and what is awaited from them.

    `parts` are the live Messagers with their counts so far, and whether they are `there`: in this process, announced
    by another one, or observed to have spoken. `waiting_for` is what the replay waits for, empty if for nothing: a
    Messager that has not subscribed yet, or a message that is to be said.
    """
    presence, parts = lockstep.presence, lockstep.cast.parts
    known = {report.key: report for report in lockstep.report.parts}
    listed = []
    for part in parts[:PARTS]:
        report = known.get(part.key)
        counts = {name: 0 if report is None else getattr(report, name) for name in _COUNTS}
        counts["expected"] = counts["expected"] or len(part.sayings)
        spoken = counts["matched"] + counts["different"] + counts["unexpected"] > 0
        there = part.key in lockstep.gates or part.key in presence.remote or spoken
        listed.append({"label": part.label, "there": there, **counts})
    waits: list[dict[str, Any]] = []
    absent = presence.awaited
    waits += [{"part": part.label, "for": "subscription"} for part in parts if part.key in absent]
    if (awaited := lockstep.awaited) is not None:
        part, saying = awaited
        waits.append(
            {
                "part": part.label,
                "for": "message",
                "number": saying.number + 1,
                "of": len(part.sayings),
                "channel": channels.decode(saying.channel),
                "cursor": str(saying.event.cursor),
            }
        )
    return {"of": len(parts), "parts": listed, "waiting_for": waits[:PARTS]}
