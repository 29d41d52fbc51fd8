"""MCAP files hold every event, as the reader of the package mcap and Foxglove expect them."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader
from mcap.writer import Writer

from messager import channels
from messager_store import Event, EventLog, NewEvent
from messager_store.errors import StoreError
from messager_store.experiments import lifecycle
from messager_store.formats.mcap import export_mcap, writer
from messager_store.formats.mcap.writer import OTHER, MessageWriter
from messager_store.formats.sharing import Sharing
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries.overview import overview
from tests.store.formats.test_jsonl import everything
from tests.support import messager, nightly_after
from tests.support.logs import filled, listed, sent


class Read:
    """An MCAP file, read with the package mcap."""

    def __init__(self, source: Path | io.BytesIO) -> None:
        stream = source.open("rb") if isinstance(source, Path) else source
        with stream:
            reader = make_reader(stream, validate_crcs=True)
            self.summary: Any = reader.get_summary()
            self.metadata = {record.name: record.metadata for record in reader.iter_metadata()}
            found = list(reader.iter_messages(log_time_order=False))
        self.schemas = [json.loads(schema.data) for schema, _, _ in found if schema is not None]
        self.encodings = {(schema.encoding, channel.message_encoding) for schema, channel, _ in found if schema}
        self.topics = [channel.topic for _, channel, _ in found]
        self.times = [(message.log_time, message.publish_time, message.sequence) for _, _, message in found]
        self.data = [json.loads(message.data, parse_constant=pytest.fail) for _, _, message in found]

    @property
    def everything(self) -> str:
        """Return all that a reader of the file sees."""
        return json.dumps([self.topics, self.schemas, self.data, self.metadata])


def exact(data: dict[str, Any], field: str) -> bytes | None:
    if f"{field}_base64" in data:
        return base64.b64decode(data[f"{field}_base64"], validate=True)
    return data[field].encode() if field in data else None


def an_id(data: dict[str, Any], side: str) -> Any:
    if f"{side}_id" not in data:
        return None
    text = data[f"{side}_id"]
    return text if data[f"{side}_type"] == "string" else json.loads(text)


async def test_a_file_has_every_event_with_its_exact_values(log: EventLog, tmp_path: Path) -> None:
    await everything(log)
    count = await export_mcap(log, "e1", tmp_path / "x.mcap")
    events = await listed(log.read("e1"))
    read = Read(tmp_path / "x.mcap")
    assert count == len(events) == len(read.data) == read.summary.statistics.message_count
    assert read.times == [(event.ts, event.ts, event.seq) for event in events]
    for event, topic, data in zip(events, read.topics, read.data, strict=True):
        assert data["cursor"] == str(event.cursor)
        assert data["time"] == {"sec": event.ts // 10**9, "nsec": event.ts % 10**9}
        assert (data["kind"], data["text"]) == (event.kind, event.text)
        assert exact(data, "payload") == event.payload
        assert exact(data, "channel") == (None if event.channel is None else channels.encode(event.channel))
        assert (an_id(data, "from"), an_id(data, "to")) == (event.from_id, event.to_id)
        assert type(an_id(data, "from")) is type(event.from_id)
        assert data.get("derived", []) == event.derived_ids
        for field in ("msg_id", "messager", "arrival", "duration_ns", "receivers", "meta"):
            assert data.get(field) == getattr(event, field)
        assert data.get("cause") == (None if event.cause is None else f"{event.cause[0]}:{event.cause[1]}")
        if event.channel is None:
            assert topic == f"messager:{event.kind}"
    assert len(set(read.topics)) == len({event.channel or event.kind for event in events})


async def test_the_metadata_says_which_experiment_it_is(log: EventLog, tmp_path: Path) -> None:
    await everything(log)
    await export_mcap(log, "e1", tmp_path / "x.mcap")
    found = Read(tmp_path / "x.mcap").metadata["messager"]
    of = await log.experiment("e1")
    assert found["head"] == (await overview(log, of))["head"]
    assert (found["exp_id"], found["name"], json.loads(found["tags"])) == ("e1", of.name, of.tags)
    assert json.loads(found["meta"]) == of.meta


async def test_each_message_fits_a_schema_of_the_kind_that_foxglove_reads(log: EventLog, tmp_path: Path) -> None:
    await everything(log)
    await export_mcap(log, "e1", tmp_path / "x.mcap")
    read = Read(tmp_path / "x.mcap")
    assert read.encodings == {("jsonschema", "json")}
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list}
    for schema, data in zip(read.schemas, read.data, strict=True):
        assert schema["type"] == "object"
        for field, value in data.items():
            described = schema["properties"][field]
            assert isinstance(value, kinds[described["type"]])  # type: ignore[arg-type]
            assert described.get("contentEncoding") == ("base64" if field.endswith("_base64") else None)


async def test_the_fields_of_payloads_are_in_the_schema_of_their_channel(log: EventLog, tmp_path: Path) -> None:
    payloads = [b'{"price": 1.5, "who": "a", "n": 1, "open": true, "more": {"x": 1}}', b'{"other": 1}', b"no json"]
    await filled(log, [sent(1 + at, payload, f"c{at}") for at, payload in enumerate(payloads)])
    await export_mcap(log, "e1", tmp_path / "x.mcap")
    read = Read(tmp_path / "x.mcap")
    shapes = [schema["properties"]["data"]["properties"] for schema in read.schemas]
    simple = {"price": "number", "who": "string", "n": "integer", "open": "boolean"}
    assert shapes == [{name: {"type": kind} for name, kind in simple.items()}, {"other": {"type": "integer"}}, {}]
    assert [data.get("data") for data in read.data] == [json.loads(payloads[0]), {"other": 1}, None]


@pytest.mark.parametrize(
    "payload",
    nightly_after(2, [b'{"a": NaN}', b'{"a": 1e999}', b'{"a": -Infinity}', b'{"a":' * 500 + b"1" + b"}" * 500]),
)
async def test_a_payload_that_is_not_json_everywhere_is_text_only(
    log: EventLog, tmp_path: Path, payload: bytes
) -> None:
    await filled(log, [sent(1, payload), NewEvent("mark", 2, None, b"", meta={"name": "m", "fields": {"x": 1e999}})])
    await export_mcap(log, "e1", tmp_path / "x.mcap")
    [first, mark] = Read(tmp_path / "x.mcap").data  # whose JSON has no constants
    assert exact(first, "payload") == payload and "data" not in first
    assert mark["meta"]["fields"] in ({"x": "Infinity"}, {"x": None})


async def test_the_selection_applies(log: EventLog, tmp_path: Path) -> None:
    await everything(log)
    assert await export_mcap(log, "e1", tmp_path / "x.mcap", kinds=["mark", "gap"], limit=3) == 3
    assert [data["kind"] for data in Read(tmp_path / "x.mcap").data] == ["mark", "mark", "gap"]


async def test_nothing_of_an_agent_or_an_erased_field_is_in_a_file_to_share(log: EventLog, tmp_path: Path) -> None:
    of = await log.create_experiment("run of Alice", name="Alice in town", tags=["Alice"], meta={"host": "box"})
    said = [b'{"content": "Alice is here", "from": "Alice", "secret": "rosebud"}', b'{"Alice": 1, "secret": "rosebud"}']
    events = [sent(at, payload, "exps:e:agents:Alice:chat", from_id="Alice") for at, payload in enumerate(said)]
    await log.append(await log.register(of, role="messager"), events)
    shared = Sharing(["secret"], pseudonymise=True)
    await export_mcap(log, of.exp_id, tmp_path / "x.mcap", shared=shared)
    read = Read(tmp_path / "x.mcap")
    for secret in ("Alice", "rosebud", "box"):
        assert secret not in read.everything
    assert read.metadata["messager"].keys() == {"format", "name", "tags", "meta"}
    assert len(read.data) == 2 and shared.clean is not None and shared.clean.changed == 2


async def test_a_redacted_event_shows_it_and_has_no_seal(log: EventLog, tmp_path: Path) -> None:
    await filled(log, [sent(1, b"rosebud"), sent(2, b"kept")])
    await lifecycle.mark_closed(log.database, await log.experiment("e1"), force=True)
    await redact(log, "e1", RedactionFilter(contains=("rosebud",)), who="me", why="asked")
    await export_mcap(log, "e1", tmp_path / "x.mcap")
    [gone, kept] = Read(tmp_path / "x.mcap").data
    assert gone["redacted"] is True and gone["payload"] == "" and "meta" not in gone
    assert "redacted" not in kept and kept["payload"] == "kept"


def written(*events: Event) -> Read:
    stream = io.BytesIO()
    made = Writer(stream)
    made.start()
    messages = MessageWriter(made)
    for event in events:
        messages.write(event)
    made.finish()  # type: ignore[no-untyped-call]
    return Read(io.BytesIO(stream.getvalue()))


def test_values_beyond_those_of_the_format_are_in_the_message() -> None:
    late = Event(-1, 1, 2**32 + 5, "sent", "c", b"x")
    read = written(late)
    assert read.times == [(0, 0, 5)]
    assert read.data[0]["cursor"] == f"-1:1:{2**32 + 5}"
    assert read.data[0]["time"] == {"sec": -1, "nsec": 999_999_999}


def test_channels_beyond_the_maximum_share_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_TOPICS", 2)
    read = written(*[Event(at, 1, at + 1, "sent", f"c{at % 4}", b"{}") for at in range(8)])
    assert read.topics == ["c0", "c1", OTHER, OTHER] * 2
    assert [data["channel"] for data in read.data] == ["c0", "c1", "c2", "c3"] * 2


async def test_without_the_package_one_line_says_what_to_do(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(log, [sent(1)])
    monkeypatch.setitem(sys.modules, "mcap.writer", None)
    with pytest.raises(StoreError, match=r"pip install 'mcap>="):
        await export_mcap(log, "e1", tmp_path / "x.mcap")
    assert list(tmp_path.glob("x.*")) == []


async def test_the_suffix_selects_the_format(log: EventLog, store: str, tmp_path: Path) -> None:
    await filled(log, [sent(1), sent(2)])
    done = messager("export", "e1", "-o", "x.mcap", "--store", store, "--limit", "1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "") and "exported 1 event to x.mcap" in done.stderr
    assert len(Read(tmp_path / "x.mcap").data) == 1
