"""Program that plays one agent of the society of five, and records itself.

python forked_agent.py AGENT EXP_ID REDIS_PORT WORDS
"""

from __future__ import annotations

import asyncio
import sys

from messager import Messager, RedisConfig
from tests.support.forking import Society


async def play(agent: int, exp_id: str, port: int, words: str) -> None:
    async with Messager(RedisConfig(server="localhost", port=port), exp_id) as messager:
        await Society(words).agents[agent](messager)


def main() -> None:
    agent, exp_id, port, words = sys.argv[1:]
    asyncio.run(play(int(agent), exp_id, int(port), words))


if __name__ == "__main__":
    main()
