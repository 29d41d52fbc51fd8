"""Program that asks a stub through an SDK, records the calls, and is served them with the stub stopped.

    python tests/support/model_sdks.py SDK [--before]

With `--before`, the clients are made before the hooks are installed. It prints a JSON object by case: what the program
got with the stub and from the recording, and the names of the clients that reported the calls.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from model_stub import ModelStub  # beside this file: packages of the other tests are not installed
from model_tape import Tape

from messager.calls import install
from messager.calls.guard import Guard, watch
from messager.calls.model_paths import ModelCalls

Case = Callable[[], Awaitable[Any]]
MESSAGES = [{"role": "user", "content": "hi"}]


def anthropic(url: str) -> dict[str, Case]:
    sdk = importlib.import_module("anthropic")
    sync, client = sdk.Anthropic(base_url=url, api_key="k"), sdk.AsyncAnthropic(base_url=url, api_key="k")
    asked = {"model": "m", "max_tokens": 9, "messages": MESSAGES}

    async def whole() -> Any:
        return (await client.messages.create(**asked)).content[0].text

    async def in_a_thread() -> Any:
        return (await asyncio.to_thread(lambda: sync.messages.create(**asked))).content[0].text

    async def stream() -> Any:
        async with client.messages.stream(**asked) as stream:
            return [text async for text in stream.text_stream]

    return {"whole": whole, "in a thread": in_a_thread, "stream": stream}


def google_genai(url: str) -> dict[str, Case]:
    sdk = importlib.import_module("google.genai")
    client = sdk.Client(api_key="k", http_options={"base_url": url})

    async def whole() -> Any:
        return (await client.aio.models.generate_content(model="g", contents="hi")).text

    async def in_a_thread() -> Any:
        return (await asyncio.to_thread(lambda: client.models.generate_content(model="g", contents="hi"))).text

    async def stream() -> Any:
        return [part.text async for part in await client.aio.models.generate_content_stream(model="g", contents="hi")]

    return {"whole": whole, "in a thread": in_a_thread, "stream": stream}


def ollama(url: str) -> dict[str, Case]:
    sdk = importlib.import_module("ollama")
    sync, client = sdk.Client(host=url), sdk.AsyncClient(host=url)

    async def whole() -> Any:
        return (await client.chat(model="m", messages=MESSAGES))["message"]["content"]

    async def in_a_thread() -> Any:
        return (await asyncio.to_thread(lambda: sync.chat(model="m", messages=MESSAGES)))["message"]["content"]

    async def stream() -> Any:
        parts = await client.chat(model="m", messages=MESSAGES, stream=True)
        return [part["message"]["content"] async for part in parts]

    return {"whole": whole, "in a thread": in_a_thread, "stream": stream}


def boto3(url: str) -> dict[str, Case]:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    client = importlib.import_module("boto3").client("bedrock-runtime", endpoint_url=url, **keys)

    def invoke() -> Any:
        return client.invoke_model(modelId="m", body=b'{"a": 1}')["body"].read().decode()

    def events() -> Any:
        answer = client.invoke_model_with_response_stream(modelId="m", body=b'{"a": 1}')
        return [event["chunk"]["bytes"].decode() for event in answer["body"]]

    return {"whole": lambda: asyncio.to_thread(invoke), "stream": lambda: asyncio.to_thread(events)}


def litellm(url: str) -> dict[str, Case]:
    sdk = importlib.import_module("litellm")
    openai = {"model": "openai/m", "messages": MESSAGES, "api_base": f"{url}/v1", "api_key": "k"}
    claude = {"model": "anthropic/claude-x", "messages": MESSAGES, "api_base": url, "api_key": "k"}

    async def in_a_thread() -> Any:
        return (await asyncio.to_thread(lambda: sdk.completion(**openai))).choices[0].message.content

    def whole(asked: dict[str, Any]) -> Case:
        async def run() -> Any:
            return (await sdk.acompletion(**asked)).choices[0].message.content

        return run

    def stream(asked: dict[str, Any]) -> Case:
        async def run() -> Any:
            return [part.choices[0].delta.content async for part in await sdk.acompletion(**asked, stream=True)]

        return run

    return {
        "in a thread": in_a_thread,
        "openai": whole(openai),
        "openai, stream": stream(openai),
        "anthropic": whole(claude),
        "anthropic, stream": stream(claude),
    }


SDKS = {"anthropic": anthropic, "google-genai": google_genai, "ollama": ollama, "boto3": boto3, "litellm": litellm}
"""Cases by the name of the package."""


async def run(sdk: str, before: bool) -> dict[str, Any]:
    """Return what each case got: with the stub, and again with the stub stopped and the network refused."""
    tape, stub = Tape(), ModelStub()
    selects = ModelCalls()
    with stub:
        if not before:
            install(tape.begin, selects)
        cases = SDKS[sdk](stub.url)
        install(tape.begin, selects)
        guard = Guard("note")
        watch(guard)
        results: dict[str, Any] = {}
        for name, case in cases.items():
            first = len(tape.calls)
            got = await case()
            results[name] = {"recorded": got, "clients": [call.client for call in tape.calls[first:]]}
    unread = [answer.unread for answer in tape.answers]
    seen = list(tape.events)
    unseen = [f"{host}:{port}" for host, port in guard.connections]
    tape.rewind()
    watch(Guard("refuse"))
    for name, case in cases.items():
        results[name]["served"] = await case()
    version = importlib.metadata.version(sdk)
    return {"version": version, "cases": results, "unread": sum(unread), "events": seen, "unseen": unseen}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], "--before" in sys.argv))))
