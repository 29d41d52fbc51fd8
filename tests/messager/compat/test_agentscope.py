"""Messages of AgentScope's classes can be sent, and are equal when they are received."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from messager import MemoryBroker, Messager, Msg
from messager.compat.agentscope import Version, to_agentscope
from messager.payload import to_wire
from messager_store import EventLog, Match, Recorder
from tests.support.wheels import importable, wheel

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
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def theirs(version: str) -> Iterator[Any]:
    """The module `agentscope.message` of each version."""
    names = {"loguru": {"logger": logging.getLogger("agentscope")}, "shortuuid": {"uuid": lambda: uuid4().hex}}
    path = wheel(f"agentscope=={version}")
    with importable(path, "agentscope", ["loguru", "shortuuid", "psutil", "requests"], names):
        from agentscope import message

        yield message


@pytest.fixture
def made(version: str, theirs: Any) -> Any:
    """Message of the class of each version."""
    return VERSIONS[version](theirs)


def read_by(kind: Any, data: dict[str, Any]) -> Any:
    """Return the object of AgentScope's class from a dict that went through JSON."""
    read = kind.from_dict if hasattr(kind, "from_dict") else kind.model_validate
    return read(json.loads(json.dumps(data)))


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
    assert fields(read_by(type(made), data)) == fields(made)
    assert (event.from_id, event.msg_id) == ("alice", made.id)
    view = event.msg
    assert (view.id, view.name, view.role, view.metadata) == (made.id, "alice", "assistant", {"k": [1]})
    named = {key: view.extra[key] if key in view.extra else getattr(view, key) for key in data if key[0] != "_"}
    assert named == {key: value for key, value in data.items() if key[0] != "_"}


def its(version: str) -> Version:
    """Return the name of a version in `to_agentscope`."""
    return "0.1" if version.startswith("0.1.") else "1" if version.startswith("1.") else "2"


def text_of(read: Any) -> str:
    """Return the text of a message."""
    if isinstance(read.content, str):
        return read.content
    texts = [block["text"] if isinstance(block, dict) else block.text for block in read.content]
    return "\n".join(texts)


