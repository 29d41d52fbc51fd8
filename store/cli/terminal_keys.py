"""Single keys from the terminal: its mode while a program reads them, and the names of keys."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from types import TracebackType

from .progress import can_redraw

_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b[^\[O]|[^\x1b]", re.DOTALL)
_UNFINISHED = re.compile(rb"\x1b(?:[\[O][0-9;]*)?\Z")
_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
_MODE, _CONTROL_CHARACTERS = 3, 6
"""Items of the list that `termios.tcgetattr` returns."""


def has_terminal() -> bool:
    """Return whether keys can be read and their effect can be shown."""
    return sys.stdin.isatty() and can_redraw()


class TerminalKeys:
    """Calls `pressed` with the name of each key: `left`, `right`, `up`, `down`, or a character.

    The terminal neither echoes nor waits for Enter meanwhile; Ctrl-C, Ctrl-Z and Ctrl-\\ work as usual. Its mode is
    restored at the end, before a stop and before SIGQUIT, and set again when the process continues in the foreground.
    `stopping` is called before a stop, `continued` after it. Without a terminal, nothing happens at all.
    """

    def __init__(
        self,
        pressed: Callable[[str], None],
        *,
        stopping: Callable[[], None] = lambda: None,
        continued: Callable[[], None] = lambda: None,
    ) -> None:
        self._pressed, self._stopping, self._continued = pressed, stopping, continued
        self._saved: list[object] | None = None
        """The mode to restore; None while it is not changed."""
        self._unfinished = b""

    def __enter__(self) -> TerminalKeys:
        self.active = has_terminal()
        if self.active:
            self._loop = asyncio.get_running_loop()
            self._descriptor = sys.stdin.fileno()
            atexit.register(self._restore)
            self._loop.add_signal_handler(signal.SIGCONT, self._continue)
            self._continue()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.active:
            self._restore()
            for number in (signal.SIGCONT, signal.SIGTSTP, signal.SIGQUIT):
                self._loop.remove_signal_handler(number)
            atexit.unregister(self._restore)

    def _continue(self) -> None:
        """Read keys if the process is in the foreground; a change of the mode from the background would stop it."""
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGQUIT, self._redeliver, signal.SIGQUIT)
        if self._saved is None and _in_foreground(self._descriptor):
            self._saved = termios.tcgetattr(self._descriptor)
            mode = termios.tcgetattr(self._descriptor)
            mode[_MODE] &= ~(termios.ICANON | termios.ECHO)
            mode[_CONTROL_CHARACTERS][termios.VMIN], mode[_CONTROL_CHARACTERS][termios.VTIME] = 1, 0
            termios.tcsetattr(self._descriptor, termios.TCSANOW, mode)
            self._loop.add_reader(self._descriptor, self._read)
        self._continued()

    def _suspend(self) -> None:
        self._stopping()
        self._redeliver(signal.SIGTSTP)

    def _redeliver(self, number: signal.Signals) -> None:
        """Restore the mode, and let a signal do what it does by default."""
        self._restore()
        self._loop.remove_signal_handler(number)
        os.kill(os.getpid(), number)

    def _restore(self) -> None:
        if self._saved is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
            saved, self._saved = self._saved, None
            try:
                termios.tcsetattr(self._descriptor, termios.TCSANOW, saved)  # type: ignore[arg-type]
            except termios.error:
                pass  # the terminal is gone

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 1024)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._descriptor)  # the terminal is gone
            return
        data = self._unfinished + data
        rest = _UNFINISHED.search(data)
        self._unfinished = rest[0] if rest else b""
        for key in _names(data.removesuffix(self._unfinished)):
            self._pressed(key)


def _names(data: bytes) -> Iterator[str]:
    for key in _KEY.findall(data):
        if len(key) == 1:
            yield key.decode("latin-1")
        elif len(key) == 3 and (arrow := _ARROWS.get(key[-1:])):
            yield arrow


def _in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True  # not the controlling terminal: it stops nobody
