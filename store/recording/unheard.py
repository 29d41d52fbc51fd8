"""Counts of messages that a tap cannot receive, as they do not use PUBLISH: streams and sharded channels of Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from messager.brokers import Broker
from messager.errors import BrokerUnavailable
from messager.time_limit import time_limit

from ..text import plural
from .recorder import Recorder

KEY = "unheard"
"""Key of the counts in a recorder's meta: `{command: {"before": calls, "during": calls}}`."""
INSPECT_SECONDS = 10.0
"""Seconds between two queries of the counters of the server."""
ASK_SECONDS = 1.0
"""Timeout of a query, so that an unresponsive server does not delay the end of a recording."""
CARRIERS = {"XADD": "streams", "SPUBLISH": "sharded channels"}


class Unheard:
    """Comparison of the counters of a broker before and during a recording, stored in the row of the recorder.

    `notice` is called with a line at the start, and at the first use of a command during the recording.
    """

    def __init__(
        self, broker: Broker, recorder: Recorder, notice: Callable[[str], None], heard: Collection[str] = ()
    ) -> None:
        """`heard` are commands whose messages are recorded in another way."""
        self._heard = heard
        self._broker = broker
        self._recorder = recorder
        self._notice = notice
        self._before: dict[str, int] | None = None
        self._last: dict[str, int] = {}
        self._during: Counter[str] = Counter()

    async def inspect(self) -> None:
        """Read the counters. The first call reads those before the recording, later calls those during it."""
        try:
            async with time_limit(ASK_SECONDS):
                counts = await self._broker.unheard()
        except (BrokerUnavailable, TimeoutError):
            return
        if counts is None:
            return
        counts = {command: calls for command, calls in counts.items() if command not in self._heard}
        if self._before is None:
            self._before = counts
            if counts:
                sent = " and ".join(f"{_carrier(command)}, {calls:,} so far" for command, calls in counts.items())
                self._notice(f"the server also carries messages that are not recorded: {sent}")
                self._keep()
        else:
            self._compare(counts)
        self._last = counts

    def _compare(self, counts: dict[str, int]) -> None:
        new = Counter(
            {
                command: calls - last if calls >= (last := self._last.get(command, 0)) else calls  # the server reset it
                for command, calls in counts.items()
            }
        )
        new = +new
        for command in new.keys() - self._during.keys():
            self._notice(f"messages are sent through {_carrier(command)} now, and are not recorded")
        self._during += new
        if new:
            self._keep()

    def _keep(self) -> None:
        before = self._before or {}
        counts = {
            command: {"before": before.get(command, 0), "during": self._during[command]}
            for command in sorted({*before, *self._during})
        }
        self._recorder.note(**{KEY: counts})


def unheard_by(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each command in the meta of a recorder whose messages were not received."""
    found = meta.get(KEY)
    for command, counts in found.items() if isinstance(found, dict) else ():
        if isinstance(counts, dict):
            before, during = (plural(int(counts.get(when) or 0), "call") for when in ("before", "during"))
            yield f"{_carrier(command)}: {during} while it recorded, {before} before"


def _carrier(command: str) -> str:
    return f"{CARRIERS.get(command, 'other means')} ({command})"