CONTENTS: list[Any] = [
    "h\u00e9",
    "",
    None,
    5,
    {"say": ["h\u00e9"]},
    [],
    ["b", {"c": 1}],
    [{"type": "text", "text": "a"}, {"type": "odd"}, {"type": "text"}],
    [{"type": "image", "url": "a.png"}, {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}}],
    [{"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}}, {"type": "tool_call", "id": "t"}],
    [{"type": "tool_result", "id": "t", "name": "look", "output": [{"type": "odd"}]}],
    [{"type": "tool_result", "id": "t", "name": "look", "output": [{"type": "text", "text": "a"}]}],
    [{"type": "data", "source": {"type": "url", "url": "no url", "media_type": "image/png"}}],
    [{"type": "thinking", "thinking": "hm"}, {"type": "hint", "hint": "h"}, {"type": "thinking"}],
]
ROLES = ("system", "user", "assistant")
METADATA: list[Any] = [None, {"k": 1}, "words", [1]]
URLS: list[Any] = [None, "https://h/a.png", ["https://h/a.mp3", "b.txt", "/tmp/c.png"]]


@pytest.mark.filterwarnings("ignore:the content")
def test_every_version_accepts_what_is_written_for_it_and_what_is_written_for_all(version: str, theirs: Any) -> None:
    contents = itertools.cycle(CONTENTS)
    for role, metadata, url in itertools.product(ROLES, METADATA, URLS):
        msg = Msg("alice", next(contents), role, url, metadata)
        its_own = read_by(theirs.Msg, to_agentscope(msg, its(version)))
        time = its_own.created_at if its(version) == "2" else its_own.timestamp
        assert datetime.fromisoformat(time) == datetime.fromisoformat(msg.timestamp)
        for read in (its_own, read_by(theirs.Msg, to_agentscope(msg))):
            assert (read.id, read.name, read.role) == (msg.id, "alice", role)
            if isinstance(metadata, dict):
                assert read.metadata == metadata
            if (msg.content, url) == (CONTENTS[0], None):
                assert text_of(read) == CONTENTS[0]


def test_blocks_of_a_version_come_back_to_it_as_they_were(version: str, made: Any) -> None:
    data = json.loads(to_wire(made))
    again = to_agentscope(Msg.from_dict(data), its(version))
    assert fields(read_by(type(made), again)) == fields(made)


@pytest.mark.parametrize("version", ["0.1.1"], indirect=True)
@pytest.mark.filterwarnings("error")
def test_messages_in_messages_and_lone_surrogates_come_back_as_0_1_1_itself_reads_them(theirs: Any) -> None:
    from agentscope.serialize import deserialize, serialize

    pair = "\ud83d" + "\ude00"  # two characters, which the escapes of JSON would make one
    quoted = theirs.Msg("bob", "h\u00e9", "user")
    outer = theirs.Msg("alice", {"quotes": [quoted], "pair": pair}, "user", metadata={"quote": quoted})
    assert vars(deserialize(serialize(outer))) == vars(outer)

    ours = Msg.from_dict(json.loads(to_wire(outer)))
    [inner] = ours.content["quotes"]
    assert inner == ours.metadata["quote"] == Msg.from_dict(quoted.to_dict())

    ours.content["pair"] = pair
    assert vars(deserialize(serialize(to_agentscope(ours, "0.1")))) == vars(outer)


def test_urls_become_blocks_where_a_version_has_no_field_for_them() -> None:
    msg = Msg("a", "b", "user", url=["https://h/a.png", "c.txt"])
    text = {"type": "text", "text": "b"}
    source = {"type": "url", "url": "https://h/a.png"}
    file = {"type": "text", "text": "c.txt"}
    assert to_agentscope(msg, "1")["content"] == [text, {"type": "image", "source": source}, file]
    data = {"type": "data", "source": {**source, "media_type": "image/png"}}
    assert to_agentscope(msg, "2")["content"] == [text, data, file]
    assert to_agentscope(msg, "0.1")["url"] == to_agentscope(msg)["url"] == ["https://h/a.png", "c.txt"]


def test_content_that_a_version_does_not_know_becomes_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    msg = Msg("a", [{"type": "text", "text": "b"}, image], "assistant")
    text = {"type": "text", "text": "b"}
    assert to_agentscope(msg, "1")["content"] == [text, image]
    for version in ("0.1", "2", None):
        assert to_agentscope(msg, version)["content"] == [text, {"type": "text", "text": json.dumps(image)}]
    assert to_agentscope(Msg("a", {"b": 1}, "user"), "1")["content"] == '{"b": 1}'
    assert to_agentscope(Msg("a", {"b": 1}, "user"), "0.1")["content"] == {"b": 1}


def test_a_version_of_agentscope_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown version of AgentScope: '3'\. Use '0\.1', '1', '2' or None"):
        to_agentscope(Msg("a", "b", "user"), "3")  # type: ignore[arg-type]


def test_our_own_dict_is_refused_by_0_1_read_by_1_and_read_by_2_only_with_its_blocks_and_metadata(
    version: str, theirs: Any
) -> None:
    blocks: list[Any] = [{"type": "text", "text": "b"}]
    if its(version) == "2":
        assert text_of(read_by(theirs.Msg, Msg("a", blocks, "user", metadata={}).to_dict())) == "b"
        with pytest.raises(ValueError, match="metadata"):
            read_by(theirs.Msg, Msg("a", blocks, "user").to_dict())
    msg = Msg("a", "b", "user", url="u")
    if its(version) == "1":
        read = read_by(theirs.Msg, msg.to_dict())
        assert (read.id, read.content, read.timestamp, hasattr(read, "url")) == (msg.id, "b", msg.timestamp, False)
        return
    with pytest.raises((AssertionError, ValueError)):
        read_by(theirs.Msg, msg.to_dict())


def test_the_rules_for_agentscope_leave_out_what_the_same_message_has_anew_each_time(version: str, theirs: Any) -> None:
    def made() -> Any:
        if its(version) != "2":
            return VERSIONS[version](theirs)
        result = theirs.ToolResultBlock(
            id=uuid4().hex, name="look", output=[theirs.TextBlock(text="a")], state="success"
        )
        hint = theirs.HintBlock(hint=[theirs.TextBlock(text="b")])
        return theirs.Msg(name="alice", content=[theirs.TextBlock(text="h\u00e9"), result, hint], role="assistant")

    one, other = (to_wire(made()).encode() for _ in range(2))
    assert not Match().same(one, other) and Match.agentscope().same(one, other)
    data = json.loads(one)
    for key in data.keys() - {"id", "timestamp", "created_at", "finished_at"}:
        assert not Match.agentscope().same(json.dumps({**data, key: "changed"}).encode(), other)


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
