"""`messager replay` in a terminal: keys, the progress line and the terminal's mode; without a terminal, the socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, LiveReplay, Replay
from messager_store.cli.replay_keys import ReplayKeys
from messager_store.cli.replay_output import ReplayProgress
from tests.store.replay.test_control import seconds_apart
from tests.support import MESSAGER, ROOT
from tests.support.logs import filled

pytestmark = pytest.mark.sqlite


@pytest.fixture
def recorded(store: str) -> str:
    """Store with an experiment of 100 messages, one a second."""

    async def record() -> None:
        async with EventLog.open(store) as log:
            of = await filled(log, seconds_apart(100))
            await log.touch((await log.recorders(of))[0], ended_at=1)  # type: ignore[arg-type]

    asyncio.run(record())
    return store


class Terminal:
    """A process with a terminal of its own."""

    def __init__(self, *command: str, stderr: int | None = None, kind: str = "xterm") -> None:
        self._ours, self._its = pty.openpty()
        self.mode = termios.tcgetattr(self._its)
        self.shown = ""
        self.process = subprocess.Popen(
            command,
            stdin=self._its,
            stdout=subprocess.PIPE,
            stderr=self._its if stderr is None else stderr,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TERM": kind},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(self._ours, 4096):
                self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece.decode())

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str) -> None:
        """Wait until a text is shown that was not shown before the last call."""
        wait(lambda: text in self.shown, lambda: f"{text!r} is not in {self.shown[-500:]!r}")
        self.shown = self.shown.partition(text)[2]

    def reads_keys(self) -> bool:
        """Return whether keys arrive one by one, without an echo."""
        return not termios.tcgetattr(self._its)[3] & (termios.ICANON | termios.ECHO)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process; return its exit code and its standard output."""
        stdout, stderr = self.process.communicate(timeout=60)
        if stderr:
            self.shown += stderr
        return self.process.returncode, stdout

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._its)
        self._reader.join(10)
        os.close(self._ours)


def wait(holds: Callable[[], bool], reason: Callable[[], str] = lambda: "it does not hold") -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, reason()
        time.sleep(0.01)


def replaying(store: str, port: int, *options: str) -> list[str]:
    broker = f"redis://127.0.0.1:{port}/0"
    return [*MESSAGER, "--store", store, "replay", "e1", "--broker", broker, *options]


@contextlib.contextmanager
def terminal(*command: str, **options: Any) -> Iterator[Terminal]:
    found = Terminal(*command, **options)
    try:
        yield found
    finally:
        found.close()


def test_keys_step_move_and_end_a_replay_and_the_progress_line_shows_it(recorded: str, redis: RedisServer) -> None:
    with terminal(*replaying(recorded, redis.port, "--paused")) as screen:
        screen.wait_for("paused at 0.000 s, ? for keys")
        assert screen.reads_keys()
        screen.press("s")
        screen.wait_for("1 of 100 messages")
        screen.press("ss")
        screen.wait_for("paused at 2.000 s")
        screen.press("\x1b[C")
        screen.wait_for("paused at 7.000 s")
        screen.press("\x1b[D\x1b[D")
        screen.wait_for("paused at 0.000 s")
        screen.press("\x1bOA")
        screen.wait_for("paused at 60.000 s")
        screen.press("s\x1b[B")
        screen.wait_for("paused at 0.000 s")
        screen.press("?")
        screen.wait_for("q  end the replay")
        screen.press("x\x1b[5~\x1bs+")
        screen.wait_for(" s, 2 times the speed, ? for keys")
        screen.press(" ")
        screen.wait_for("replaying at 2 times the speed, ? for keys")
        screen.press("-")
        screen.wait_for("replaying, ? for keys")
        screen.press("q")
        code, stdout = screen.end()
        assert code == 0 and "ended before the last message" in stdout and re.search("seeks +[45]: ", stdout), stdout
        assert not screen.reads_keys()


@pytest.mark.parametrize(("speed", "slower", "faster"), [(1.0, 0.5, 2.0), (5000, 2500, 5000), (1e-6, 1e-6, 2e-6)])
async def test_plus_is_never_slower_and_minus_never_faster(speed: float, slower: float, faster: float) -> None:
    for key, expected in (("-", slower), ("+", faster)):
        replay = Replay(None, "e1", MemoryBroker(), speed=speed)  # type: ignore[arg-type]
        ended = asyncio.create_task(asyncio.sleep(0))
        await ended
        ReplayKeys(replay, ReplayProgress(quiet=True), ended).pressed(key)  # type: ignore[arg-type]
        assert replay.report.requested_speed == expected


async def test_keys_that_a_replay_with_live_agents_refuses_say_so_and_are_not_in_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    replay = LiveReplay(None, "e1", MemoryBroker(), live="all")  # type: ignore[arg-type]
    ended = asyncio.create_task(asyncio.sleep(0))
    await ended
    keys = ReplayKeys(replay, ReplayProgress(quiet=True), ended)  # type: ignore[arg-type]
    for key in "+-":
        keys.pressed(key)
        assert "cannot change the speed: its live agents follow" in capsys.readouterr().err
    keys.pressed("?")
    shown = capsys.readouterr().err
    assert "pause, and resume" in shown and "the speed" not in shown and "forward" not in shown


