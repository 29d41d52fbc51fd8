"""Observer on the wire: what live programs of other processes say, as a subscriber of their channels receives it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import Broker, PubSub
from messager.record import MessageRecord

from ..errors import ReplayFailed
from .claims import Unclaimed
from .schedule import Act, ActState, Part, Verdict
from .shared import Shared

if TYPE_CHECKING:
    from ..matching.match import Match

POLL_S = 0.5


class WireObserver:
    """Pairs messages on the channels of live programs with what these are expected to say.

    In order for each channel: the first expected message that matches, else the next one of its sender or, if the
    payload does not name that, the next one that is awaited. A message that the replay itself has published is left
    out. An async context manager.
    """

    def __init__(self, lockstep: Shared, broker: Broker, parts: Iterable[Part], match: Match) -> None:
        self._lockstep = lockstep
        self._broker = broker
        self._match = match
        self._unclaimed: dict[str, Unclaimed] = {}  # by key of the part
        self._speakers: dict[bytes, list[tuple[Part, Any]]] = {}  # by channel, parts and senders that speak on it
        self._own: Counter[tuple[bytes, bytes]] = Counter()
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None
        for part in parts:
            lockstep.observed(part)
            awaited = [act for act in part.sends if act.awaited]
            self._unclaimed[part.key] = Unclaimed(awaited)
            for act in awaited:
                speakers = self._speakers.setdefault(act.channel, [])
                if not any(one is part and repr(sender) == repr(act.sender) for one, sender in speakers):
                    speakers.append((part, act.sender))

    async def __aenter__(self) -> WireObserver:
        if self._speakers:
            self._pubsub = self._broker.pubsub()
            await self._pubsub.psubscribe(*map(channels.literal, self._speakers))
            self._task = asyncio.create_task(self._run(self._pubsub))
            self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._pubsub is not None:
            await self._pubsub.aclose()

    def published(self, wire: Sequence[tuple[bytes, bytes]]) -> None:
        """Note messages that the replay publishes itself. Call it before they are published."""
        for channel, payload in wire:
            if channel in self._speakers:
                self._own[channel, payload] += 1

    async def _run(self, pubsub: PubSub) -> None:
        while True:
            message = await pubsub.get_message(timeout=POLL_S)
            if message is not None and message["type"] == "pmessage":
                await self._said(message["channel"], message["data"])
            elif message is not None and message["type"] == "gap":
                self._lockstep.unobserved((message["until"] - message["since"]) / 1e9)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the replay if the observer fails, for example in a judge: nothing would be seen any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            failed = ReplayFailed(f"live programs can no longer be observed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._lockstep.stop(failed)

    async def _said(self, channel: bytes, payload: bytes) -> None:
        if self._own[channel, payload]:
            self._own[channel, payload] -= 1
            return
        if self._lockstep.policy.holds and self._match.judge is None:
            expected = (one.event.payload for unclaimed in self._unclaimed.values() for one in unclaimed.on(channel))
            if not any(self._match.same(one, payload) for one in expected):
                return  # nothing that differs is sent until a gate opens: it is live already
        record = MessageRecord("sent", 0, channels.decode(channel), payload)
        found: list[tuple[Part, Act]] = []
        for part, sender in self._speakers.get(channel, ()):
            act, same = self._unclaimed[part.key].find(channel, sender, payload, self._match)
            if act is not None and same:
                self._claimed(part, act, record, same=True)
                return
            if act is not None:
                found.append((part, act))
        speakers = self._speakers.get(channel, ())
        replaced = [part for part, _ in speakers if self._lockstep.observed(part).is_replaced(record)]
        if replaced or not found:
            self._unexpected(channel, record, replaced)
            return
        part, act = self._likeliest(found, payload)
        same = await self._lockstep.observed(part).accepts(act, payload)
        self._claimed(part, act, record, same=same)

    def _claimed(self, part: Part, act: Act, record: MessageRecord, *, same: bool) -> None:
        """Count a message that was said in the place of a recorded one."""
        self._unclaimed[part.key].remove(act)
        verdicts = self._lockstep.observed(part)
        act.taken, act.verdict = True, Verdict.MATCHED if same else Verdict.DIFFERENT
        verdicts.sent(act, record)
        act.settle(ActState.DONE)
        self._lockstep.patience.progress()
        self._lockstep.spoke(part, act)

    def _likeliest(self, found: list[tuple[Part, Act]], payload: bytes) -> tuple[Part, Act]:
        """Return what a message that matches nothing stands for: the next one of its sender, if the payload names that.

        One that is still awaited comes before one that was given up.
        """
        sender = self._lockstep.sender_of(payload)
        named = [one for one in found if sender is not None and str(one[1].event.from_id) == str(sender)]
        return min(named or found, key=lambda one: (one[1].settled, one[1].event.cursor))

    def _unexpected(self, channel: bytes, record: MessageRecord, replaced: list[Part]) -> None:
        if self._lockstep.policy.continues or channel not in self._speakers:
            return
        part = replaced[0] if replaced else self._speakers[channel][-1][0]
        self._lockstep.observed(part).unexpected(record)
