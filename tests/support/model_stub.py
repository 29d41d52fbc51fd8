"""Server that answers like the APIs of models, over real sockets.

Each answer differs from the one before. The model asked for says what goes wrong:

    busy    429 with retry-after-ms, every other time       cut     a stream that ends in its middle
    slow    a stream that pauses until it is stopped        others  nothing
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

TIME = 1_750_000_000


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class ModelStub:
    """A stub that runs in a thread until the end of its context, or until `stop`."""

    def __init__(self, port: int = 0) -> None:
        self.answered = 0
        """Number of requests that it got."""
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the server and its connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._stop.is_set():  # it was accepted while the server closes
                writer.transport.abort()
                return
            task = asyncio.create_task(self._connection(reader, writer))
            tasks[task] = writer
            task.add_done_callback(end)

        def end(task: asyncio.Task[None]) -> None:
            tasks.pop(task).transport.abort()
            if not task.cancelled() and not isinstance(error := task.exception(), EOFError | ConnectionError):
                assert error is None, error

        server = await asyncio.start_server(accept, "127.0.0.1", self._port, limit=1 << 24)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        await asyncio.sleep(0.02)  # asyncio leaks a connection that it is accepting when the server closes
        server.close()
        for task in list(tasks):
            task.cancel()
        while tasks:
            await asyncio.sleep(0)
        for _ in range(5):  # a connection that was just accepted has some steps left, and then its socket is closed
            await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await _read(reader)
            self.answered += 1
            await self._answer(request, _Reply(writer, request, self.answered))

    async def _answer(self, request: _Request, reply: _Reply) -> None:
        model = request.fields.get("model")
        if request.path.startswith("/redirect"):
            await reply.send(307, b"", {"location": request.path.removeprefix("/redirect")})
        elif model == "busy" and self.answered % 2:
            await reply.send(429, b'{"error": {"message": "slow down"}}', {"retry-after-ms": "1"})
        else:
            for part, answer in _ANSWERS.items():
                if part in request.path:
                    await answer(request, reply)
                    return
            await reply.json({"text": reply.words(), "got": len(request.body)})


class _Reply:
    def __init__(self, writer: asyncio.StreamWriter, request: _Request, number: int) -> None:
        self._writer = writer
        self._request = request
        self.number = number

    def words(self) -> str:
        return f"answer {self.number} to {len(self._request.body)} bytes"

    async def json(self, value: Any) -> None:
        await self.send(200, json.dumps(value).encode())

    async def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        encoding = self._encoding()
        extra = {**(headers or {}), **({"content-encoding": encoding} if encoding else {})}
        body = ENCODERS[encoding](body) if encoding else body
        lines = [f"HTTP/1.1 {status} Answer", "content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"x-request-id: request-{self.number}", f"set-cookie: visit={self.number}"]
        lines += [f"{name}: {value}" for name, value in extra.items()]
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self._writer.drain()

    async def stream(self, parts: list[bytes], kind: str = "text/event-stream") -> None:
        self._writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        model = self._request.fields.get("model")
        for number, part in enumerate(parts):
            if number == 2 and model == "cut":
                raise ConnectionError("cut")
            if number == 2 and model == "slow":
                await asyncio.Event().wait()
            self._writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await self._writer.drain()
            await asyncio.sleep(0.002)  # so that it arrives as a part of its own
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def _encoding(self) -> str | None:
        asked = self._request.path.partition("encoding=")[2]
        accepted = self._request.headers.get("accept-encoding", "")
        return asked or ("gzip" if "gzip" in accepted else None)


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.compress(data)


def _br(data: bytes) -> bytes:
    import brotli

    compressed: bytes = brotli.compress(data)
    return compressed


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": _br,
    "zstd": _zstd,
}


async def _read(reader: asyncio.StreamReader) -> _Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    if headers.get("transfer-encoding") != "chunked":
        return _Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return _Request(method, path, headers, body)


def _event(value: Any, name: str | None = None) -> bytes:
    prefix = b"" if name is None else b"event: %s\n" % name.encode()
    return prefix + b"data: " + json.dumps(value).encode() + b"\n\n"


async def _openai(request: _Request, reply: _Reply) -> None:
    base = {"id": f"chatcmpl-{reply.number}", "created": TIME, "model": request.fields.get("model", "m")}
    if not request.fields.get("stream"):
        message = {"role": "assistant", "content": reply.words()}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        await reply.json({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        return
    chunk = {**base, "object": "chat.completion.chunk"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": f"{word} "} for word in reply.words().split())]
    parts = [_event({**chunk, "choices": [{"index": 0, "delta": one, "finish_reason": None}]}) for one in deltas]
    parts.append(_event({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    await reply.stream([*parts, b"data: [DONE]\n\n"])


async def _anthropic(request: _Request, reply: _Reply) -> None:
    base = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    if not request.fields.get("stream"):
        content = [{"type": "text", "text": reply.words()}]
        await reply.json({**base, "content": content, "stop_reason": "end_turn", "usage": usage})
        return
    block = {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": f"{word} "} for word in reply.words().split()]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**base, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    await reply.stream([_event(event, event["type"]) for event in events])


async def _ollama(request: _Request, reply: _Reply) -> None:
    base = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}

    def line(text: str, done: bool) -> bytes:
        message = {"role": "assistant", "content": text}
        return json.dumps({**base, "message": message, "done": done}).encode() + b"\n"

    if request.fields.get("stream", True):
        lines = [line(f"{word} ", False) for word in reply.words().split()]
        await reply.stream([*lines, line("", True)], "application/x-ndjson")
    else:
        await reply.send(200, line(reply.words(), True))


async def _google(request: _Request, reply: _Reply) -> None:
    def content(text: str) -> dict[str, Any]:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1}}

    if "stream" in request.path:
        await reply.stream([_event(content(f"{word} ")) for word in reply.words().split()])
    else:
        await reply.json(content(reply.words()))


async def _bedrock(request: _Request, reply: _Reply) -> None:
    def message(text: str) -> bytes:
        payload = json.dumps({"bytes": base64.b64encode(text.encode()).decode()}).encode()
        given = {":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}
        headers = b"".join(
            bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
            for name, value in given.items()
        )
        prelude = (16 + len(headers) + len(payload)).to_bytes(4) + len(headers).to_bytes(4)
        whole = prelude + zlib.crc32(prelude).to_bytes(4) + headers + payload
        return whole + zlib.crc32(whole).to_bytes(4)

    parts = [message(f"{word} ") for word in reply.words().split()]
    await reply.stream(parts, "application/vnd.amazon.eventstream")


_ANSWERS = {
    "/invoke-with-response-stream": _bedrock,
    "/chat/completions": _openai,
    "/v1/messages": _anthropic,
    "/api/chat": _ollama,
    "enerateContent": _google,
}
"""Answers by a part of the path."""
