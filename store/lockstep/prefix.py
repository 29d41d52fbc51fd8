"""Prefix: the policy of a fork. Live agents repeat the part before a cut, and are then on their own.

A gate opens when its own part of the prefix is done: its messages are out, and its receptions have arrived. What is not
part of the prefix, because a gate elsewhere is open already, is held back until then, and so is what the agent says
after its last recorded message. Nothing that differs from the prefix is sent. A divergence, or no progress for
`patience`, stops the fork in all processes: nothing more is sent or delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..text import safe
from .announcing import Announcing
from .policy import LockstepStopped, Policy
from .report import KINDS, Divergence, Player, as_text
from .run import Lockstep
from .schedule import ActState, Key, Part, key
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
        act = None
        if part is not None and isinstance(index, int) and of == len(part.sends) and 0 <= index < of:
            act = part.sends[index]
        if part is None or (index is not None and act is None) or kind not in KINDS:
            return cls(reason)
        return cls(
            reason,
            Divergence(
                kind=kind,
                part=part.label,
                agent=agent if isinstance(agent, str | int | float) else None,
                channel=str(channel)[:MOST_SHOWN],
                index=None if act is None else act.index,
                of=len(part.sends),
                expected=None if act is None else act.event,
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


class PrefixDiverged(LockstepStopped):
    """A live agent did not repeat the prefix; nothing that differs was sent."""

    def __init__(self, divergence: Divergence) -> None:
        which = "a message" if divergence.index is None else f"message {divergence.index + 1} of {divergence.of}"
        what = {"missing": "was not said", "unexpected": "is not in the recording"}.get(divergence.kind, "differs")
        at = f" (at {safe(divergence.path)})" if divergence.path else ""
        super().__init__(
            f"the fork stopped: {which} of {safe(divergence.part)} on {safe(divergence.channel)} {what}{at}. Make "
            "the agents repeat the recording, give a `match` that accepts the difference, or fork at an earlier point."
        )
        self.divergence = divergence


class ProgramsMissing(LockstepStopped):
    """Nobody plays some parts of the prefix. `strangers` are programs that were started without `MESSAGER_REPLAY`."""

    def __init__(self, parts: Sequence[Part], patience: float, parent: str, strangers: Sequence[str] = ()) -> None:
        named = ", ".join(part.label for part in parts)
        without = f" Without MESSAGER_REPLAY, {', '.join(strangers)} recorded into the fork." if strangers else ""
        super().__init__(
            f"the fork stopped: no live program plays {named}, and none came within {patience:g} s.{without} Start "
            f"each with MESSAGER_REPLAY={parent} in its environment and the exp_id of the fork, or raise the patience."
        )
        self.parts, self.patience, self.parent = parts, patience, parent


class Prefix(Policy):
    """Policy for the part `cut` of a recording, given by the keys of its events; then its live agents go on.

    The recording is the complete one, so that an agent that is silent in the prefix is known as well. `begun` are the
    events that are part of the checkpoints of the agents, which do not repeat them. `released_on` says whether recorded
    messages of a channel are published. `others` is True if live agents of other processes take part: if the judge
    accepts another payload there, only the order tells here for which message it stands. `progress` is called when live
    agents may have repeated an event.
    """

    holds = continues = origins = True
    lockstep: Lockstep

    def __init__(
        self,
        cut: frozenset[Key],
        *,
        begun: frozenset[Key] = frozenset(),
        released_on: Callable[[str], bool] = lambda channel: True,
        others: bool = False,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._cut, self._played = cut, cut - begun
        self._released_on = released_on
        self._others = others
        self._progress = progress
        self._announcing: Announcing | None = None
        self._moved = asyncio.Event()
        self._all_released = False
        self._programs: set[str] = set()  # keys of the parts that programs of other processes are to announce

    def begin(self, lockstep: Lockstep) -> None:
        """Reduce the schedules and the messages of a replay to the prefix."""
        self.lockstep = lockstep
        recording, cast, played = lockstep.recording, lockstep.cast, self._played
        dropped = {
            key(entry)
            for entry in recording.messages
            if key(entry) not in cast.expected and not self._released_on(entry.channel or "")
        }
        for part in cast.parts:
            part.acts = [one for one in part.acts if key(one.event) in played]
            part.receptions = [one for one in part.receptions if one.origin in played and one.source not in dropped]
            part.marks = [one for one in part.marks if key(one) in played]
            part.number()
        cast.expected = {place: found for place, found in cast.expected.items() if place in played}
        lockstep.recording = replace(
            recording,
            events=[entry for entry in recording.events if key(entry) in self._cut],
            messages=[entry for entry in recording.messages if key(entry) in played and key(entry) not in dropped],
        )

    @property
    def by_order(self) -> bool:  # type: ignore[override]
        """False: what does not match may be live already."""
        return self._others and self.lockstep.match.judge is not None

    @property
    def repeats(self) -> frozenset[Key]:
        """Events of the prefix that live agents are expected to repeat."""
        found = set(self.lockstep.cast.expected)
        for part in self.lockstep.cast.parts:
            found.update(one.origin for one in part.receptions)
            found.update(map(key, part.marks))
        return frozenset(found)

    def is_settled(self, place: Key) -> bool:
        """Return False for a message of a live agent that is still to be said."""
        found = self.lockstep.cast.expected.get(place)
        return found is None or found[1].settled or not found[1].awaited

    def stop_together(self, announcing: Announcing) -> None:
        self._announcing = announcing

    def needs(self, part: Part) -> bool:
        return bool(part.acts or (part.receptions and not self.lockstep.gates))

    async def until_there(self, parts: list[Part]) -> None:
        """Wait until the Messagers of these parts, in other processes, have announced themselves.

        Those that only send, or have nothing in the prefix, are not waited for; nor are those that only listened, if
        there are live Messagers in this process, as such a listener is part of no agent that could be played. Raises
        `ProgramsMissing` if one does not come for `patience` after the one before.
        """
        lockstep = self.lockstep
        for part in parts:
            if part.patterns and not self.needs(part):
                lockstep.presence.left(part)  # nobody waits for its subscription either
        programs = [part for part in parts if part.patterns and self.needs(part)]
        self._programs = {part.key for part in programs}
        for part in programs:
            lockstep.patience.progress()
            lockstep.patience.start()
            await lockstep.presence.started([part])
        lockstep.patience.progress()
        lockstep.check_failure()

    async def tail(self) -> None:
        """Wait until all gates of this process are open, and all marks are repeated.

        Programs of other processes must have announced themselves by then: others would have recorded no origins.
        """
        lockstep = self.lockstep
        self._all_released = True
        await lockstep.presence.started(
            one for one in lockstep.cast.parts if one.acts and one.key not in lockstep.gates
        )
        while not lockstep.failed and any(not gate.open or gate.marks_left for gate in lockstep.gates.values()):
            self._moved.clear()
            await self._moved.wait()

    def expire(self) -> None:
        """Stop. Marks that are not repeated are given up: nobody depends on them."""
        lockstep, gates = self.lockstep, list(self.lockstep.gates.values())
        seconds = lockstep.patience.seconds
        if missing := self._missing():
            lockstep.stop(ProgramsMissing(missing, seconds, lockstep.recording.exp_id))
            return
        if self._all_released and all(gate.open for gate in gates):
            for gate in gates:
                gate.give_up_marks()
            self._moved.set()
            return
        waits = next((what for gate in gates if (what := gate.waits_for) is not None), None)
        if lockstep.release.awaited is not None:
            part, act = lockstep.release.awaited
            if waits is None or act.state is ActState.PENDING:
                lockstep.observed(part).report.timed_out = True
                waits = f"{part.label} did not say message {act.index + 1} of {len(part.sends)}"
        if waits is None and not lockstep.releasing:
            return  # no recorded messages in this process: its agents may think as long as they like
        waits = waits or "a live Messager did not subscribe"
        lockstep.stop(
            LockstepStopped(
                f"the fork stopped: {waits}, and nothing happened for {seconds:g} s. Raise the patience, or fork at an "
                "earlier point."
            )
        )

    def diverged(self, divergence: Divergence) -> None:
        self.lockstep.stop(PrefixDiverged(divergence))

    def stopped(self, error: Exception) -> None:
        lockstep = self.lockstep
        for part in lockstep.cast.parts:
            if part.key not in lockstep.gates:
                there = part.key in lockstep.presence.remote
                lockstep.observed(part).report.player = Player.ELSEWHERE if there else Player.NOBODY
        if self._announcing is not None:
            divergence = error.divergence if isinstance(error, PrefixDiverged) else None
            self._announcing.stop(StopNotice(str(error), divergence).to_dict())
        for gate in lockstep.gates.values():
            if not gate.open:
                gate.stop(str(error))
        self._moved.set()

    def progress(self) -> None:
        self._moved.set()
        self._progress()

    def stopped_elsewhere(self, data: dict[str, Any]) -> None:
        lockstep = self.lockstep
        notice = StopNotice.of_dict(data, lockstep.cast.parts)
        divergence = notice.divergence
        if divergence is None:
            lockstep.stop(LockstepStopped(notice.reason))
            return
        part = next(one for one in lockstep.cast.parts if one.label == divergence.part)
        lockstep.observed(part).elsewhere(divergence)

    def _missing(self) -> list[Part]:
        """Return the parts that are waited for and that nobody has announced.

        What was seen on the wire does not count: programs without a gate may say the same.
        """
        lockstep = self.lockstep
        waited, there = lockstep.presence.awaited, lockstep.gates.keys() | lockstep.presence.remote.keys()
        if not lockstep.releasing:
            waited |= self._programs
        elif (awaited := lockstep.release.awaited) is not None and not (
            awaited[0].key in there or any(act.settled for act in awaited[0].acts)
        ):
            waited |= {part.key for part in lockstep.cast.parts if any(one.awaited for one in part.acts)}
        return [part for part in lockstep.cast.parts if part.key in waited - there]
