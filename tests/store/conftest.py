from __future__ import annotations

from typing import Any

import pytest

from messager.testing import MqttServer, RedisServer
from messager_store.testing import Databases
from tests.store.ray_runs import once


@pytest.fixture(scope="session")
def ran(
    redis: RedisServer,
    mqtt: MqttServer,
    databases: Databases,
    migrated: str,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
) -> Any:
    """What `ray_program.py` has seen in one Ray, and its store."""
    postgres = databases.create(migrated)
    words = (str(redis.port), str(mqtt.port), postgres)
    found = once("ray_program", tmp_path_factory, worker_id, *words)
    databases.drop(postgres)
    return found
