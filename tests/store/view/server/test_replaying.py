"""A replay that the page starts or attaches to: real processes, control sockets and Redis."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from starlette.applications import Starlette

from messager import RedisBroker
from messager.testing import RedisServer
from messager_store import EventLog, NewEvent, Replay
from messager_store.replay import ControlSocket
from messager_store.view.server.control_client import listens
from messager_store.view.server.replaying import LONGEST_REQUEST, Replaying
from tests.support import until
from tests.support.logs import filled, sent

SECOND = 1_000_000_000
STEP = {"exp_id": "e1", "to_exp": "e1-replay"}


def chat(number: int) -> list[NewEvent]:
    """Return messages of one second each, on two channels in turn."""
    return [
        sent(at * SECOND, f"{at}".encode(), f"exps:e1:agents:{at % 2}:chat", from_id=at % 2) for at in range(number)
    ]


class Page:
    """Sends requests to the application, as the page does."""

    def __init__(self, replaying: Replaying) -> None:
        self._application = Starlette(routes=replaying.routes())

    async def post(self, verb: str, given: Any = None) -> tuple[int, dict[str, Any]]:
        """Return status and answer."""
        body = given if isinstance(given, bytes) else json.dumps(given or {}).encode()
        received = asyncio.Queue[Any]()
        received.put_nowait({"type": "http.request", "body": body, "more_body": False})
        status, answer = 0, b""

        async def send(part: Any) -> None:
            nonlocal status, answer
            status = part.get("status", status)
            answer += part.get("body", b"")

        await asyncio.wait_for(self._application(_scope("POST", verb), received.get, send), 60)
        return status, json.loads(answer)

    async def done(self, verb: str, **given: Any) -> dict[str, Any]:
        """Return the answer to a request that succeeds."""
        status, answer = await self.post(verb, given)
        assert status == 200, answer
        return answer

    async def follow(self, events: list[dict[str, Any]]) -> None:
        """Collect the events of the replay, until the answer ends."""

        async def send(part: Any) -> None:
            for line in part.get("body", b"").decode().splitlines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))

        await self._application(_scope("GET", "follow"), asyncio.Queue[Any]().get, send)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Collect the events of the replay meanwhile."""
        events: list[dict[str, Any]] = []
        task = asyncio.create_task(self.follow(events))
        try:
            yield events
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _scope(method: str, verb: str) -> dict[str, Any]:
    path = f"/api/replay/{verb}"
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
    }


class Subscriber:
    """Everything that is published on some channels of Redis."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    @contextlib.asynccontextmanager
    async def listening(self, url: str, pattern: str) -> AsyncIterator[Subscriber]:
        client = redis.asyncio.Redis.from_url(url, decode_responses=True)
        pubsub = client.pubsub()
        await pubsub.psubscribe(pattern)
        assert (await pubsub.get_message(timeout=10))["type"] == "psubscribe"

        async def listen() -> None:
            async for message in pubsub.listen():
                self.messages.append((message["channel"], message["data"]))

        task = asyncio.create_task(listen())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await pubsub.aclose()  # type: ignore[no-untyped-call]
            await client.aclose()

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.messages]


def command_lines() -> Iterator[tuple[int, str]]:
    """Yield the processes that this one started, with their command lines."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                yield int(entry.name), (entry / "cmdline").read_bytes().decode()


def replays() -> list[int]:
    return [pid for pid, line in command_lines() if "replay_program" in line]


async def test_the_page_starts_a_replay_steps_it_seeks_and_ends_it(
    log: EventLog, store: str, redis: RedisServer
) -> None:
    await filled(log, chat(20))
    async with (
        Subscriber().listening(redis.url, "exps:e1*") as heard,
        Replaying(store, redis.url, asyncio.Event(), allow=True) as replaying,
    ):
        page = Page(replaying)
        started = await page.done("start", **STEP)
        assert started["phase"] == "running" and started["status"]["paused"] and heard.messages == []
        assert (await page.done("step"))["messages"] == 1
        await until(lambda: heard.messages == [("exps:e1-replay:agents:0:chat", "0")])
        assert (await page.done("step", n=2))["published"] == 3
        await until(lambda: heard.texts == ["0", "1", "2"])
        assert (await page.done("next", agent=0))["cursor"] == f"{4 * SECOND}:1:5"
        sought = await page.done("seek", point=f"{11 * SECOND}:1:12", state=True)
        assert sought["state_messages"] == 2 and sought["offset_s"] == 11.0 and sought["paused"]
        await until(lambda: heard.texts == ["0", "1", "2", "3", "4", "9", "10"])
        assert (await page.done("speed", speed=1000))["speed"] == 1000
        async with page.following() as events:
            assert (await page.done("resume"))["paused"] is False
            await until(lambda: bool(events) and events[-1]["phase"] == "ended")
        assert heard.texts[7:] == [str(number) for number in range(11, 20)]
        assert events[-1]["code"] == 0 and events[-1]["status"]["state"] == "finished"
        assert events[-1]["lines"][0].startswith("published 16 messages in ")
        assert events[-1]["exp_id"] == "e1" and events[-1]["to_exp"] == "e1-replay"
        assert replays() == []


