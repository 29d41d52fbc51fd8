"""Program that answers the questions of a server about whole experiments (`examiner`).

The first line of standard input is the URL of the store, as JSON; each further one is a question: `number`, `question`,
`exp_id` and `query`. Each has a line on standard output, as soon as it is answered: its `number`, and the `answer`, or
an `error` and its `status`. The program ends when its input is closed, so also if the server is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from ...errors import StoreError
from .examiner import Examiner
from .statuses import BUG, status_of

logger = logging.getLogger("messager_store")


async def answer(examiner: Examiner, asked: dict[str, Any]) -> None:
    """Answer one question."""
    number = asked.pop("number")
    try:
        found: dict[str, Any] = {"answer": await examiner.answer(**asked)}
    except StoreError as error:
        found = {"error": str(error), "status": status_of(error)}
    except Exception as error:
        logger.error("%s failed", asked["question"], exc_info=error)
        found = {"error": BUG, "status": status_of(error)}
    sys.stdout.write(json.dumps({"number": number, **found}) + "\n")
    sys.stdout.flush()


async def run() -> None:
    """Answer until the input is closed."""
    answering: set[asyncio.Task[None]] = set()
    url = json.loads(await asyncio.to_thread(sys.stdin.buffer.readline))
    async with Examiner(url) as examiner:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            task = asyncio.create_task(answer(examiner, json.loads(line)))
            answering.add(task)
            task.add_done_callback(answering.discard)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(run())
