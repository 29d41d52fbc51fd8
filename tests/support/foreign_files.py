"""Made-up samples of the files that other programs leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OF_0_1 = [
    {
        "id": f"{at:032x}",
        "timestamp": f"2024-10-02 09:15:{at // 2:02d}",
        "name": ["Ann", "Bob"][at % 2],
        "content": f"line {at}",
        "role": "assistant",
        "url": None,
        "metadata": None,
        "__module__": "agentscope.message.msg",
        "__name__": "Msg",
    }
    for at in range(5)
]
OF_1 = [
    {
        "id": "hGKZ4zAuAmvoPmtHXNi2U5",
        "name": "Ann",
        "role": "user",
        "content": [{"type": "text", "text": "h\u00e9llo"}],
        "metadata": None,
        "timestamp": "2025-08-21 09:59:43.127",
    }
]
OF_2 = [
    {
        "name": "Bob",
        "content": [{"type": "text", "id": "b1", "text": "good morning"}],
        "role": "assistant",
        "id": "m2",
        "metadata": {},
        "created_at": "2026-02-03T04:05:06.789012+08:00",
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "finished_at": None,
    }
]
OF_0_0 = [
    {
        "id": "00ff",
        "timestamp": "2024-05-06 07:08:09",
        "name": "system",
        "content": {"speak": "hi", "n": 1},
        "role": "system",
        "url": None,
        "mood": "calm",
    }
]
LOG_1_3 = [
    {
        "channel": "exps:e1:agents:7:agent-chat",
        "payload": {"from": 3, "content": '{"day": 0, "t": 28800.5, "content": "hello"}', "timestamp": 1},
        "from_id": 3,
        "to_id": 7,
        "start_time": 1714550400.1234567,
        "consumption": 0.25,
        "sent": True,
    },
    {
        "channel": "exps:e1:agents:8:agent-chat",
        "payload": {"from": 3, "content": "refused"},
        "from_id": 3,
        "to_id": 8,
        "start_time": 1714550401.0,
        "consumption": 0,
        "sent": False,
    },
    {
        "channel": "exps:e1:agents:9:user-survey",
        "payload": {"from": "none", "survey_id": "s"},
        "from_id": None,
        "to_id": None,
        "start_time": 1714550402,
        "consumption": 0.001,
        "sent": True,
    },
]
LOG_1_0 = [
    {
        "topic": "exps/e1/agents/00aa/agent-chat",
        "payload": {"from": "00bb", "content": "hi"},
        "from_uuid": "00bb",
        "to_uuid": "00aa",
        "start_time": 1700000000.5,
        "consumption": 0.002,
    }
]
SCHEMA = {
    "tables": {},
    "datasets": {
        "social_media.event": {
            "dataset_id": "social_media.event",
            "table_name": "social_media_event",
            "module_name": "social",
            "kind": "event_stream",
            "entity_key": "sender_id",
            "step_key": "step",
            "time_key": "t",
            "default_order": ["step", "id"],
            "capabilities": ["event_stream", "social_event"],
        },
        "core.simulation_timeline": {
            "dataset_id": "core.simulation_timeline",
            "table_name": "core_simulation_timeline",
            "kind": "env_snapshot",
            "time_key": "t",
            "default_order": ["step"],
            "capabilities": ["simulation_timeline"],
        },
        "core.agent_profile": {
            "dataset_id": "core.agent_profile",
            "table_name": "core_agent_profile",
            "kind": "entity_static",
            "entity_key": "id",
            "capabilities": ["agent_profile"],
        },
    },
}
SOCIAL = [
    {
        "id": at,
        "step": at // 10,
        "t": f"2026-01-01T09:{at // 10:02d}:00",
        "sender_id": at % 4,
        "action": "comment",
        "content": f"c{at}",
        "receiver_id": None if at % 3 else (at + 1) % 4,
        "target_id": 1,
    }
    for at in range(30)
]


def dumped(path: Path, value: Any, **how: Any) -> Path:
    path.write_text(json.dumps(value, **how))
    return path


def lines(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def a_replay(folder: Path) -> Path:
    """Write a replay as its sink does: rows in shards without an order."""
    folder.mkdir()
    dumped(folder / "_schema.json", SCHEMA)
    for row in reversed(SOCIAL):
        shard = (row["id"] * 37) % 5  # type: ignore[operator]
        with (folder / f"social_media_event.{shard:02x}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
    steps = [{"step": step, "t": f"2026-01-01T09:{step:02d}:00"} for step in range(3)]
    lines(folder / "core_simulation_timeline.0a.jsonl", steps)
    lines(folder / "core_agent_profile.0b.jsonl", [{"id": at, "name": "A", "profile": "{}"} for at in range(4)])
    return folder
