"""Exports to share: erased paths, pseudonyms of agents, and an unchanged store."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker
from messager_store import EventLog, NewEvent
from messager_store.experiments import lifecycle
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.sharing import Sharing
from messager_store.maintenance.verify import verify
from messager_store.replay import Replay
from messager_store.sharing.pseudonyms import Pseudonyms
from tests.store.formats.test_jsonl import everything
from tests.support.logs import listed, sent

NAMES = ["Alice", "Bob the Builder", 7, "7", 8, "12", "Al"]


async def society(log: EventLog) -> None:
    of = await lifecycle.create(
        log.database,
        "e1",
        name="Alice's run",
        tags=["alice"],
        meta={"host": "box", "command": ["python"], "git": {"commit": "c"}, "seed": 7, "conf": {"cwd": "/home/a"}},
    )
    assert of is not None
    meta = {"host": "box", "command": ["run"], "versions": {}}
    writer = await log.register(of, role="tap", patterns=["exps:e1:agents:7:*", "exps:*"], meta=meta)
    inner = json.dumps({"content": "hello alice, says Bob the Builder", "from": "Alice", "n": 7})
    first = {"from": 7, "to": ["8", 8], "content": inner}
    fields = {"agent": 7, "note": "Alice", "host": "box"}
    msg = {"id": "m1", "name": "Alice", "content": "Malice is not Alice. 7 Al", "role": "user"}
    await log.append(
        writer,
        [
            sent(
                1,
                json.dumps(first).encode(),
                "exps:e1:agents:8:chat",
                from_id=7,
            ),
            sent(2, json.dumps(msg).encode(), "exps:e1:agents:Alice:chat", from_id="Alice", to_id="Bob the Builder"),
            sent(3, b"plain words of ALICE", "news of Alice", from_id="12", to_id="7", msg_id="m1"),
            sent(4, b"\xff\xfe", "c", from_id="Al"),
            NewEvent("mark", 5, None, b"", meta={"name": "tick", "fields": fields}),
            NewEvent("gap", 6, None, b"", meta={"reason": "box:6379 is away", "count": 3}),
            NewEvent("failed", 6, "c", b"x", meta={"outcome": "unknown", "error": "box:6379 is away"}),
        ],
    )
    await log.touch(writer, ended_at=1)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    text = path.read_text()
    header, *lines = [json.loads(line) for line in text.splitlines()]
    return header, lines, text


async def shared_lines(log: EventLog, path: Path, **how: Any) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    await export_jsonl(log, "e1", path, shared=Sharing(how.pop("paths", ()), **how))
    return read(path)


async def test_agents_have_pseudonyms_everywhere_and_the_same_ones(log: EventLog, tmp_path: Path) -> None:
    await society(log)
    header, lines, text = await shared_lines(log, tmp_path / "a.jsonl", pseudonymise=True)
    for word in ("Bob", "box", "python", "commit", "/home", "is away", '"alice"', "ALICE", "hello alice"):
        assert word not in text, word
    assert text.count("Alice") == 0 and "Malice" in text
    payload = json.loads(lines[0]["payload"])
    seven, eight = lines[0]["from_id"], payload["to"][1]
    assert isinstance(seven, int) and seven not in (7, 8, eight)
    assert payload["from"] == seven and payload["to"] == [str(eight), eight]
    exp = lines[0]["channel"].split(":")[1]
    assert exp.startswith("exp-") and lines[0]["channel"] == f"exps:{exp}:agents:{eight}:chat"
    assert lines[2]["to_id"] == str(seven)
    alice, bob = lines[1]["from_id"], lines[1]["to_id"]
    assert alice.startswith("agent-") and bob.startswith("agent-") and alice != bob
    inner = json.loads(payload["content"])
    assert inner == {"content": f"hello {alice}, says {bob}", "from": alice, "n": 7}
    msg = json.loads(lines[1]["payload"])
    assert msg == {"id": "m1", "name": alice, "content": f"Malice is not {alice}. 7 Al", "role": "user"}
    assert lines[1]["channel"] == f"exps:{exp}:agents:{alice}:chat" and lines[2]["channel"] == f"news of {alice}"
    assert lines[2]["payload"] == f"plain words of {alice}" and lines[2]["msg_id"] != "m1"
    assert lines[4]["meta"] == {"name": "tick", "fields": {"agent": seven, "note": alice}}
    assert [lines[at]["meta"] for at in (5, 6)] == [{"count": 3}, {"outcome": "unknown"}]
    assert header["meta"] == {"seed": 7, "conf": {}}
    (recorder,) = header["recorders"]
    assert recorder.keys() == {"role", "patterns", "started_at", "ended_at"}
    assert recorder["patterns"] == [f"exps:{exp}:agents:{seven}:*", "exps:*"]
    assert header["name"] == f"{alice}'s run" and header["tags"] == [alice]


async def test_pseudonyms_are_others_the_next_time(log: EventLog, tmp_path: Path) -> None:
    await society(log)
    _, _, first = await shared_lines(log, tmp_path / "a.jsonl", pseudonymise=True)
    _, _, second = await shared_lines(log, tmp_path / "b.jsonl", pseudonymise=True)
    assert first != second


async def test_no_two_agents_share_a_pseudonym_and_none_has_that_of_another() -> None:
    names = Pseudonyms([*range(2000), *map(str, range(2000)), *(f"n{at}" for at in range(2000))], random.Random(1))
    numbers = [names.agent(at) for at in range(2000)]
    assert len(set(numbers)) == 2000 and not set(numbers) & set(range(2000))
    assert [names.agent(str(at)) for at in range(2000)] == [str(number) for number in numbers]
    assert len({names.agent(f"n{at}") for at in range(2000)}) == 2000


async def test_what_was_redacted_has_no_pseudonym(log: EventLog, tmp_path: Path) -> None:
    of = await log.create_experiment("e1")
    payload = b'{"sender": "Alice", "to": {"name": "Bob", "id": 7}, "n": [1e400, -0, 1.50]}'
    await log.append(await log.register(of, role="tap"), [sent(1, payload, from_id="Alice", to_id="Bob")])
    how: dict[str, Any] = {"paths": ["sender", "to.*"], "pseudonymise": True}
    _, [line], _ = await shared_lines(log, tmp_path / "a.jsonl", **how)
    shared = '{"sender": "[redacted]", "to": {"name": "[redacted]", "id": "[redacted]"}, "n": [1e400, -0, 1.50]}'
    assert line["payload"] == shared, "numbers as they were recorded"


def test_what_is_nobody_stays() -> None:
    for agent in [None, True, False, "", "[redacted]"]:
        assert Pseudonyms(NAMES).agent(agent) is agent


def test_odd_ids_get_names() -> None:
    names = Pseudonyms([])
    for agent in (1.5, [1], {"a": 1}, "05", "\ud800", "-0"):
        found = names.agent(agent)
        assert found.startswith("agent-") and names.agent(agent) == found
    assert isinstance(names.agent(-(2**70)), int)


def test_a_payload_without_agents_stays_byte_for_byte() -> None:
    for payload in [b"", b"5", b'{"a":1.50}', b'"text"', b"\xff", b"[true, 1, 1.0]", b"[" * 100_000]:
        assert Pseudonyms(NAMES).payload(payload) == payload


@pytest.mark.parametrize(
    "how", [{"pseudonymise": True}, {"paths": ("content",)}, {"paths": ("*",), "pseudonymise": True}]
)
async def test_the_file_is_a_whole_export_and_the_store_stays(log: EventLog, tmp_path: Path, how: Any) -> None:
    await everything(log)
    before = await listed(log.read("e1"))
    head = (await verify(log, await log.experiment("e1"))).head
    await shared_lines(log, tmp_path / "a.jsonl", **how)
    assert await listed(log.read("e1")) == before
    assert (await verify(log, await log.experiment("e1"), head)).ok
    of = await import_jsonl(log, tmp_path / "a.jsonl", "copy")
    assert (await verify(log, of)).problems == []
    await export_jsonl(log, "e1", tmp_path / "plain.jsonl")
    await import_jsonl(log, tmp_path / "plain.jsonl", "plain")
    there, here = [await Replay(log, exp, MemoryBroker(), speed="max").run() for exp in ("plain", "copy")]
    assert here.published == there.published > 0
    await export_jsonl(log, "copy", tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


async def test_paths_are_blanked_and_counted(log: EventLog, tmp_path: Path) -> None:
    await society(log)
    shared = Sharing(["content.content", "note", "seed"])
    await export_jsonl(log, "e1", tmp_path / "a.jsonl", shared=shared)
    header, lines, _ = read(tmp_path / "a.jsonl")
    assert shared.clean is not None and (shared.clean.changed, shared.clean.unreadable) == (4, 3)
    assert json.loads(json.loads(lines[0]["payload"])["content"])["content"] == "[redacted]"
    assert "Malice" in lines[1]["payload"]
    assert [lines[at]["payload"] for at in (2, 3, 6)] == ['"[redacted]"'] * 3
    assert lines[4]["meta"]["fields"]["note"] == "[redacted]" and header["meta"]["seed"] == "[redacted]"


async def test_what_an_imported_header_says_of_recorders_is_shared_only_where_the_log_would_say_it(
    log: EventLog, tmp_path: Path
) -> None:
    told = [
        {"patterns": 5, "role": "Alice", "started_at": "Alice", "ended_at": [1]},
        {"patterns": ["exps:*", 5], "role": "tap", "started_at": 1, "ended_at": None},
    ]
    lines = [{"format": "messager/1", "recorders": told}, {"ts": 1, "channel": "c", "from_id": "Alice"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    await import_jsonl(log, tmp_path / "a.jsonl", "e1")
    header, _, text = await shared_lines(log, tmp_path / "b.jsonl", pseudonymise=True)
    assert "Alice" not in text
    assert header["recorders"] == [
        {"patterns": []},
        {"role": "tap", "patterns": ["exps:*"], "started_at": 1, "ended_at": None},
    ]


KNOWN = ["Alice", 7, "Al", "\u738b\u5c0f\u660e"]


def test_an_agent_is_found_in_objects_keys_references_and_scripts_without_spaces() -> None:
    for payload, gone in [
        ({"sender": {"id": 7}}, ": 7}"),
        ({"sender": {"id": "x9"}}, "x9"),
        ({"7": 1}, '"7"'),
        ({"score of Alice": 1}, "Alice"),
        ({"text": "\u6211\u662f\u738b\u5c0f\u660e\u3002"}, "\\u738b"),
        ({"reply_to": "m1"}, "m1"),
    ]:
        assert gone not in Pseudonyms(KNOWN).payload(json.dumps(payload).encode()).decode()


@pytest.mark.parametrize(
    "payload",
    [b'{"content": "Alice", "content": "x"}', json.dumps({"t": '{"a": "Alice", "a": "x"}'}).encode()],
)
def test_a_name_behind_a_key_that_is_there_twice_is_not_shared(payload: bytes) -> None:
    assert b"Alice" not in Pseudonyms(KNOWN).payload(payload)


def test_a_part_of_a_channel_that_is_an_id_is_replaced_outside_the_grammar_too() -> None:
    for channel in ["room:7", "room/Al/x", "news.7"]:
        names = Pseudonyms(KNOWN)
        assert "7" not in channel or names.channel(channel).split(channel[4])[1] == str(names.agent(7))
        assert "Al" not in names.channel(channel)


def test_a_reference_to_a_message_has_the_id_that_the_message_has() -> None:
    names = Pseudonyms(KNOWN)
    assert json.loads(names.payload(b'{"reply_to": "m1"}'))["reply_to"] == names.message_id("m1")


def test_keys_that_differ_in_case_alone_are_all_kept() -> None:
    assert len(json.loads(Pseudonyms(KNOWN).payload(b'{"Alice": 1, "alice": 2}'))) == 2
