"""Hook of urllib3, which requests and botocore use: one `urlopen` of a pool is a call, with retries that urllib3 makes.

A call is served by the real response class, which reads the recorded answer as if it came from a socket.
"""

from __future__ import annotations

import contextlib
import http.client
import io
from collections.abc import Callable, Iterator
from typing import Any

from .answers import AnswerRecorder, served_now, wire
from .exchange import Answer, Call, exchange_of, header_pairs, inside, is_call, log_failure

_PORTS = {"http": 80, "https": 443}


def install(library: Any) -> None:
    """Hook all pools of the module urllib3."""
    pools = library.connectionpool.HTTPConnectionPool
    before = pools.urlopen

    def urlopen(
        pool: Any, method: str, url: str, body: Any = None, headers: Any = None, *args: Any, **more: Any
    ) -> Any:
        full = _full_url(pool, url)
        if not is_call(method, full):
            return before(pool, method, url, body, headers, *args, **more)
        body = _whole(body)
        found = exchange_of(
            lambda: Call(method, full, header_pairs((headers or pool.headers or {}).items()), _bytes(body), "urllib3")
        )
        if found is None:
            return before(pool, method, url, body, headers, *args, **more)
        call, exchange = found
        if (answer := served_now(exchange)) is not None:
            return _serve(library, pool, method, url, answer, more)
        recorder = AnswerRecorder(call, exchange)
        try:
            with inside():
                response = before(pool, method, url, body, headers, *args, **more)
        except BaseException as error:
            recorder.end(error)
            raise
        try:
            _record(response, recorder, bool(more.get("preload_content", True)))
        except Exception:
            log_failure()
        return response

    pools.urlopen = urlopen


def _full_url(pool: Any, url: str) -> str:
    if "://" in url:  # by a proxy
        return url
    host = f"[{pool.host}]" if ":" in pool.host and not pool.host.startswith("[") else pool.host
    port = "" if pool.port in (None, _PORTS.get(pool.scheme)) else f":{pool.port}"
    return f"{pool.scheme}://{host}{port}{url}"


def _whole(body: Any) -> Any:
    """Return a body as it can be read more than once."""
    if body is None or isinstance(body, bytes | bytearray | memoryview | str):
        return body
    if hasattr(body, "read"):
        return body.read()
    return b"".join(map(_bytes, body))


def _bytes(body: Any) -> bytes:
    return b"" if body is None else body.encode() if isinstance(body, str) else bytes(body)