async def test_a_replay_can_be_stopped_and_another_started_that_ends_with_the_server(
    log: EventLog, store: str, redis: RedisServer
) -> None:
    await filled(log, chat(20))
    stop = asyncio.Event()
    async with Replaying(store, redis.url, stop, allow=True) as replaying:
        page = Page(replaying)
        await page.done("start", **STEP)
        assert await page.post("start", STEP) == (409, {"error": "a replay is running: stop it first"})
        for verb, given, error in [
            ("step", {"n": "3"}, "the field 'n' of step is an integer"),
            ("seek", {}, "seek needs the field 'point'"),
            ("speed", {"speed": -1}, "-1"),
            ("pause", {"verb": "speed", "n": 1}, "pause has no field 'n'"),
        ]:
            status, answer = await page.post(verb, given)
            assert status == 400 and error in answer["error"]
        await page.done("step")
        stopped = await page.done("stop")
        assert stopped["phase"] == "ended" and stopped["status"]["state"] == "stopped"
        assert stopped["lines"][0].endswith(", ended before the last message")
        for verb in ("stop", "step", "pause"):
            assert await page.post(verb) == (409, {"error": "no replay is running: start one"})
        again = await page.done("start", **STEP)
        assert again["phase"] == "running" and again["lines"] == [] and again["status"]["published"] == 0
        following = asyncio.create_task(page.follow([]))
        lines = [line for _, line in command_lines() if "replay_program" in line]
        assert len(lines) == 1 and redis.url not in lines[0] and store not in lines[0]
        stop.set()
        await asyncio.wait_for(following, 60)
    assert replays() == []


async def test_no_password_is_in_an_answer(log: EventLog, store: str, redis: RedisServer) -> None:
    await filled(log, chat(3))
    secret = f"redis://someone:s3cret@{redis.url.partition('://')[2]}"
    async with Replaying(store, secret, asyncio.Event(), allow=True) as replaying:
        page = Page(replaying)
        planned = await page.done("plan", exp_id="e1")
        assert planned["broker"] == redis.url
        status, answer = await page.post("start", STEP)
        seen = json.dumps([replaying.head(), planned, answer])
        assert status == 400 and "s3cret" not in seen and "someone" not in seen


async def test_the_replay_ends_if_the_server_is_killed(
    log: EventLog, store: str, redis: RedisServer, tmp_path: Path
) -> None:
    await filled(log, chat(20))
    program = (
        "import asyncio, sys\n"
        "from messager_store.view.server.replay_process import ReplayProcess\n"
        "async def main():\n"
        "    work = dict(store=sys.argv[1], broker=sys.argv[2], exp_id='e1', to_exp=None, live=None)\n"
        "    process = await ReplayProcess.start(**work)\n"
        "    print(process.socket, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, store, redis.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": "/tmp"}) as server:
        assert server.stdout is not None
        socket = Path(server.stdout.readline().strip())
        try:
            await until(socket.is_socket, 60)
            assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        finally:
            server.send_signal(signal.SIGKILL)
        await until(lambda: not socket.exists(), 60)
    socket.parent.rmdir()


async def test_without_permission_every_verb_is_refused(log: EventLog, store: str) -> None:
    await filled(log, chat(3))
    async with Replaying(store, "redis://localhost:1", asyncio.Event(), control="/nowhere/socket") as replaying:
        refusal = "this page may only watch: start `messager view` with --allow-replay"
        for verb in ("plan", "start", "stop", "pause", "resume", "step", "next", "seek", "speed"):
            assert await Page(replaying).post(verb, STEP) == (403, {"error": refusal})
        assert replays() == []


