"""Import of what AgentScope and AgentSociety left behind, and of CSV: each message once, with its time and its ids."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager import MemoryBroker, Messager
from messager.compat.agentscope import to_agentscope
from messager.msg import Msg
from messager_store import Event, EventLog, NewEvent
from messager_store.errors import BadFile, ExperimentExists, StoreError
from messager_store.formats import output_format
from messager_store.formats.foreign.json_values import JsonFile
from messager_store.formats.foreign.source import Told
from messager_store.formats.foreign.times import Clock, timezone_of
from messager_store.formats.import_file import import_file
from messager_store.formats.importing import Imported
from messager_store.formats.input_formats import INPUT_FORMATS, input_format
from messager_store.formats.jsonl import export_jsonl
from messager_store.maintenance.verify import verify
from messager_store.queries.overview import overview
from messager_store.replay import Replay
from tests.support import messager, nightly_after
from tests.support.foreign_files import (
    LOG_1_0,
    LOG_1_3,
    OF_0_0,
    OF_0_1,
    OF_1,
    OF_2,
    SOCIAL,
    a_replay,
    dumped,
    lines,
)
from tests.support.logs import filled, listed, sent

SECOND = 1_000_000_000


def ns(text: str) -> int:
    """Return a time in UTC in ns, computed by datetime alone."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


async def imported(log: EventLog, path: Path, **how: Any) -> tuple[Imported, list[Event]]:
    done = await import_file(log, path, "e1", **how)
    assert (await verify(log, done.experiment)).problems == []
    return done, await listed(log.read("e1"))


@pytest.mark.parametrize("how", nightly_after(2, ["list", "indented list", "lines", "indented values", "gzip"]))
async def test_messages_of_agentscope_are_read_from_every_layout(log: EventLog, tmp_path: Path, how: str) -> None:
    path = tmp_path / "logging.chat"
    if how == "gzip":
        path.write_bytes(gzip.compress(lines(path, OF_0_1).read_bytes()))
    elif "list" in how:
        dumped(path, OF_0_1, indent=4 if how == "indented list" else None)
    else:
        path.write_text("\n".join(json.dumps(data, indent=4 if how == "indented values" else None) for data in OF_0_1))
    done, events = await imported(log, path)
    assert [json.loads(event.payload) for event in events] == OF_0_1
    assert [(event.kind, event.ts, event.from_id, event.to_id, event.channel, event.msg_id) for event in events] == [
        ("sent", ns(data["timestamp"]), data["name"], None, "agentscope", data["id"]) for data in OF_0_1
    ]
    assert [event.msg.content for event in events] == [f"line {at}" for at in range(5)]
    assert set(done.notes) == {
        "assumed: channel agentscope (--channel names another)",
        "assumed: timezone UTC (--timezone names another)",
    }


async def test_messages_of_all_versions_of_agentscope_keep_their_time_and_text(log: EventLog, tmp_path: Path) -> None:
    path = dumped(tmp_path / "x.json", OF_0_0 + OF_0_1 + OF_1 + OF_2)
    _, events = await imported(log, path, channel="hub")
    by_name = {event.msg_id: event for event in events}
    assert by_name["00ff"].ts == ns("2024-05-06 07:08:09") and by_name["00ff"].msg.extra == {"mood": "calm"}
    assert by_name["hGKZ4zAuAmvoPmtHXNi2U5"].ts == ns("2025-08-21 09:59:43") + 127_000_000
    assert by_name["m2"].ts == ns("2026-02-02 20:05:06") + 789_012_000  # eight hours ahead of UTC
    assert by_name["hGKZ4zAuAmvoPmtHXNi2U5"].text == "h\u00e9llo" and by_name["m2"].text == "good morning"
    assert {event.channel for event in events} == {"hub"}


