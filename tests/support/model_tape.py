"""Calls that a test records in memory, and serves by their exact request, first in first out."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from messager.calls import Answer, Call, CallRefused

Key = tuple[str, str, bytes]


@dataclass
class Tape:
    """Recorded calls. While it serves, a call that is not among them is refused."""

    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    """What happened, in order: `asked` and `answered`, and whatever a test adds."""
    serving: bool = False
    _kept: dict[Key, deque[Answer]] = field(default_factory=lambda: defaultdict(deque))

    def begin(self, call: Call) -> Exchange:
        return Exchange(self, call)

    def rewind(self) -> None:
        """Serve, from the first call on, what was recorded."""
        self.serving = True
        for call, answer in zip(self.calls, self.answers, strict=True):
            self._kept[_key(call)].append(answer)

    def take(self, call: Call) -> Answer:
        if not (kept := self._kept[_key(call)]):
            raise CallRefused(f"{call.method} {call.url} is not in the recording")
        return kept.popleft()


class Exchange:
    def __init__(self, tape: Tape, call: Call) -> None:
        self._tape = tape
        self._call = call

    async def serve(self) -> Answer | None:
        return self.serve_now()

    def serve_now(self) -> Answer | None:
        return self._tape.take(self._call) if self._tape.serving else None

    def asked(self) -> None:
        self._tape.events.append("asked")
        self._tape.calls.append(self._call)

    def answered(self, answer: Answer) -> None:
        self._tape.events.append("answered")
        self._tape.answers.append(answer)


def _key(call: Call) -> Key:
    return call.method, call.url, call.body