@contextlib.asynccontextmanager
async def elsewhere(log: EventLog, path: Path, broker: RedisBroker) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a replay of somebody else."""
    replay = Replay(log, "e1", broker)
    replay.control.pause()
    async with ControlSocket(replay.control, str(path)):
        task = asyncio.create_task(replay.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_page_attaches_to_a_replay_that_was_started_elsewhere(
    log: EventLog, store: str, redis_broker: RedisBroker, tmp_path: Path
) -> None:
    await filled(log, chat(20))
    path = tmp_path / "control"
    async with (
        Replaying(store, "", asyncio.Event(), control=str(path)) as watching,
        Page(watching).following() as events,
    ):
        await until(lambda: bool(events) and events[-1]["phase"] == "none")  # it is not there yet
        assert not await listens(str(path))
        async with elsewhere(log, path, redis_broker):
            await until(lambda: (events[-1]["phase"], events[-1].get("exp_id")) == ("running", "e1"))
            assert await listens(str(path))
            assert watching.head() == {
                "allowed": False,
                "attached": str(path),
                "broker": None,
            }
            async with Replaying(store, "", asyncio.Event(), allow=True, control=str(path)) as driving:
                page = Page(driving)
                assert (await page.done("step", n=2))["published"] == 2
                await until(lambda: events[-1]["status"]["published"] == 2)
                assert await page.post("start", STEP) == (
                    409,
                    {"error": "this page is attached to a replay that was started elsewhere: it starts none"},
                )
                refusal = {"error": "this replay was started elsewhere: end it there"}
                assert await page.post("stop") == (409, refusal)
        await until(lambda: events[-1]["phase"] == "ended")
        async with elsewhere(log, path, redis_broker):
            await until(lambda: events[-1]["phase"] == "running" and events[-1]["status"]["published"] == 0)


async def test_a_pause_ends_a_step_that_waits(log: EventLog, store: str, redis: RedisServer) -> None:
    """A live agent that never comes lets the step wait."""
    await filled(log, chat(20))
    async with Replaying(store, redis.url, asyncio.Event(), allow=True) as replaying:
        page = Page(replaying)
        await page.done("start", **STEP, live=[0])
        waiting = asyncio.create_task(page.done("step", n=5))
        async with page.following() as events:
            await until(lambda: bool(events[-1:]) and bool(events[-1]["status"]["live"]["waiting_for"]))
            assert events[-1]["status"]["live"]["waiting_for"][0]["part"] == "agent 0"
        assert not waiting.done()
        await page.done("pause")
        assert (await waiting)["messages"] < 5


@pytest.mark.parametrize(
    ("given", "status", "error"),
    [
        (b"not json", 400, "the request is not JSON"),
        (b"[" * 60_000, 400, "the request is not JSON"),
        (b"[]", 400, "the request is not a JSON object"),
        (b" " * (LONGEST_REQUEST + 1), 413, "is longer than"),
        ({}, 400, "the field 'exp_id' is text"),
        ({"exp_id": 5}, 400, "the field 'exp_id' is text"),
        ({"exp_id": "e1", "to_exp": 5}, 400, "the field 'to_exp' is text"),
        ({"exp_id": "e1", "live": []}, 400, "the field 'live' is"),
        ({"exp_id": "e1", "live": [True]}, 400, "the field 'live' is"),
        ({"exp_id": "e1", "live": [99]}, 400, "99"),
        ({"exp_id": "e1", "to_exp": "a:b"}, 400, "cannot be the experiment in a channel"),
        ({"exp_id": "nothing"}, 400, "no experiment"),
    ],
)
async def test_a_wrong_request_is_answered_with_one_line(
    log: EventLog, store: str, redis: RedisServer, given: Any, status: int, error: str
) -> None:
    await filled(log, chat(3))
    async with Replaying(store, redis.url, asyncio.Event(), allow=True) as replaying:
        answered, answer = await Page(replaying).post("start", given)
        assert (answered, list(answer)) == (status, ["error"])
        assert error in answer["error"] and "\n" not in answer["error"]


async def test_a_broker_that_is_not_there_is_told(log: EventLog, store: str) -> None:
    await filled(log, chat(3))
    async with Replaying(store, "redis://127.0.0.1:1", asyncio.Event(), allow=True) as replaying:
        page = Page(replaying)
        async with page.following() as events:
            await page.post("start", STEP)
            await until(lambda: bool(events) and events[-1]["phase"] == "ended", 60)
        assert events[-1]["code"] == 3 and "127.0.0.1:1" in events[-1]["lines"][-1]


async def test_a_plan_names_broker_and_channels_and_proposes_a_new_experiment(
    log: EventLog, other: EventLog, store: str, redis: RedisServer
) -> None:
    await filled(log, chat(4))
    await filled(log, [sent(1, channel="lobby"), sent(2, channel="other")], "plain")
    async with Replaying(store, redis.url, asyncio.Event(), allow=True) as replaying:
        page = Page(replaying)
        assert await page.done("plan", exp_id="e1") == {
            "exp_id": "e1",
            "to_exp": "e1-replay",
            "broker": redis.url,
            "messages": 4,
            "at_least": False,
            "channels": ["exps:e1-replay:agents:0:chat", "exps:e1-replay:agents:1:chat"],
            "channels_of": 2,
            "original": 0,
        }
        assert (await page.done("plan", exp_id="e1", to_exp=None))["original"] == 2
        plain = await page.done("plan", exp_id="plain")
        assert plain["to_exp"] is None and plain["original"] == 2
        await filled(log, chat(1), "e1-replay")
        assert (await page.done("plan", exp_id="e1"))["to_exp"] == "e1-replay-2"
