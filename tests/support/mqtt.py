"""A broker behind a proxy, for tests of MQTT."""

from __future__ import annotations

import asyncio
from typing import Any

from messager.brokers import MqttBroker, PubSub
from tests.support import Proxy


def through(proxy: Proxy, **options: Any) -> MqttBroker:
    return MqttBroker(
        "127.0.0.1", proxy.port, **{"timeout": 30.0, "ping_interval": 0.1, "ping_timeout": 2.0, **options}
    )


async def heard(pubsub: PubSub) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (message := await pubsub.get_message(timeout=0.2)) is None:
            pass
    return message
