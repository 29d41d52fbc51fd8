"""Base of the adapters that record a framework through a `Transport`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..errors import MessagerError
from ..transport import Transport, of_process
from .patching import Patches
from .quietly import Quietly


class Adapter(Patches):
    """Replaced methods of a framework, which log messages. A context manager that restores them."""

    framework = ""
    """Name of the framework in messages for people."""

    def __init__(self) -> None:
        super().__init__()
        self._transport: Transport | None = None
        self._quietly = Quietly(self.framework)

    @property
    def active(self) -> bool:
        """True until it is uninstalled."""
        return bool(self._changes)

    @property
    def transport(self) -> Transport:
        """Transport through which messages are logged: that of `use`, else that of this process."""
        return self._transport or of_process()

    def use(self, transport: Transport | None) -> None:
        """Log all later messages through a transport; None changes nothing."""
        self._transport = transport or self._transport

    def wrap(self, owner: type, name: str, wrapped: Callable[[Any], Any]) -> None:
        """Replace a method by what `wrapped` returns for it. Restores all and raises `MessagerError` without one."""
        if name not in vars(owner):
            self.uninstall()
            raise MessagerError(
                f"this version of {self.framework} cannot be recorded: its {owner.__name__} has no {name}. "
                "Install a version that docs/transports.md lists."
            )
        self.change(owner, name, wrapped(vars(owner)[name]))

    def now(self) -> int:
        """Return the time of the transport (ns UTC)."""
        with self.logging():
            return self.transport.clock.now()
        return time.time_ns()

    def logging(self) -> Quietly:
        """Return a context that keeps errors of its body from the framework."""
        return self._quietly
