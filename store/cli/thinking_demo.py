"""The second society of the demo: agents in two programs that think with a model, over Redis.

As a program: PORT of Redis, URL of the model, EXP_ID, and the NAMES of the agents of this program, joined by commas.
The model is a stub with random words.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

NAMES = ("Ada,Ben", "Cleo,Dan")
"""Agents of each program."""
TURNS = 4
WORDS = [
    "bread",
    "bridge",
    "fire",
    "gold",
    "harvest",
    "king",
    "lamp",
    "market",
    "mill",
    "north",
    "rain",
    "river",
    "salt",
    "smoke",
    "tower",
    "winter",
    "wolf",
]


class _Model(BaseHTTPRequestHandler):
    """A model that answers each request with other words."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request."""
        self.rfile.read(int(self.headers["content-length"]))
        answer = {"choices": [{"message": {"role": "assistant", "content": " ".join(random.choices(WORDS, k=6))}}]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@contextmanager
def model() -> Iterator[str]:
    """Context with a running model; its value is the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


async def _live(name: str, port: int, url: str, exp_id: str) -> None:
    """Listen, think for a random time with the model, and say what it answers."""
    import httpx

    from messager import Messager, RedisConfig

    room = f"exps:{exp_id}:room"
    async with httpx.AsyncClient() as client, Messager(RedisConfig(server="127.0.0.1", port=port), exp_id) as messager:
        await messager.subscribe_and_start_listening([room, messager.get_subtopic_channel(name, "*")])
        await asyncio.sleep(1)  # until the others listen, too
        memory: list[str] = []
        for _ in range(TURNS):
            await asyncio.sleep(random.random() / 10)
            memory += [json.loads(one["data"])["content"] for one in await messager.fetch_messages()]
            prompt = [{"role": "user", "content": text} for text in (f"You are {name}.", *memory)]
            answer = await client.post(f"{url}/v1/chat/completions", json={"model": "demo", "messages": prompt})
            said = answer.json()["choices"][0]["message"]["content"]
            await messager.send_message(room, {"name": name, "content": said}, name)


async def _main(port: str, url: str, exp_id: str, names: str) -> None:
    await asyncio.gather(*(_live(name, int(port), url, exp_id) for name in names.split(",")))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
