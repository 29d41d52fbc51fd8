"""Announcements of live programs: which part each of their Messagers plays, and what it is subscribed to.

They travel on the channel `messager-replay:{exp_id}` of the live experiment, signed (`signing`), with JSON objects as
content: `{"part", "patterns"}` when a Messager has subscribed, and `{}` of a program that has nothing to say yet. A
replay that publishes recorded messages says `{"live": [parts]}`: nobody waits for the others, which it plays from the
recording. A program of a fork that stops, or the fork itself, says `{"stopped": reason}`, with the divergence (see
`prefix.StopNotice`). Whoever hears of a program for the first time tells it everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from messager import channels
from messager.brokers import Broker, PubSub
from messager.brokers.kind import BrokerKind
from messager.errors import MessagerError, PublishError

from ..errors import ReplayFailed, StoreError
from ..text import plural
from .presence import Presence
from .signing import RunKey, Signer, who_needs_it

POLL_S = 1.0
CHANNEL = "messager-replay:"
"""Beginning of the channels of announcements."""
_CHANNEL = CHANNEL.encode()
MOST_PARTS = 100_000
"""Parts of others that are remembered."""
LOST = "the other live programs can no longer be heard"


def is_announcement(channel: bytes) -> bool:
    """Return whether a message is not for agents, although they may be subscribed to all channels."""
    return channel.startswith(_CHANNEL)


class Announcing:
    """Announcements of this process and of others, for one live experiment. An async context manager.

    An announcement that could not be published is repeated. `failed` is called if the others can no longer be heard,
    `note` at the end with a line on announcements that were refused, if there were any, and `stopped` with the notice
    of another process that stops first.
    """

    def __init__(
        self,
        broker: Broker,
        exp_id: str,
        presence: Presence,
        kind: BrokerKind,
        *,
        failed: Callable[[StoreError], None],
        note: Callable[[str], None],
        stopped: Callable[[dict[str, Any]], None] = lambda notice: None,
    ) -> None:
        self.broker = broker
        """Broker of the next subscription; `use` changes it at once."""
        self._presence = presence
        self._kind = kind
        self._failed = failed
        self._note = note
        self._stopped = stopped
        self._exp_id = exp_id
        self._key = RunKey(exp_id)
        self._signer: Signer | None = None  # None before the first start
        self._untold = False  # an announcement could not be published
        self._channel = f"{CHANNEL}{exp_id}"
        self._own: dict[str, list[str]] = {}
        self._live: list[str] | None = None
        self.replayed = False
        """True once a replay has said which parts are live."""
        self._stopping: dict[str, Any] | None = None  # the first notice of a stop, of this process or another
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._turn = asyncio.Lock()  # announcements arrive in the order of their numbers
        self._telling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Announcing:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self, live: Iterable[str] | None = None) -> bool:
        """Subscribe, tell what there is to tell, and hear from the others. Return False if that was done before.

        A replay that publishes recorded messages gives the keys of the parts that are `live`, and says so to everybody.
        Raises `StoreError` if the key of the run cannot be used.
        """
        async with self._starting:
            if self._task is not None:
                return False
            self._live = None if live is None else list(live)
            self._signer = Signer(self._exp_id, self._key.open())
            await self._subscribe()
            await self._tell_own()
            return True

    async def announce(self, key: str, patterns: list[str]) -> None:
        """Announce a Messager of this process. Raises as `start` does."""
        self._own[key] = patterns
        if not await self.start():
            await self._tell({"part": key, "patterns": patterns})

    def stop(self, notice: dict[str, Any]) -> None:
        """Tell the others that this process stops, unless another one has stopped before."""
        if self._stopping is None and self._task is not None:
            self._stopping = notice
            telling = asyncio.create_task(self._tell(notice))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def use(self, broker: Broker) -> None:
        """Use this broker from now on. Call it before the one before is closed."""
        async with self._starting:
            if broker is self.broker:
                return
            listening = self._task is not None
            await self._unsubscribe()
            self.broker = broker
            if listening:
                try:
                    await self._subscribe()
                    await self._again()
                except MessagerError as error:
                    self._failed(ReplayFailed(f"{LOST}: {error}"))

    def refusals(self) -> str | None:
        """Return a line on announcements that were refused; None if there were none."""
        if self._signer is None or not self._signer.refused:
            return None
        return (
            f"{plural(self._signer.refused, 'announcement')} of {self._exp_id} refused: forged, repeated, or without "
            f"the key; {who_needs_it(self._exp_id)}"
        )

    async def close(self) -> None:
        """End the subscription, after what is still to be told."""
        await self._unsubscribe()
        self._key.close()
        if self._signer is not None and (refused := self.refusals()) is not None:
            self._note(refused)
            self._signer.refused = 0

    async def _unsubscribe(self) -> None:
        await asyncio.gather(*self._telling, return_exceptions=True)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await pubsub.aclose()

    async def _subscribe(self) -> None:
        assert self._signer is not None
        self._signer.begin()
        pubsub = self.broker.pubsub()
        try:
            await pubsub.psubscribe(channels.literal(self._channel))
        except BaseException:
            await pubsub.aclose()
            raise
        self._pubsub = pubsub
        self._task = asyncio.create_task(self._run(pubsub))
        self._task.add_done_callback(self._ended)

    async def _again(self) -> None:
        """Tell everything again: others may not have heard it."""
        self._untold = False
        await self._tell_own()

    async def _tell_own(self) -> None:
        contents: list[dict[str, Any]] = [{"part": key, "patterns": self._own[key]} for key in self._own]
        if self._live is not None:
            contents.append({"live": self._live})
        if self._stopping is not None:
            contents.append(self._stopping)
        for content in contents or [{}]:
            await self._tell(content)

    async def _tell(self, content: dict[str, Any]) -> None:
        assert self._signer is not None
        async with self._turn:
            [result] = await self.broker.publish([(channels.encode(self._channel), self._signer.sign(content))])
        if isinstance(result, PublishError):
            self._untold = True

    async def _run(self, pubsub: PubSub) -> None:
        assert self._signer is not None
        while True:
            message = await pubsub.get_message(timeout=POLL_S)
            if message is not None and message["type"] == "pmessage":
                await self._told(self._signer, message["data"])
                await asyncio.sleep(0)  # others may run, however many there are
            elif message is not None and message["type"] == "gap":
                self._signer.begin()
                await self._again()
            elif self._untold:
                await self._again()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed = ReplayFailed(f"{LOST}: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._failed(failed)

    async def _told(self, signer: Signer, payload: bytes) -> None:
        told = signer.read(payload)
        if told is None:
            return
        if told.content and not self._heard(told.content):
            signer.refused += 1
        if told.unknown:
            await self._tell_own()

    def _heard(self, content: dict[str, Any]) -> bool:
        """Note what another program says. Return False if it has not the form of an announcement."""
        match content:
            case {"stopped": str()}:
                if self._stopping is None:
                    self._stopping = content
                    self._stopped(content)
            case {"live": [*live]} if all(isinstance(key, str) for key in live):
                self.replayed = True
                self._presence.only(set(live))
            case {"part": str(part), "patterns": [*patterns]} if all(map(_is_pattern, patterns)):
                known = part in self._presence.remote
                if part not in self._own and (known or len(self._presence.remote) < MOST_PARTS):
                    self._presence.announced(part, partial(_hears, self._kind, patterns))
            case _:
                return False
        return True


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(channels.encode(value))
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _hears(kind: BrokerKind, patterns: list[str], channel: bytes) -> bool:
    return any(kind.matches(pattern, channel) for pattern in patterns)
