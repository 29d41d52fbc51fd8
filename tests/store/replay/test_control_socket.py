"""The control socket: verbs as JSON lines, permissions, and what happens to sockets of other processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent, Replay
from messager_store.errors import StoreError
from messager_store.replay import ControlSocket
from messager_store.replay.control_socket import LONGEST_REQUEST, MOST_CONNECTIONS, VERBS
from tests.store.replay.test_control import ended, numbers, running, seconds_apart, texts
from tests.store.replay.test_replay import SECOND, Heard
from tests.support import ROOT, until
from tests.support.logs import filled, sent


class Client:
    """Sends lines and returns the answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: Any) -> dict[str, Any]:
        """Send a request, as JSON unless it is bytes, and return its answer; events in between are left out."""
        await self.send(request)
        while "event" in (answer := await self.read()):
            pass
        return answer

    async def send(self, request: Any) -> None:
        self._writer.write(request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n")
        await self._writer.drain()

    async def read(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._reader.readline(), 60)
        assert line.endswith(b"\n") and line.count(b"\n") == 1, "the connection has ended"
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    async def event(self) -> dict[str, Any]:
        while "event" not in (answer := await self.read()):
            pass
        return answer

    async def at_end(self) -> bool:
        return await asyncio.wait_for(self._reader.read(), 60) == b""


@contextlib.asynccontextmanager
async def client(path: Path) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def served(
    log: EventLog, folder: Path, events: list[NewEvent] | None = None, **options: Any
) -> AsyncIterator[tuple[Replay, Heard, Path]]:
    """Run a replay that begins paused, with a control socket."""
    await filled(log, events or seconds_apart(20))
    broker = Heard()
    replay = Replay(log, "e1", broker, **options)
    replay.control.pause()
    async with ControlSocket(replay.control, str(folder / "control")), running(replay):
        yield replay, broker, folder / "control"


async def test_every_verb_is_answered_with_position_state_and_counts(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path) as (replay, broker, path), client(path) as viewer:
        answer = await viewer.ask({"verb": "step", "n": 3})
        told = {"ok": True, "messages": 3, "position": 2 * SECOND, "cursor": f"{2 * SECOND}:1:3", "planned": 20}
        assert answer == replay.control.status() | told
        assert (await viewer.ask({"verb": "step"}))["messages"] == 1
        assert (await viewer.ask({"verb": "next", "channel": "c"}))["published"] == 5
        assert (await viewer.ask({"verb": "seek", "point": "10s"}))["offset_s"] == 10.0
        assert (await viewer.ask({"verb": "seek", "point": 12 * SECOND, "state": True}))["state_messages"] == 1
        assert (await viewer.ask({"verb": "speed", "speed": "max"}))["speed"] == "max"
        assert (await viewer.ask({"verb": "speed", "speed": 0.5}))["speed"] == 0.5
        assert (await viewer.ask({"verb": "resume"}))["paused"] is False
        assert (await viewer.ask({"verb": "pause"}))["paused"] is True
        assert (await viewer.ask({"verb": "status"}))["seeks"] == 2
        assert replay.control.paused and texts(broker)[:6] == [*numbers(0, 5), "11"]


async def test_a_wrong_request_is_answered_in_one_line_and_the_connection_goes_on(
    log: EventLog, tmp_path: Path
) -> None:
    cases: list[tuple[Any, str]] = [
        (b"not json\n", "is not JSON"),
        (b"\xff\xfe\n", "is not JSON"),
        (b"[" * 60_000 + b"\n", "is not JSON"),
        (b"\n", "is not JSON"),
        (b"[]\n", "no known verb"),
        (b"{}\n", "no known verb"),
        ({"verb": ["step"]}, "no known verb"),
        ({"verb": "jump"}, "the verbs are pause, resume, step"),
        ({"verb": "step", "n": "3"}, "the field 'n' of step is an integer, not '3'"),
        ({"verb": "step", "n": True}, "is an integer"),
        ({"verb": "step", "by": 1}, "step has no field 'by': its fields are n"),
        ({"verb": "pause", "n": 1}, "it has none"),
        ({"verb": "next", "agent": 1.5}, "is a string or an integer"),
        ({"verb": "seek"}, "seek needs the field 'point'"),
        ({"verb": "seek", "point": "mark:a\nb"}, "no such mark"),
        ({"verb": "speed", "speed": -1}, "-1 is not a speed"),
        (b'{"verb": "speed", "speed": 1e400}\n', "is not a speed"),
        (b'{"verb": "status", "x": "' + b"x" * LONGEST_REQUEST + b'"}\n', "longer than 65,536 bytes"),
        (b"x" * 3 * LONGEST_REQUEST + b"\n", "longer than 65,536 bytes"),
    ]
    async with served(log, tmp_path) as (_, broker, path), client(path) as viewer:
        for request, error in cases:
            answer = await viewer.ask(request)
            assert answer["ok"] is False and error in answer["error"] and "\n" not in answer["error"]
        assert (await viewer.ask({"verb": "status"}))["ok"] is True
        assert broker.published == []


async def test_requests_that_arrive_together_are_answered_in_their_order(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path) as (_, broker, path), client(path) as viewer:
        await viewer.send(b'{"verb": "step", "n": 2}\n{"verb": "x"}\n{"verb": "step"}\n')
        assert [(await viewer.read()).get("messages") for _ in range(3)] == [2, None, 1]
        assert texts(broker) == ["0", "1", "2"]


async def test_another_client_can_end_a_step(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path, rate=1.0) as (_, broker, path), client(path) as one, client(path) as other:
        await one.send({"verb": "step", "n": 20})
        while (await other.ask({"verb": "status"}))["published"] == 0:
            pass
        await other.ask({"verb": "pause"})
        assert (await one.read())["messages"] < 20 and len(broker.published) < 20


async def test_a_subscriber_follows_the_replay_to_its_end(log: EventLog, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with served(log, tmp_path, speed="max") as (replay, _, path), client(path) as other:
            viewer = await stack.enter_async_context(client(path))
            assert (await viewer.ask({"verb": "subscribe"}))["published"] == 0
            assert (await viewer.ask({"verb": "subscribe"}))["ok"] is True
            assert (await viewer.event())["published"] == 0
            await other.ask({"verb": "step", "n": 5})
            while (event := await viewer.event())["published"] < 5:
                pass
            assert event["event"] == "status" and event["cursor"] == f"{4 * SECOND}:1:5"
            assert (await viewer.ask({"verb": "resume"}))["ok"] is True, "a subscriber can ask as well"
            await ended(replay)
            refused = await other.ask({"verb": "step"})
            assert refused == {"ok": False, "error": "the replay has ended"}
        while (event := await viewer.event())["event"] != "ended":
            pass
        assert (event["state"], event["published"]) == ("finished", 20) and await viewer.at_end()


async def test_a_step_that_is_waiting_at_the_end_is_answered(log: EventLog, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with served(log, tmp_path, rate=1.0) as (replay, _, path):
            viewer = await stack.enter_async_context(client(path))
            await viewer.send({"verb": "step", "n": 20})
            await until(lambda: replay.report.published > 0)
        assert 0 < (await viewer.read())["messages"] < 20 and await viewer.at_end()


async def test_clients_that_come_and_go_or_do_not_read_do_no_harm(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path) as (_, broker, path), client(path) as viewer:
        for _ in range(3):
            async with client(path) as gone:
                await gone.send(b'{"verb": "subscribe"}\n{"verb": "step"')
        deaf = socket.socket(socket.AF_UNIX)
        deaf.setblocking(False)
        deaf.connect(str(path))
        with contextlib.suppress(BlockingIOError):
            while True:
                deaf.send(b'{"verb": "status"}\n' * 100)
        assert (await viewer.ask({"verb": "step", "n": 2}))["messages"] == 2
    deaf.close()
    assert len(broker.published) == 2


async def test_there_is_a_limit_to_the_number_of_clients(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path) as (_, _, path), contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client(path)) for _ in range(MOST_CONNECTIONS)]
        for each in clients:
            assert (await each.ask({"verb": "status"}))["ok"]
        async with client(path) as refused:
            assert "32 clients are connected" in (await refused.read())["error"]
            assert await refused.at_end()
        assert (await clients[-1].ask({"verb": "status"}))["ok"]


async def test_only_the_user_can_connect_from_the_first_moment_on(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    seen: list[str] = []
    chmod = os.chmod

    def watched(path: Any, mode: int, **more: Any) -> None:
        with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(path)
        chmod(path, mode, **more)
        with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(path)
        seen.append(path)

    monkeypatch.setattr(os, "chmod", watched)
    try:
        async with served(log, tmp_path) as (_, _, path), client(path) as viewer:
            assert seen == [str(path)]
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert (await viewer.ask({"verb": "status"}))["ok"]
    finally:
        os.umask(before)
    assert not path.exists()


LEFT_BEHIND = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
os._exit(0)
"""


async def test_the_socket_of_a_dead_process_is_replaced(log: EventLog, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEFT_BEHIND, str(tmp_path / "control")], check=True, cwd=ROOT)
    assert (tmp_path / "control").is_socket()
    async with served(log, tmp_path) as (_, _, path), client(path) as viewer:
        assert (await viewer.ask({"verb": "status"}))["ok"]


async def test_a_live_socket_is_refused_and_stays(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path) as (replay, _, path):
        with pytest.raises(StoreError, match="a live process listens at"):
            async with ControlSocket(replay.control, str(path)):
                pass
        async with client(path) as viewer:
            assert (await viewer.ask({"verb": "status"}))["ok"]


async def test_of_two_processes_that_find_a_dead_socket_one_replaces_it(log: EventLog, tmp_path: Path) -> None:
    await filled(log, seconds_apart(2))
    path = tmp_path / "control"
    control = Replay(log, "e1", Heard()).control
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        sockets = [ControlSocket(control, str(path)) for _ in range(4)]
        found = await asyncio.gather(*(each.__aenter__() for each in sockets), return_exceptions=True)
        won = [each for each in found if isinstance(each, ControlSocket)]
        assert len(won) == 1 and sum(isinstance(each, StoreError) for each in found) == 3
        async with client(path) as viewer:
            assert (await viewer.ask({"verb": "status"}))["ok"]
        await won[0].__aexit__(None, None, None)
        assert not path.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_nothing_but_a_socket_is_replaced(log: EventLog, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "control"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nothing")
    with pytest.raises(StoreError, match="is not a socket: name another path"):
        async with ControlSocket(Replay(log, "e1", Heard()).control, str(path)):
            pass
    assert path.is_symlink() if kind == "link" else path.exists()


@pytest.mark.parametrize(("name", "error"), [("x" * 200, "too long"), ("missing/control", "No such file")])
async def test_a_path_at_which_no_socket_can_be_is_refused_in_one_line(
    log: EventLog, tmp_path: Path, name: str, error: str
) -> None:
    with pytest.raises(StoreError, match=f"cannot make the control socket .*{error}.*--control"):
        async with ControlSocket(Replay(log, "e1", Heard()).control, str(tmp_path / name)):
            pass


async def test_a_socket_that_was_replaced_meanwhile_is_not_removed(log: EventLog, tmp_path: Path) -> None:
    async with served(log, tmp_path) as (_, _, path):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


async def test_the_requests_in_the_documents_are_answered_with_the_fields_that_they_describe(
    log: EventLog, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "replay.md").read_text().partition("### Control socket")[2].partition("\n## ")[0]
    requests = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    table = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert requests is not None
    seen: set[str] = {"error"}
    talk = [sent(at * SECOND, b"x", "exps:e1:agents:7:agent-chat", from_id=3) for at in range(20)]
    async with served(log, tmp_path, talk) as (_, _, path), client(path) as viewer:
        for line in requests[1].splitlines():
            answer = await viewer.ask(line.encode() + b"\n")
            assert answer["ok"], (line, answer)
            seen |= set(answer)
    assert {json.loads(line)["verb"] for line in requests[1].splitlines()} == set(VERBS)
    assert {name for row in table for name in re.findall(r"`(\w+)`", row)} | {"error"} == seen
