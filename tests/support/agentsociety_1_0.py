"""The published AgentSociety 1.0.0 on the MQTT Messager of this package, in real Ray actors.

The package is imported from its wheel. Stand-ins replace the language model, the city, the memory of agents and the
libraries that only those use. Groups, agents, the interceptor and the driver are the original code.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
import types
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from messager.mqtt import Messager
from messager_store.ray import set_up_worker
from tests.support.wheels import StandIn, importable, wheel

NEEDS = (
    "faiss fastavro grpc langchain_community langchain_core mlflow mosstool openai psycopg pycitydata pycityproto "
    "pymongo pyparsing pyproj shapely torch transformers zhipuai"
)
REQUIREMENT = "agentsociety==1.0.0"

_open = contextlib.ExitStack()  # until the end of the process
atexit.register(_open.close)


class City:
    """Stand-in for the city as groups and agents use it. The time is always noon of the first day."""

    def __init__(self, config: Any) -> None:
        import ray

        projector = ray.put("a projector")
        self.map = types.SimpleNamespace(get_projector=types.SimpleNamespace(remote=lambda: projector))

    def set_environment(self, environment: Any) -> None: ...

    def set_map(self, map_ref: Any) -> None: ...

    async def get_simulator_day(self) -> int:
        return 0

    async def get_simulator_second_from_start_of_day(self) -> int:
        return 43_200

    def get_log_list(self) -> list[Any]:
        return []

    def clear_log_list(self) -> None: ...


class FastAsyncio:
    """Stand-in for asyncio in which AgentSociety polls a hundred times as often."""

    create_task, gather, CancelledError = asyncio.create_task, asyncio.gather, asyncio.CancelledError

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


def client(*given: Any) -> Any:
    return MagicMock(get_log_list=list)


def memory(*given: Any, **named: Any) -> Any:
    return MagicMock(status=AsyncMock(), stream=AsyncMock())


def set_up() -> None:
    """Make AgentSociety importable in this process, with our Messager instead of its own. Ray's workers call it."""
    set_up_worker()
    import ray

    names = {"agentsociety.configs.exp_config": {"AgentSimulation": object}}  # required by current versions of pydantic
    _open.enter_context(importable(wheel(REQUIREMENT), "agentsociety", NEEDS.split(), names))
    for name in ("cityagent", "cityagent.initial", "cityagent.memory_config", "cityagent.message_intercept"):
        sys.modules[f"agentsociety.{name}"] = StandIn(f"agentsociety.{name}")
    from agentsociety.simulation import agentgroup, simulation

    group: Any = agentgroup
    group.Messager = simulation.Messager = ray.remote(num_cpus=0)(Messager)
    group.asyncio = simulation.asyncio = FastAsyncio
    group.Simulator, group.Memory, group.LLM, group.EconomyClient = City, memory, client, client


def config(port: int) -> Any:
    from agentsociety.configs import SimConfig

    return SimConfig().SetMQTT("127.0.0.1", port)


def citizen() -> Any:
    """Return a class of agents that send a message to the agent named in an interview, and again at each step."""
    from agentsociety.agent import CitizenAgent

    class Citizen(CitizenAgent):  # type: ignore[misc]
        friend = ""

        async def bind_to_simulator(self) -> None: ...

        async def forward(self) -> None:
            await self.send_message_to_agent(self.friend, "h\u00e9 again")

        async def generate_user_chat_response(self, question: str) -> str:
            self.friend = question
            await self.send_message_to_agent(question, "h\u00e9")
            return "done"

        async def generate_user_survey_response(self, survey: dict[str, Any]) -> str:
            return "yes"

    return Citizen


def refuses_listed() -> Any:
    """Return a block of an interceptor that refuses the pairs on its black list."""
    from agentsociety.message import MessageBlockBase

    class RefusesListed(MessageBlockBase):  # type: ignore[misc]
        async def forward(
            self, from_uuid: str, to_uuid: str, msg: str, violation_counts: Any, black_list: Any
        ) -> tuple[bool, str]:
            return (from_uuid, to_uuid) not in black_list, "refused"

    return RefusesListed("listed")


def empty_memory() -> Any:
    return {}, {}, {}
