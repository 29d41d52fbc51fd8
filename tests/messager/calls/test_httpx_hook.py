"""Calls through httpx and httpx2 are recorded as the program got them, and served without a server."""

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from messager.calls import Answer, Call
from messager.calls import exchange as exchanges
from tests.support.model_stub import ENCODERS, ModelStub
from tests.support.model_tape import Tape

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True}
CHAT = "/v1/chat/completions"


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


def test_call_is_recorded_as_the_program_got_it_and_served_without_the_server(
    library: Any, stub: ModelStub, tape: Tape
) -> None:
    with library.Client() as client:
        first = client.post(stub.url + CHAT, json=BODY)
        second = client.post(stub.url + CHAT, json=BODY)
        stub.stop()
        tape.rewind()
        again = [client.post(stub.url + CHAT, json=BODY) for _ in range(2)]
    assert first.content != second.content
    assert [answer.body for answer in tape.answers] == [first.content, second.content]
    assert [one.content for one in again] == [first.content, second.content]
    assert [one.headers["x-request-id"] for one in again] == ["request-1", "request-2"]
    assert [one.status_code for one in again] == [200, 200]
    assert first.headers["content-encoding"] == "gzip"
    assert tape.calls[0].body == first.request.content
    assert tape.calls[0].client == library.__name__
    assert "content-encoding" not in dict(tape.answers[0].headers)


async def test_stream_is_recorded_in_the_parts_that_the_program_got_and_served_in_them(
    library: Any, stub: ModelStub, tape: Tape
) -> None:
    async def parts(client: Any) -> list[bytes]:
        async with client.stream("POST", stub.url + CHAT, json=STREAM) as response:
            return [part async for part in response.aiter_bytes()]

    async with library.AsyncClient() as client:
        recorded = await parts(client)
        await asyncio.to_thread(stub.stop)
        tape.rewind()
        assert await parts(client) == recorded
    (answer,) = tape.answers
    assert answer.chunks == recorded
    assert len(recorded) > 3
    assert answer.times == sorted(answer.times) and len(answer.times) == len(recorded)
    assert not answer.unread


def test_sync_stream_is_served_in_its_parts(library: Any, stub: ModelStub, tape: Tape) -> None:
    def parts() -> list[bytes]:
        with library.stream("POST", stub.url + CHAT, json=STREAM) as response:
            return list(response.iter_bytes())

    recorded = parts()
    stub.stop()
    tape.rewind()
    assert parts() == recorded == tape.answers[0].chunks


async def test_part_of_a_stream_reaches_the_program_before_the_next_one_is_sent(
    library: Any, stub: ModelStub, tape: Tape
) -> None:
    slow = {**STREAM, "model": "slow"}
    async with library.AsyncClient() as client:
        async with client.stream("POST", stub.url + CHAT, json=slow) as response:
            async for part in response.aiter_bytes():  # the third part is never sent
                first = part
                break
    (answer,) = tape.answers
    assert answer.chunks[0] == first
    assert answer.unread


async def test_answer_ends_with_the_last_event_of_its_stream_before_the_program_gets_that(
    library: Any, stub: ModelStub, tape: Tape
) -> None:
    async with library.AsyncClient() as client:
        async with client.stream("POST", stub.url + CHAT, json=STREAM) as response:
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    tape.events.append("done")
                    break
    assert tape.events == ["asked", "answered", "done"]
    assert not tape.answers[0].unread


def test_each_redirect_is_a_call(library: Any, stub: ModelStub, tape: Tape) -> None:
    def post() -> Any:
        return library.post(f"{stub.url}/redirect{CHAT}", json=BODY, follow_redirects=True)

    recorded = post()
    stub.stop()
    tape.rewind()
    assert post().content == recorded.content
    assert [answer.status for answer in tape.answers] == [307, 200]


