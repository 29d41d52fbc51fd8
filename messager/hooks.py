"""Log hooks: who is told of every event, those that are there without a line of code, and AgentSociety's list."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from .record import MessageRecord


@runtime_checkable
class LogHook(Protocol):
    """Told of every message sent, received, blocked or failed, and of gaps and marks.

    What becomes of messages that were written is told to the hooks that were asked before, and to no others: to
    one that was removed after that too, and not to one that was added.

    A hook that also has `connected(url, clock, clock_offset_ns)` is told, once the broker
    answers, where it is, the `Clock` that stamps the records, and how far the broker's own
    clock is ahead (ns, None if unknown). One that has `described(name, meta)` is told what
    `Messager.describe` is, and one that has `joined(hook)`, of every hook that is added later; where it
    answers True it makes way for that one, and is removed: messages that it has not been asked about are that one's.
    """

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Awaited before these messages are written to the broker. Raising stops all of them.

        Raising `MessagesRefused` stops those that it names, and no others: hooks behind this one are asked about
        the rest, and each sender of a refused message gets the error given for it.
        """

    def after(self, record: MessageRecord) -> None:
        """Called when the event has happened. Must be quick and must not raise."""


_FIELDS = ("channel", "payload", "from_id", "to_id", "start_time", "consumption", "sent")


class LogList:
    """The list of what was sent, as AgentSociety's `Messager.get_log_list` gives it.

    Entries are dicts with `channel, payload, from_id, to_id, start_time` (s since the
    epoch), `consumption` (s) and `sent`. At most `limit` are kept, the newest.
    """

    def __init__(self, limit: int | None = 100_000) -> None:
        # One behind the other: as objects of their own they would keep the garbage collector busy.
        self._values: deque[Any] = deque(maxlen=None if limit is None else limit * len(_FIELDS))

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Nothing to do before a message is sent."""

    def after(self, record: MessageRecord) -> None:
        kind = record.kind
        if kind == "sent" or kind == "blocked":
            self._values.extend(
                (
                    record.channel,
                    record.message,
                    record.from_id,
                    record.to_id,
                    record.ts / 1e9,
                    (record.duration_ns or 0) / 1e9,
                    kind == "sent",
                )
            )

    def entries(self) -> list[dict[str, Any]]:
        """The entries, oldest first."""
        values = iter(self._values)
        return [dict(zip(_FIELDS, entry, strict=True)) for entry in zip(*[values] * len(_FIELDS), strict=True)]

    def clear(self) -> None:
        """Forget every entry."""
        self._values.clear()


ENTRY_POINTS = "messager.hooks"
"""The entry points that give hooks to every `Messager` of a process in which `MESSAGER_STORE` is set."""


@runtime_checkable
class OfferedHook(LogHook, Protocol):
    """A hook that came by an entry point, and is stopped by the `Messager` that it came to."""

    async def stop(self) -> None:
        """Awaited when the messager has closed. Must not raise."""


async def offered(exp_id: str, hooks: Sequence[LogHook]) -> list[OfferedHook]:
    """The hooks that the installed packages have for a messager that has `hooks` already.

    Each entry point is an async function of `exp_id` and `hooks` that gives a hook, or None for none.
    Where one cannot be had, a line on standard error says so: agents go on without it.
    """
    from importlib.metadata import entry_points  # only where somebody asks for it: it takes a while

    found: list[OfferedHook] = []
    try:
        offers = entry_points(group=ENTRY_POINTS)
    except Exception as error:  # what is installed cannot be read
        say(f"{exp_id} is not recorded: looking for who records raised {error!r}")
        return found
    if not offers:
        say("MESSAGER_STORE is set, but nothing that is installed records")
    for offer in offers:
        try:
            hook = await offer.load()(exp_id, hooks)
        except Exception as error:
            say(f"{exp_id} is not recorded: {offer.value} raised {error!r}")
            continue
        if hook is not None:
            found.append(hook)
    return found


def say(text: str) -> None:
    """A line on standard error, where there is one. Never raises."""
    line = "".join(char if char.isprintable() else " " for char in text)
    with contextlib.suppress(Exception):
        if sys.stderr is not None:
            print(f"messager: {line}", file=sys.stderr, flush=True)
