"""What can go wrong while talking.

MessagerError
├── NotConnected          init() has not been called, or close() has
├── BrokerUnavailable     the broker cannot be reached, or stopped answering
├── MissingDriver         the package that speaks a broker's protocol is not installed, too old, or broken
├── PublishError          one message was not published, or nobody knows
├── MessagesRefused       raised by a log hook: some messages must not be published
├── ListenerDied          the task that receives messages ended on an error
├── NoRedisServer         messager.testing found no redis-server to start
├── NoMqttServer          messager.testing found no MQTT broker to start
└── NoAgentSociety        messager.compat.agentsociety found no AgentSociety 1.3
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal


class MessagerError(Exception):
    """Every error this package raises on purpose."""


class NotConnected(MessagerError):
    """The messager is not connected. Call `await messager.init()` first."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class BrokerUnavailable(MessagerError):
    """The broker cannot be reached. Start it, or give another URL."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach the broker at {url}: {reason}")
        self.url = url
        """Where it was looked for, without credentials."""
        self.reason = reason


class MissingDriver(MessagerError):
    """The package that speaks a broker's protocol is missing, too old, or broken. The text has the command to run."""

    def __init__(self, package: str, requirement: str, fault: str = "is not installed", how: str = "") -> None:
        """`requirement` is the package with its version bounds; `how` holds options for pip."""
        super().__init__(f"{package} {fault}: `pip install {how}'{requirement}'`")


class PublishError(MessagerError):
    """A message was not published (`not_sent`), or its fate is not known (`unknown`).

    Nothing is repeated behind the caller's back: sending again is the caller's choice,
    and after `unknown` it may double the message.
    """

    def __init__(self, reason: str, outcome: Literal["not_sent", "unknown"], *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused
        """True where the broker answered, and said no to this one message."""
        self.reason = reason
        self.outcome: Literal["not_sent", "unknown"] = outcome


class MessagesRefused(MessagerError):
    """Raised by a log hook's `before_send`: some of the messages must not be published. The others are.

    `errors` says which, by their place in the records that the hook was given, and what their senders get.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__("; ".join(str(error) or type(error).__name__ for error in errors.values()))
        self.errors = dict(errors)


class ListenerDied(MessagerError):
    """The listener ended on an error, so nothing is received any more. Subscribe again."""
