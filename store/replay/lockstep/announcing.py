"""Announcements of live programs: which part each of their Messagers plays, and what it is subscribed to.

They travel on the channel `messager-replay:{exp_id}` of the live experiment, as JSON objects: `{"part", "patterns"}`
when a Messager has subscribed, and `{"who": true}`, which every program answers, when a program starts. A replay that
publishes recorded messages says `{"live": [parts]}`: nobody waits for the others, which it plays from the recording. A
program of a fork that stops, or the fork itself, says `{"stopped": reason}`, with the divergence (see `stop_notice`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from messager import channels
from messager.brokers import Broker, PubSub
from messager.brokers.kind import BrokerKind
from messager.errors import MessagerError, PublishError

from ...errors import ReplayFailed, StoreError
from .presence import Presence

POLL_S = 1.0
CHANNEL = "messager-replay:"
"""Beginning of the channels of announcements."""
_CHANNEL = CHANNEL.encode()
LOST = "the other live programs can no longer be heard"


def is_announcement(channel: bytes) -> bool:
    """Return whether a message is not for agents, although they may be subscribed to all channels."""
    return channel.startswith(_CHANNEL)


class Announcing:
    """Announcements of this process and of others, for one live experiment. An async context manager.

    An announcement that could not be published is repeated. `failed` is called if the others can no longer be heard.
    """

    def __init__(
        self,
        broker: Broker,
        exp_id: str,
        presence: Presence,
        kind: BrokerKind,
        *,
        failed: Callable[[StoreError], None],
    ) -> None:
        self.broker = broker
        """Broker of the next subscription; `use` changes it at once."""
        self._presence = presence
        self._kind = kind
        self._failed = failed
        self._untold = False  # an announcement could not be published
        self._channel = f"{CHANNEL}{exp_id}"
        self._own: dict[str, list[str]] = {}
        self._live: list[str] | None = None
        self.replayed = False
        """True once a replay has said which parts are live."""
        self._stop: dict[str, Any] | None = None  # the first notice of a stop, of this process or another
        self.on_stopped: Callable[[dict[str, Any]], None] = lambda notice: None
        """Called with the notice if another process stops first."""
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Announcing:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self, live: Iterable[str] | None = None) -> None:
        """Subscribe, and ask who is there. May be called again.

        A replay that publishes recorded messages gives the keys of the parts that are `live`, and says so to everybody.
        """
        async with self._starting:
            if self._task is None:
                self._live = None if live is None else list(live)
                await self._subscribe()
                await self._tell({"who": True})
                await self._tell_live()

    async def announce(self, key: str, patterns: list[str]) -> None:
        """Announce a Messager of this process."""
        self._own[key] = patterns
        await self.start()
        await self._tell({"part": key, "patterns": patterns})

    def stopped(self, notice: dict[str, Any]) -> None:
        """Tell the others that this process stops, unless another one has stopped before."""
        if self._stop is None and self._task is not None:
            self._stop = notice
            telling = asyncio.create_task(self._tell(notice))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def use(self, broker: Broker) -> None:
        """Use this broker from now on. Call it before the one before is closed."""
        async with self._starting:
            if broker is self.broker:
                return
            listening = self._task is not None
            await self.close()
            self.broker = broker
            if listening:
                try:
                    await self._subscribe()
                    await self._again()
                except MessagerError as error:
                    self._failed(ReplayFailed(f"{LOST}: {error}"))

    async def close(self) -> None:
        """End the subscription, after what is still to be told."""
        await asyncio.gather(*self._telling, return_exceptions=True)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await pubsub.aclose()

    async def _subscribe(self) -> None:
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
        """Ask and tell again: others may have spoken meanwhile, and have asked."""
        self._untold = False
        await self._tell({"who": True})
        await self._tell_own()

    async def _tell_own(self) -> None:
        for key, patterns in list(self._own.items()):  # more may be announced meanwhile
            await self._tell({"part": key, "patterns": patterns})
        await self._tell_live()
        if self._stop is not None:
            await self._tell(self._stop)

    async def _tell_live(self) -> None:
        if self._live is not None:
            await self._tell({"live": self._live})

    async def _tell(self, data: dict[str, Any]) -> None:
        [result] = await self.broker.publish([(channels.encode(self._channel), json.dumps(data).encode())])
        if isinstance(result, PublishError):
            self._untold = True

    async def _run(self, pubsub: PubSub) -> None:
        while True:
            message = await pubsub.get_message(timeout=POLL_S)
            if message is not None and message["type"] == "pmessage":
                await self._told(message["data"])
            elif self._untold or (message is not None and message["type"] == "gap"):
                await self._again()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed = ReplayFailed(f"{LOST}: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._failed(failed)

    async def _told(self, payload: bytes) -> None:
        try:
            data = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if not isinstance(data, dict):
            return
        if data.get("who"):
            await self._tell_own()
        elif isinstance(data.get("stopped"), str):
            if self._stop is None:
                self._stop = data
                self.on_stopped(data)
        elif isinstance(data.get("live"), list):
            self.replayed = True
            self._presence.only(set(map(str, data["live"])))
        elif data.get("part") not in self._own and isinstance(data.get("patterns"), list):
            patterns = [str(pattern) for pattern in data["patterns"]]
            self._presence.announced(str(data.get("part")), partial(_hears, self._kind, patterns))


def _hears(kind: BrokerKind, patterns: list[str], channel: bytes) -> bool:
    return any(kind.matches(pattern, channel) for pattern in patterns)
