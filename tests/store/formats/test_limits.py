"""Files and programs that would take much memory: refused in one line, before they do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from messager_pytest.recording_file import BadRecording, read_lines
from messager_store import EventLog, NewEvent, Recorder, limits
from messager_store.errors import BadEvent, BadFile, StoreError
from messager_store.formats.gather import gather
from messager_store.formats.import_file import import_file
from messager_store.formats.input_file import InputFile
from messager_store.formats.pack import pack, unpack
from messager_store.recording.registration import Registration, register

FACE = "\U0001f600"
LARGE = {"note": "x" * 400}
SMALL = {"note": "x" * 100}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_LINE", 1000)
    monkeypatch.setattr(limits, "MOST_CHARACTERS", 250)
    monkeypatch.setattr(limits, "MOST_META", 300)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a" * 1000, None),
        ("a" * 1001, "longer than 1,000 bytes"),
        ("\xe9" * 500, None),
        (r"\u0000" * 160, None),
        ("\u4e2d" + "a" * 499, None),
        ("\u4e2d" + "a" * 500, "longer than 500 characters, one of them beyond U\\+00FF"),
        (r"\u4e2d" + "a" * 500, "longer than 500 characters, one of them beyond U\\+00FF"),
        (FACE * 250, None),
        (FACE + "a" * 250, "longer than 250 characters, one of them beyond U\\+FFFF"),
        (r"\ud83d\ude00" + "a" * 250, "longer than 250 characters, one of them beyond U\\+FFFF"),
    ],
)
def test_a_line_is_measured_as_its_text_in_memory(small: None, tmp_path: Path, text: str, reason: str | None) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text.encode())
    lines = InputFile(path)
    if reason is None:
        with lines.opened():
            assert lines._line() == text.encode()
        return
    with pytest.raises(BadFile, match=f"line 1: {reason}"), lines.opened():
        lines._line()


MESSAGE = {"name": "a", "role": "user", "timestamp": "2024-01-01 00:00:00", "content": "x" * 300}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", json.dumps([MESSAGE]), "longer than 250 characters"),
        ("a.csv", f'ts,channel,text\n1,c,"{FACE}{"x" * 300}"\n', "line 2: longer than 250 characters"),
        ("a.csv", 'ts,channel,text\n1,c,"' + "x\n" * 150 + '"', "a row longer than 250 characters"),
        ("a.csv", f"ts,channel,text{',' * 20}\n", "line 1: more than 10 columns"),
        ("a.csv", f"ts,channel,text\n1,c,x{',' * 20}\n", "line 2: a row with more than 15 commas or tabs"),
        ("a.tsv", "ts\tchannel\ttext\n1\tc" + '\t"\n"' * 20, "a row with more than 15 commas or tabs"),
    ],
)
async def test_a_value_or_a_row_of_another_program_is_limited(
    small: None, log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, reason: str
) -> None:
    monkeypatch.setattr(limits, "MOST_COLUMNS", 10)
    monkeypatch.setattr(limits, "MOST_PARTS", 15)
    monkeypatch.setattr("messager_store.formats.foreign.json_values._CHUNK", 100)
    (tmp_path / name).write_text(text)
    with pytest.raises(BadFile, match=reason):
        await import_file(log, tmp_path / name, "e1")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_recording_of_the_plugin_is_not_decompressed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(limits, "MOST_RECORDING", 1000)
    path = tmp_path / f"a.jsonl{ending}"
    with gzip.open(path, "wb") if ending else path.open("wb") as file:
        file.write(b" " * 1000)
    assert read_lines(path) == []
    with gzip.open(path, "ab") if ending else path.open("ab") as file:
        file.write(b" " * 9000)
        file.write(b"nonsense" if ending else b" ")
    with pytest.raises(BadRecording, match="has more than 1,000 bytes, uncompressed"):
        read_lines(path)


async def test_meta_of_programs_is_limited(small: None, log: EventLog) -> None:
    for refused in (
        log.create_experiment("e1", meta=LARGE),
        Recorder(log, "e1", meta=LARGE).start(),
        import_file(log, "no file", "e1", meta=LARGE),
    ):
        with pytest.raises(StoreError, match=r"the meta has 411 characters as JSON, not up to 300|No such file"):
            await refused
    with pytest.raises(StoreError, match="nested deeper than 100 levels"):
        await log.create_experiment("e1", meta={"a": json.loads("[" * 101 + "]" * 101)})
    assert await log.experiments() == []
    of = await log.create_experiment("e1", meta=SMALL)
    writer = await log.register(of, role="tap")
    with pytest.raises(BadEvent, match="meta: it has 411 characters, at most 300 are allowed"):
        await log.append(writer, [NewEvent("mark", 1, None, b"", meta=LARGE)])
    async with Recorder(log, "e1", meta={"other": "x" * 250}) as recorder:
        with pytest.raises(StoreError, match="the meta has"):
            recorder.note(**LARGE)
    assert (await log.experiment("e1")).meta == SMALL


async def test_meta_of_files_is_limited(small: None, log: EventLog, other: EventLog, tmp_path: Path) -> None:
    event = {"ts": 1, "channel": "c"}
    for lines in ([{"meta": LARGE}, event], [{"recorders": [LARGE]}, event], [event, {**event, "meta": LARGE}]):
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(BadFile, match=f"line {len(lines) - ('ts' not in lines[0])}: the meta has 411 characters"):
            await import_file(log, tmp_path / "a.jsonl", "e1")
    (tmp_path / "a.csv").write_text('ts,kind,channel,text,meta\n1,sent,c,x,"{""a"": ""' + "x" * 300 + '""}"\n')
    with pytest.raises(BadFile, match="characters"):
        await import_file(log, tmp_path / "a.csv", "e1")
    assert await log.experiments() == []


async def test_meta_that_is_too_large_does_not_keep_a_spool_from_being_drained(
    small: None, log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"if_exists": None, "name": None, "tags": [], "patterns": [], "spool": "", "row": {}}
    for at, meta in enumerate((LARGE, SMALL, {"other": "x" * 250})):
        its = Registration(
            uuid=f"r{at}", exp_id="e1", meta=meta, role="tap", durability="buffered", facts=LARGE, **given
        )
        await register(log, its)
    assert [row.meta for row in await log.recorders()] == [{}, {}, {}]
    assert (await log.experiment("e1")).meta == SMALL
    assert caplog.text.count("not up to 300") == 5


@pytest.mark.parametrize("what", ["experiment", "recorder", "event"])
async def test_meta_of_a_pack_is_limited(
    log: EventLog, other: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await with_large_meta(log, what)
    await pack(log, "e1", tmp_path / "a.pack")
    monkeypatch.setattr(limits, "MOST_META", 300)
    with pytest.raises(BadFile, match="has 411 characters, at most 300 are allowed"):
        await unpack(other, tmp_path / "a.pack")
    assert await other.experiments() == []


@pytest.mark.parametrize("what", ["experiment", "recorder", "event"])
async def test_meta_of_a_gathered_part_is_limited(
    log: EventLog, other: EventLog, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await with_large_meta(log, what)
    monkeypatch.setattr(limits, "MOST_META", 300)
    done = [each async for each in gather(other, [log.location])]
    assert "more than 300 characters" in str(done) or "at most 300 are allowed" in str(done)
    assert sum(row.last_seq for row in await other.recorders()) == 0


async def with_large_meta(log: EventLog, what: str) -> None:
    of = await log.create_experiment("e1", meta=LARGE if what == "experiment" else {})
    writer = await log.register(of, role="tap", meta=LARGE if what == "recorder" else {})
    await log.append(writer, [NewEvent("mark", 1, None, b"", meta=LARGE if what == "event" else SMALL)])
