"""Answers: recorded chunk by chunk while the program reads them, and served in place of a call."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator

from .decoding import Decode, decoder
from .exchange import TRANSFER_HEADERS, Answer, Call, CallRefused, Exchange, log_failure

_TERMINATOR = re.compile(
    rb"data: ?\[DONE\]"  # OpenAI's chats and completions, and all that speak like it
    rb"|event: ?(?:message_stop|response\.(?:completed|failed|incomplete))\r?\ndata:[^\n]*"  # Anthropic; OpenAI
)
"""Last event of a stream, without the blank line behind it."""
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_LONGEST_EVENT = 1 << 20
"""Bytes of an event that are kept until its end, to see whether it is the last one."""


class AnswerRecorder:
    """Records the answer to a call. No method raises: what fails in it is logged, and the program continues.

    An answer ends with its last byte, its error, or when it is closed; a stream of events ends with its last event,
    before the program gets it, because SDKs read no further.
    """

    def __init__(self, call: Call, exchange: Exchange) -> None:
        """Note that the request is about to be sent."""
        self._call = call
        self._exchange = exchange
        self._answer = Answer(0, [])
        self._encoding = ""
        self._decode: Decode | None = None
        self._raw: list[bytes] = []
        """The body as it came, if it is decoded here: kept should it turn out to be broken."""
        self._tail: bytes | None = None
        """Begin of an event whose end is to come; None if the answer is no stream of events."""
        self.ended = False
        call.started = time.monotonic_ns()
        try:
            exchange.asked()
        except Exception:
            log_failure()

    def begin(self, status: int, headers: list[tuple[str, str]], *, decoded: bool = False) -> None:
        """Note the response, whose body follows in chunks; `decoded` if the client removes its content encoding."""
        self._answer.status = status
        self._answer.headers = [pair for pair in headers if pair[0].lower() not in TRANSFER_HEADERS]
        if _header(headers, "content-type").startswith("text/event-stream"):
            self._tail = b""
        self._encoding = "" if decoded else _header(headers, "content-encoding")
        if self._encoding:
            self._decode = decoder(self._encoding)
            if self._decode is None:
                self._answer.headers.append(("content-encoding", self._encoding))

    def chunk(self, data: bytes) -> None:
        """Note a part of the body."""
        if self.ended or not data:
            return
        try:
            self._add(bytes(data), time.monotonic_ns() - self._call.started)
        except Exception:
            log_failure()

    def _add(self, data: bytes, at: int) -> None:
        answer = self._answer
        if self._decode is not None:
            self._raw.append(data)
            try:
                data = self._decode(data)
            except Exception:  # broken, or an error of the library
                self._decode = None
                answer.headers.append(("content-encoding", self._encoding))
                answer.chunks = [b"".join(self._raw)]
                answer.times = [at]
                return
        if data:
            answer.chunks.append(data)
            answer.times.append(at)
        if self._tail is not None and self._is_last(self._tail + data):
            self.end()

    def _is_last(self, text: bytes) -> bool:
        """Return whether a stream of events ends with the last event that it ends."""
        events = _BLANK_LINE.split(text)
        self._tail = events[-1] if len(events[-1]) < _LONGEST_EVENT else b""
        return not events[-1] and len(events) > 1 and _TERMINATOR.fullmatch(events[-2]) is not None

    def end(self, error: BaseException | None = None, *, unread: bool = False) -> None:
        """Note the end, unless it is noted already; `unread` if the program closed it before its end."""
        if self.ended:
            return
        self.ended = True
        self._answer.error = None if error is None else (type(error).__name__, str(error))
        self._answer.unread = unread
        try:
            self._exchange.answered(self._answer)
        except Exception:
            log_failure()


def _header(headers: list[tuple[str, str]], wanted: str) -> str:
    return ", ".join(value for name, value in headers if name.lower() == wanted).lower()


def served_now(exchange: Exchange) -> Answer | None:
    """Return the recorded answer of an exchange, or its refusal; None if the model is to be called."""
    try:
        return exchange.serve_now()
    except CallRefused as error:
        return refusal(error)


async def served(exchange: Exchange) -> Answer | None:
    """Return the recorded answer of an exchange, or its refusal; None if the model is to be called."""
    try:
        return await exchange.serve()
    except CallRefused as error:
        return refusal(error)


def refusal(error: CallRefused) -> Answer:
    """Return the answer to a call that is refused: an HTTP error that SDKs do not retry, as they retry exceptions."""
    text = {"error": {"message": str(error), "type": "messager_call_refused", "code": "call_refused"}}
    headers = [("content-type", "application/json"), ("x-should-retry", "false")]
    return Answer(400, headers, [json.dumps(text).encode()], [0])


def wire(answer: Answer) -> Iterator[bytes]:
    """Yield a recorded answer as an HTTP/1.1 response: its head, and each of its chunks. It is cut off at its error."""
    yield head(answer)
    for chunk in answer.chunks:
        if chunk:
            yield b"%x\r\n%s\r\n" % (len(chunk), chunk)
    if answer.error is None:
        yield b"0\r\n\r\n"


def head(answer: Answer) -> bytes:
    """Return the first lines of a recorded answer, as an HTTP/1.1 response in chunks."""
    phrase = http.client.responses.get(answer.status, "Recorded")
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{name}: {value}" for name, value in answer.headers)]
    if answer.status not in (204, 304):
        lines.append("transfer-encoding: chunked")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
