"""Endpoint: one place in the schedule of an experiment.

It numbers what arrives, notes what was fetched, and passes every event to its log hooks. A `Messager` has one; a
`Transport` has one for each of its agents. A gate holds it:

    arrive ──> gate.arrived ··· deliver ──> log hooks, `take`
    fetch ──> gate.fetching
    sending ──> gate.sending ──> before_send of the log hooks, publish ──> gate.passed, after of the log hooks
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4

from . import actors, channels
from .clock import Clock
from .errors import MessagerError, PublishError
from .gate import Gate
from .hooks import LogHook
from .payload import to_wire
from .publisher import Publisher
from .record import Carrier, Kind, MessageRecord, Outcome, mark_record

if TYPE_CHECKING:
    from .brokers.base import Broker

T = TypeVar("T")

ENTRY_POINTS = "messager.gates"
"""Group of the entry points that make the gate of a `Messager` if `MESSAGER_REPLAY` is set."""

log = logging.getLogger("messager")


class Endpoint:
    """One place in the schedule, with its log hooks and its gate.

        alice = Endpoint("e1")
        alice.add_log_hook(recorder)
        alice.received("chat", {"text": "hello"}, from_id="bob", to_id="alice")
        alice.sent("chat", {"text": "hello, bob"}, from_id="alice", to_id="bob")

    Messages arrive either through `received`, which like `sent` and `mark` may be called from any thread; or through
    `put` and `fetch`, in the thread of the gate, which then holds them. Payloads are bytes, text, or what
    `Messager.send_message` accepts.
    """

    def __init__(
        self,
        exp_id: str,
        take: Callable[[dict[str, Any]], None] | None = None,
        *,
        agent: Any = None,
        clock: Clock | None = None,
    ) -> None:
        """`take` is called with each delivered message, after the log hooks; by default, `fetch` returns it.

        `clock` gives all timestamps. `agent` is the id of the agent of this place, with its JSON type; None if it has
        several, or is not known.
        """
        self.exp_id = exp_id
        self.agent = agent
        self.id = uuid4().hex
        """Identity in the log (`MessageRecord.messager`)."""
        self.clock = clock or Clock()
        self.hooks: list[LogHook] = []
        """Log hooks, in the order of their calls. Change them with `add_log_hook` and `remove_log_hook`."""
        self.gate: Gate | None = None
        """Gate through which all messages pass. Set it with `set_gate`."""
        self.arrived = 0
        """Number of messages that have arrived; a message is numbered by its place among them, from 1."""
        self.fetched = 0
        """Number of the last message that the agent has fetched; 0 for none. Set by whoever hands messages over."""
        self._inbox: list[dict[str, Any]] = []  # delivered, and not fetched yet
        self._take = take or self._inbox.append
        self.loop: asyncio.AbstractEventLoop | None = None
        """Event loop of another thread, for `sending_sync`. Set by a `Transport`."""
        self.gate_loop: asyncio.AbstractEventLoop | None = None
        """Event loop of the gate; None without one."""
        self._offer: Callable[[Endpoint], Awaitable[None]] | None = None
        self._offering = asyncio.Lock()
        self._early: list[dict[str, Any]] = []  # arrived before there was a gate
        self._lock = threading.RLock()  # a log hook may report an event itself

    def add_log_hook(self, hook: LogHook) -> None:
        """Add a hook for all later events, except the outcomes of messages in flight. A gate may refuse it."""
        if self.gate is not None:
            self.gate.check(hook)
        self.hooks.append(hook)

    def remove_log_hook(self, hook: LogHook) -> None:
        """Remove a hook. It still receives the outcomes of messages in flight."""
        if hook in self.hooks:
            self.hooks.remove(hook)

    def set_gate(self, gate: Gate | None) -> None:
        """Set the gate through which all messages pass, or remove it. Call it before the first message.

        Raises the errors of a gate that refuses one of the log hooks.
        """
        if gate is not None:
            for hook in self.hooks:
                gate.check(hook)
        self.gate = gate

    def received(
        self,
        channel: str | None,
        payload: Any,
        from_id: Any = None,
        to_id: Any = None,
        *,
        ts: int | None = None,
        fetched: bool = True,
        carrier: Carrier | None = None,
        **meta: Any,
    ) -> None:
        """Number and log a message that the agent has got, or gets later if `fetched` is False. No gate holds it.

        `ts` is the time of its arrival, ns UTC, by default now.
        """
        actors.used(self)
        record = self._record("received", channel, payload, from_id, to_id, ts, carrier, meta)
        record.message, record.messager = None, self.id
        with self._lock:
            self.arrived = record.arrival = self.arrived + 1
            self.tell(record)
            if fetched:
                self.fetched = record.arrival

    def put(
        self,
        channel: str,
        payload: Any,
        from_id: Any = None,
        to_id: Any = None,
        *,
        carrier: Carrier | None = None,
        item: Any = None,
        **meta: Any,
    ) -> None:
        """Take a message for the agent, which `fetch` returns once the gate, if there is one, has delivered it.

        `item` is what `fetch` returns for it, by default the payload. Call it in the event loop of the agent.
        """
        wire, given = _wire(payload)
        item = given if item is None else item
        ids = from_id, to_id, carrier
        message = {"channel": channels.encode(channel), "data": wire, "ids": ids, "item": item}
        self.arrive({**message, "meta": meta} if meta else message)

    async def fetch(self) -> list[Any]:
        """Wait until the gate, if there is one, has delivered what the agent may have next; return it, in order."""
        actors.used(self)
        await self.find_gate()
        if self.gate is not None:
            await self.gate.fetching()
        messages, self._inbox[:] = list(self._inbox), []
        self.fetched = self.arrived
        items = ((message.get("item"), message["data"]) for message in messages)
        return [wire if item is None else item for item, wire in items]

    def arrive(self, message: dict[str, Any]) -> None:
        """Take a message (a dict as `Messager.fetch_messages` returns it): pass it to the gate, or deliver it."""
        if self.gate is not None:
            self.gate.arrived(message)
        elif self._offer is not None:
            self._early.append(message)
        else:
            self.deliver(message)

    def deliver(self, message: dict[str, Any], origin: tuple[str, int] | None = None) -> None:
        """Number and log a message, and hand it over with `take`. Called by a gate, or by `arrive`.

        `origin` is that of the record (see `MessageRecord`).
        """
        record = MessageRecord("received", self.clock.now(), channels.decode(message["channel"]), message["data"])
        record.meta, record.origin, record.messager = message.get("meta"), origin, self.id
        if "ids" in message:  # one of `put`
            record.from_id, record.to_id, record.carrier = message["ids"]
        self.arrived = record.arrival = self.arrived + 1  # no lock: it would cost a quarter of this method
        self.tell(record)
        self._take(message)

    def sent(
        self,
        channel: str | None,
        payload: Any,
        from_id: Any = None,
        to_id: Any = None,
        *,
        ts: int | None = None,
        carrier: Carrier | None = None,
        **meta: Any,
    ) -> MessageRecord:
        """Log a message that was published at `ts` (ns UTC), by default now, with what the agent had fetched.

        Returns its record, for `blocked` and `failed`. `before_send` of the hooks is not called, and no gate holds the
        message: prefer `sending`.
        """
        actors.used(self)
        record = self.stamp(self._record("sent", channel, payload, from_id, to_id, ts, carrier, meta))
        record.places = {}
        self.tell(record)
        return record

    def blocked(self, record: MessageRecord, interceptor: str, reason: str | None = None) -> None:
        """Log that an interceptor refused a message after all, and retract the event of `sent`."""
        self._retract(record, "blocked", {"interceptor": interceptor, **({} if reason is None else {"reason": reason})})

    def failed(self, record: MessageRecord, error: BaseException | str, outcome: Outcome = "unknown") -> None:
        """Log that a message was not published, or perhaps not (`outcome`), and retract the event of `sent`."""
        self._retract(record, "failed", {"outcome": outcome, "error": str(error) or type(error).__name__})

    async def sending(
        self,
        publish: Callable[[], Awaitable[T]],
        channel: str | None,
        payload: Any,
        from_id: Any = None,
        to_id: Any = None,
        *,
        carrier: Carrier | None = None,
        **meta: Any,
    ) -> T:
        """Await `publish()` in the turn of the message, and log it as sent or failed; return what `publish` returns.

        The gate and `before_send` of the hooks are awaited before; if one of them raises, the message is not published.
        Call it in the event loop of the hooks; those of a `Transport` that runs them in a thread accept any. Raises
        what `publish` raises; the outcome of the message is then that of a `PublishError`, else unknown. If the caller
        is cancelled while it is published, it is published and logged.
        """
        actors.used(self)
        record = self.stamp(self._record("sent", channel, payload, from_id, to_id, None, carrier, meta))
        call = _Call(publish)
        send = partial(Publisher(call, self.clock, self.hooks, self.tell).send, record)
        await self.find_gate()
        try:
            await (send(record.ts) if self.gate is None else self.held(self.gate, record, send))
        except PublishError:
            if call.error is not None:
                raise call.error from None
            raise
        return call.results[0]

    def sending_sync(
        self,
        publish: Callable[[], T],
        channel: str | None,
        payload: Any,
        from_id: Any = None,
        to_id: Any = None,
        *,
        carrier: Carrier | None = None,
        **meta: Any,
    ) -> T:
        """Call `publish()` in the turn of the message, in this thread: synchronous form of `sending`.

        For endpoints of a `Transport` that was opened with `with`, whose hooks run in a thread of their own. Raises
        `MessagerError` for any other.
        """
        if self.loop is None:
            raise MessagerError("no thread runs the log hooks: open the Transport with `with`, or await `sending`")
        turn: Future[None] = Future()
        done: Future[T] = Future()

        async def in_turn() -> T:
            turn.set_result(None)
            return await asyncio.wrap_future(done)

        sending = self.sending(in_turn, channel, payload, from_id, to_id, carrier=carrier, **meta)
        outcome = asyncio.run_coroutine_threadsafe(sending, self.loop)
        either: list[Future[Any]] = [turn, outcome]
        concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
        if turn.done():
            try:
                done.set_result(publish())
            except Exception as error:
                done.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
            except BaseException as error:  # such as Ctrl-C, which would end the thread of the hooks
                done.set_exception(PublishError(repr(error), "unknown"))
                concurrent.futures.wait([outcome])
                raise
        return outcome.result()

    async def held(self, gate: Gate, record: MessageRecord, publish: Callable[[int], Awaitable[None]]) -> None:
        """Wait until the gate lets a message pass, and await `publish`, called with the time (ns UTC)."""
        await gate.sending(record)
        started = record.ts = self.clock.now()
        try:
            await publish(started)
        finally:
            written = record.ts != started  # the publisher has stamped it
            gate.passed(record, written or record.kind == "blocked")

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a mark, such as a step, a tick or a note, with fields of any name.

        Raises `TypeError` or `ValueError` for fields without a JSON form.
        """
        record = self.stamp(mark_record(self.clock.now(), name, fields))
        if self.gate is not None:
            self.gate.marked(record)
        self.tell(record)

    def stamp(self, record: MessageRecord) -> MessageRecord:
        """Note in a record the endpoint, and what its agent has fetched."""
        record.messager, record.arrival = self.id, self.fetched
        return record

    def tell(self, record: MessageRecord, hooks: Sequence[LogHook] | None = None) -> None:
        """Pass an event to these hooks, or to all. An error of a hook is logged and does not stop the others."""
        for hook in tuple(self.hooks) if hooks is None else hooks:
            try:
                hook.after(record)
            except Exception:
                log.exception("the log hook %r raised on %s", hook, record.kind)

    def offer(self, offer: Callable[[Endpoint], Awaitable[None]]) -> None:
        """Set the function that sets the gate of this endpoint when it first fetches or sends."""
        self._offer = offer

    async def find_gate(self) -> None:
        """Set the gate, if there is a function that makes it (`offer`), and it was not called yet."""
        if self._offer is None:
            return
        async with self._offering:
            if self._offer is not None and self.gate is None:
                self.gate_loop = asyncio.get_running_loop()
                await self._offer(self)
            self._offer, early = None, self._early
            self._early = []
            for message in early:
                self.arrive(message)

    def _retract(self, record: MessageRecord, kind: Kind, meta: dict[str, Any]) -> None:
        again = replace(record, kind=kind, ts=self.clock.now(), meta={**(record.meta or {}), **meta})
        again.duration_ns = again.ts - record.ts
        self.tell(again)

    def _record(
        self,
        kind: Kind,
        channel: str | None,
        payload: Any,
        from_id: Any,
        to_id: Any,
        ts: int | None,
        carrier: Carrier | None,
        meta: dict[str, Any],
    ) -> MessageRecord:
        wire, message = _wire(payload)
        record = MessageRecord(kind, self.clock.now() if ts is None else ts, channel, wire, from_id, to_id, message)
        record.meta, record.carrier = meta or None, carrier
        return record


