"""Calls through aiohttp are recorded as the program got them, and served without a server."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tests.messager.calls.test_httpx_hook import BODY, CHAT, STREAM
from tests.support.model_stub import ModelStub
from tests.support.model_tape import Tape


async def _whole(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(url + CHAT, json=BODY) as response:
        return response.status, await response.json(), response.headers["x-request-id"], response.cookies["visit"].value


async def _lines(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(url + CHAT, json=STREAM) as response:
        return [line async for line in response.content]


async def _parts(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(url + CHAT, json=STREAM) as response:
        return [part async for part in response.content.iter_any()]


async def _chunks(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(url + CHAT, json=STREAM) as response:
        return [part async for part in response.content.iter_chunks()]


async def _redirected(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(f"{url}/redirect{CHAT}", json=BODY) as response:
        return await response.text(), len(response.history)


async def _file(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(url + "/other", data=io.BytesIO(b"12345678")) as response:
        return await response.json()


async def _iterator(session: aiohttp.ClientSession, url: str) -> Any:
    async def parts() -> AsyncIterator[bytes]:
        yield b"1234"
        yield b"5678"

    async with session.post(url + "/other", data=parts()) as response:
        return await response.json()


WAYS = [_whole, _lines, _parts, _chunks, _redirected, _file, _iterator]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_program_gets_the_same_with_the_server_and_from_the_recording(
    stub: ModelStub, tape: Tape, way: Callable[[aiohttp.ClientSession, str], Awaitable[Any]]
) -> None:
    async with aiohttp.ClientSession() as session:
        recorded = await way(session, stub.url)
        await asyncio.to_thread(stub.stop)
        tape.rewind()
        assert await way(session, stub.url) == recorded
    assert not any(answer.unread or answer.error for answer in tape.answers)
    assert tape.events == ["asked", "answered"] * (2 if way is _redirected else 1)
    assert tape.calls[0].client == "aiohttp"
    if way in (_file, _iterator):
        assert tape.calls[0].body == b"12345678" and recorded["got"] == 8
    if way is _parts:
        assert tape.answers[0].chunks == recorded and len(recorded) > 3


@pytest.mark.parametrize("decompress", [True, False])
async def test_body_is_recorded_decoded(stub: ModelStub, tape: Tape, decompress: bool) -> None:
    async with aiohttp.ClientSession(auto_decompress=decompress) as session:
        async with session.post(f"{stub.url}/other?encoding=gzip", data=b"12345678") as response:
            assert ((await response.read())[:1] == b"{") is decompress
    assert tape.answers[0].body == b'{"text": "answer 1 to 8 bytes", "got": 8}'
    assert "content-encoding" not in dict(tape.answers[0].headers)


async def test_response_that_is_closed_before_its_end_is_unread(stub: ModelStub, tape: Tape) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(stub.url + CHAT, json={**STREAM, "model": "slow"}) as response:
            first = await response.content.readany()
    assert tape.answers[0].unread and tape.answers[0].body.startswith(first)


async def test_error_is_recorded_and_raised_again(stub: ModelStub, tape: Tape) -> None:
    async def ask(body: dict[str, Any]) -> tuple[type[BaseException], str]:
        timeout = aiohttp.ClientTimeout(sock_read=0.5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            with pytest.raises(aiohttp.ClientError) as error:
                async with session.post(stub.url + CHAT, json=body) as response:
                    await response.read()
        return error.type, str(error.value)

    cases = [{**STREAM, "model": "cut"}, {**STREAM, "model": "slow"}]
    recorded = [await ask(body) for body in cases]
    await asyncio.to_thread(stub.stop)
    recorded.append(await ask(BODY))
    tape.rewind()
    assert [await ask(body) for body in [*cases, BODY]] == recorded
    assert [answer.status for answer in tape.answers] == [200, 200, 0]


async def test_refusal_is_an_answer_that_is_not_retried(stub: ModelStub, tape: Tape) -> None:
    tape.rewind()
    async with aiohttp.ClientSession() as session, session.post(stub.url + CHAT, json=BODY) as response:
        assert response.status == 400 and response.headers["x-should-retry"] == "false"
    assert stub.answered == 0
