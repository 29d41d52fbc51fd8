"""A society of three agents at a market: two buyers ask for prices, and a seller answers.

    MESSAGER_STORE=messager.db python examples/market.py monday
    MESSAGER_STORE=messager.db python examples/market.py tuesday --pear 4

Each agent has its own `Messager`, on the broker of `MESSAGER_BROKER` (default: the local Redis). The agents contain no
code for recording: `MESSAGER_STORE` records every `Messager` of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from typing import Any

from messager import Messager, open_broker

SELLER = 3
QUESTIONS = ((1, "apple"), (2, "pear"), (1, "pear"))
"""The buyer and the fruit of each question."""
THINKING_SECONDS = 0.3
"""The time that a buyer takes before it asks."""


async def receive(messager: Messager) -> dict[str, Any]:
    """Return the payload of the next message."""
    while not (messages := await messager.fetch_messages()):
        await asyncio.sleep(0.001)
    payload: dict[str, Any] = json.loads(messages[0]["data"])
    return payload


async def send(messager: Messager, from_id: int, to_id: int, content: str) -> None:
    """Send a text from one agent to another."""
    channel = messager.get_agent_chat_channel(to_id)
    await messager.send_message(channel, {"from": from_id, "content": content}, from_id, to_id)


async def sell(messager: Messager, prices: dict[str, int]) -> None:
    """Answer questions until cancelled."""
    while True:
        question = await receive(messager)
        fruit = question["content"].removesuffix("?")
        await send(messager, SELLER, question["from"], f"{fruit}: {prices[fruit]} coins")


async def live(exp_id: str, broker_url: str, prices: dict[str, int]) -> None:
    """Run the society: each buyer asks its questions in turn and waits for the answer."""
    agents = {agent: Messager(open_broker(broker_url), exp_id) for agent in (1, 2, SELLER)}
    for agent, messager in agents.items():
        await messager.init()
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(agent, "*")])
    seller = asyncio.create_task(sell(agents[SELLER], prices))
    for buyer, fruit in QUESTIONS:
        await asyncio.sleep(THINKING_SECONDS)
        await send(agents[buyer], buyer, SELLER, f"{fruit}?")
        await receive(agents[buyer])
    seller.cancel()
    for messager in agents.values():
        await messager.close()
        await messager.broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("exp_id")
    parser.add_argument("--pear", type=int, default=3, help="the price of a pear (default: 3)")
    options = parser.parse_args()
    broker_url = os.environ.get("MESSAGER_BROKER", "redis://localhost:6379/0")
    asyncio.run(live(options.exp_id, broker_url, {"apple": 2, "pear": options.pear}))


if __name__ == "__main__":
    main()
