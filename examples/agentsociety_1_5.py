"""Three citizens of AgentSociety 1.5: its own engine and interceptor, without a city and a language model.

pip install agentsociety==1.5.7 PATH                       # PATH: the path of this checkout
MESSAGER_STORE=town.db python examples/agentsociety_1_5.py
"""

import asyncio
import os
from tempfile import gettempdir
from unittest.mock import AsyncMock, MagicMock, Mock

from agentsociety.agent import CitizenAgentBase
from agentsociety.configs import Config
from agentsociety.message import MessageInterceptor, Messager
from agentsociety.simulation.simulationengine import SimulationEngine

from messager.compat import agentsociety
from messager.transport import of_process
from messager_store import EventLog


class Citizen(CitizenAgentBase):  # type: ignore[misc]
    async def run(self) -> None:
        await self.send_message_to_agent(self.id % 3 + 1, f"good day {self.environment.get_datetime()[1]}")

    forward, do_interview = run, AsyncMock(return_value="I am well.")


async def live() -> None:
    llm, agents = {"provider": "openai", "api_key": "x", "model": "m"}, {"citizens": [{"agent_class": Citizen}]}
    env = {"db": {"enabled": False}, "home_dir": gettempdir()}
    exp = {"name": "a town", "workflow": [{"type": "step"}], "environment": {"start_tick": 0}}
    engine = SimulationEngine(Config(llm=[llm], env=env, map={"file_path": "town.pb"}, agents=agents, exp=exp))
    city = MagicMock(get_datetime=lambda *_: (0, 300 * engine._total_steps), get_log_list=list)
    city.get_metrics, city.step, city.economy_client.get_log_list = AsyncMock(), AsyncMock(), list
    city.get_environment = str
    interceptor = MessageInterceptor.__new__(MessageInterceptor)
    quarrel = AsyncMock(side_effect=lambda sent: ({one: (one.from_id, one.to_id) != (1, 2) for one in sent}, []))
    await interceptor.set_supervisor(Mock(forward=quarrel))
    engine._environment, engine._llm, engine._messager = city, MagicMock(get_log_list=list), Messager(engine.exp_id)
    engine._message_interceptor, engine._save = interceptor, AsyncMock()
    tools = Mock(messager=engine.messager, environment=city, database_writer=None)
    engine._id2agent = {number: Citizen(number, f"citizen {number}", tools, Mock()) for number in (1, 2, 3)}
    _ = [await engine.step() for _ in range(3)]
    await engine.send_interview_message("How are you?", [2])


async def main() -> None:
    agentsociety.install()
    await live()
    of_process().stop()
    async with EventLog.open(os.environ["MESSAGER_STORE"], create=False) as log:
        async for event in log.read(of_process().exp_id, kinds=["received", "blocked"]):
            print(f"{event.kind}: {event.from_id} to {event.to_id}: {event.msg.content}")


if __name__ == "__main__":
    asyncio.run(main())
