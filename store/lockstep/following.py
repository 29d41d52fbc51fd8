"""The protocol of a replay, as its gates, its releases and its observer know it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from messager.brokers.kind import BrokerKind

from ..log.event import Event
from ..matching.match import Match
from .cast import Cast, Wire
from .patience import Patience
from .policy import Policy
from .presence import Presence
from .recording import Recording
from .schedule import Act, Key, Part, Reception
from .verdicts import Verdicts


class Company(Protocol):
    """What hears of the gates of a process whose Messagers found their parts by themselves: a `Run`."""

    async def announce(self, key: str, patterns: Sequence[str]) -> None:
        """Tell the other live programs to what the Messager of a part is subscribed."""

    def closing(self, key: str) -> None:
        """Note that the Messager of a part is about to be closed."""

    async def left(self, key: str) -> None:
        """Note that the Messager of a part is closed."""

    def returned(self, key: str) -> None:
        """Note that the Messager of a part is opened; before it was ever closed, nothing happens."""


class Following(Protocol):
    """A replay that live agents follow: a `Lockstep`."""

    recording: Recording
    cast: Cast
    kind: BrokerKind
    wire: Wire
    match: Match
    policy: Policy
    presence: Presence
    patience: Patience
    admit: Callable[[Event | None], Awaitable[None]] | None
    """Awaited before each message, with the recorded one in whose place it is said: a pause of the replay."""
    ended: set[str]
    """Keys of the parts whose agents have returned."""

    @property
    def failed(self) -> bool:
        """True once the replay stops."""

    def is_suspended(self, part: Part) -> bool:
        """Return whether the Messager of a part, in this process, is closed before its last message."""

    def observed(self, part: Part) -> Verdicts:
        """Return the verdicts on a part that is played by a program without a gate in this process."""

    def unobserved(self, seconds: float) -> None:
        """Note a time in which programs of other processes were not observed."""

    def sender_of(self, payload: bytes) -> Any:
        """Return the sender that a payload names, by the rules of the recording; None if it names none."""

    def origin(self, place: Key) -> tuple[str, int] | None:
        """Return what is recorded as the origin of a repeated event."""

    def claimed(self, act: Act, payload: bytes) -> None:
        """Note that a live agent of this process is about to say another payload in the place of a recorded message."""

    def spoke(self, part: Part, act: Act) -> None:
        """Note that a sender has said a message in the place of a recorded one."""

    def miss(self, part: Part, act: Act) -> None:
        """Give up a message of a live agent."""

    def may_differ(self, reception: Reception) -> bool:
        """Return whether another message than the recorded one may stand for a reception."""

    def remote(self, reception: Reception) -> str | None:
        """Return a name for the sender of a reception if it is in another process.

        After a time-out, its later messages are not waited for until it speaks again.
        """

    def progress(self) -> None:
        """Note that something has happened that others may wait for."""

    def stop(self, error: Exception) -> None:
        """End the replay with this error."""

    def check_failure(self) -> None:
        """Raise the error with which the replay stops, if it does."""

    def finish(self) -> None:
        """End all schedules: what was not said is missing, and the gates are open."""
