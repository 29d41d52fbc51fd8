"""AgentScope's own messages are sent as they are, and come back equal."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from messager import MemoryBroker, Messager, Msg
from messager.messager import to_wire
from messager_store import EventLog, Recorder
from tests.wheels import importable, wheel

BLOCKS = [{"type": "text", "text": "h\u00e9"}, {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}]


def of_0_1_1(module: Any) -> Any:
    return module.Msg("alice", {"say": ["h\u00e9", 2**70]}, "assistant", url=["u", "v"], metadata={"k": [1]})


def of_0_1_6(module: Any) -> Any:
    return module.Msg("alice", [{"type": "text", "text": "h\u00e9"}], "assistant", metadata={"k": [1]})


def of_1(module: Any) -> Any:
    return module.Msg("alice", BLOCKS, "assistant", metadata={"k": [1]}, invocation_id="call-7")


def of_2(module: Any) -> Any:
    blocks = [
        module.TextBlock(text="h\u00e9"),
        module.ToolCallBlock(id="t1", name="look", input="{}"),
        module.DataBlock(source=module.URLSource(url="https://example.org/a.png", media_type="image/png")),
    ]
    usage = module.Usage(input_tokens=1, output_tokens=2)
    return module.Msg(name="alice", content=blocks, role="assistant", metadata={"k": [1]}, usage=usage)


VERSIONS: dict[str, Callable[[Any], Any]] = {
    "0.1.1": of_0_1_1,
    "0.1.6": of_0_1_6,
    "1.0.10": of_1,
    "2.0.11": of_2,
}


@pytest.fixture(params=VERSIONS)
def made(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A message of each version's own class."""
    names = {"loguru": {"logger": logging.getLogger("agentscope")}, "shortuuid": {"uuid": lambda: uuid4().hex}}
    path = wheel(f"agentscope=={request.param}")
    with importable(path, "agentscope", ["loguru", "shortuuid", "psutil", "requests"], names):
        from agentscope import message

        yield VERSIONS[request.param](message)


def fields(msg: Any) -> Any:
    return msg.model_dump() if isinstance(msg, BaseModel) else vars(msg)


async def test_a_message_of_agentscope_itself_comes_back_equal_from_the_wire_and_from_the_log(
    made: Any, log: EventLog
) -> None:
    async with Recorder(log, "e1") as recorder, Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(recorder)
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", made)
        [received] = await messager.fetch_messages()
    [event] = [event async for event in log.read("e1", kinds=["sent"])]
    assert event.payload == received["data"]
    data = json.loads(event.payload)
    read = type(made).from_dict if hasattr(made, "from_dict") else type(made).model_validate
    assert fields(read(dict(data))) == fields(made)
    assert (event.from_id, event.msg_id) == ("alice", made.id)
    view = event.msg
    assert (view.id, view.name, view.role, view.metadata) == (made.id, "alice", "assistant", {"k": [1]})
    named = {key: view.extra[key] if key in view.extra else getattr(view, key) for key in data if key[0] != "_"}
    assert named == {key: value for key, value in data.items() if key[0] != "_"}


def class_of_agentscope(name: str, *bases: type, **members: Any) -> Any:
    return type(name, bases, {"__module__": "agentscope.message", **members})


@dataclasses.dataclass
class Bare:
    name: str
    content: str
    role: str


def test_a_message_class_without_any_method_travels_as_its_fields() -> None:
    kind = class_of_agentscope("Msg", Bare)
    assert json.loads(to_wire(kind("a", "b", "user"))) == {"name": "a", "content": "b", "role": "user"}


def test_a_users_own_subclass_of_an_agentscope_message_is_one_too() -> None:
    kind = class_of_agentscope("Msg", to_dict=lambda self: {"name": "a", "content": "b", "role": "user"})
    mine = type("Mine", (kind,), {"__module__": "theirs"})()
    assert json.loads(to_wire(mine)) == {"name": "a", "content": "b", "role": "user"}


def test_messages_inside_a_payload_travel_as_their_dicts() -> None:
    kind = class_of_agentscope("Msg", to_dict=lambda self: {"name": "a"})
    ours = Msg("b", "c", "user")
    assert json.loads(to_wire({"all": [kind(), ours]})) == {"all": [{"name": "a"}, ours.to_dict()]}


def test_metadata_that_json_cannot_hold_becomes_text_and_nothing_else_is_lost() -> None:
    class Fields(BaseModel):
        name: str
        metadata: dict[str, Any]

    kind = class_of_agentscope("Msg", Fields, __annotations__={})
    value = object()
    assert json.loads(to_wire(kind(name="a", metadata={"k": value}))) == {"name": "a", "metadata": {"k": str(value)}}


def test_any_other_object_is_its_text_as_agentsociety_has_it() -> None:
    class Foreign:
        def to_dict(self) -> dict[str, Any]:
            return {}

        def __str__(self) -> str:
            return "in words"

    at = datetime(2026, 3, 1, 10, 30)
    payload = {"_date_time": at, "other": Foreign(), "\u00e9": float("nan"), 5: 2**70}
    assert to_wire(payload) == json.dumps(payload, default=str)
    assert to_wire(type("Msg", (Foreign,), {})()) == '"in words"'
