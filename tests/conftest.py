"""A real redis-server and a real MQTT broker for the whole run, and a scrubbed environment for each test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from messager import MemoryBroker, RedisBroker
from messager.brokers import Broker, open_broker
from messager.testing import MqttServer, RedisServer, mqtt_server, redis_server
from messager_store import EventLog


@pytest.fixture(autouse=True)
def scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MESSAGER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def mqtt() -> Iterator[MqttServer]:
    with mqtt_server() as server:
        yield server


@pytest.fixture(params=["redis", "memory", "mqtt"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """Each carrier in turn, held to the same promises."""
    if request.param == "memory":
        yield MemoryBroker()
        return
    server: RedisServer | MqttServer = request.getfixturevalue(request.param)
    made = open_broker(server.url)
    yield made
    await made.close()


@pytest.fixture
async def redis_broker(redis: RedisServer) -> AsyncIterator[RedisBroker]:
    made = RedisBroker.from_url(redis.url)
    yield made
    await made.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "log.db")


@pytest.fixture
async def log(store: str) -> AsyncIterator[EventLog]:
    async with EventLog.open(store) as opened:
        yield opened
