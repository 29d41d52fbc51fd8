"""The published AgentSociety 1.3.7: driver, groups and agents.

The package is imported from its wheel. Stand-ins replace Ray (actors run in this process), the language model, the
city, the memory of agents, and the libraries that only those use.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import types
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from tests.support.wheels import importable, wheel

NEEDS = (
    "boto3 botocore faiss fastavro google grpc jsonc langchain_community langchain_core mlflow numpy openai psutil "
    "psycopg pycityproto pyproj ray shapely yaml"
)


class Done:
    """Result that may be awaited: the driver awaits calls that groups do not await."""

    def __await__(self) -> Iterator[None]:
        yield from ()


class City:
    """Stand-in for the city as the driver and groups use it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.tick = 0
        self.economy_client = MagicMock(get_log_list=list)
        self.told: dict[str, str] = {}

    def init(self) -> Done:
        return Done()

    def close(self) -> Done:
        return Done()

    async def step(self, ticks: int) -> None:
        self.tick += ticks

    def get_datetime(self) -> tuple[int, int]:
        return divmod(self.tick, 86_400)

    def get_tick(self) -> int:
        return self.tick

    def set_tick(self, tick: int) -> None:
        self.tick = tick

    def get_aoi_ids(self) -> list[int]:
        return []

    def to_init_args(self) -> dict[str, Any]:
        return {}

    def get_environment(self) -> str:
        return json.dumps(self.told)

    def update_environment(self, key: str, value: str) -> None:
        self.told[key] = value

    def get_log_list(self) -> list[Any]:
        return []

    def clear_log_list(self) -> None: ...


class Handle:
    """Stand-in for the handle of an actor in this process."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **named: Any) -> Any:
            answer = getattr(self._actor, name)(*given, **named)
            return await answer if asyncio.iscoroutine(answer) else answer

        return types.SimpleNamespace(remote=lambda *given, **named: asyncio.ensure_future(call(*given, **named)))


class Queue:
    """Stand-in for the queue from interceptors to their listener, always empty."""

    async def get_async(self, timeout: float) -> Any:
        await asyncio.Event().wait()


def remote(actor: type) -> Any:
    return types.SimpleNamespace(remote=lambda *given, **named: Handle(actor(*given, **named)), actor=actor)


def memory(*given: Any, **named: Any) -> Any:
    made = MagicMock()
    made.status = AsyncMock()
    made.status.profile.export.return_value = [{}]
    made.stream = AsyncMock()
    made.initialize_embeddings = AsyncMock()
    return made


@contextlib.contextmanager
def society(monkeypatch: pytest.MonkeyPatch, *, patient: bool = False) -> Iterator[Any]:
    """Context with the module `agentsociety.simulation.agentsociety` and the stand-ins that it needs.

    The driver and the groups sleep for 1 ms instead of 3 s between two fetches, unless they are `patient`.
    """
    names = {
        "jsonc": {"dumps": json.dumps, "loads": json.loads},
        "ray": {"remote": remote},
        "ray.util.queue": {"Queue": Queue, "Empty": TimeoutError},
        "yaml": {"dump": lambda *given, **named: ""},
    }
    with importable(wheel("agentsociety==1.3.7"), "agentsociety", NEEDS.split(), names):
        from agentsociety.simulation import agentgroup, agentsociety

        impatient = types.SimpleNamespace(**{**vars(asyncio), "sleep": lambda seconds: _sleep(0.001)})
        for module in () if patient else (agentgroup, agentsociety):
            monkeypatch.setattr(module, "asyncio", impatient)
        monkeypatch.setattr(agentsociety, "EnvironmentStarter", City)
        monkeypatch.setattr(agentgroup, "Environment", City)
        monkeypatch.setattr(agentgroup, "LLM", lambda config: MagicMock(get_log_list=list, close=AsyncMock()))
        monkeypatch.setattr(agentgroup, "monitor_requests", AsyncMock())
        monkeypatch.setattr(agentgroup, "init_embedding", MagicMock())
        monkeypatch.setattr(agentgroup, "FaissQuery", MagicMock())
        monkeypatch.setattr(agentgroup, "Memory", memory)
        yield agentsociety


_sleep = asyncio.sleep


def agents() -> dict[str, Any]:
    """Return the agents of a configuration: three citizens that send messages, and the required institutions."""
    from agentsociety.agent import (
        BankAgentBase,
        CitizenAgentBase,
        FirmAgentBase,
        GovernmentAgentBase,
        NBSAgentBase,
    )

    def quiet(base: type) -> type:
        async def nothing(self: Any, *given: Any) -> None: ...

        names = ("init", "forward", "reset", "react_to_intervention", "_bind_to_economy", "_bind_to_simulator")
        return type(f"Quiet{base.__name__}", (base,), {**dict.fromkeys(names, nothing), "__abstractmethods__": set()})

    class Citizen(quiet(CitizenAgentBase)):  # type: ignore[misc]
        async def forward(self) -> None:
            said = json.dumps({"content": f"h\u00e9 from {self.id}"}, ensure_ascii=False)
            await self.send_message_to_agent(self.id + 1 if self.id < 7 else 5, said)

        async def generate_user_survey_response(self, survey: dict[str, Any]) -> str:
            return "yes"

        async def generate_user_chat_response(self, question: str) -> str:
            return "fine"

    def some(kind: type, number: int = 1) -> list[dict[str, Any]]:
        return [{"agent_class": kind, "number": number, "memory_config_func": _empty_memory}]

    return {
        "citizens": some(Citizen, 3),
        "firms": some(quiet(FirmAgentBase)),
        "banks": some(quiet(BankAgentBase)),
        "nbs": some(quiet(NBSAgentBase)),
        "governments": some(quiet(GovernmentAgentBase)),
    }


def _empty_memory(distributions: Any) -> Any:
    return {}, {}, {}


def config(port: int, workflow: list[dict[str, Any]], **experiment: Any) -> Any:
    """Return a real `Config` with a secret in every place for one."""
    from agentsociety.configs import Config

    return Config.model_validate(
        {
            "llm": [{"provider": "openai", "api_key": "hush-1", "model": "m", "base_url": "https://u:hush-2@h/v1"}],
            "env": {
                "redis": {"server": "127.0.0.1", "port": port},
                "pgsql": {"enabled": False, "dsn": "postgresql://u:hush-3@h/d", "num_workers": 1},
                "avro": {"enabled": False, "path": ""},
                "mlflow": {"enabled": False, "password": "hush-4", "mlflow_uri": "http://u:hush-5@h"},
                "s3": {"access_key": "hush-6", "secret_key": "hush-7"},
            },
            "map": {"file_path": "town.pb"},
            "agents": agents(),
            "exp": {"name": "a town", "workflow": workflow, "environment": {"start_tick": 0}, **experiment},
            "advanced": {"group_size": 4},
        }
    )