@pytest.mark.parametrize("version", nightly_after(1, ["0.1", "1", "2", None]))
async def test_what_messager_writes_for_agentscope_is_read(log: EventLog, tmp_path: Path, version: Any) -> None:
    made = [Msg("Ann", "hello", "user"), Msg("Bob", "hi", "assistant")]
    _, events = await imported(log, dumped(tmp_path / "x.json", [to_agentscope(msg, version) for msg in made]))
    assert [(event.text, event.from_id, event.msg_id) for event in events] == [
        ("hello", "Ann", made[0].id),
        ("hi", "Bob", made[1].id),
    ]


async def test_a_session_of_several_memories_gives_each_message_once(log: EventLog, tmp_path: Path) -> None:
    heard = {"Ann": OF_0_1[:3], "Bob": OF_0_1}
    session = {name: {"memory": {"content": [[data, ["mark"]] for data in told]}} for name, told in heard.items()}
    done, events = await imported(log, dumped(tmp_path / "session.json", session))
    assert Counter(event.msg_id for event in events) == Counter(data["id"] for data in OF_0_1)
    assert "not imported: copies of messages in other memories (3)" in done.notes


async def test_times_without_a_zone_are_in_the_chosen_one(log: EventLog, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.json", OF_0_1 + OF_2)
    done, events = await imported(log, path, timezone="Asia/Shanghai")
    assert {event.ts for event in events} == {
        *(ns(data["timestamp"]) - 8 * 3600 * SECOND for data in OF_0_1),
        ns("2026-02-02 20:05:06") + 789_012_000,
    }
    assert not any("timezone" in note for note in done.notes)
    assert done.experiment.meta["imported"]["timezone"] == "Asia/Shanghai"


async def test_a_log_list_of_agentsociety_becomes_what_its_messager_sent(log: EventLog, tmp_path: Path) -> None:
    done, events = await imported(log, dumped(tmp_path / "log.json", LOG_1_3))
    assert [event.payload for event in events] == [
        json.dumps(data["payload"], default=str).encode() for data in LOG_1_3
    ]
    assert [(event.kind, event.ts, event.from_id, event.to_id, event.duration_ns) for event in events] == [
        ("sent", 1714550400123456700, 3, 7, 250_000_000),
        ("blocked", 1714550401000000000, 3, 8, 0),
        ("sent", 1714550402000000000, "none", 9, 1_000_000),
    ]
    assert [event.derived_ids for event in events] == [[], [], ["from_id", "to_id"]]
    assert events[0].text == "hello"
    assert done.notes == ()


async def test_a_log_list_of_the_mqtt_messager_is_read(log: EventLog, tmp_path: Path) -> None:
    _, [event] = await imported(log, lines(tmp_path / "log.jsonl", LOG_1_0))
    assert (event.kind, event.channel, event.from_id, event.to_id, event.ts) == (
        *("sent", "exps/e1/agents/00aa/agent-chat", "00bb", "00aa"),
        1700000000500000000,
    )


async def test_the_log_list_of_our_messager_is_the_recording(log: EventLog, tmp_path: Path) -> None:
    async with Messager(MemoryBroker(), "e9") as talking:
        await talking.send_message("exps:e9:agents:1:chat", {"content": "a", "n": 1.5}, 2, 1)
        await talking.send_message("c", {"content": "b"})
        entries = talking.get_log_list()
    _, events = await imported(log, dumped(tmp_path / "log.json", entries))
    assert [json.loads(event.payload) for event in events] == [{"content": "a", "n": 1.5}, {"content": "b"}]
    assert [(event.from_id, event.to_id) for event in events] == [(2, 1), (None, None)]
    assert [event.ts / SECOND for event in events] == [pytest.approx(entry["start_time"]) for entry in entries]


async def test_a_replay_of_agentsociety_is_sorted_by_time_step_and_id(log: EventLog, tmp_path: Path) -> None:
    done, events = await imported(log, a_replay(tmp_path / "replay"))
    said = [event for event in events if event.kind == "sent"]
    assert [json.loads(event.payload) for event in said] == SOCIAL
    assert [(event.from_id, event.to_id) for event in said] == [
        (row["sender_id"], row["receiver_id"]) for row in SOCIAL
    ]
    assert [event.ts for event in said] == [ns(row["t"]) for row in SOCIAL]
    assert {event.channel for event in said} == {"social_media_event"}
    marks = [event for event in events if event.kind == "mark"]
    assert [(event.text, event.ts) for event in marks] == [
        (f"step step={at}", ns(f"2026-01-01T09:{at:02d}:00")) for at in range(3)
    ]
    assert "not imported: rows of core_agent_profile (4)" in done.notes
    assert done.experiment.meta["imported"] == {
        "format": "agentsociety-replay",
        "timezone": "UTC",
        "left_out": {"rows of core_agent_profile": 4},
        "file": "replay",
    }


async def test_one_file_of_a_replay_is_read_alone(log: EventLog, tmp_path: Path) -> None:
    folder = a_replay(tmp_path / "replay")
    [path, *_] = sorted(folder.glob("social_media_event.*"))
    _, events = await imported(log, path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [json.loads(event.payload)["id"] for event in events] == sorted(row["id"] for row in rows)


async def test_a_table_is_read_by_the_names_of_its_columns(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "mood,Channel,from,to,kind,time,text\r\n"
        'glad,a,3,"""7""",,2024-05-01T10:00:00+02:00,"hello, ""you""\nthere"\r\n'
        "sad,b,ann,,received,1714557601.5,bye\r\n"
        "\r\n"
        ",,,,mark,2024-05-01 12:00:00.000000001,noon\r\n"
        ",,,,gap,2024-05-01 12:00:00,lost\r\n",
        newline="",
    )
    done, [second, first, mark] = await imported(log, path)
    assert (first.ts, first.kind, first.channel, first.from_id, first.to_id) == (
        *(1714557601500000000, "received", "b", "ann", None),
    )
    assert (second.ts, second.from_id, second.to_id, second.payload) == (
        *(ns("2024-05-01 08:00:00"), 3, "7", b'hello, "you"\nthere'),
    )
    assert (mark.kind, mark.text, mark.ts, mark.channel) == ("mark", "noon", ns("2024-05-01 12:00:00") + 1, None)
    assert done.notes == (
        "assumed: timezone UTC (--timezone names another)",
        "not imported: columns mood (1)",
        "not imported: rows of kind gap (1)",
    )


@pytest.mark.parametrize("recipient", ["receiver", "Recipient"])
async def test_a_table_may_have_the_usual_names_of_columns(log: EventLog, tmp_path: Path, recipient: str) -> None:
    (tmp_path / "x.txt").write_text(f"Timestamp,Sender,{recipient},Message,topic\n1714557601.5,ann,3,hello,a/b\n")
    done, [event] = await imported(log, tmp_path / "x.txt")
    assert (event.ts, event.from_id, event.to_id, event.payload) == (1714557601500000000, "ann", 3, b"hello")
    assert (event.channel, done.notes) == ("a/b", ())


async def test_a_table_with_tabs_and_exact_times_is_read(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "x.tsv.gz"
    text = '\ufeffts\tpayload\ttext\n1700000000000000001\t{""a"": 1}\tignored\n-5\tx\ty\n'
    path.write_bytes(gzip.compress(text.replace('""', '"').encode()))
    _, [old, event] = await imported(log, path, channel="c")
    assert (event.ts, event.payload, event.channel, event.from_id) == (1700000000000000001, b'{"a": 1}', "c", None)
    assert old.ts == -5


async def test_ids_of_a_table_have_the_types_of_the_columns_beside_them(log: EventLog, tmp_path: Path) -> None:
    ids = [("7", "string", "7"), ("7", "number", 7), ("", "string", ""), ("", "", None), ("[1]", "array", [1])]
    rows = [f"{at},c,x,{text},{kind}" for at, (text, kind, _) in enumerate(ids)]
    (tmp_path / "x.csv").write_text("\n".join(["ts,channel,payload,from_id,from_type", *rows]))
    _, events = await imported(log, tmp_path / "x.csv")
    assert [(event.from_id, type(event.from_id)) for event in events] == [(value, type(value)) for _, _, value in ids]


async def test_a_table_that_was_exported_gives_the_messages_and_marks_again(log: EventLog, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    await filled(
        log,
        [
            sent(5, b'{"content": "a,\\"b\\""}', "c", from_id=7, to_id="7", flags=2),
            sent(5, b"\xff\xfe", "c", from_id="x"),
            NewEvent("mark", 6, None, b"", meta={"name": "night", "fields": {"n": 1}}),
            NewEvent("gap", 7, None, b"", meta={"reason": "x", "count": None}),
        ],
        "told",
    )
    assert await output_format("x.csv", "export").load().write(log, "told", tmp_path / "x.csv") == 4
    done = await import_file(log, tmp_path / "x.csv", "e1")
    fields = ("ts", "kind", "channel", "payload", "from_id", "to_id", "meta")
    told = [[getattr(event, field) for field in fields] for event in await listed(log.read("told"))]
    again = [[getattr(event, field) for field in fields] for event in await listed(log.read("e1"))]
    assert again == told[:3]
    assert "not imported: rows of kind gap (1)" in done.notes


GOOD = OF_0_1[0]
BAD_FILES = [
    ("x.json", json.dumps([GOOD, {**GOOD, "timestamp": "yesterday"}], indent=1), 13, "timestamp 'yesterday' is not a"),
    (
        "x.json",
        json.dumps(GOOD) + "\n\n" + json.dumps({**GOOD, "timestamp": None}),
        3,
        "no timestamp and no created_at",
    ),
    ("x.json", json.dumps([GOOD, {"no": "message"}]), 1, "no message of AgentScope"),
    ("x.json", json.dumps(GOOD) + "\n" + json.dumps(GOOD)[:-5], 2, "not JSON"),
    ("x.json", json.dumps([GOOD])[:-1], 1, "no , or ] after"),
    ("x.json", json.dumps([GOOD]) + "\n1", 2, "more behind the array"),
    ("x.json", json.dumps(GOOD) + '\n{"a": \xff}', 1, "not UTF-8"),
    ("x.json", json.dumps({**GOOD, "name": "\ud800"}), 1, "half a character"),
    ("x.json", json.dumps({**GOOD, "timestamp": "2024-13-01 00:00:00"}), 1, "is not a time"),
    ("x.json", json.dumps(LOG_1_3[:1])[:-1] + ", {}]", 1, "no entry of a log list"),
    ("x.json", json.dumps([{**LOG_1_3[0], "start_time": "NaN"}]), 1, "not a number of seconds"),
    ("x.json", json.dumps([{**LOG_1_3[0], "start_time": 1e300}]), 1, "not a number of seconds"),
    ("x.json", json.dumps([{**LOG_1_3[0], "sent": "yes"}]), 1, "sent is not true or false"),
    ("x.csv", "a,b\n1,2\n", 1, "no column ts, time or timestamp; the columns are a, b"),
    ("x.csv", "ts,payload\n1,2\n", 1, "no column channel. Name a channel for all messages with --channel"),
    ("x.csv", "ts,channel,text\n1,c,a\n2,c\n", 3, "2 fields, but the header has 3 columns"),
    ("x.csv", 'ts,channel,text\n1,c,"a\nb"\nx,c,b\n', 4, "ts 'x' is not an integer"),
    ("x.csv", 'ts,channel,text\n1,c,"a\n', 2, "not CSV"),
    ("x.csv", 'ts,channel,text\n1,c,a\nx,c,"a\nb"\n', 3, "ts 'x' is not an integer"),
    ("x.csv", "ts,channel,text\n1,,a\n", 2, "no channel"),
    ("x.csv", "ts,channel,text,kind\n1,c,a,shouted\n", 2, "kind 'shouted' is none of"),
    ("x.csv", "ts,ts,channel,text\n", 1, "two columns have the same name"),
    ("x.csv", "time,channel,text\n10:30,c,a\n", 2, "time '10:30' is not a time such as"),
    ("x.csv", "ts,channel,text,to,to_type\n1,c,x,[,array\n", 2, "to_id '[' is not JSON"),
    ("x.csv", "ts,channel,text\n", None, "no messages of the format csv"),
    ("x.csv", "", 1, "no column ts, time or timestamp"),
]


async def test_a_file_with_an_error_is_refused_with_its_line_and_leaves_nothing(log: EventLog, tmp_path: Path) -> None:
    for name, text, line, reason in BAD_FILES:
        path = tmp_path / name
        path.write_bytes(text.encode("latin-1"))
        where = f"{path}, line {line}: " if line else f"{path}: "
        with pytest.raises(BadFile, match=f"{re.escape(where)}.*{re.escape(reason)}.*Nothing was imported"):
            await import_file(log, path, "e1")
        assert await log.experiments() == [] and await log.recorders() == []


async def test_a_schema_of_a_replay_with_values_of_other_types_is_refused(log: EventLog, tmp_path: Path) -> None:
    for number, (name, value) in enumerate(
        [
            ("time_key", ["t"]),
            ("time_key", 5),
            ("entity_key", {}),
            ("entity_key", 1),
            ("table_name", []),
            ("datasets", {}),
        ]
    ):
        folder = a_replay(tmp_path / f"replay{number}")
        path = folder / "_schema.json"
        schema = json.loads(path.read_text())
        tables = [table for table in schema["datasets"].values() if table.get("kind") == "event_stream"]
        assert tables
        for table in tables:
            table[name] = value
        if name == "datasets":
            schema["datasets"] = [1]
        path.write_text(json.dumps(schema))
        with pytest.raises(BadFile, match=r"_schema\.json: no schema of a replay"):
            await import_file(log, folder, "e1")
        assert await log.experiments() == []


async def test_a_wrong_row_of_a_replay_is_named_with_its_file(log: EventLog, tmp_path: Path) -> None:
    folder = a_replay(tmp_path / "replay")
    shard = lines(folder / "social_media_event.ff.jsonl", [SOCIAL[0], {**SOCIAL[0], "t": "soon"}])
    with pytest.raises(BadFile, match=f"{re.escape(str(shard))}, line 2: t 'soon' is not a time"):
        await import_file(log, folder, "e1")
    (folder / "_schema.json").write_text("[]")
    with pytest.raises(BadFile, match=r"_schema\.json: no schema of a replay"):
        await import_file(log, folder, "e1")
    (folder / "_schema.json").unlink()
    with pytest.raises(StoreError, match=r"is a folder without _schema\.json, so no replay\. Name a file\."):
        await import_file(log, folder, "e1")
    with pytest.raises(BadFile, match=r"_schema\.json: a replay has this file beside its rows"):
        await import_file(log, shard, "e1", form="agentsociety-replay")
    assert await log.experiments() == []


async def test_an_exp_id_in_use_and_options_that_do_not_apply_are_refused(log: EventLog, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.json", OF_0_1)
    await import_file(log, path, "e1")
    with pytest.raises(ExperimentExists):
        await import_file(log, path, "e1")
    with pytest.raises(StoreError, match=r"unknown time zone 'Mars'\. Give a name such as Europe/Berlin"):
        await import_file(log, path, "e2", timezone="Mars")
    ours = lines(tmp_path / "y.jsonl", [{"ts": 1, "channel": "c", "payload": "x"}])
    with pytest.raises(StoreError, match=r"Leave out --timezone and --channel\."):
        await import_file(log, ours, "e2", timezone="UTC")
    assert (await import_file(log, ours, "e2")).notes == ()


def test_a_format_is_recognised(tmp_path: Path) -> None:
    for name, text, form in [
        ("x.csv", "", "csv"),
        ("x.TSV.gz", "", "csv"),
        ("x.txt", "channel, Time ,text\n", "csv"),
        ("x.json", json.dumps(OF_0_1), "agentscope"),
        ("x.jsonl", "\n " + json.dumps(OF_2[0]), "agentscope"),
        ("x.json", json.dumps({"Ann": {"memory": {"content": OF_1}}}), "agentscope"),
        ("x", json.dumps([{**OF_0_1[0], "content": "x" * 100_000}]), "agentscope"),
        ("x", json.dumps(LOG_1_3, indent=2), "agentsociety"),
        ("x.jsonl", json.dumps(LOG_1_0[0]), "agentsociety"),
        ("x.jsonl", '{"ts": 1, "name": 2, "content": 3, "role": 4}', "jsonl"),
        ("x.jsonl", '{"format": "messager/1", "name": "role"}', "jsonl"),
        ("x.jsonl", "", "jsonl"),
        ("x.pack", '{"format": "messager-pack/1"}', "jsonl"),
        ("absent", None, "jsonl"),
    ]:
        for zipped in [False, True]:
            path = tmp_path / name
            if text is not None:
                path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
            assert input_format(path).name == form
            assert [input_format(path, known.name).name for known in INPUT_FORMATS] == [
                known.name for known in INPUT_FORMATS
            ]


@pytest.mark.parametrize("suffix", [".mcap", ".parquet"])
def test_a_format_that_is_written_only_is_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(StoreError, match=f"import does not read {suffix}. Export the experiment to .jsonl"):
        input_format(tmp_path / f"x{suffix}")


async def test_an_import_can_be_replayed_exported_and_imported_again(log: EventLog, tmp_path: Path) -> None:
    _, events = await imported(log, a_replay(tmp_path / "replay"))
    broker = MemoryBroker()
    report = await Replay(log, "e1", broker, speed="max").run()
    assert report.published == len(SOCIAL)
    await export_jsonl(log, "e1", tmp_path / "x.jsonl")
    await import_file(log, tmp_path / "x.jsonl", "again")
    again = await listed(log.read("again"))
    assert [(event.ts, event.payload, event.from_id) for event in again] == [
        (event.ts, event.payload, event.from_id) for event in events
    ]
    assert (await overview(log, await log.experiment("again")))["events"] == len(events)


def test_the_verb_recognises_the_format_and_says_what_it_assumed(store: str, tmp_path: Path) -> None:
    dumped(tmp_path / "memory.json", OF_0_1)
    done = messager("import", "memory.json", "--exp", "e1", "--store", store, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-2:] == [
        "assumed: channel agentscope (--channel names another)",
        "assumed: timezone UTC (--timezone names another)",
    ]
    options = ("--format", "agentscope", "--timezone", "+02:00", "--channel", "hub", "--store", store)
    piped = messager("import", "-", "--exp", "e2", *options, cwd=tmp_path, input=json.dumps(OF_0_1))
    assert piped.returncode == 0 and "assumed" not in piped.stderr
    shown = messager("events", "e2", "--store", store, "--json", "--limit", "1", cwd=tmp_path)
    first = json.loads(shown.stdout)
    assert (first["ts"], first["channel"]) == (ns("2024-10-02 07:15:00"), "hub")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON, min_size=1, max_size=6), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_values_are_read_in_pieces_as_json_reads_them_whole(
    values: list[Any], indent: int | None, ascii: bool, is_array: bool
) -> None:
    texts = [json.dumps(value, indent=indent, ensure_ascii=ascii) for value in values]
    is_array = is_array or isinstance(values[0], list)  # a file that begins with [ is an array
    text = "[" + ",\n".join(texts) + "]" if is_array else "\n".join(texts)
    file = JsonFile("-")
    source = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(text.encode("utf-8", "surrogatepass"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("messager_store.formats.foreign.json_values._CHUNK", 3)
        patch.setattr(sys, "stdin", source)
        with file.opened():
            assert list(file.values()) == values
    assert file.line_number == text.count("\n") + 1


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)), st.sampled_from(["Europe/Berlin", "Asia/Kolkata"]))
def test_a_local_time_is_that_of_zoneinfo(when: datetime, zone: str) -> None:
    read = Clock(timezone_of(zone), Told()).iso(when.isoformat(" "), "time")
    expected = when.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert read == (expected // timedelta(microseconds=1)) * 1000