async def test_error_is_recorded_and_raised_again(library: Any, stub: ModelStub, tape: Tape) -> None:
    async def ask(client: Any) -> tuple[type[Exception], str]:
        with pytest.raises(library.TransportError) as error:
            await client.post(stub.url + CHAT, json={**STREAM, "model": "cut"})
        return error.type, str(error.value)

    async with library.AsyncClient() as client:
        cut = await ask(client)
        await asyncio.to_thread(stub.stop)
        refused = await ask(client)
        tape.rewind()
        assert [await ask(client), await ask(client)] == [cut, refused]
    assert [answer.error for answer in tape.answers] == [(one.__name__, text) for one, text in (cut, refused)]
    assert [(answer.status, len(answer.body) > 0) for answer in tape.answers] == [(200, True), (0, False)]


async def test_cancelled_call_is_cancelled_again(library: Any, stub: ModelStub, tape: Tape) -> None:
    async def read(client: Any) -> None:
        async with client.stream("POST", stub.url + CHAT, json={**STREAM, "model": "slow"}) as response:
            async for part in response.aiter_bytes():
                parts.append(part)

    async def ask(client: Any) -> list[bytes]:
        parts.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(client), 0.5)
        return parts.copy()

    parts: list[bytes] = []
    async with library.AsyncClient() as client:
        recorded = await ask(client)
        await asyncio.to_thread(stub.stop)
        tape.rewind()
        assert await ask(client) == recorded
    assert tape.answers[0].error == ("CancelledError", "")


def test_body_given_as_an_iterator_is_recorded_and_sent(library: Any, stub: ModelStub, tape: Tape) -> None:
    def parts() -> Iterator[bytes]:
        yield b"one, "
        yield b"two"

    response = library.post(stub.url + "/other", content=parts())
    assert response.json()["got"] == 8
    assert tape.calls[0].body == b"one, two"


async def test_body_given_as_an_async_iterator_is_recorded_and_sent(library: Any, stub: ModelStub, tape: Tape) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one, "
        yield b"two"

    async with library.AsyncClient() as client:
        response = await client.post(stub.url + "/other", content=parts())
    assert response.json()["got"] == 8
    assert tape.calls[0].body == b"one, two"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_answer_is_recorded_decoded(library: Any, stub: ModelStub, tape: Tape, encoding: str) -> None:
    library.post(f"{stub.url}/other?encoding={encoding}", content=b"12345678")
    assert tape.answers[0].body == b'{"text": "answer 1 to 8 bytes", "got": 8}'
    assert "content-encoding" not in dict(tape.answers[0].headers)


@pytest.mark.parametrize("encoding", ["unknown", "gzip"])
def test_answer_that_cannot_be_decoded_is_kept_with_its_encoding(
    library: Any, stub: ModelStub, tape: Tape, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, encoding, lambda data: data[::-1])
    with library.stream("POST", f"{stub.url}/other?encoding={encoding}", content=b"12345678") as response:
        recorded = b"".join(response.iter_raw())
    assert tape.answers[0].body == recorded
    assert dict(tape.answers[0].headers)["content-encoding"] == encoding


def test_refusal_is_an_answer_that_sdks_do_not_retry(library: Any, stub: ModelStub, tape: Tape) -> None:
    tape.rewind()
    response = library.post(stub.url + CHAT, json=BODY)
    assert response.status_code == 400
    assert response.headers["x-should-retry"] == "false"
    assert "is not in the recording" in response.json()["error"]["message"]
    assert stub.answered == 0


def test_client_with_a_transport_of_its_own_is_recorded(library: Any, tape: Tape) -> None:
    def answer(request: Any) -> Any:
        return library.Response(200, json={"text": "made up"})

    with library.Client(transport=library.MockTransport(answer)) as client:
        body = client.post("http://model.test/v1/x", json=BODY).content
    assert tape.answers[0].body == body


def test_error_of_messager_is_logged_once_and_does_not_reach_the_program(
    library: Any, stub: ModelStub, tape: Tape, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def begin(call: Call) -> Any:
        raise ZeroDivisionError

    def answered(self: Any, answer: Answer) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(exchanges, "_failed", False)
    with caplog.at_level(logging.ERROR, "messager"):
        with monkeypatch.context() as patch:
            patch.setattr(exchanges, "begin", begin)
            assert library.post(stub.url + CHAT, json=BODY).status_code == 200
        monkeypatch.setattr("tests.support.model_tape.Exchange.answered", answered)
        assert library.post(stub.url + CHAT, json=STREAM).status_code == 200
    assert len(caplog.records) == 1