class _Recorded:
    """Part of a class of responses, which records what the program reads."""

    _messager_recorder: AnswerRecorder
    _messager_begun: bool
    _messager_reading: bool
    """True in a read, in which urllib3 closes the response at an error."""
    isclosed: Callable[[], bool]

    def read(self, amt: int | None = None, decode_content: bool | None = None, cache_content: bool = False) -> Any:
        decoded = _begin(self, decode_content)
        with _reading(self) as recorder:
            data = super().read(amt, decode_content, cache_content)  # type: ignore[misc]
        recorder.chunk(data or b"")
        if amt is None or amt < 0 or (not data and amt != 0) or (self.isclosed() and (not decoded or len(data) < amt)):
            recorder.end()
        return data

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> Any:
        _begin(self, decode_content)
        with _reading(self) as recorder:
            data = super().read1(amt, decode_content)  # type: ignore[misc]
        recorder.chunk(data or b"")
        if not data and amt != 0:
            recorder.end()
        return data

    def read_chunked(self, amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        _begin(self, bool(decode_content))  # None does not mean the response's own setting here
        parts = super().read_chunked(amt, decode_content)  # type: ignore[misc]
        while True:
            with _reading(self) as recorder:
                data = next(parts, None)
            if data is None:
                break
            recorder.chunk(data)
            try:
                yield data
            except GeneratorExit:  # urllib3 closes the response
                recorder.end(unread=True)
                raise
        recorder.end()

    def stream(self, amt: int | None = 2**16, decode_content: bool | None = None) -> Iterator[bytes]:
        yield from super().stream(amt, decode_content)  # type: ignore[misc]
        self._messager_recorder.end()

    def drain_conn(self) -> None:
        self._messager_recorder.end(unread=True)
        super().drain_conn()  # type: ignore[misc]

    def close(self) -> None:
        if not self._messager_reading:
            self._messager_recorder.end(unread=not self.isclosed())
        super().close()  # type: ignore[misc]


@contextlib.contextmanager
def _reading(response: _Recorded) -> Iterator[AnswerRecorder]:
    """Context of a read, whose error ends the answer."""
    response._messager_reading = True
    try:
        yield response._messager_recorder
    except BaseException as error:
        response._messager_recorder.end(error)
        raise
    finally:
        response._messager_reading = False


_classes: dict[type, type] = {}


def _record(response: Any, recorder: AnswerRecorder, preloaded: bool) -> None:
    response._messager_recorder = recorder
    response._messager_begun = response._messager_reading = False
    if preloaded:
        _begin(response, None)
        recorder.chunk(response.data)
        recorder.end()
        return
    own = type(response)
    if own not in _classes:
        _classes[own] = type(own.__name__, (_Recorded, own), {"__module__": own.__module__})
    response.__class__ = _classes[own]


def _begin(response: Any, decode_content: bool | None) -> bool:
    """Note the response before its first part; return whether urllib3 decodes it."""
    decodes = response.decode_content if decode_content is None else decode_content
    encodings = [name.strip() for name in response.headers.get("content-encoding", "").lower().split(",")]
    decoded = bool(decodes) and all(name in response.CONTENT_DECODERS for name in encodings)
    if not response._messager_begun:
        response._messager_begun = True
        response._messager_recorder.begin(response.status, header_pairs(response.headers.items()), decoded=decoded)
    return decoded


class _Socket(io.RawIOBase):
    """Socket from which a recorded answer is read, with the error that ended it."""

    def __init__(self, answer: Answer) -> None:
        self._parts = list(wire(answer))
        self._timeout = answer.error is not None and "Timeout" in answer.error[0]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._parts:
            if self._timeout:
                raise TimeoutError("timed out")
            return 0
        part = self._parts.pop(0)
        size = min(len(part), len(buffer))
        buffer[:size] = part[:size]
        if part[size:]:
            self._parts.insert(0, part[size:])
        return size


def _serve(library: Any, pool: Any, method: str, url: str, answer: Answer, more: dict[str, Any]) -> Any:
    if answer.error is not None and not answer.status:
        raise _error(library, pool, url, *answer.error)
    received = http.client.HTTPResponse(_Socket(answer), method=method)  # type: ignore[arg-type]
    received.begin()
    return library.HTTPResponse(
        body=received,
        headers=library.HTTPHeaderDict(received.msg.items()) if hasattr(library, "HTTPHeaderDict") else received.msg,
        status=received.status,
        version=received.version,
        reason=received.reason,
        preload_content=more.get("preload_content", True),
        decode_content=more.get("decode_content", True),
        original_response=received,
        pool=pool,
        request_method=method,
        request_url=url,
    )


def _error(library: Any, pool: Any, url: str, name: str, text: str) -> Exception:
    """Return an error of the recorded class, so that the program handles it as before."""
    errors = library.exceptions
    kind = getattr(errors, name, errors.ProtocolError)
    pool_text = text.removeprefix(f"{pool}: ")
    error: Exception
    if issubclass(kind, errors.MaxRetryError):
        reason = _error(library, pool, url, "ConnectTimeoutError" if "timed out" in text else "ProtocolError", text)
        error = kind(pool, url, reason)
    elif issubclass(kind, errors.RequestError):
        error = kind(pool, url, pool_text)
    elif issubclass(kind, errors.PoolError) or name == "NewConnectionError":
        error = kind(pool, pool_text)
    else:
        try:
            error = kind(text)
        except TypeError:
            error = errors.ProtocolError(text)
    return error
