"""Hostile input: SQL injection, terminal escapes, passwords in errors, and files that need too much memory."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from messager import RedisBroker, RedisConfig
from messager.brokers.redis.broker import without_credentials
from messager.errors import BrokerUnavailable
from messager_store import EventLog, NewEvent, limits
from messager_store.errors import BadFile, StoreError
from messager_store.experiments.provenance import command_line
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from tests.store.privacy.test_redaction import on_disk
from tests.support import messager, nightly_after
from tests.support.logs import filled, sent

WORDS = [
    "'; DROP TABLE event; --",
    '" OR 1=1 --',
    "%",
    "_",
    "a' OR 'a'='a",
    "\\",
    "x\x1b]0;owned\x07",
    "\u202eevil",
    "?",
]


async def counted(log: EventLog) -> dict[str, int]:
    """Return the number of rows of each table."""
    async with log.database.reading() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        return {n: (await connection.exec_driver_sql(f"SELECT count(*) FROM {n}")).scalar_one() for n in names}


@pytest.mark.parametrize("word", nightly_after(2, WORDS))
async def test_no_filter_and_no_name_reaches_sql_as_text(log: EventLog, word: str) -> None:
    await filled(log, [sent(1, channel="other", from_id=1), sent(2, channel=word, from_id=word, to_id=[word])])
    before = await counted(log)
    assert [e.ts async for e in log.read("e1", agents=[word])] == [2]
    for filters in (
        {"channels": [word]},
        {"exclude": [word]},
        {"since": f"mark:{word}"},
        {"until": word},
        {"kinds": [word]},
    ):
        try:
            found = [entry.ts async for entry in log.read("e1", **filters)]
        except StoreError:
            continue
        assert set(found) <= {1, 2}
    of = await log.experiment("e1")
    for call in (log.experiment(word), log.tag(of, [word], [word])):
        try:
            await call
        except StoreError:
            pass
    assert await log.experiments(name=word, tags=[word]) == []
    assert await counted(log) == before


async def test_no_verb_lets_a_terminal_obey_what_was_recorded_or_typed(tmp_path: Path) -> None:
    bad = "\x1b[31m\x07\x9b\x7f\u202e\u2066\r"
    lines: list[Any] = [
        {"name": bad, "meta": {bad: bad}},
        {"ts": 1, "channel": bad, "from_id": bad, "to_id": {bad: bad}, "payload": bad, "msg_id": bad},
        {"ts": 2, "kind": "mark", "meta": {"name": bad, "fields": {bad: bad}}},
        {"ts": 3, "kind": "gap", "meta": {"reason": bad, "count": bad}},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "b.jsonl").write_text(json.dumps(lines[1] | {"payload": bad + "!"}) + "\n")
    for name in "ab":
        assert messager("import", f"{name}.jsonl", "--exp", name, cwd=tmp_path).returncode == 0
    shutil_db = sqlite3.connect(tmp_path / "old.db")
    shutil_db.execute("CREATE TABLE alembic_version (version_num TEXT)")
    shutil_db.execute("INSERT INTO alembic_version VALUES (?)", (bad,))
    shutil_db.commit()
    shutil_db.close()
    calls = [
        ["ls"],
        ["info", "a"],
        ["events", "a"],
        ["events", "a", "--follow"],
        ["diff", "a", "b"],
        ["verify", "--all"],
        ["replay", "a", "--dry-run"],
        ["tag", "a", bad],
        ["tag", "a", "ok"],
        ["info", bad],
        [bad],
        ["--" + bad],
        ["ls", "--since", bad],
        ["events", "a", "--since", bad],
        ["events", "a", "--kind", bad],
        ["events", "a", "--limit", bad],
        ["export", "a", "-o", f"no/{bad}"],
        ["import", bad, "--exp", "x"],
        ["import", "a.jsonl", "--exp", bad],
        ["replay", "a", "--speed", bad],
        ["replay", "a", "--rate", bad],
        ["replay", "a", "--to-exp", bad],
        ["replay", "a", "--map", bad],
        ["replay", "a", "--max-hold", bad],
        ["--redis", bad, "replay", "a"],
        ["--redis", f"redis://{bad}", "record", "--exp", "y"],
        ["--store", f"{bad}.db", "ls"],
        ["verify", "a", "--head", bad],
        ["db", "upgrade", bad],
        ["db", "downgrade", bad],
        *(["--store", "old.db", "db", verb] for verb in ("current", "check")),
    ]
    done = await asyncio.gather(*(asyncio.to_thread(messager, *call, cwd=tmp_path, text=False) for call in calls))
    for call, result in zip(calls, done, strict=True):
        shown = (result.stdout + result.stderr).decode()
        assert not set(shown) & set("\x1b\x07\x9b\x7f\u202e\u2066\r"), (call, shown)
        assert "Traceback" not in shown, (call, shown)


SECRETS = ["hunter2", "hun/ter2", "hun@ter2", "hun%ter2", "hun#ter2", "hun?ter2", "hun:ter2", "hun%40ter2"]
SECRETS += ["hun@x/ter2#y", "hun@ter2/x?y", "x@hun/ter2", "x@hun/y#ter2", "x@hun:1/ter2?y"]


SHAPES = [
    "redis://bob:{}@127.0.0.1:1/0",
    "redis://:{}@127.0.0.1:1",
    "redis://127.0.0.1:1/0?password={}",
    "redis://127.0.0.1:1/0?password={}&oops=1",
    "unix://bob:{}@/no/such.sock",
    "unix:///no/such.sock?password={}",
]


async def test_no_password_is_repeated(tmp_path: Path) -> None:
    for secret in SECRETS:
        for shape in SHAPES:
            url = shape.format(secret)
            said = without_credentials(url) + " ".join(command_line(["messager", "--redis", url, f"--redis={url}"]))
            try:
                broker = RedisBroker.from_url(url)
                said += broker.url
                await broker.connect()
            except (ValueError, BrokerUnavailable) as error:
                said += f"{error} {error!r}"
            for piece in (secret, "hun", "ter2"):
                assert piece not in said, said


async def test_a_server_that_repeats_the_password_is_not_quoted(log: EventLog, store: str, tmp_path: Path) -> None:
    async def parrot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            writer.write(b"-ERR unknown command 'AUTH', with args beginning with: 'bob' 'hunter2' hunter2\r\n" * 3)
        writer.close()

    server = await asyncio.start_server(parrot, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await filled(log, [sent(1)])
    broker = RedisBroker.from_config(RedisConfig(server="127.0.0.1", port=port, password="hunter2"))
    with pytest.raises(BrokerUnavailable) as caught:
        await broker.connect()
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__context__.__suppress_context__}"
    url = f"redis://bob:hunter2@127.0.0.1:{port}/0"
    for verb in (["replay", "e1"], ["record", "--exp", "e2"]):
        for options, env in ((["--redis", url], {}), ([], {"MESSAGER_REDIS": url})):
            arguments = ["--store", log.location, *options, *verb]
            done = await asyncio.to_thread(messager, *arguments, cwd=tmp_path, env=env)
            assert done.returncode == 3 and len(done.stderr.splitlines()) == 1, done.stderr
            assert "hunter2" not in done.stdout + done.stderr
    server.close()
    assert b"hunter2" not in await asyncio.to_thread(on_disk, store)


async def refused(log: EventLog, path: Path, words: str) -> None:
    """Check that input is refused in one line and leaves nothing in the store."""
    before = await counted(log)
    with pytest.raises(BadFile, match=words) as caught:
        await import_jsonl(log, path, "e1")
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 1000
    assert await counted(log) == before


HEAD = {"ts": 1, "channel": "c"}


async def test_what_claims_too_much_is_refused(log: EventLog, tmp_path: Path) -> None:
    for lines, words in [
        (['{"tags": [%s]}' % ",".join(f'"{n}"' for n in range(1001))], "1,001 tags; at most 1,000 are allowed"),  # noqa: UP031
        (['{"recorders": [' + ",".join(["{}"] * 10_001) + "]}"], "10,001 recorders; at most 10,000 are"),
        ([json.dumps({"tags": ["x" * 201]})], "up to 200 characters"),
        ([json.dumps({"name": "x" * 2_000_000})], "up to 1,000"),
        ([json.dumps(HEAD | {"channel": "x" * 2_000_000})], "channel is longer than"),
        ([json.dumps(HEAD | {"from_id": "x" * 2_000_000})], "from_id is longer than"),
        ([json.dumps(HEAD | {"ts": 1})[:-1] + ', "meta": ' + '{"a":' * 500 + "1" + "}" * 501], "meta is nested deeper"),
        (['{"meta": ' + '{"a":' * 500 + "1" + "}" * 501], "meta is nested deeper"),
        (['{"recorders": [{"a": ' + "[" * 500 + "]" * 500 + "}]}"], "recorder is nested deeper"),
        ([json.dumps(HEAD)[:-1] + ', "to_id": ' + "[" * 500 + "]" * 500 + "}"], "to_id is nested deeper"),
        ([json.dumps(HEAD)[:-1] + ', "ts": 2}'], "the key 'ts' is there twice"),
        ([json.dumps(HEAD)[:-1] + ', "from_id": ' + "9" * 5000 + "}"], "not JSON"),
        (['{"ts": NaN, "channel": "c"}'], "ts is not an integer"),
        (['{"ts": 1e400, "channel": "c"}'], "ts is not an integer"),
    ]:
        (tmp_path / "a.jsonl").write_text("\n".join([*lines, json.dumps(HEAD)]) + "\n")
        await refused(log, tmp_path / "a.jsonl", words)


async def test_a_line_without_end_is_not_read_to_its_end(log: EventLog, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "MOST_LINE", 1024 * 1024)
    await refused(log, Path("/dev/zero"), "line 1: longer than 1,048,576 bytes")  # which never ends
    with gzip.open(tmp_path / "bomb.gz", "wb") as bomb:
        bomb.write(b'{"ts": 1, "channel": "c"}\n{"ts": 2, "channel": "')
        for _ in range(64):
            bomb.write(b"x" * 1024 * 1024)
    assert (tmp_path / "bomb.gz").stat().st_size < 100_000
    await refused(log, tmp_path / "bomb.gz", "line 2: longer than 1,048,576 bytes")


async def test_not_a_number_comes_through_as_it_was_recorded(log: EventLog, tmp_path: Path) -> None:
    await filled(log, [NewEvent("mark", 1, None, b"", meta={"name": "loss", "fields": {"value": float("nan")}})])
    await export_jsonl(log, "e1", tmp_path / "a.jsonl")
    await import_jsonl(log, tmp_path / "a.jsonl", "e2")
    await export_jsonl(log, "e2", tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert [entry.text async for entry in log.read("e2")] == ["loss value=nan"]


@pytest.mark.parametrize(
    "meta", nightly_after(1, [{"fields": [1]}, {"fields": "x"}, {"since": 10**400, "until": 0}, {"name": {"a": 1}}])
)
@pytest.mark.parametrize("kind", ["mark", "gap"])
async def test_marks_and_gaps_of_any_shape_can_be_read(log: EventLog, tmp_path: Path, kind: str, meta: Any) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"ts": 1, "kind": kind, "meta": meta}) + "\n")
    await import_jsonl(log, tmp_path / "a.jsonl", "e1")
    assert [type(entry.text) async for entry in log.read("e1")] == [str]


@pytest.mark.parametrize("verb", nightly_after(1, ["export", "pack"]))
async def test_a_file_on_a_terminal_is_the_same_json_without_escapes(log: EventLog, verb: str) -> None:
    await filled(log, [sent(1, "\x9b31m\u202e\x7f".encode(), "c"), sent(2)])
    primary, secondary = os.openpty()
    code = "from messager_store.cli import main; main()"
    arguments = [sys.executable, "-c", code, "--store", log.location, verb, "e1", "-o", "-"]
    done = await asyncio.to_thread(subprocess.run, arguments, stdout=secondary, stderr=subprocess.DEVNULL, timeout=60)
    shown = os.read(primary, 65536)
    os.close(primary)
    os.close(secondary)
    assert done.returncode == 0 and shown.isascii() and b"\x7f" not in shown
    payloads = [json.loads(line).get("payload") for line in shown.splitlines()]
    assert payloads.count("\x9b31m\u202e\x7f") == 1
