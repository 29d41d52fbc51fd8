"""Calls to models in a lockstep replay: which recorded call a live one repeats, and what it is answered.

A call is two acts of the schedule: the question, which bounds what was fetched before it, and the answer, which comes
when every earlier act of its endpoint is settled. A live question is that of a recorded one of the same agent

1. whose request is the same: method, path, and body as JSON; the first that was not made yet;
2. else, whose request is the same with times, UUIDs and hexadecimal ids masked;
3. else, it is refused. Never is the nearest one answered, or the next.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from messager.calls.exchange import CallRefused
from messager.record import MessageRecord

from ..log.event import Event
from ..text import safe
from .report import PartReport
from .schedule import Act, ActKind, Key, key

RETRIED = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses of answers that clients try again; 0 is an error without an answer."""
COMPARED = 8
"""Calls that are left among which the closest to a refused one is looked for."""
SHOWN = 60
"""Characters of either text around the first difference."""
_VOLATILE = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"  # a date with a time
    rb"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # a UUID
    rb"|(?<![0-9a-zA-Z])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{16,}(?![0-9a-zA-Z])"  # a hexadecimal id
    rb"|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"  # a time of the day
    rb"|\b1[5-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b"  # seconds since 1970, ms, us, ns
    rb"|\b(?:call|toolu|chatcmpl|msg)_[A-Za-z0-9]{8,}\b"  # an id that a model has given
)

Request = tuple[str, str, bytes]
"""Method, place and body. A place is a host, unless that is of the loopback interface, a path, and a query."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def request_of(body: bytes, meta: dict[str, Any]) -> Request:
    """Return a request in the form in which it is compared."""
    place = urlsplit(str(meta.get("url", "")))
    try:
        body = json.dumps(json.loads(body), sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        pass  # not JSON: as it is
    host = "" if place.hostname in _LOOPBACK else place.netloc.rpartition("@")[2]
    return str(meta.get("method", "")), host + place.path + (f"?{place.query}" if place.query else ""), body


def masked(request: Request) -> Request:
    """Return a request without times and ids."""
    method, path, body = request
    return method, path, _VOLATILE.sub(b"*", body)


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A call of the recording, in the part of its endpoint."""

    agent: Any
    request: Request
    question: Act
    answer: Act | None
    """None if the recording ends before it."""
    made: bool = False
    """True once a live agent has made it again."""


def call_acts(events: Iterable[Event]) -> Iterator[Act]:
    """Yield the acts of the calls of one endpoint, given in replay order.

    What failed and was next tried again by the same agent, with the same request, is left out: the client that tries
    again would wait for it in vain.
    """
    listed = [entry for entry in events if entry.kind in ("asked", "answered")]
    answers = {entry.cause: entry for entry in listed if entry.kind == "answered"}
    following: dict[Any, tuple[Request, Event]] = {}  # by agent, its next question; from the last on
    left_out: set[Key] = set()
    for entry in reversed(listed):
        if entry.kind == "asked":
            request, agent = request_of(entry.payload, entry.meta or {}), repr(entry.from_id)
            answer = answers.get(key(entry))
            again = following.get(agent)
            if again is not None and again[0] == request and answer is not None and _failed(answer):
                after = answer.cursor < again[1].cursor
                left_out |= {key(entry), key(answer)} if after else set()
            following[agent] = request, entry
    for entry in listed:
        if key(entry) not in left_out:
            kind = ActKind.ASK if entry.kind == "asked" else ActKind.ANSWER
            yield Act(kind, entry, b"", entry.from_id if kind is ActKind.ASK else entry.to_id, entry.arrival or 0)


def _failed(answer: Event) -> bool:
    return int((answer.meta or {}).get("status", 0)) in RETRIED


def answered_by(act: Act) -> MessageRecord:
    """Return the answer of an act as a record."""
    return MessageRecord("answered", act.event.ts, None, act.event.payload, meta=act.event.meta)


class Calls:
    """Calls of one part that the live agents have not made yet."""

    def __init__(self, acts: Iterable[Act], report: PartReport, exp_id: str) -> None:
        listed = list(acts)
        answers = {act.event.cause: act for act in listed if act.kind is ActKind.ANSWER}
        asked = [act for act in listed if act.kind is ActKind.ASK]
        self._listed = [
            RecordedCall(
                act.sender, request_of(act.event.payload, act.event.meta or {}), act, answers.get(key(act.event))
            )
            for act in asked
        ]
        self._exp_id = exp_id
        self._report = report
        self._by_request: dict[Request, deque[RecordedCall]] = defaultdict(deque)
        self._by_masked: dict[Request, deque[RecordedCall]] = defaultdict(deque)
        for call in self._listed:
            if _is_without_body(call):
                continue  # it is the same as any other
            self._by_request[call.request].append(call)
            self._by_masked[masked(call.request)].append(call)
        report.calls = len(self._listed)

    def claim(self, question: MessageRecord) -> RecordedCall:
        """Return the recorded call that a live one repeats. Raises `CallRefused` if there is none."""
        request = request_of(question.payload, question.meta or {})
        found = self._first(self._by_request.get(request), question.from_id)
        if found is None:
            found = self._first(self._by_masked.get(masked(request)), question.from_id)
            if found is None:
                self._report.calls_refused += 1
                raise CallRefused(self._refusal(question, request))
            self._report.calls_masked += 1
        self._report.calls_repeated += 1
        found.made = True
        return found

    def put_back(self, call: RecordedCall) -> None:
        """Expect a call again, which could not be answered."""
        self._report.calls_repeated -= 1
        call.made = False

    def _first(self, calls: Iterable[RecordedCall] | None, agent: Any) -> RecordedCall | None:
        """Return the first call of an agent that was not made yet; of any, if one side does not know the agent."""
        return next((one for one in calls or () if not one.made and _is_agent(one.agent, agent)), None)

    def _refusal(self, question: MessageRecord, request: Request) -> str:
        who = f"agent {safe(str(question.from_id))}" if question.from_id is not None else "the program"
        head = f"{who} asks {request[1]} what it did not ask in {self._exp_id}"
        left = (one for one in self._listed if not one.made and _is_agent(one.agent, question.from_id))
        own = list(islice(left, COMPARED))
        if not own:
            return f"{head}: all of its calls there are made"
        if any(_is_without_body(one) for one in own):
            return f"{head}, where bodies were not kept (--bodies none, or too large): such calls cannot be answered"
        live = _text(request)
        closest = max(
            own, key=lambda one: SequenceMatcher(None, _text(one.request), live, autojunk=False).quick_ratio()
        )
        then = _text(closest.request)
        at = next((at for at, (a, b) in enumerate(zip(then, live, strict=False)) if a != b), min(len(then), len(live)))
        place, was, now = closest.question.event.cursor, _around(then, at), _around(live, at)
        return f"{head}. The closest is {place}, which differs at character {at}: {was} then, {now} now"


def _is_without_body(call: RecordedCall) -> bool:
    acts = (call.question, call.answer)
    return any(act is not None and "body" in (act.event.meta or {}) for act in acts)


def _is_agent(recorded: Any, live: Any) -> bool:
    return recorded is None or live is None or (type(recorded) is type(live) and bool(recorded == live))


def _text(request: Request) -> str:
    return request[2].decode("utf-8", "backslashreplace")


def _around(text: str, at: int) -> str:
    return safe(repr(text[max(0, at - SHOWN // 3) : at + SHOWN]))
