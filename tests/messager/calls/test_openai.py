"""Calls of the OpenAI SDK are recorded as they were, with its retries, and served with the server stopped."""

import asyncio
from typing import Any

import openai
import pytest

from messager.calls import install
from tests.support.model_stub import ModelStub
from tests.support.model_tape import Tape

MESSAGES: Any = [{"role": "user", "content": "hi"}]


def client(stub: ModelStub) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=stub.url + "/v1", api_key="k")


async def ask(client: openai.AsyncOpenAI, model: str = "m") -> str | None:
    answer = await client.chat.completions.create(model=model, messages=MESSAGES)
    return answer.choices[0].message.content


async def words(client: openai.AsyncOpenAI) -> list[str | None]:
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    return [chunk.choices[0].delta.content async for chunk in stream]


async def test_answers_and_streams_are_served_as_recorded(stub: ModelStub, tape: Tape) -> None:
    async with client(stub) as sdk:
        recorded = [await ask(sdk), await words(sdk), await ask(sdk)]
        await asyncio.to_thread(stub.stop)
        tape.rewind()
        assert [await ask(sdk), await words(sdk), await ask(sdk)] == recorded
    assert tape.events == ["asked", "answered"] * 3
    assert not any(answer.unread for answer in tape.answers)


async def test_each_attempt_of_the_sdk_is_a_call(stub: ModelStub, tape: Tape) -> None:
    async with client(stub) as sdk:
        recorded = await ask(sdk, "busy")
        await asyncio.to_thread(stub.stop)
        tape.rewind()
        assert await ask(sdk, "busy") == recorded
    assert [answer.status for answer in tape.answers] == [429, 200]
    counts = [dict(call.headers)["x-stainless-retry-count"] for call in tape.calls]
    assert counts == ["0", "1"]


async def test_call_that_is_not_in_the_recording_is_tried_once(stub: ModelStub, tape: Tape) -> None:
    tape.rewind()
    tries = 0

    def begin(call: Any) -> Any:
        nonlocal tries
        tries += 1
        return tape.begin(call)

    async with client(stub) as sdk:
        install(begin, lambda method, url: True)
        with pytest.raises(openai.BadRequestError, match="is not in the recording"):
            await ask(sdk)
    assert tries == 1 and stub.answered == 0


def test_sync_client_is_served(stub: ModelStub, tape: Tape) -> None:
    def parts() -> list[str | None]:
        with openai.OpenAI(base_url=stub.url + "/v1", api_key="k") as sdk:
            stream = sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            return [chunk.choices[0].delta.content for chunk in stream]

    recorded = parts()
    stub.stop()
    tape.rewind()
    assert parts() == recorded
