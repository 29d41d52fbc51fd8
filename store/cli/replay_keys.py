"""A replay that is controlled while it runs: by keys in the terminal, and over a socket."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from ..errors import StoreError
from .output import note
from .replay_output import ReplayProgress
from .terminal_keys import TerminalKeys, has_terminal

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..replay import Replay, ReplayReport

SECOND = 1_000_000_000
SEEK_S = {"left": -5, "right": 5, "down": -60, "up": 60}
"""Recorded seconds by which a key moves the replay."""
FASTEST = 1024.0
HELP = """\
space  pause, and resume         s  pause, and publish one message
left   back 5 s                  right  forward 5 s
down   back 1 min                up  forward 1 min
+  -   twice, or half the speed  q  end the replay
?  this help"""
HELP_IN_ORDER = """\
space  pause, and resume         s  pause, and publish one message
q      end the replay            ?  this help"""
"""For a replay with a fixed order."""


async def run_controlled(
    replay: Replay, progress: ReplayProgress, *, socket: str | None = None, paused: bool = False
) -> ReplayReport:
    """Run a replay with keys, if there is a terminal, and with the control socket at a path.

    The key q ends the replay, and its report is returned. With `paused`, it begins paused.
    """
    if paused:
        if socket is None and not has_terminal():
            raise click.UsageError("--paused needs a terminal, or --control, to resume the replay with")
        replay.control.pause()
    running = asyncio.create_task(replay.run())
    keys = ReplayKeys(replay, progress, running)
    async with AsyncExitStack() as stack:
        if socket is not None:
            from ..replay import ControlSocket

            await stack.enter_async_context(ControlSocket(replay.control, socket))
        terminal = TerminalKeys(keys.pressed, stopping=progress.clear, continued=keys.show)
        progress.follow(replay, keys=stack.enter_context(terminal).active)
        stack.push_async_callback(keys.close)
        try:
            return await running
        except asyncio.CancelledError:
            if not keys.ended:
                raise
            return replay.report


class ReplayKeys:
    """Keys of a running replay."""

    def __init__(self, replay: Replay, progress: ReplayProgress, running: asyncio.Task[ReplayReport]) -> None:
        self._replay = replay
        self._progress = progress
        self._running = running
        self._tasks: set[asyncio.Task[None]] = set()
        self._seeking_to: int | None = None
        self.ended = False
        """True if the key q ended the replay."""

    def pressed(self, key: str) -> None:
        """Do what a key stands for; others do nothing."""
        try:
            self._do(key)
        except StoreError as error:
            self._say(str(error))
        self.show()

    def show(self) -> None:
        """Show the progress line as it is now."""
        if not self._running.done():
            self._progress(self._replay.report)

    async def close(self) -> None:
        """Cancel what keys have begun."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _do(self, key: str) -> None:
        control = self._replay.control
        if key == " ":
            control.resume() if control.paused else control.pause()
        elif key == "s":
            self._begin(control.step())
        elif key in SEEK_S:
            self._begin(self._seek(SEEK_S[key]))
        elif key in "+=-":
            self._change_speed(0.5 if key == "-" else 2.0)
        elif key == "q":
            self.ended = True
            self._running.cancel()
        elif key in "?h":
            self._say(HELP if control.fixed_order is None else HELP_IN_ORDER)

    async def _seek(self, seconds: int) -> None:
        """Move by recorded seconds, from the point of a seek that has not been reached yet."""
        control = self._replay.control
        at = control.position() if self._seeking_to is None else self._seeking_to
        if at is None:
            return
        self._seeking_to = at + seconds * SECOND
        try:
            await control.seek(self._seeking_to)
        finally:
            self._seeking_to = None

    def _change_speed(self, factor: float) -> None:
        """Multiply the speed; full speed is only left for the recorded one."""
        now = self._replay.report.requested_speed
        if now is not None:
            most, least = max(now, FASTEST), min(now, 1 / FASTEST)  # the replay may have been started beyond them
            self._replay.control.set_speed(min(max(now * factor, least), most))
        else:  # full speed, or that of live agents, where a change is refused
            self._replay.control.set_speed("max" if factor > 1 else 1.0)

    def _begin(self, action: Coroutine[Any, Any, Any]) -> None:
        async def act() -> None:
            try:
                await action
            except StoreError as error:
                self._say(str(error))
            self.show()

        task = asyncio.create_task(act())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _say(self, text: str) -> None:
        self._progress.clear()
        for line in text.splitlines():
            note(line)
