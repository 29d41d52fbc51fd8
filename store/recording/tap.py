"""Tap: records an unmodified system from outside, by subscribing to its channels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from messager import channels
from messager.brokers import Broker, PubSub
from messager.record import MessageRecord

from ..experiments.provenance import this_process
from .recorder import Recorder
from .unheard import INSPECT_SECONDS, Unheard

POLL_SECONDS = 0.1
BUFFERED = 10_000
"""Maximum events in memory; above it the tap stops reading until they are committed."""


class Tap:
    """Records the messages on channels that match `patterns`.

    Redis delivers a message once for each pattern that matches it; the tap keeps one copy. `active` is called once
    the subscription is confirmed, `progress` after messages, and `notice` with a line when the connection is lost or
    restored, and when the server carries messages that a tap cannot receive.
    """

    def __init__(
        self,
        broker: Broker,
        recorder: Recorder,
        patterns: Iterable[str] = ("*",),
        *,
        active: Callable[[], None] | None = None,
        progress: Callable[[Tap], None] | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._broker = broker
        self._recorder = recorder
        self._patterns = list(patterns)
        self._active = active or (lambda: None)
        self._progress = progress or (lambda tap: None)
        self._notice = notice or (lambda text: None)
        self._lost = False
        self._pattern_of: dict[bytes, bytes] = {}
        self.messages = 0
        """Number of messages recorded."""
        self.gaps = 0
        """Number of gaps, in which messages may be missing."""

    async def run(self, *, duration: float | None = None, max_events: int | None = None) -> None:
        """Record until cancelled, for `duration` seconds, or `max_events` messages. Raises `BrokerUnavailable`."""
        clock, after = self._recorder.clock, self._recorder.after
        await self._broker.connect()
        self._recorder.connected(self._broker.url, clock, await self._broker.clock_offset())
        pubsub: PubSub = self._broker.pubsub_as_published()
        unheard = Unheard(self._broker, self._recorder, self._notice)
        try:
            await pubsub.psubscribe(*self._patterns)
            await self._log_gap_since_last_tap()
            self._active()
            await unheard.inspect()
            inspect_at = time.monotonic() + INSPECT_SECONDS
            deadline = None if duration is None else time.monotonic() + duration
            while max_events is None or self.messages < max_events:
                await self._recorder.wait_for_capacity(BUFFERED)  # the broker buffers messages meanwhile
                if self._recorder.failure is not None:
                    raise self._recorder.failure
                left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
                if left <= 0:
                    break
                if time.monotonic() >= inspect_at:
                    await unheard.inspect()
                    inspect_at = time.monotonic() + INSPECT_SECONDS
                message = await pubsub.get_message(timeout=left)
                if message is None:
                    self._progress(self)
                    if not self._lost and pubsub.lost_since() is not None:
                        self._lost = True
                        self._notice(f"the connection to {self._broker.url} is lost; trying again")
                elif message["type"] == "pmessage":
                    channel, pattern = message["channel"], message["pattern"]
                    # Keep only the copies of the first pattern that matched this channel.
                    if self._pattern_of.setdefault(channel, pattern) != pattern:
                        continue
                    name, meta = channels.decode(channel), message.get("meta")
                    after(MessageRecord("received", clock.now(), name, message["data"], meta=meta))
                    self.messages += 1
                    if self.messages % 1000 == 0:
                        self._progress(self)
                elif message["type"] == "gap":
                    if pubsub.lost_since() is None:
                        self._lost = False
                        self._notice(f"connected to {self._broker.url} again; messages may be missing")
                    self._gap(message["reason"], clock.at(message["since"]), clock.at(message["until"]))
        finally:
            if (since := pubsub.lost_since()) is not None:
                self._gap("the tap ended while disconnected", clock.at(since), clock.now())
            elif (since := pubsub.unconfirmed_since()) is not None:
                self._gap("the tap ended before its server was confirmed again", clock.at(since), clock.now())
            await pubsub.aclose()
            await unheard.inspect()
            self._progress(self)

    async def _log_gap_since_last_tap(self) -> None:
        """Log a gap since the end of the previous tap on these patterns, if it ended uncleanly."""
        recorder = self._recorder
        rows = await recorder.log.recorders(recorder.experiment)
        taps = [row for row in rows if row.role == "tap" and row.ordinal != recorder.ordinal]
        before = [row for row in taps if set(row.patterns) & set(self._patterns)]
        if not before:
            return
        state, elsewhere = before[-1].state, before[-1].host != this_process().host
        if state in ("unclean", "repaired") or (state == "alive" and elsewhere):  # a restarted container
            reason = f"tap {before[-1].ordinal} ended uncleanly, and no tap listened until this one started"
            self._gap(reason, before[-1].complete_until, recorder.clock.now())

    def _gap(self, reason: str, since: int, until: int) -> None:
        meta = {"reason": reason, "since": since, "until": until, "count": None}
        self._recorder.after(MessageRecord("gap", self._recorder.clock.now(), meta=meta))
        self.gaps += 1
