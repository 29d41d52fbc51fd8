"""Tap: records an unmodified system from outside, by subscribing to its channels."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from messager import channels
from messager.brokers import Broker, PubSub, StreamReader
from messager.record import MessageRecord

from ..experiments.provenance import this_process
from .recorder import Recorder
from .unheard import INSPECT_SECONDS, Unheard

POLL_SECONDS = 0.1
BUFFERED = 10_000
"""Maximum events in memory; above it the tap stops reading until they are committed."""

FINISH_SECONDS = 2.0
"""Time for the entries of streams that were added before the end, s."""
RACE = (
    "A queue that its reader deletes from is a race that a tap may lose: record it in its program, with the adapter "
    "of its framework (docs/transports.md)"
)


class Tap:
    """Records the messages on channels that match `patterns`, and the entries of streams that match `streams`.

    Redis delivers a message once for each pattern that matches it; the tap keeps one copy. Streams are read from their
    end, or with `from_start` from their first entry. `active` is called once the subscription is confirmed and the
    streams are found, `progress` after messages, and `notice` with a line when the connection is lost or restored, and
    when the server carries messages that the tap does not receive.
    """

    def __init__(
        self,
        broker: Broker,
        recorder: Recorder,
        patterns: Iterable[str] = ("*",),
        *,
        streams: Iterable[str] = (),
        from_start: bool = False,
        active: Callable[[], None] | None = None,
        progress: Callable[[Tap], None] | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._broker = broker
        self._recorder = recorder
        self._patterns = list(patterns)
        self._streams = list(streams)
        self._from_start = from_start
        self._active = active or (lambda: None)
        self._progress = progress or (lambda tap: None)
        self._notice = notice or (lambda text: None)
        self._lost = False
        self._pattern_of: dict[bytes, bytes] = {}
        self._raced: set[bytes] = set()  # streams of which entries were removed before they were read
        self._most: int | None = None
        self._deadline: float | None = None
        self.messages = 0
        """Number of messages recorded."""
        self.gaps = 0
        """Number of gaps, in which messages may be missing."""

    async def run(self, *, duration: float | None = None, max_events: int | None = None) -> None:
        """Record until cancelled, for `duration` seconds, or `max_events` messages. Raises `BrokerUnavailable`."""
        clock = self._recorder.clock
        await self._broker.connect()
        self._recorder.connected(self._broker.url, clock, await self._broker.clock_offset())
        unheard = Unheard(self._broker, self._recorder, self._notice, heard=("XADD",) if self._streams else ())
        pubsub = self._broker.pubsub_as_published() if self._patterns else None
        reader = self._broker.stream_reader(self._streams, from_start=self._from_start) if self._streams else None
        try:
            if pubsub is not None:
                await pubsub.psubscribe(*self._patterns)
            if reader is not None:
                await reader.start()
                self._recorder.limit_watermark(Completeness(self._recorder, reader))
                self._recorder.note(streams=self._streams)
            await self._log_gap_since_last_tap()
            self._active()
            self._most = max_events
            self._deadline = None if duration is None else time.monotonic() + duration
            await unheard.inspect()
            tasks = [asyncio.create_task(self._record(source)) for source in (pubsub, reader) if source is not None]
            inspecting = asyncio.create_task(self._inspect(unheard))
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in (*tasks, inspecting):
                    task.cancel()
                await asyncio.gather(*tasks, inspecting, return_exceptions=True)
        finally:
            if pubsub is not None:
                self._log_gap_at_the_end(pubsub)
                await pubsub.aclose()
            if reader is not None:
                for message in await reader.finish(FINISH_SECONDS):
                    if message["type"] == "gap" or not self._full:
                        self._take(message)
                await reader.aclose()
            await unheard.inspect()
            self._progress(self)

    @property
    def _full(self) -> bool:
        """True once the tap has recorded as many messages as it is to record."""
        return self._most is not None and self.messages >= self._most

    async def _inspect(self, unheard: Unheard) -> None:
        while True:
            await asyncio.sleep(INSPECT_SECONDS)
            await unheard.inspect()

    async def _record(self, source: PubSub | StreamReader) -> None:
        """Record what one source returns, until the tap is to end."""
        while not self._full:
            await self._recorder.wait_for_capacity(BUFFERED)  # the broker keeps messages meanwhile
            if self._recorder.failure is not None:
                raise self._recorder.failure
            left = POLL_SECONDS if self._deadline is None else min(POLL_SECONDS, self._deadline - time.monotonic())
            if left <= 0:
                break
            message = await source.get_message(timeout=left)
            if message is None:
                self._progress(self)
                if not self._lost and source.lost_since() is not None:
                    self._lost = True
                    self._notice(f"the connection to {self._broker.url} is lost; trying again")
            else:
                self._take(message)
            if self._lost and source.lost_since() is None:
                self._lost = False
                missing = "; messages may be missing" if message is not None and message["type"] == "gap" else ""
                self._notice(f"connected to {self._broker.url} again{missing}")

    def _take(self, message: dict[str, Any]) -> None:
        """Record a message, an entry of a stream, or a gap."""
        clock = self._recorder.clock
        if message["type"] == "gap":
            count, stream = message.get("count"), message.get("channel")
            self._gap(message["reason"], clock.at(message["since"]), clock.at(message["until"]), count)
            if stream is not None and stream not in self._raced:
                self._raced.add(stream)
                self._notice(f"{message['reason']}. {RACE}")
            return
        channel = message["channel"]
        if message["type"] == "pmessage":
            pattern = message["pattern"]
            # Keep only the copies of the first pattern that matched this channel.
            if self._pattern_of.setdefault(channel, pattern) != pattern:
                return
        elif message["type"] != "entry":
            return
        record = MessageRecord(
            "received", clock.now(), channels.decode(channel), message["data"], meta=message.get("meta")
        )
        if message["type"] == "entry":
            record.carrier = "stream"
        self._recorder.after(record)
        self.messages += 1
        if self.messages % 1000 == 0:
            self._progress(self)

    def _log_gap_at_the_end(self, pubsub: PubSub) -> None:
        clock = self._recorder.clock
        if (since := pubsub.lost_since()) is not None:
            self._gap("the tap ended while disconnected", clock.at(since), clock.now())
        elif (since := pubsub.unconfirmed_since()) is not None:
            self._gap("the tap ended before its server was confirmed again", clock.at(since), clock.now())

    async def _log_gap_since_last_tap(self) -> None:
        """Log a gap since the end of the previous tap on these patterns, if it ended uncleanly."""
        recorder = self._recorder
        rows = await recorder.log.recorders(recorder.experiment)
        taps = [row for row in rows if row.role == "tap" and row.ordinal != recorder.ordinal]
        before = [row for row in taps if set(row.patterns) & {*self._patterns, *self._streams}]
        if not before:
            return
        state, elsewhere = before[-1].state, before[-1].host != this_process().host
        if state in ("unclean", "repaired") or (state == "alive" and elsewhere):  # a restarted container
            reason = f"tap {before[-1].ordinal} ended uncleanly, and no tap listened until this one started"
            self._gap(reason, before[-1].complete_until, recorder.clock.now())

    def _gap(self, reason: str, since: int, until: int, count: int | None = None) -> None:
        meta = {"reason": reason, "since": since, "until": until, "count": count}
        self._recorder.after(MessageRecord("gap", self._recorder.clock.now(), meta=meta))
        self.gaps += 1


class Completeness:
    """Time (ns UTC) before which every entry of a stream is in the store, or in a gap there.

    A reader knows when an entry was added only by a look at the counters of its server, so an entry that is still in
    memory may be older than its time of arrival.
    """

    def __init__(self, recorder: Recorder, reader: StreamReader) -> None:
        self._recorder, self._reader = recorder, reader
        self._steps: deque[tuple[int, int]] = deque()  # events that were accepted when entries were complete until then
        self._until = self._now()

    def __call__(self) -> int:
        """Return the time; called by the recorder."""
        step = self._recorder.accepted, self._now()
        if not self._steps or self._steps[-1] != step:
            self._steps.append(step)
        while self._steps and self._steps[0][0] <= self._recorder.acknowledged:
            self._until = self._steps.popleft()[1]
        return self._until

    def _now(self) -> int:
        return self._recorder.clock.at(self._reader.complete_until())