def _wire(payload: Any) -> tuple[bytes, Any]:
    """Return the bytes of a payload, and the object if it is none of them."""
    if isinstance(payload, bytes):
        return payload, None
    return (payload if isinstance(payload, str) else to_wire(payload)).encode(), payload


class _Call(Generic[T]):
    """Call of a function that publishes one message, in the place of a broker."""

    sends_with = None

    def __init__(self, publish: Callable[[], Awaitable[T]]) -> None:
        self.results: list[T] = []
        self.error: Exception | None = None
        """Error of the function that is no `PublishError`."""
        self._publish = publish

    async def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
        try:
            self.results.append(await self._publish())
        except PublishError as error:
            return [error]
        except Exception as error:
            self.error = error
            return [PublishError(str(error) or type(error).__name__, "unknown")]
        return [None]


async def offered_gate(endpoint: Endpoint, broker: Broker) -> Gate:
    """Return the gate that an installed package makes for the endpoint of a Messager, or raise `MessagerError`.

    Each entry point is an async function of the endpoint and the broker, and returns a gate or None. Its errors are
    raised, because a live agent that runs without its gate unnoticed would make a replay worthless; so is
    `MessagerError` if there is no entry point.
    """
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    offers = entry_points(group=ENTRY_POINTS)
    if not offers:
        raise MessagerError(
            "MESSAGER_REPLAY is set, but no installed package reads schedules. Install this package again, or unset it."
        )
    for offer in offers:
        gate: Gate | None = await offer.load()(endpoint, broker)
        if gate is not None:
            return gate
    raise MessagerError(
        f"MESSAGER_REPLAY is set, but no installed package has an entry point {ENTRY_POINTS}: install messager again, "
        "or unset MESSAGER_REPLAY"
    )
