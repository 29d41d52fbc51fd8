"""Place of a live agent in its schedule: the receptions that it may fetch next, and the acts that have their turn."""

from __future__ import annotations

from .schedule import Act, ActState, Part


class Place:
    """Place in a part. With `continues`, all receptions come before the end, as the agent goes on after it."""

    def __init__(self, part: Part, *, continues: bool) -> None:
        self.part = part
        self.handed = 0
        """Receptions before this one were handed over, or are lost."""
        self.furthest = -1
        """Highest number of an act that was claimed."""
        self._continues = continues
        self._next = 0  # number of the first act that is awaited and not settled
        self._boundary = 0  # acts before this one do not limit what is fetched
        self.advance()

    @property
    def awaited(self) -> Act | None:
        """The first act that others wait for and that is not settled; None after the last one."""
        return self.part.acts[self._next] if self._next < len(self.part.acts) else None

    @property
    def number(self) -> int:
        """Number of that act."""
        return self._next

    @property
    def end(self) -> int:
        """Number of receptions before the end."""
        return len(self.part.receptions) if self._continues else self.part.end

    def limit(self) -> int:
        """Return the number of receptions before the next act, or before the end."""
        following = self.following()
        return self.end if following is None else following.needs

    def following(self) -> Act | None:
        """Return the next act that bounds what is fetched; a blocked one does so only until a later one is claimed."""
        acts = self.part.acts
        while self._boundary < len(acts):
            act = acts[self._boundary]
            if act.state is ActState.CLAIMED:
                return act
            left_out = act.number < self.furthest and not act.awaited
            if act.state is ActState.PENDING and act.bounds and not left_out:
                return act
            self._boundary += 1
        return None

    def advance(self) -> None:
        """Find the next act that is awaited, after one was settled."""
        acts = self.part.acts
        while self._next < len(acts) and (acts[self._next].settled or not acts[self._next].awaited):
            self._next += 1

    def has_turn(self, act: Act, *, unbound: bool = False) -> bool:
        """Return whether an act may happen: what was heard before it is handed over (or `unbound`), and what comes
        before it is settled."""
        return act.number <= self._next and (unbound or self.handed >= act.needs)
