"""The message bus of AgentScope 2: recorded as it is, or carried by Messagers.

    from messager import RedisConfig
    from messager.compat import agentscope_bus

    agentscope_bus.install()      # every bus that is made from now on is recorded
    agentscope_bus.record(bus)    # or this one
    bus = agentscope_bus.MessagerBus(RedisConfig(server="localhost"), "exp-1", "alice", "bob")    # or one in lockstep

Messages are what is put into drain queues (carrier `queue`), into replay logs (`stream`), and what is published. Their
channel is the key. An inbox belongs to a session, which is the recipient; the sender is the `source` of a `HintBlock`,
the session whose events a log has, or else the session whose inbox the same task drained last. A payload that was
drained and put back is not another message.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any
from weakref import WeakSet

from .. import channels
from ..endpoint import Endpoint
from ..errors import MessagerError
from ..hooks import say
from ..lazy import lazy_exports
from ..record import SUBSCRIBED
from ..transport import Transport, of_process
from .agentscope_messages import BusLog, inbox_owner
from .patching import Patches

__getattr__ = lazy_exports("messager.compat", globals(), {"agentscope_inboxes": "MessagerBus"})[0]

log = logging.getLogger("messager")

_KEPT = "_messager_recording"
_buses: WeakSet[Any] = WeakSet()
_installed: Installation | None = None
_said = False


class NoAgentScope(MessagerError):
    """AgentScope 2 cannot be imported. Install it with `pip install 'agentscope>=2'`."""


def record(bus: Any, transport: Transport | None = None) -> BusRecording:
    """Record what passes through a bus of AgentScope, of any class, until `uninstall` of what is returned.

    Without a transport, it is that of this process. A second call changes nothing. Hooks follow no schedule: with
    `MESSAGER_REPLAY`, a line on standard error says so, and nothing is held.
    """
    made = vars(bus).get(_KEPT)
    return made if isinstance(made, BusRecording) else BusRecording(bus, transport)


def unrecord(bus: Any) -> None:
    """End the recording of a bus, if it is recorded."""
    if isinstance(made := vars(bus).get(_KEPT), BusRecording):
        made.uninstall()


def install(transport: Transport | None = None) -> Patches:
    """Record every bus that is made from now on: those of AgentScope, and of classes derived from them.

    A second call changes nothing. Raises `NoAgentScope`.
    """
    global _installed
    if _installed is None:
        try:
            from agentscope.app.message_bus import InMemoryMessageBus, RedisMessageBus
        except ImportError as error:
            raise NoAgentScope(
                f"AgentScope 2 cannot be imported: {error}. Install it with `pip install 'agentscope>=2'`"
            ) from error
        _installed = Installation()
        for bus in (InMemoryMessageBus, RedisMessageBus):
            _installed.change(bus, "__init__", _recording(vars(bus)["__init__"], transport))
    return _installed


class Installation(Patches):
    """Changes of `install`. Their end is that of all recordings, also of buses that were given to `record`."""

    def uninstall(self) -> None:
        global _installed
        super().uninstall()
        _installed = None
        for bus in list(_buses):
            unrecord(bus)


def _recording(init: Callable[..., None], transport: Transport | None) -> Callable[..., None]:
    @wraps(init)
    def recording(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        record(self, transport)

    return recording


class BusRecording(BusLog):
    """Log of the messages of one bus, whose operations it replaces."""

    def __init__(self, bus: Any, transport: Transport | None) -> None:
        super().__init__(bus, self._endpoint, self._endpoint)
        self._of = vars(bus)
        self._transport = transport
        self._subscribed: set[str] = set()
        for name in self.OPERATIONS:
            self._of[name] = getattr(self, name)
        self._of[_KEPT] = self
        _buses.add(bus)

    def uninstall(self) -> None:
        """Restore the operations of the bus."""
        for name in (*self.OPERATIONS, _KEPT):
            self._of.pop(name, None)

    async def queue_drain(self, key: str, *args: Any, **options: Any) -> Any:
        session = inbox_owner(key)
        if session is not None and session not in self._subscribed:
            self._subscribed.add(session)
            try:
                self._endpoint(session).mark(SUBSCRIBED, patterns=[channels.literal(key)])
            except Exception:
                log.exception("that %s drains its inbox is not recorded", session)
        return await super().queue_drain(key, *args, **options)

    async def sending(self, endpoint: Endpoint, call: Callable[[], Awaitable[Any]], *message: Any, **more: Any) -> Any:
        if not _follows_nothing():
            return await super().sending(endpoint, call, *message, **more)
        answer = await call()
        endpoint.sent(*message, **more)
        return answer

    def _endpoint(self, agent: Any) -> Endpoint:
        self._transport = self._transport or of_process()
        return self._transport.endpoint(agent)


def _follows_nothing() -> bool:
    """Return True if a schedule is named, which hooks cannot follow, and say so once."""
    global _said
    named = bool(os.environ.get("MESSAGER_REPLAY"))
    if named and not _said:
        _said = True
        say(
            "a recorded bus of AgentScope does not follow MESSAGER_REPLAY: use a MessagerBus of "
            "messager.compat.agentscope_bus"
        )
    return named
