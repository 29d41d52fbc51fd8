"""Connections that no hook sees are counted, or refused."""

import asyncio
import socket
import subprocess
import urllib.request
from collections.abc import Iterator

import httpx
import pytest

from messager.calls import CallRefused
from messager.calls.guard import Guard, watch
from tests.support.frameworks import python_with
from tests.support.model_stub import ModelStub
from tests.support.model_tape import Tape


@pytest.fixture(autouse=True)
def _no_guard_behind_a_test() -> Iterator[None]:
    yield
    watch(None)


def place(stub: ModelStub) -> tuple[str, int]:
    return "127.0.0.1", int(stub.url.rpartition(":")[2])


def test_connections_and_programs_that_no_hook_sees_are_counted(stub: ModelStub) -> None:
    guard = Guard("note")
    watch(guard)
    for _ in range(2):
        urllib.request.urlopen(stub.url + "/other").close()
    subprocess.run(["/bin/true"], check=True)
    host, port = place(stub)
    assert guard.lines() == [
        f"2 connections to {host}:{port} were not recorded",
        "true was started 1 time: calls that it makes are not recorded",
    ]


def test_recorded_call_is_not_counted(stub: ModelStub, tape: Tape) -> None:
    guard = Guard("note")
    watch(guard)
    httpx.post(stub.url + "/other")
    assert len(tape.calls) == 1 and guard.lines() == []


def test_connection_of_a_task_that_outlives_the_call_that_started_it_is_counted(stub: ModelStub, tape: Tape) -> None:
    async def later() -> None:
        await released.wait()
        _, writer = await asyncio.open_connection(*place(stub))
        writer.close()

    class Transport(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            tasks.append(asyncio.create_task(later()))
            return await super().handle_async_request(request)

    async def main() -> None:
        async with httpx.AsyncClient(transport=Transport()) as client:
            await client.post(stub.url + "/other")
        released.set()
        await tasks[0]

    tasks: list[asyncio.Task[None]] = []
    released = asyncio.Event()
    guard = Guard("note")
    watch(guard)
    asyncio.run(main())
    assert list(guard.connections.values()) == [1]


def test_all_connections_are_refused_but_those_allowed(stub: ModelStub, tape: Tape) -> None:
    host, port = place(stub)
    watch(Guard("refuse"))
    with pytest.raises(CallRefused, match=f"--allow {host}:{port}"):
        socket.create_connection((host, port))
    with pytest.raises(CallRefused):
        asyncio.run(asyncio.wait_for(asyncio.open_connection(host, port), 9))
    assert stub.answered == 0
    watch(Guard("refuse", [("localhost", port)]))
    socket.create_connection((host, port)).close()


def test_unix_sockets_pass() -> None:
    watch(Guard("refuse"))
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(FileNotFoundError):
        one.connect("/nowhere/at/all")


CONNECTING_IN_C = """
import asyncio, sys, grpc, uvloop
from messager.calls.guard import Guard, watch

guard = Guard("refuse")
watch(guard)

async def connect():
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", 9)

for ask in (lambda: uvloop.run(connect()), lambda: grpc.insecure_channel("dns:///localhost:8")):
    try:
        ask()
    except ConnectionError as error:
        print(error)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("watched", ["before", "after"])
def test_connections_of_uvloop_and_grpc_are_refused(watched: str) -> None:
    code = CONNECTING_IN_C
    if watched == "before":  # the libraries are imported later
        code = code.replace(", grpc, uvloop", "").replace("async def", "import grpc, uvloop\n\nasync def", 1)
    command = [python_with("uvloop", "grpcio"), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "to 127.0.0.1:9 is refused" in done.stdout and "to localhost:8 is refused" in done.stdout, done.stderr
