"""A society of Ray actors, recorded and then replayed.

    pip install 'PATH[ray,demo]'                           # PATH: the path of this checkout
    python examples/ray_society.py                         # an SQLite file, and a Redis that it starts
    python examples/ray_society.py --store postgresql://user@host/runs --redis redis://host:6379/0
    python examples/ray_society.py --store '/data/runs-{host}.db' --redis redis://host:6379/0    # a file for each host

Its structure is that of AgentSociety: a driver, groups of agents as actors, and an interceptor as an actor. They
contain no code for recording: `MESSAGER_STORE` and Ray's `runtime_env` record every process into one experiment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator

import ray

from messager import Messager, open_broker, redis_server
from messager_store import EventLog, runtime_env

QUARREL = (1, 5)
"""The interceptor refuses messages from the first agent to the second."""


@ray.remote(num_cpus=0)
class Gatekeeper:
    """An interceptor that refuses the messages of one pair of agents."""

    async def forward(self, from_id: int, to_id: int, message: str) -> bool:
        return (from_id, to_id) != QUARREL


@ray.remote(num_cpus=0)
class Group:
    """Some agents with one Messager."""

    def __init__(self, messager: Messager, members: list[int], everybody: int) -> None:
        self._messager = messager  # not connected yet, so it can be pickled
        self._members = members
        self._everybody = everybody
        self._heard = 0

    async def begin(self) -> None:
        await self._messager.init()
        await self._messager.subscribe_and_start_listening(
            [self._messager.get_subtopic_channel(member, "*") for member in self._members]
        )

    async def step(self, tick: int) -> None:
        """Send one message from each member to another agent."""
        for member in self._members:
            other = (member - 1 + 4) % self._everybody + 1
            said = {"from": member, "content": f"{member} to {other}, tick {tick}", "tick": tick}
            await self._messager.send_message(self._messager.get_agent_chat_channel(other), said, member, other)

    async def hear(self) -> int:
        """Return the number of messages received so far."""
        self._heard += len(await self._messager.fetch_messages())
        return self._heard

    async def end(self) -> None:
        await self._messager.close()


@contextlib.asynccontextmanager
async def connected(redis: str, exp_id: str) -> AsyncIterator[Messager]:
    """Yield a Messager of this process, and close its broker afterwards."""
    broker = open_broker(redis)
    try:
        async with Messager(broker, exp_id) as messager:
            yield messager
    finally:
        await broker.close()


async def live(redis: str, exp_id: str, groups: int, size: int, ticks: int) -> None:
    """Run the society."""
    everybody = groups * size
    async with connected(redis, exp_id) as driver:
        driver.describe("ray society", groups=groups, agents=everybody, ticks=ticks)
        gatekeeper = Gatekeeper.remote()
        members = [list(range(first, first + size)) for first in range(1, everybody + 1, size)]
        actors = [Group.remote(Messager(open_broker(redis), exp_id, gatekeeper), some, everybody) for some in members]
        await asyncio.gather(*(actor.begin.remote() for actor in actors))
        for tick in range(ticks):
            driver.mark("tick", number=tick)
            await asyncio.gather(*(actor.step.remote(tick) for actor in actors))
        expected = ticks * (everybody - (1 if everybody >= max(QUARREL) else 0))
        while sum(await asyncio.gather(*(actor.hear.remote() for actor in actors))) < expected:
            await asyncio.sleep(0.05)
        await asyncio.gather(*(actor.end.remote() for actor in actors))


async def replayed(redis: str, exp_id: str, again: str) -> int:
    """Replay the experiment under another exp_id; return the number of messages received."""
    async with connected(redis, again) as listener:
        await listener.subscribe_and_start_listening([f"exps:{again}:*"])
        await asyncio.to_thread(command, "replay", exp_id, "--to-exp", again, "--speed", "max", "--redis", redis)
        heard = await listener.fetch_messages()
    return len(heard)


def command(*words: str) -> None:
    """Run a `messager` command."""
    print(f"\n$ messager {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-c", "from messager_store.cli import main; main()", *words], check=True)


async def sent_in(store: str, exp_id: str) -> int:
    """Return the number of sent messages of an experiment."""
    async with EventLog.open(store, create=False) as log:
        return len([event async for event in log.read(exp_id, kinds=["sent"])])


@contextlib.contextmanager
def redis_at(url: str | None) -> Iterator[str]:
    """Yield the given URL, or that of a Redis that runs meanwhile."""
    if url:
        yield url
    else:
        with redis_server() as server:
            yield server.url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", default=os.environ.get("MESSAGER_STORE", "ray_society.db"))
    parser.add_argument("--redis", help="its URL, as `open_broker` takes it; without it, a redis-server is started")
    parser.add_argument("--exp", default=str(uuid.uuid4()), help="the exp_id (default: a new one)")
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--size", type=int, default=3, help="agents in a group")
    parser.add_argument("--ticks", type=int, default=5)
    given = parser.parse_args()
    os.environ["MESSAGER_STORE"] = given.store  # for the driver; the workers get it from the runtime_env
    with redis_at(given.redis) as redis:
        ray.init(runtime_env=runtime_env(), include_dashboard=False, log_to_driver=True)
        try:
            asyncio.run(live(redis, given.exp, given.groups, given.size, given.ticks))
        finally:
            ray.shutdown()
        if "{host}" in given.store:
            print(f"\nEach host has recorded into {given.store}. Merge the files with `messager gather`.")
            return
        command("info", given.exp)
        sent = asyncio.run(sent_in(given.store, given.exp))
        heard = asyncio.run(replayed(redis, given.exp, f"{given.exp}-again"))
        print(f"\n{sent} messages were sent, {heard} were received again")
        if heard != sent:
            sys.exit(1)


if __name__ == "__main__":
    main()
