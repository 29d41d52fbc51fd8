"""Stop notice: what live programs and the fork tell each other when one of them stops, as JSON data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .report import Divergence, as_text
from .schedule import Part

MOST_SHOWN = 10_000
"""Characters of a payload in a notice."""


@dataclass(slots=True)
class StopNotice:
    """Reason of a stop, and the divergence that is the cause, if it is one."""

    reason: str
    divergence: Divergence | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the notice as JSON data."""
        one = self.divergence
        if one is None:
            return {"stopped": self.reason}
        told = {name: getattr(one, name) for name in ("kind", "part", "agent", "channel", "index", "of", "path")}
        told["said"] = None if one.said is None else as_text(one.said)[:MOST_SHOWN]
        told["heard"] = [(channel, as_text(payload)[:MOST_SHOWN]) for channel, payload in one.heard]
        return {"stopped": self.reason, "divergence": told}

    @classmethod
    def of_dict(cls, data: dict[str, Any], parts: Iterable[Part]) -> StopNotice:
        """Return the notice of another process; `parts` are those of the cast. Without a usable divergence, None."""
        reason = str(data.get("stopped"))
        told = data.get("divergence")
        if not isinstance(told, dict):
            return cls(reason)
        index, of, said, path = (told.get(name) for name in ("index", "of", "said", "path"))
        part = next((one for one in parts if one.label == told.get("part")), None)
        saying = None
        if part is not None and isinstance(index, int) and of == len(part.sayings) and 0 <= index < of:
            saying = part.sayings[index]
        if part is None or (index is not None and saying is None):
            return cls(reason)
        heard = told.get("heard")
        return cls(
            reason,
            Divergence(
                kind=str(told.get("kind")),
                part=part.label,
                agent=told.get("agent"),
                channel=str(told.get("channel")),
                index=None if saying is None else saying.number,
                of=len(part.sayings),
                expected=None if saying is None else saying.event,
                said=said.encode() if isinstance(said, str) else None,
                path=path if isinstance(path, str) else None,
                heard=[(str(one[0]), str(one[1]).encode()) for one in heard if isinstance(one, list) and len(one) == 2]
                if isinstance(heard, list)
                else [],
            ),
        )
