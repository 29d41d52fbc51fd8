"""Rows about sending over MQTT."""

from __future__ import annotations

import asyncio

from messager import channels
from messager.mqtt import Messager
from messager_store import EventLog, Recorder

from . import peers
from .measure import Stage, Values
from .sends import ALONE, CHANNEL, IN_FLIGHT, TOGETHER, timed
from .workload import remove

TOPIC = channels.with_separator(CHANNEL, "/")


class Together:
    """Sends per second at QoS 1, `IN_FLIGHT` at a time: ours with recording on, and AgentSociety's."""

    count, in_flight = TOGETHER, IN_FLIGHT

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._peer = peers.agentsociety_mqtt()
        self._port = stage.mqtt.port

    def ours(self) -> Values:
        return asyncio.run(self._ours())

    def theirs(self) -> Values:
        return asyncio.run(self._theirs())

    async def _ours(self) -> Values:
        path = self.stage.new_path()
        async with EventLog.open(str(path)) as log, Recorder(log, "bench") as recorder:
            async with Messager("127.0.0.1", self._port) as messager:
                messager.add_log_hook(recorder)
                found = await timed(messager, recorder, self.count, self.in_flight, TOPIC)
        remove(path)
        return found

    async def _theirs(self) -> Values:
        messager = self._peer.Messager("127.0.0.1", self._port)
        await messager.connect()
        try:
            return await timed(messager, None, self.count, self.in_flight, TOPIC)
        finally:
            await messager.disconnect()


class Alone(Together):
    """Sends per second at QoS 1, one after another: ours with recording on, and AgentSociety's."""

    count, in_flight = ALONE, 1
