"""Log hooks: the protocol, the hooks of installed packages, and AgentSociety's list."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from .record import MessageRecord
from .variables import EXP, RUN

log = logging.getLogger("messager")


@runtime_checkable
class LogHook(Protocol):
    """Receives every message sent, received, blocked or failed, and gaps and marks.

    A batch of sends calls `before_send` of the hooks present at its start, in order, until one raises. Only hooks whose
    `before_send` ran receive the outcome, also if they were removed meanwhile.

    Optional methods: `connected(url, clock, clock_offset_ns)` is called once the broker answers, with the `Clock` of
    the records and the offset of the broker's clock (ns, None if unknown; the url is None for a `Transport` without
    one); `described(name, meta)` is called with the arguments of `Messager.describe`, and `observing(kinds)` with the
    kinds of messages that a `Transport` logs.
    """

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Await permission to write these messages to the broker. If it raises, none of them is written.

        If it raises `MessagesRefused`, only the messages named there are not written: later hooks are called with the
        rest, and the error given for a refused message is raised in its sender.
        """

    def after(self, record: MessageRecord) -> None:
        """Handle an event that has happened. Must be quick and must not raise."""


_FIELDS = ("channel", "payload", "from_id", "to_id", "start_time", "consumption", "sent")


class LogList:
    """List of sent and blocked messages, as AgentSociety's `Messager.get_log_list` returns it.

    Entries are dicts with `channel, payload, from_id, to_id, start_time` (s since the
    epoch), `consumption` (s) and `sent`. At most `limit` are kept, the newest.
    """

    def __init__(self, limit: int | None = 100_000) -> None:
        # Flat, because the garbage collector would traverse an object for each entry.
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
        """Remove all entries."""
        self._values.clear()


latest_exp_id: str | None = None
"""Exp_id of the last Messager of this process that asked for hooks; a transport that has none joins its experiment."""

ENTRY_POINTS = "messager.hooks"
"""Group of the entry points that create hooks for every `Messager` of a process if `MESSAGER_STORE` is set."""


@runtime_checkable
class OfferedHook(LogHook, Protocol):
    """Hook created by an entry point in `Messager.init`, and stopped by `Messager.close`."""

    def yields_to(self, hook: LogHook) -> bool:
        """Return True if this hook is to be removed when `hook` is added. Must not raise."""

    async def stop(self) -> None:
        """Finish. Awaited when the Messager has closed. Must not raise."""


async def offered(exp_id: str, hooks: Sequence[LogHook]) -> list[OfferedHook]:
    """Return the hooks that installed packages create for a Messager with the hooks `hooks`.

    Each entry point is an async function of `exp_id` and `hooks` that returns a hook or None. A failure is a line on
    standard error; the agents continue without that hook.
    """
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    global latest_exp_id
    latest_exp_id = exp_id or latest_exp_id
    if exp_id and os.environ.get(RUN):
        os.environ.setdefault(EXP, exp_id)  # for the processes that this one starts
    found: list[OfferedHook] = []
    try:
        offers = entry_points(group=ENTRY_POINTS)
    except Exception as error:  # broken metadata of an installed package
        say(f"{exp_id} is not recorded: the entry points cannot be read: {error!r}")
        return found
    if not offers:
        say("MESSAGER_STORE is set, but no installed package records")
    for offer in offers:
        try:
            hook = await offer.load()(exp_id, hooks)
        except Exception as error:
            say(f"{exp_id} is not recorded: {offer.value} raised {error!r}")
            continue
        if hook is not None:
            found.append(hook)
    return found


def tell(hook: LogHook, method: str, *arguments: Any) -> None:
    """Call an optional method of a hook, if it has it. An error is logged and not raised."""
    try:
        getattr(hook, method, lambda *ignored: None)(*arguments)
    except Exception:
        log.exception("the log hook %r raised in %s()", hook, method)


async def stop(hook: OfferedHook) -> None:
    """Stop a hook. An error is logged and not raised."""
    try:
        await hook.stop()
    except Exception:
        log.exception("the log hook %r could not be stopped", hook)


def say(text: str) -> None:
    """Write a line to standard error, if there is one. Never raises."""
    line = "".join(char if char.isprintable() else " " for char in text)
    with contextlib.suppress(Exception):
        if sys.stderr is not None:
            print(f"messager: {line}", file=sys.stderr, flush=True)
