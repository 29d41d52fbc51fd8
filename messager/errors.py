"""Errors of this package, in one tree.

MessagerError
├── NotConnected          `init()` was not called, or `close()` was
├── BrokerUnavailable     the broker cannot be reached, or stopped answering
├── MissingDriver         the driver of a broker is not installed, or broken
├── PublishError          a message was not published, or its outcome is unknown
├── MessagesRefused       raised by a log hook that refuses some messages
├── ListenerDied          the task that receives messages ended with an error
├── NoRedisServer         messager.testing found no redis-server to start
├── NoMqttServer          messager.testing found no MQTT broker to start
├── NoAgentSociety        messager.compat.agentsociety found no AgentSociety 1.3 or 1.5
└── NoAgentScope          messager.compat.agentscope_bus found no AgentScope 2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal


class MessagerError(Exception):
    """Root of the errors of this package. Each message says what to do. Errors can be pickled, as Ray does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args, vars(self))


def restored(kind: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """Return an error as it was pickled. Its arguments are those of `Exception`, not those of its own `__init__`."""
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class NotConnected(MessagerError):
    """The messager is not connected. Call `await messager.init()` first."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class BrokerUnavailable(MessagerError):
    """The broker cannot be reached. Start it, or give another URL. `reason` has the details and a remedy."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach the broker at {url}: {reason}")
        self.url = url
        """URL of the broker, without credentials."""
        self.reason = reason


class MissingDriver(MessagerError):
    """The driver of a broker is missing or broken. The text has the command that installs it."""

    def __init__(self, package: str, requirement: str, fault: str = "is not installed", how: str = "") -> None:
        """`requirement` is the package with its version bounds; `how` holds options for pip."""
        super().__init__(f"{package} {fault}: `pip install {how}'{requirement}'`")


class PublishError(MessagerError):
    """A message was not published (`not_sent`), or its outcome is not known (`unknown`).

    Nothing is repeated automatically. Send again if needed; after `unknown` that may double the message.
    """

    def __init__(self, reason: str, outcome: Literal["not_sent", "unknown"], *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused
        """True if the broker answered and refused this message."""
        self.reason = reason
        self.outcome: Literal["not_sent", "unknown"] = outcome


class MessagesRefused(MessagerError):
    """Raised by the `before_send` of a log hook: some of the messages must not be published, the others may.

    `errors` has, by position in the records that the hook was given, the error that each sender gets.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__("; ".join(str(error) or type(error).__name__ for error in errors.values()))
        self.errors = dict(errors)


class ListenerDied(MessagerError):
    """The listener ended with an error, so nothing is received any more. Subscribe again."""
