"""Groups and agents of the original AgentSociety 1.0.0 on our MQTT Messager. Prints their messages as JSON.

python ray_agentsociety_program.py MQTT_PORT
"""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import ray

from messager_store.ray import runtime_env
from tests.support import agentsociety_1_0

EXP = "society10"


async def fetched(fetch: Callable[[], Awaitable[list[Any]]], count: int) -> list[Any]:
    """Wait for this number of messages."""
    messages: list[Any] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await fetch()
            await asyncio.sleep(0.05)
    return messages


async def society(port: int) -> dict[str, Any]:
    from agentsociety.message import MessageInterceptor
    from agentsociety.simulation.agentgroup import AgentGroup
    from agentsociety.simulation.simulation import AgentSimulation, Messager

    citizen = agentsociety_1_0.citizen()
    group = AgentGroup.options(num_cpus=0).remote(
        agent_class=citizen,
        number_of_agents=2,
        memory_config_function_group={citizen: agentsociety_1_0.empty_memory},
        config=agentsociety_1_0.config(port),
        map_ref=None,
        exp_name=EXP,
        exp_id=EXP,
        enable_avro=False,
        avro_path=Path(),
        enable_pgsql=False,
        pgsql_writer=None,
        message_interceptor=None,
        mlflow_run_id="",
        embedding_model=None,
        logging_level=40,
    )
    await group.init_agents.remote()
    one, other = await group.get_agent_uuids.remote()

    messager = Messager.remote(hostname="127.0.0.1", port=port, username=None, password=None)
    await messager.connect.remote()
    await messager.subscribe.remote([(f"exps/{EXP}/user_payback", 1), (f"exps/{EXP}/news", 1)], [EXP])
    await messager.start_listening.remote()
    driver: Any = types.SimpleNamespace(
        messager=messager,
        _user_chat_topics={agent: f"exps/{EXP}/agents/{agent}/user-chat" for agent in (one, other)},
        _user_survey_topics={agent: f"exps/{EXP}/agents/{agent}/user-survey" for agent in (one, other)},
    )
    await AgentSimulation.send_interview_message(driver, other, [one])
    await AgentSimulation.send_interview_message(driver, one, [other])
    survey = types.SimpleNamespace(to_dict=lambda: {"id": 1, "title": "The bridge"})
    await AgentSimulation.send_survey(driver, survey, [one, other])
    step = await group.step.remote()

    interceptor = MessageInterceptor.options(num_cpus=0).remote([agentsociety_1_0.refuses_listed()], [(one, other)])
    await messager.set_message_interceptor.remote(interceptor)
    for sender in (one, other):
        await messager.send_message.remote(f"exps/{EXP}/news", {"from": sender}, sender, other)
    [news] = await fetched(messager.fetch_messages.remote, 1)
    log = await messager.get_log_list.remote()
    await messager.stop.remote()
    return {
        "agents": [one, other],
        "step": step["mqtt_log"],
        "news": [news.topic.value, news.payload.decode(), news.qos],
        "log": [entry["topic"] for entry in log],
    }


def main(port: int) -> None:
    env = runtime_env()
    env["env_vars"]["MESSAGER_EXP"] = EXP
    env["worker_process_setup_hook"] = "tests.support.agentsociety_1_0.set_up"
    ray.init(num_cpus=1, include_dashboard=False, runtime_env=env, logging_level="error")
    agentsociety_1_0.set_up()
    try:
        seen = asyncio.run(society(port))
    finally:
        ray.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]))
