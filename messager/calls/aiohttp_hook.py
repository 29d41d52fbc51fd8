"""Hook of aiohttp: each request, redirects too, gets its connection from `BaseConnector.connect`.

record   the body is noted where it is fed to the response's reader
serve    the connection is one in memory, to which the recorded answer is fed chunk by chunk
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from .answers import AnswerRecorder, served, wire
from .exchange import Answer, Call, exchange_of, header_pairs, inside, is_call, log_failure

_CLOSED = "Connection closed"
"""Text of the error by which aiohttp closes a response that is not read to its end."""


def install(library: Any) -> None:
    """Hook all connectors of the module aiohttp."""
    readers = _Readers(library)
    before = library.BaseConnector.connect

    async def connect(connector: Any, request: Any, *args: Any, **more: Any) -> Any:
        url = str(request.url)
        if not is_call(request.method, url):
            return await before(connector, request, *args, **more)
        body = await _body(request)
        if body is None:
            return await before(connector, request, *args, **more)
        found = exchange_of(lambda: Call(request.method, url, header_pairs(request.headers.items()), body, "aiohttp"))
        if found is None:
            return await before(connector, request, *args, **more)
        call, exchange = found
        if (answer := await served(exchange)) is not None:
            return await _serve(library, connector, request, answer)
        recorder = AnswerRecorder(call, exchange)
        try:
            with inside():
                connection = await before(connector, request, *args, **more)
        except BaseException as error:
            recorder.end(error)
            raise
        _watch(request, lambda response: readers.record(response, request, recorder), recorder.end)
        return connection

    library.BaseConnector.connect = connect


async def _body(request: Any) -> bytes | None:
    """Return the body of a request, which can be sent still; None if aiohttp is too old to tell it."""
    body = request.body
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    if hasattr(body, "as_bytes"):
        return bytes(await body.as_bytes())
    value = getattr(body, "_value", None)
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _watch(request: Any, started: Callable[[Any], None], failed: Callable[[BaseException], None]) -> None:
    """Call `started` with the response once its head has come, or `failed` if none comes."""
    send = request.send

    async def send_and_watch(connection: Any) -> Any:
        del request.send  # the class has it
        try:
            response = await send(connection)
        except BaseException as error:
            failed(error)
            raise
        start = response.start

        async def start_and_tell(connection: Any) -> Any:
            del response.start
            try:
                await start(connection)
            except BaseException as error:
                failed(error)
                raise
            try:
                started(response)
            except Exception:
                log_failure()
            return response

        response.start = start_and_tell
        return response

    request.send = send_and_watch


class _Readers:
    """Readers of bodies that are recorded: a class of them, as aiohttp's readers have slots."""

    def __init__(self, library: Any) -> None:
        recorders: dict[int, AnswerRecorder] = {}
        self._recorders = recorders

        class Recorded(library.StreamReader):  # type: ignore[misc]
            __slots__ = ()

            def feed_data(self, data: Any, *rest: Any) -> Any:
                if (recorder := recorders.get(id(self))) is not None:
                    recorder.chunk(data)
                return super().feed_data(data, *rest)

            def feed_eof(self) -> None:
                if (recorder := recorders.pop(id(self), None)) is not None:
                    recorder.end()
                super().feed_eof()

            def set_exception(self, exc: Any, *rest: Any) -> None:
                if (recorder := recorders.pop(id(self), None)) is not None:
                    error = exc if isinstance(exc, BaseException) else exc()
                    if str(error) == _CLOSED:
                        recorder.end(unread=True)
                    else:
                        recorder.end(error)
                super().set_exception(exc, *rest)

            def __del__(self) -> None:
                if (recorder := recorders.pop(id(self), None)) is not None:
                    recorder.end(unread=True)

        self._class = Recorded

    def record(self, response: Any, request: Any, recorder: AnswerRecorder) -> None:
        """Note the head of a response, what has come of its body, and what will."""
        session = getattr(request, "session", None) or getattr(response, "_session", None)
        decoded = bool(getattr(session, "auto_decompress", True))
        recorder.begin(response.status, header_pairs(response.raw_headers), decoded=decoded)
        content = response.content
        for data in getattr(content, "_buffer", ()):
            recorder.chunk(data)
        if content.is_eof():
            recorder.end()
        elif content.exception() is not None:
            recorder.end(content.exception())
        else:
            self._recorders[id(content)] = recorder
            content.__class__ = self._class


async def _serve(library: Any, connector: Any, request: Any, answer: Answer) -> Any:
    """Return a connection in memory from which a recorded answer is read. Raises the error in its place."""
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

    if answer.error is not None and not answer.status:
        if answer.error[0] == "CancelledError":  # by a time limit of the program
            await asyncio.get_running_loop().create_future()
        raise _error(library, request, *answer.error)
    loop = asyncio.get_running_loop()
    protocol = ResponseHandler(loop)
    protocol.connection_made(_Transport())
    protocol.force_close()
    feed = _Feed(loop, protocol, answer)
    if answer.error is not None:
        feed.error = _error(library, request, *answer.error)
    _watch(request, feed.begin, lambda error: None)
    protocol.data_received(next(feed.parts))
    return Connection(connector, request.connection_key, protocol, loop)


class _Feed:
    """Gives a recorded answer to a response, each chunk in a step of the event loop, so that it arrives by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any, answer: Answer) -> None:
        self._loop = loop
        self._protocol = protocol
        self._answer = answer
        self.parts = wire(answer)
        self.error: Exception | None = None

    def begin(self, response: Any) -> None:
        self._content = response.content
        self._loop.call_soon(self._step)

    def _step(self) -> None:
        if self._protocol.transport is None:  # closed by the program
            return
        part = next(self.parts, None)
        if part is not None:
            self._protocol.data_received(part)
            self._loop.call_soon(self._step)
        elif self.error is not None and self._answer.error != ("CancelledError", ""):
            self._content.set_exception(self.error)


def _error(library: Any, request: Any, name: str, text: str) -> Exception:
    """Return an error of the recorded class, so that the program handles it as before."""
    if name == "TimeoutError":
        return TimeoutError(text)
    kind = getattr(library, name, library.ClientConnectionError)
    error: Exception
    if issubclass(kind, library.ClientConnectorError):
        inner = re.search(r"\[(.*)\]$", text)
        error = kind(request.connection_key, OSError(0, text if inner is None else inner[1]))
    else:
        try:
            error = kind(text)
        except TypeError:
            error = library.ClientConnectionError(text)
    return error


class _Transport(asyncio.Transport):
    """Transport without a socket: what is written to it is dropped."""

    def __init__(self) -> None:
        super().__init__({"peername": ("recording", 0)})
        self._closing = False

    def write(self, data: Any) -> None: ...
    def writelines(self, list_of_data: Any) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
