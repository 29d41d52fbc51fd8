"""The protocol of a replay that gates follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from messager.brokers.kind import BrokerKind
from messager.hooks import LogHook

from ..log.event import Event
from .schedule import Act, Key, Part, Reception

if TYPE_CHECKING:
    from ..matching.match import Match
    from .policy import Policy


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
    """A replay that gates follow: a `Lockstep`."""

    kind: BrokerKind
    match: Match
    policy: Policy
    admit: Callable[[Event | None], Awaitable[None]] | None
    """Awaited before each message, with the recorded one in whose place it is said: a pause of the replay."""

    def check(self, hook: LogHook) -> None:
        """Refuse a log hook that records into the recording."""

    def weak_receptions(self, copies: Callable[[bytes], int]) -> list[Reception]:
        """Return the receptions of a part whose schedule is not exact, by the copies that it gets of a message."""

    def subscribed(self, part: Part) -> None:
        """Note that the Messager of a part has subscribed, or is subscribed no more."""

    def begun(self, part: Part) -> None:
        """Note that the Messager of a part has spoken."""

    def ready(self, message: Key) -> Awaitable[None] | None:
        """Return a wait until those are subscribed who received a message in the recording; None if they are."""

    def sender_of(self, payload: bytes) -> Any:
        """Return the sender that a payload names, by the rules of the recording; None if it names none."""

    def claimed(self, act: Act, payload: bytes) -> None:
        """Note that a live agent of this process is about to say another payload in the place of a recorded message."""

    def spoke(self, part: Part, act: Act) -> None:
        """Note that a sender has said a message in the place of a recorded one."""

    def progress(self) -> None:
        """Note that something has happened that others may wait for."""

    def may_differ(self, reception: Reception) -> bool:
        """Return whether another message than the recorded one may stand for a reception."""

    def remote(self, reception: Reception) -> str | None:
        """Return a name for the sender of a reception if it is in another process.

        After a time-out, its later messages are not waited for until it speaks again.
        """

    def origin(self, place: Key) -> tuple[str, int] | None:
        """Return what is recorded as the origin of a repeated event."""

    def stop(self, error: Exception) -> None:
        """End the replay with this error."""
