"""A client of the page's server with full control of the headers, a served store, and chunks as rows."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from array import array
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from messager_store.view.server.access import Access
from messager_store.view.server.app import application
from messager_store.view.server.comparing import compare_route
from messager_store.view.server.questions import Questions
from messager_store.view.server.replaying import Replaying
from messager_store.view.server.served_store import ServedStore
from messager_store.view.server.serving import listening, serve


@dataclass
class Answer:
    status: int
    headers: dict[str, list[str]]
    """By lower-case name."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """A browser, as far as the server can tell."""

    port: int
    cookie: str | None = None
    host: str = ""
    url: str = ""
    """What opens the page in a browser, once."""

    async def request(
        self, method: str, path: str, headers: list[tuple[str, str]] | None = None, body: bytes = b""
    ) -> Answer:
        """Send a request with these headers instead of the usual ones of the same name."""
        reader, writer = await self._sent(method, path, headers or [], body)
        try:
            status, found = await _head(reader)
            content = await reader.read()
        finally:
            writer.close()
        return Answer(status, found, content)

    async def get(self, path: str, *headers: tuple[str, str]) -> Answer:
        return await self.request("GET", path, list(headers))

    async def enter(self, url: str) -> Answer:
        """Open a URL with a secret, and keep the cookie."""
        parts = urlsplit(url)
        answer = await self.get(f"{parts.path}?{parts.query}")
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"][0].partition(";")[0]
        return answer

    @asynccontextmanager
    async def events(self, path: str, *headers: tuple[str, str]) -> AsyncIterator[Events]:
        """Open a stream of events."""
        reader, writer = await self._sent("GET", path, list(headers), b"")
        try:
            status, found = await _head(reader)
            assert status == 200, await reader.read()
            yield Events(reader, found)
        finally:
            writer.close()

    async def _sent(
        self, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        given = {name.lower() for name, _ in headers}
        usual = [("Host", self.host or f"127.0.0.1:{self.port}"), ("Connection", "close")]
        if self.cookie is not None:
            usual.append(("Cookie", self.cookie))
        if body and "transfer-encoding" not in given:
            usual.append(("Content-Length", str(len(body))))
        kept = [(name, value) for name, value in usual if name.lower() not in given]
        lines = [f"{name}: {value}" for name, value in (*kept, *headers)]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1") + body)
        return reader, writer


class Events:
    """Server-sent events of one answer."""

    def __init__(self, reader: asyncio.StreamReader, headers: dict[str, list[str]]) -> None:
        self._reader = reader
        self.headers = headers
        self.id: str | None = None
        """What a browser would send as `Last-Event-ID`."""
        self._text = b""

    async def next(self) -> tuple[str, Any] | None:
        """Return name and data of the next event; None at the end of the stream."""
        while True:
            while b"\n\n" not in self._text:
                if not (size := int((await self._reader.readline()).strip() or b"0", 16)):
                    return None
                self._text += await self._reader.readexactly(size)
                await self._reader.readline()
            block, _, self._text = self._text.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
            if "id" in fields:
                self.id = fields["id"]
            if "event" in fields:
                return fields["event"], json.loads(fields["data"])


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, list[str]]]:
    status = int((await reader.readline()).split()[1])
    headers: dict[str, list[str]] = {}
    while line := (await reader.readline()).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    return status, headers


@asynccontextmanager
async def served(app: Any, home: str = "/", stop: asyncio.Event | None = None) -> AsyncIterator[tuple[Client, Access]]:
    """Serve an application behind `Access`; the client has no cookie yet."""
    stop = stop or asyncio.Event()
    listener = listening(None)
    port = listener.getsockname()[1]
    access = Access(app, port, home)
    task = asyncio.create_task(serve(access, listener, stop, started=lambda url: None, browser=False))
    try:
        yield Client(port, url=access.entry()), access
    finally:
        stop.set()
        await task


@asynccontextmanager
async def viewing(
    store: str | Path, query: str = "", broker: str | None = None, **replaying: Any
) -> AsyncIterator[Client]:
    """Serve the pages of a store, with replays if there is a broker; the client has access."""
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        questions = await stack.enter_async_context(Questions(str(store)))
        opened = await stack.enter_async_context(ServedStore(str(store)))
        more: dict[str, Any] = {"more": [compare_route(opened)]}
        if broker is not None:
            bar = await stack.enter_async_context(Replaying(str(store), broker, stop, **replaying))
            more = {"replay": bar.head, "more": [*bar.routes(), *more["more"]]}
        app = application(opened, questions, stop, **more)
        client, access = await stack.enter_async_context(served(app, f"/{query}", stop))
        assert (await client.enter(access.entry())).status == 200
        yield client


@dataclass
class Chunk:
    """A chunk, as `columns.py` describes it."""

    header: dict[str, Any]
    columns: dict[str, Any]
    texts: list[str] = field(default_factory=list)

    @property
    def cursors(self) -> list[tuple[int, int, int]]:
        """Positions of the messages: (ts, recorder, seq)."""
        found, ts, seqs = [], int(self.header["begin"]), {}
        for step, recorder, seq in zip(self.columns["ts"], self.columns["recorder"], self.columns["seq"], strict=True):
            ts += step
            seqs[recorder] = seqs.get(recorder, 0) + int(seq)
            found.append((ts, recorder, seqs[recorder]))
        return found


_TYPES = {"u8": "B", "u16": "H", "u32": "I", "f64": "d", "i64": "q"}


def decoded(chunk: bytes) -> Chunk:
    """Return the messages of a chunk, without their payloads."""
    (length,) = struct.unpack_from("<I", chunk)
    block = zlib.decompress(chunk[4 : 4 + length])
    (length,) = struct.unpack_from("<I", block)
    header = json.loads(block[4 : 4 + length])
    data = block[4 + length :]
    columns: dict[str, Any] = {}
    texts: list[str] = []
    for name, (kind, offset, size) in header["columns"].items():
        part = data[offset : offset + size]
        if name == "texts":
            texts = part.decode().split("\0")[:-1]
        else:
            columns[name] = array(_TYPES[kind], part).tolist()
    return Chunk(header, columns, texts)