@pytest.mark.parametrize(
    ("end", "code"),
    [("\x03", 130), (signal.SIGTERM, 130), ("\x1c", -signal.SIGQUIT), ("broker", 3), ("q", 0)],
    ids=["ctrl-c", "sigterm", "ctrl-backslash", "error", "q"],
)
def test_the_mode_of_the_terminal_is_restored_however_the_replay_ends(
    recorded: str, end: Any, code: int, tmp_path: Path
) -> None:
    with (
        redis_server() as server,
        terminal(*replaying(recorded, server.port, "--paused")) as screen,
    ):
        screen.wait_for("paused at 0.000 s")
        assert screen.reads_keys()
        if end == "broker":
            server.stop()
            screen.press("s")
        elif isinstance(end, str):
            screen.press(end)
        else:
            screen.process.send_signal(end)
        found, _ = screen.end()
        assert (found, termios.tcgetattr(screen._its)) == (code, screen.mode), screen.shown


SHELL = """
import os, signal, subprocess, sys, termios, time

def take(group):
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, group)

def mode():
    return "keys" if not termios.tcgetattr(0)[3] & (termios.ICANON | termios.ECHO) else "lines"

child = subprocess.Popen(sys.argv[2:], process_group=0)
take(child.pid)
_, status = os.waitpid(child.pid, os.WUNTRACED)
assert os.WIFSTOPPED(status), status
take(os.getpgrp())
print("stopped:", mode(), file=sys.stderr, flush=True)
if sys.argv[1] == "fg":
    take(child.pid)
os.kill(child.pid, signal.SIGCONT)
_, status = os.waitpid(child.pid, os.WUNTRACED)
take(os.getpgrp())
print("ended:", os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else "stopped", mode(), file=sys.stderr)
"""


def test_a_stop_restores_the_mode_and_continuing_in_the_foreground_reads_keys_again(
    recorded: str, redis: RedisServer
) -> None:
    with terminal(sys.executable, "-c", SHELL, "fg", *replaying(recorded, redis.port, "--paused")) as screen:
        screen.wait_for("paused at 0.000 s")
        screen.press("\x1a")
        screen.wait_for("stopped: lines")
        screen.wait_for("paused at 0.000 s")
        assert screen.reads_keys()
        screen.press("s")
        screen.wait_for("1 of 100 messages")
        screen.press("q")
        screen.wait_for("ended: 0 lines")


def test_a_replay_that_is_continued_in_the_background_leaves_the_terminal_alone(
    recorded: str, redis: RedisServer
) -> None:
    command = replaying(recorded, redis.port, "--until", "2s")
    with terminal(sys.executable, "-c", SHELL, "bg", *command) as screen:
        screen.wait_for("? for keys")
        screen.press("\x1a")
        screen.wait_for("stopped: lines")
        assert not screen.reads_keys()
        screen.wait_for("ended: 0 lines")


def test_without_a_terminal_to_show_it_on_keys_are_not_read(recorded: str, redis: RedisServer) -> None:
    with terminal(*replaying(recorded, redis.port, "--until", "1s"), stderr=subprocess.PIPE) as screen:
        screen.press("q")
        code, stdout = screen.end()
        assert code == 0 and "published      1 message" in stdout and "ended before" not in stdout
        assert "keys" not in screen.shown
    refused = subprocess.run(
        replaying(recorded, redis.port, "--paused"), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert refused.returncode == 2 and "--paused needs a terminal, or --control" in refused.stderr


def test_on_a_terminal_that_cannot_erase_a_line_keys_are_not_read_either(recorded: str, redis: RedisServer) -> None:
    with terminal(*replaying(recorded, redis.port, "--paused"), kind="dumb") as screen:
        screen.wait_for("--paused needs a terminal, or --control")
        assert screen.end()[0] == 2


def test_the_socket_controls_a_replay_without_a_terminal(recorded: str, redis: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "control"
    process = subprocess.Popen(
        replaying(recorded, redis.port, "--paused", "--control", str(path), "--json"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with socket.socket(socket.AF_UNIX) as client:
            wait(lambda: not client.connect_ex(str(path)))
            lines = client.makefile("rw")
            requests = [{"verb": "step", "n": 4}, {"verb": "seek", "point": "98s", "state": True}, {"verb": "resume"}]
            answers = []
            for request in requests:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answers.append(json.loads(lines.readline()))
        assert [(each["ok"], each["published"]) for each in answers] == [(True, 4), (True, 5), (True, 5)]
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    report = json.loads(stdout)
    assert (report["published"], report["state_messages"], report["passed_over"]) == (7, 1, 94)
    assert process.returncode == 0 and not path.exists() and "stopped" not in stderr


def test_a_path_that_cannot_be_a_socket_is_refused_before_anything_is_published(
    recorded: str, redis: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("precious")
    command = replaying(recorded, redis.port, "--speed", "max", "--control", str(tmp_path / "file"))
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "is not a socket" in refused.stderr and "published" not in refused.stdout
    assert "stopped" not in refused.stderr
