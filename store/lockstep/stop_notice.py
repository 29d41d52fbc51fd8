"""Stop notice: what live programs and the fork tell each other when one of them stops, as JSON data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..text import safe
from .report import KINDS, Divergence, as_text
from .schedule import Part
from .verdicts import HEARD_SHOWN

MOST_SHOWN = 10_000
"""Characters of a text in a notice."""


@dataclass(slots=True)
class StopNotice:
    """Reason of a stop, and the divergence that is the cause, if it is one."""

    reason: str
    divergence: Divergence | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the notice as JSON data."""
        one = self.divergence
        if one is None:
            return {"stopped": self.reason[:MOST_SHOWN]}
        told = {name: getattr(one, name) for name in ("kind", "part", "agent", "channel", "index", "of", "path")}
        told["said"] = None if one.said is None else as_text(one.said)[:MOST_SHOWN]
        told["heard"] = [(channel, as_text(payload)[:MOST_SHOWN]) for channel, payload in one.heard]
        return {"stopped": self.reason[:MOST_SHOWN], "divergence": told}

    @classmethod
    def of_dict(cls, data: dict[str, Any], parts: Iterable[Part]) -> StopNotice:
        """Return the notice of another process; `parts` are those of the cast. Without a usable divergence, None.

        Its texts hold what agents said: they are cut, and the reason is safe to print.
        """
        reason = safe(str(data.get("stopped"))[:MOST_SHOWN])
        told = data.get("divergence")
        if not isinstance(told, dict):
            return cls(reason)
        kind, channel, agent, said = (told.get(name) for name in ("kind", "channel", "agent", "said"))
        index, of, path, heard = (told.get(name) for name in ("index", "of", "path", "heard"))
        part = next((one for one in parts if one.label == told.get("part")), None)
        saying = None
        if part is not None and isinstance(index, int) and of == len(part.sayings) and 0 <= index < of:
            saying = part.sayings[index]
        if part is None or (index is not None and saying is None) or kind not in KINDS:
            return cls(reason)
        return cls(
            reason,
            Divergence(
                kind=kind,
                part=part.label,
                agent=agent if isinstance(agent, str | int | float) else None,
                channel=str(channel)[:MOST_SHOWN],
                index=None if saying is None else saying.number,
                of=len(part.sayings),
                expected=None if saying is None else saying.event,
                said=_bytes(said) if isinstance(said, str) else None,
                path=path[:MOST_SHOWN] if isinstance(path, str) else None,
                heard=[
                    (str(one[0])[:MOST_SHOWN], _bytes(str(one[1])))
                    for one in (heard[:HEARD_SHOWN] if isinstance(heard, list) else [])
                    if isinstance(one, list) and len(one) == 2
                ],
            ),
        )


def _bytes(text: str) -> bytes:
    return text[:MOST_SHOWN].encode("utf-8", "backslashreplace")
