"""Program of test_ray.py and test_ray_dataset.py: several tests in one Ray. Prints the results as JSON.

python ray_program.py REDIS_PORT MQTT_PORT POSTGRESQL_URL
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

import ray

from messager import Messager, RedisConfig, mqtt
from messager_store.experiments.provenance import Process
from messager_store.ray import HOST, runtime_env
from messager_store.recording import committer
from tests.store import ray_dataset_reads


@ray.remote(num_cpus=0)
class Group:
    """Group that uses a messager created by the driver."""

    def __init__(self, messager: Messager) -> None:
        self._messager = messager

    async def speak(self, number: int, close: bool = True) -> dict[str, Any]:
        if not close:
            committer.FLUSH_SECONDS = 600
        await self._messager.init()
        for at in range(number):
            await self._messager.send_message("c", {"n": at})
        if close:
            await self._messager.close()
        return {"pid": os.getpid(), "store": os.environ.get("MESSAGER_STORE"), "folder": os.getcwd()}

    def leave(self) -> None:
        ray.actor.exit_actor()


@ray.remote(num_cpus=0)
def speak_once(config: RedisConfig) -> int:
    """Send a message from a task with its own messager."""

    async def speak() -> None:
        async with Messager(config, "society") as messager:
            await messager.send_message("c", {"n": 100})

    asyncio.run(speak())
    return os.getpid()


@ray.remote(num_cpus=0)
class Gatekeeper:
    def __init__(self) -> None:
        self._asked: list[Any] = []

    async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
        self._asked.append([from_id, to_id, message])
        return from_id != 1

    def asked(self) -> list[Any]:
        return self._asked


async def society(config: RedisConfig) -> dict[str, Any]:
    """Record driver, groups and a task in one experiment."""
    groups = [Group.remote(Messager(config, "society")) for _ in range(2)]
    async with Messager(config, "society") as driver:
        driver.mark("step", number=1)
        told = await asyncio.gather(*(group.speak.remote(3) for group in groups))
        task = await speak_once.remote(config)
    return {"groups": told, "task": task, "driver": os.getpid(), "folder": os.getcwd()}


async def interceptor(config: RedisConfig) -> dict[str, Any]:
    gatekeeper = Gatekeeper.remote()
    async with Messager(config, "asked", gatekeeper) as messager:
        await messager.send_message("c", {"n": 0}, 0, 0)
        await messager.send_message("c", {"n": 1}, 1, 2)
        await messager.send_message("c", {"n": 2}, from_id=1)
        await messager.send_message("c", {"n": 3}, to_id=2)
        await messager.send_message("c", {"n": 4})
        sent = [entry["sent"] for entry in messager.get_log_list()]
        return {"asked": await gatekeeper.asked.remote(), "sent": sent, "travels": await travelled(config, gatekeeper)}


async def travelled(config: RedisConfig, gatekeeper: Any) -> list[Any]:
    """Pass a messager to an actor; its interceptor is another actor."""
    other = Messager(config, "travels", gatekeeper)
    return [(await Group.remote(other).speak.remote(1))["pid"] != os.getpid(), other.connected]


async def never_closed(config: RedisConfig) -> None:
    """End an actor before a commit, without closing its messager."""
    group = Group.remote(Messager(config, "unclosed"))
    pid = (await group.speak.remote(3, close=False))["pid"]
    with contextlib.suppress(ray.exceptions.ActorDiedError):
        await group.leave.remote()
    while Process.is_running(pid):  # Ray says that it is gone before it is
        await asyncio.sleep(0.05)


async def elsewhere(config: RedisConfig) -> dict[str, Any]:
    """Run a worker whose store is on another host."""
    env = runtime_env()
    env["env_vars"][HOST] = "another-host"
    told: dict[str, Any] = await Group.options(runtime_env=env).remote(Messager(config, "elsewhere")).speak.remote(3)
    return told


async def over_mqtt(port: int) -> dict[str, Any]:
    """Use a Messager over MQTT as an actor, as AgentSociety 1.0.0 does."""
    actor = ray.remote(num_cpus=0)(mqtt.Messager)
    messager = actor.remote(hostname="127.0.0.1", port=port, username=None, password=None, exp_id="mqtt")
    await messager.connect.remote()
    await messager.start_listening.remote()
    await messager.subscribe.remote([("exps/mqtt/#", 1)], ["an agent"])
    await messager.ping.remote()
    await messager.send_message.remote("exps/mqtt/agents/a/agent-chat", {"n": 1}, "b", "a")
    fetched: list[Any] = []
    async with asyncio.timeout(30):
        while not fetched:
            fetched = await messager.fetch_messages.remote()
    log = await messager.get_log_list.remote()
    await messager.clear_log_list.remote()
    cleared = await messager.get_log_list.remote()
    await messager.stop.remote()
    return {
        "fetched": [
            (message.topic.value, message.payload.decode(), message.qos, message.retain) for message in fetched
        ],
        "log": [entry["topic"] for entry in log],
        "cleared": cleared,
        "connected": await messager.is_connected.remote(),
    }


async def talks(port: int, mqtt_port: int) -> dict[str, Any]:
    config = RedisConfig(server="127.0.0.1", port=port)
    seen = {
        "society": await society(config),
        "interceptor": await interceptor(config),
        "elsewhere": await elsewhere(config),
        "mqtt": await over_mqtt(mqtt_port),
    }
    await never_closed(config)
    return seen


def main(port: str, mqtt_port: str, postgres: str) -> None:
    ray.init(num_cpus=2, include_dashboard=False, runtime_env=runtime_env(), logging_level="error")
    try:
        seen = asyncio.run(talks(int(port), int(mqtt_port)))
        seen["dataset"] = ray_dataset_reads.seen(postgres, "dataset.db")
    finally:
        ray.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
