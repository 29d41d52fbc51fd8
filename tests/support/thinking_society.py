"""A society whose agents think with a model, over Redis: PORT of Redis, URL of the model, names of agents, a prompt."""

import asyncio
import datetime
import random
import sys
import uuid

from openai import AsyncOpenAI

from messager import Messager, RedisConfig

PORT, URL, NAMES, PROMPT = int(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), sys.argv[4]
client = AsyncOpenAI(base_url=f"{URL}/v1", api_key="sk-0123456789abcdefSECRET", max_retries=5)


async def think(memory: list[str], model: str = "m") -> str:
    """Ask the model; as programs do, with the time and a new id in the prompt."""
    system = f"{PROMPT} It is {datetime.datetime.now()}, request {uuid.uuid4()}."
    messages = [{"role": "system", "content": system}, *({"role": "user", "content": text} for text in memory[-5:])]
    if model != "streaming":
        answer = await client.chat.completions.create(model=model, messages=messages)
        return answer.choices[0].message.content
    stream = await client.chat.completions.create(model=model, messages=messages, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def live(name: str) -> None:
    """Listen, think for a random time, and speak, five times."""
    async with Messager(RedisConfig(server="127.0.0.1", port=PORT), "town") as messager:
        await messager.subscribe_and_start_listening(["exps:town:square", messager.get_subtopic_channel(name, "*")])
        await asyncio.sleep(1)  # until the others listen, too
        memory: list[str] = []
        for number in range(5):
            await asyncio.sleep(random.random() / 20)
            memory += [message["data"].decode() for message in await messager.fetch_messages()]
            if number == 2:  # three concurrent calls, of which one streams and one is often refused
                said = " / ".join(await asyncio.gather(*(think(memory, model) for model in ("m", "streaming", "busy"))))
            else:
                said = await think(memory)
            await messager.send_message("exps:town:square", {"name": name, "content": f"{said} {len(memory)}"}, name)


async def main() -> None:
    await asyncio.gather(*map(live, NAMES))


asyncio.run(main())
