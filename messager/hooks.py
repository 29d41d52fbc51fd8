"""Log hooks: the protocol, the hooks of installed packages, and AgentSociety's list."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from .record import MessageRecord


@runtime_checkable
class LogHook(Protocol):
    """Is told of every message sent, received, blocked or failed, and of gaps and marks.

    A batch of sends asks the hooks that were there when it began, in order, until one raises. Only hooks whose
    `before_send` ran receive the outcome, also if they were removed meanwhile.

    Optional methods: `connected(url, clock, clock_offset_ns)` is called once the broker answers, with the `Clock`
    that stamps the records and how far the broker's own clock is ahead (ns, None if unknown);
    `described(name, meta)` is called with what `Messager.describe` was given.
    """

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Awaited before these messages are written to the broker. If it raises, none of them is written.

        If it raises `MessagesRefused`, only the messages named there are not written: hooks behind this one are asked
        about the rest, and the sender of a refused message gets the error given for it.
        """

    def after(self, record: MessageRecord) -> None:
        """Called when the event has happened. Must be quick and must not raise."""


_FIELDS = ("channel", "payload", "from_id", "to_id", "start_time", "consumption", "sent")


class LogList:
    """List of what was sent, as AgentSociety's `Messager.get_log_list` returns it.

    Entries are dicts with `channel, payload, from_id, to_id, start_time` (s since the
    epoch), `consumption` (s) and `sent`. At most `limit` are kept, the newest.
    """

    def __init__(self, limit: int | None = 100_000) -> None:
        # Flat: an object for each entry would keep the garbage collector busy.
        self._values: deque[Any] = deque(maxlen=None if limit is None else limit * len(_FIELDS))

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

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
        """Return the entries, oldest first."""
        values = iter(self._values)
        return [dict(zip(_FIELDS, entry, strict=True)) for entry in zip(*[values] * len(_FIELDS), strict=True)]

    def clear(self) -> None:
        """Forget every entry."""
        self._values.clear()


ENTRY_POINTS = "messager.hooks"
"""Group of the entry points that make hooks for every `Messager` of a process if `MESSAGER_STORE` is set."""


@runtime_checkable
class OfferedHook(LogHook, Protocol):
    """A hook made by an entry point in `Messager.init`, and stopped by `Messager.close`."""

    def yields_to(self, hook: LogHook) -> bool:
        """Return True if this hook is not to be asked any more once `hook` is. Must not raise."""

    async def stop(self) -> None:
        """Awaited when the Messager has closed. Must not raise."""


async def offered(exp_id: str, hooks: Sequence[LogHook]) -> list[OfferedHook]:
    """Return the hooks that installed packages make for a Messager that has `hooks` already.

    Each entry point is an async function of `exp_id` and `hooks` that returns a hook, or None. If one fails, a line
    on standard error says so: agents continue without it.
    """
    from importlib.metadata import entry_points  # here, as the import takes a while

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
    """Write a line to standard error, if there is one. Never raises."""
    line = "".join(char if char.isprintable() else " " for char in text)
    with contextlib.suppress(Exception):
        if sys.stderr is not None:
            print(f"messager: {line}", file=sys.stderr, flush=True)
