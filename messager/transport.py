"""Transport: the messages of a program whose agents talk by other means than a `Messager`.

    async with Transport("exp-1") as transport:
        alice, bob = transport.endpoint("alice"), transport.endpoint("bob")
        await alice.sending(publish, "room", {"text": "hello"}, from_id="alice", to_id="bob")
        bob.received("room", {"text": "hello"}, from_id="alice", to_id="bob")

It records into `MESSAGER_STORE`, if that is set, and into the hooks that it is given; with `MESSAGER_REPLAY` its
endpoints follow the recorded schedule. `with Transport("exp-1") as transport` is the form for programs without an event
loop: its hooks run in a thread. The adapters of `messager.compat` use the transport of the process (`of_process`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import actors, hooks
from .clock import Clock
from .endpoint import Endpoint, offered_gate
from .hooks import LogHook, OfferedHook, offered, stop, tell
from .record import CLOSED, Kind, MessageRecord, mark_record
from .variables import EXP, RUN

if TYPE_CHECKING:
    from .brokers.base import Broker

T = TypeVar("T")

log = logging.getLogger("messager")


class Transport:
    """Endpoints of the agents of one experiment in this process, with their log hooks.

    An async context manager; or a plain one, in whose body only synchronous calls and `sending_sync` are used.
    """

    def __init__(
        self,
        exp_id: str,
        *hooks: LogHook,
        observes: Collection[Kind] = ("sent", "received"),
        broker: Broker | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`observes` are the kinds of messages that this transport logs: `("sent",)` if receptions are not seen.

        `broker` carries the announcements between the live programs of a replay; without one, all of them are in this
        process.
        """
        self.exp_id = exp_id
        self.clock = clock or Clock()
        self.hooks: list[LogHook] = list(hooks)
        """Log hooks of all endpoints."""
        self._observes = tuple(observes)
        self._broker = broker
        self._endpoints: dict[tuple[type, Any], Endpoint] = {}
        self._offered: list[OfferedHook] = []
        self._thread: _LoopThread | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def endpoint(self, agent: Any) -> Endpoint:
        """Return the endpoint of an agent, by its id with its JSON type. May be called from any thread."""
        key = type(agent), agent
        known = self._endpoints.get(key)
        if known is None:
            with self._lock:
                known = self._endpoints.get(key) or self._make(agent)
                self._endpoints[key] = known
        return known

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a mark, such as a step, of the program as a whole. Raises `TypeError` for fields without a JSON form."""
        self.endpoint(None).mark(name, **fields)

    async def open(self) -> None:
        """Find the hooks of installed packages, if `MESSAGER_STORE` is set. Errors are lines on standard error."""
        if os.environ.get("MESSAGER_STORE"):
            self._offered = await offered(self.exp_id, self.hooks)
            self.hooks += self._offered
        url = None if self._broker is None else self._broker.url
        for hook in self.hooks:
            tell(hook, "connected", url, self.clock, None)
            tell(hook, "observing", self._observes)

    async def close(self) -> None:
        """Log what each agent had fetched, and stop the hooks that `open` has found."""
        for endpoint in list(self._endpoints.values()):
            actors.connected.discard(endpoint)
            await _close_gate(endpoint)
            if endpoint.arrived:
                endpoint.tell(endpoint.stamp(mark_record(self.clock.now(), CLOSED, {})))
        while self._offered:
            hook = self._offered.pop()
            self.hooks.remove(hook)
            await stop(hook)

    async def __aenter__(self) -> Transport:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def start(self) -> None:
        """Open it with its hooks in a thread of their own. End it with `stop`."""
        self._thread = _LoopThread()
        self._thread.run(self.open())
        self.hooks[:] = [_InThread(hook, self._thread) for hook in self.hooks]

    def stop(self) -> None:
        """Close what `start` has opened."""
        thread, self._thread = self._thread, None
        if thread is None or self._pid != os.getpid():
            return  # in a forked process, the thread does not run
        self.hooks[:] = [hook.hook for hook in self.hooks if isinstance(hook, _InThread)]
        thread.run(self.close())
        thread.stop()

    def __enter__(self) -> Transport:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _make(self, agent: Any) -> Endpoint:
        made = Endpoint(self.exp_id, agent=agent, clock=self.clock)
        made.hooks = self.hooks
        made.loop = None if self._thread is None else self._thread.loop
        if os.environ.get("MESSAGER_REPLAY"):
            made.offer(self._set_gate)
        actors.connected.add(made)
        return made

    async def _set_gate(self, endpoint: Endpoint) -> None:
        if self._broker is None:
            from .brokers.memory.broker import MemoryBroker  # rarely needed

            self._broker = MemoryBroker()
        await self._broker.connect()
        gate = await offered_gate(endpoint, self._broker)
        gate.connected()
        endpoint.set_gate(gate)
        await gate.subscribed(["*"])  # a transport delivers what its agents are sent, whatever the channel


async def _close_gate(endpoint: Endpoint) -> None:
    """Close the gate of an endpoint in its event loop, unless that has ended. An error is logged."""
    loop = endpoint.gate_loop
    if endpoint.gate is None or (loop is not None and not loop.is_running()):
        return
    try:
        if loop is None or loop is asyncio.get_running_loop():
            await endpoint.gate.close()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(endpoint.gate.close(), loop))
    except Exception:
        log.exception("the gate of %s could not be closed", endpoint.agent)


class _LoopThread:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="messager transport", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and return its result or raise its error."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _InThread:
    """Log hook that runs in another thread, for endpoints of any event loop."""

    def __init__(self, hook: LogHook, thread: _LoopThread) -> None:
        self.hook = hook
        self._thread = thread

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        work = self.hook.before_send(records)
        if asyncio.get_running_loop() is self._thread.loop:
            await work
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._thread.loop))

    def after(self, record: MessageRecord) -> None:
        self.hook.after(record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hook, name)


_of_process: Transport | None = None
_starting = threading.Lock()


def of_process(exp_id: str | None = None) -> Transport:
    """Return the transport of this process, which ends with it. It records if `MESSAGER_STORE` is set.

    Its experiment is `MESSAGER_EXP`, else the first `exp_id` that is given, else that of the Messagers of this process,
    if there are any yet, else that of the run (`messager run`), else one named after the program and the time.
    """
    global _of_process
    if _of_process is None:
        with _starting:
            if _of_process is None:
                given = os.environ.get(EXP) or exp_id or hooks.latest_exp_id or os.environ.get(RUN)
                made = Transport(given or run_name(sys.argv[0]))
                if os.environ.get("MESSAGER_STORE"):
                    made.start()
                    _at_exit(made.stop)
                _of_process = made
    return _of_process


def run_name(program: str) -> str:
    """Return the exp_id of a run of a program that has none: its name and the time."""
    name = re.sub(r"[^\w.-]+", "-", Path(program).stem, flags=re.ASCII).strip("-")[:40] or "program"
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _at_exit(stop: Any) -> None:
    """Call `stop` when the program ends, before executors refuse work: a recorder needs theirs."""
    register = getattr(threading, "_register_atexit", None)
    with contextlib.suppress(RuntimeError):  # the program is ending already
        (register or atexit.register)(stop)


def _forget() -> None:
    """Let a forked process make a transport of its own: it has none of the threads."""
    global _of_process, _starting
    _of_process, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
