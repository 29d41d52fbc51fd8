"""Hook of httpx and httpx2: a client asks `_transport_for_url` for each request, redirects too, whatever its transport.

So clients are seen that were made before, have a transport of their own, or are given to an SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from .answers import AnswerRecorder, served, served_now
from .exchange import Answer, Call, Exchange, exchange_of, header_pairs, inside, is_call, log_failure


def install(library: Any) -> None:
    """Hook all clients of a library: the module httpx or httpx2."""
    streams = _Streams(library)
    sync_transport = library.Client._transport_for_url
    async_transport = library.AsyncClient._transport_for_url

    def transport_for_url(client: Any, url: Any) -> _Transport:
        return _Transport(sync_transport(client, url), streams)

    def async_transport_for_url(client: Any, url: Any) -> _AsyncTransport:
        return _AsyncTransport(async_transport(client, url), streams)

    library.Client._transport_for_url = transport_for_url
    library.AsyncClient._transport_for_url = async_transport_for_url


class _Recorded:
    """Body that is recorded while the program reads it."""

    def __init__(self, stream: Any, recorder: AnswerRecorder) -> None:
        self._stream = stream
        self._recorder = recorder

    def __iter__(self) -> Iterator[bytes]:
        recorder = self._recorder
        try:
            for data in self._stream:
                recorder.chunk(data)
                yield data
        except GeneratorExit:
            recorder.end(unread=True)
            raise
        except BaseException as error:
            recorder.end(error)
            raise
        recorder.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        recorder = self._recorder
        try:
            async for data in self._stream:
                recorder.chunk(data)
                yield data
        except GeneratorExit:
            recorder.end(unread=True)
            raise
        except BaseException as error:
            recorder.end(error)
            raise
        recorder.end()

    def close(self) -> None:
        self._recorder.end(unread=True)
        self._stream.close()

    async def aclose(self) -> None:
        self._recorder.end(unread=True)
        await self._stream.aclose()


class _Served:
    """Body of a recorded answer, and the error that ended it."""

    def __init__(self, answer: Answer, error: Exception | None) -> None:
        self._answer = answer
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.chunks
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for data in self._answer.chunks:
            yield data
        await _wait_if_cancelled(self._answer)
        if self._error is not None:
            raise self._error


class _Streams:
    """Classes of bodies and of errors of one library."""

    def __init__(self, library: Any) -> None:
        self.client_module = library
        bases = (library.SyncByteStream, library.AsyncByteStream)
        self._recorded: Any = type("Recorded", (_Recorded, *bases), {})
        self._served: Any = type("Served", (_Served, *bases), {})

    def exchange(self, request: Any) -> tuple[Call, Exchange] | None:
        """Return the exchange of a request whose body was read."""
        name = self.client_module.__name__
        return exchange_of(
            lambda: Call(request.method, str(request.url), header_pairs(request.headers.raw), request.content, name)
        )

    def record(self, response: Any, recorder: AnswerRecorder) -> Any:
        """Return the response, whose body is recorded while it is read."""
        try:
            self._record(response, recorder)
        except Exception:
            log_failure()
        return response

    def _record(self, response: Any, recorder: AnswerRecorder) -> None:
        headers = header_pairs(response.headers.raw)
        if response.is_stream_consumed or response.is_closed:  # a transport made it of a whole body
            recorder.begin(response.status_code, headers, decoded=True)
            recorder.chunk(response.content)
            recorder.end()
        else:
            recorder.begin(response.status_code, headers)
            response.stream = self._recorded(response.stream, recorder)

    def serve(self, answer: Answer, request: Any) -> Any:
        """Return the response of a recorded answer. Raises the recorded error if there was none."""
        error = None if answer.error is None else self._error(*answer.error, request)
        if error is not None and not answer.status:
            raise error
        stream = self._served(answer, error)
        return self.client_module.Response(answer.status, headers=answer.headers, stream=stream, request=request)

    def _error(self, name: str, text: str, request: Any) -> Exception:
        kind = getattr(self.client_module, name, None)
        if not (isinstance(kind, type) and issubclass(kind, self.client_module.RequestError)):
            kind = self.client_module.ReadError
        error: Exception = kind(text, request=request)
        return error


class _Transport:
    def __init__(self, inner: Any, streams: _Streams) -> None:
        self._inner = inner
        self._streams = streams

    def handle_request(self, request: Any) -> Any:
        if not is_call(request.method, str(request.url)):
            return self._inner.handle_request(request)
        request.read()
        if (found := self._streams.exchange(request)) is None:
            return self._inner.handle_request(request)
        call, exchange = found
        if (answer := served_now(exchange)) is not None:
            return self._streams.serve(answer, request)
        recorder = AnswerRecorder(call, exchange)
        try:
            with inside():
                response = self._inner.handle_request(request)
        except BaseException as error:
            recorder.end(error)
            raise
        return self._streams.record(response, recorder)


class _AsyncTransport:
    def __init__(self, inner: Any, streams: _Streams) -> None:
        self._inner = inner
        self._streams = streams

    async def handle_async_request(self, request: Any) -> Any:
        if not is_call(request.method, str(request.url)):
            return await self._inner.handle_async_request(request)
        await request.aread()
        if (found := self._streams.exchange(request)) is None:
            return await self._inner.handle_async_request(request)
        call, exchange = found
        if (answer := await served(exchange)) is not None:
            if not answer.status:
                await _wait_if_cancelled(answer)
            return self._streams.serve(answer, request)
        recorder = AnswerRecorder(call, exchange)
        try:
            with inside():
                response = await self._inner.handle_async_request(request)
        except BaseException as error:
            recorder.end(error)
            raise
        return self._streams.record(response, recorder)


async def _wait_if_cancelled(answer: Answer) -> None:
    """Wait to be cancelled, if the program cancelled the recorded call, for example at a time limit of its own."""
    if answer.error is not None and answer.error[0] == "CancelledError":
        await asyncio.get_running_loop().create_future()
