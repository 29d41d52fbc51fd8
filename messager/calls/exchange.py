"""A call to a model and its answer, as the hooks of HTTP clients see them.

    hook of a client ──> begin(call) ──> Exchange ──> serve: the recorded answer, or None
                                              └─────> asked, the real call, answered

A hook calls `begin` once for each request of a program, before it is sent, whatever the client does below it: `inside`
is set meanwhile, so that a client that another one uses reports nothing. It asks `selects` first, so that the body of
another request, such as an upload, is not read.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

log = logging.getLogger("messager")

TRANSFER_HEADERS = frozenset({"content-encoding", "transfer-encoding", "content-length", "connection", "keep-alive"})
"""Headers that describe the transfer of an answer, whose body is kept decoded."""


@dataclass(slots=True, eq=False)
class Call:
    """A request, as the program gave it to its HTTP client."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    """With their secrets: only an allow-list of them may be stored."""
    body: bytes
    client: str
    """Name of the client: httpx, httpx2, urllib3 or aiohttp."""
    started: int = field(default_factory=time.monotonic_ns)
    """Monotonic ns."""


@dataclass(slots=True, eq=False)
class Answer:
    """A response, without its content encoding; or the error in its place."""

    status: int
    """0 if there was no response."""
    headers: list[tuple[str, str]]
    """Without `TRANSFER_HEADERS`. An encoding that is not known, or broken, keeps its `content-encoding`."""
    chunks: list[bytes] = field(default_factory=list)
    """The body, divided as it arrived."""
    times: list[int] = field(default_factory=list)
    """Time of each chunk, ns since the call."""
    error: tuple[str, str] | None = None
    """Class (without its module) and text of the error that ended it."""
    unread: bool = False
    """True if the program closed it before its end."""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks)


class Exchange(Protocol):
    """One call under way. No method raises, except `CallRefused` of the serving ones."""

    async def serve(self) -> Answer | None:
        """Return the recorded answer once it is its turn; None if the model is to be called."""

    def serve_now(self) -> Answer | None:
        """Synchronous form of `serve`, which waits in this thread."""

    def asked(self) -> None:
        """Note that the request is about to be sent."""

    def answered(self, answer: Answer) -> None:
        """Note the complete answer, or the error. Called once."""


class CallRefused(ConnectionError):
    """A call is not served. The text says what would make it possible."""


Begin = Callable[[Call], Exchange | None]
Selects = Callable[[str, str], bool]

begin: Begin = lambda call: None  # noqa: E731
"""Return the exchange of a call; None to let it pass unseen. Replaced by `messager.calls.install`."""
selects: Selects = lambda method, url: False  # noqa: E731
"""Return whether a request is a call to a model. Replaced by `messager.calls.install`."""


def is_call(method: str, url: str) -> bool:
    """Return whether a request is to be seen: it is a call to a model, and not part of another call."""
    try:
        return not is_inside() and selects(method, url)
    except Exception:
        log_failure()
        return False


def exchange_of(make: Callable[[], Call]) -> tuple[Call, Exchange] | None:
    """Return a call and its exchange; None if it is to pass unseen, also if `make` or `begin` fails."""
    try:
        call = make()
        exchange = begin(call)
    except Exception:
        log_failure()
        return None
    return None if exchange is None else (call, exchange)


_failed = False


def log_failure() -> None:
    """Log the exception under way, which is one of messager and not of the program: only the first one."""
    global _failed
    if not _failed:
        _failed = True
        log.exception("a call to a model is not recorded, because of an error in messager")


class _Scope:
    """A call under way. Tasks that were started in it outlive it, and are inside no more then."""

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = True


_scope: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("messager_call", default=None)


def is_inside() -> bool:
    """Return whether a call is under way in this context, so that sockets may connect."""
    scope = _scope.get()
    return scope is not None and scope.active


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Context in which a client makes the real request of an exchange."""
    scope = _Scope()
    token = _scope.set(scope)
    try:
        yield
    finally:
        scope.active = False
        _scope.reset(token)


def header_pairs(headers: Iterable[tuple[str | bytes, str | bytes]]) -> list[tuple[str, str]]:
    """Return headers as text."""
    return [(_text(name), _text(value)) for name, value in headers]


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
