"""Control of a running replay over a local socket: the verbs of `control.Control` as JSON lines.

One request a line, one answer a line, in the order of the requests; `docs/replay.md` describes the protocol. Only the
user of the process can connect, because the socket gets its permissions before it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import stat
from collections.abc import Iterator
from types import NoneType, TracebackType
from typing import Any

from ..errors import StoreError
from .control import Control

LONGEST_REQUEST = 64 * 1024
"""Maximum bytes of a request."""
MOST_CONNECTIONS = 32
FOLLOW_S = 0.1
"""Seconds between two events for a subscriber, at least."""
CLOSE_S = 2.0
"""Seconds that clients have at the end to read what is left for them."""

VERBS: dict[str, dict[str, tuple[type, ...]]] = {
    "pause": {},
    "resume": {},
    "step": {"n": (int,)},
    "next": {"agent": (str, int), "channel": (str,)},
    "seek": {"point": (str, int, NoneType), "state": (bool,)},
    "speed": {"speed": (str, int, float)},
    "status": {},
    "subscribe": {},
}
"""The verbs, their fields, and the types of these."""
_NEEDED = {"seek": "point", "speed": "speed"}


class ControlSocket:
    """Serves the control of one replay at a path: `async with ControlSocket(replay.control, "/run/user/1000/replay"):`.

    The file has the permissions 0600. A socket that a dead process left behind is replaced. Raises `StoreError` if a
    live process listens there, if the path is something else, or if the socket cannot be made.
    """

    def __init__(self, control: Control, path: str) -> None:
        self._control = control
        self._path = os.path.abspath(path)
        self._file = 0, 0
        """Device and inode of the socket's file."""
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    async def __aenter__(self) -> ControlSocket:
        listener, self._file = await asyncio.to_thread(_listening, self._path)
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=LONGEST_REQUEST)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer what was asked, send the last event to subscribers, and remove the socket."""
        assert self._server is not None
        _remove_own(self._path, self._file)
        self._server.close()
        for task, connection in self._connections.items():
            connection.end(task)
        if self._connections:
            _, slow = await asyncio.wait(self._connections, timeout=CLOSE_S)
            for task in slow:
                self._connections[task].abort()
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(self._control, reader, writer)
        if len(self._connections) >= MOST_CONNECTIONS:
            await connection.refuse(f"{MOST_CONNECTIONS} clients are connected: close one of them")
            return
        self._connections[task] = connection
        try:
            await connection.serve()
        finally:
            del self._connections[task]


class _Connection:
    """One client."""

    def __init__(self, control: Control, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._control = control
        self._reader, self._writer = reader, writer
        self._follower: asyncio.Task[None] | None = None
        self._idle = False
        self._ending = False

    async def serve(self) -> None:
        """Answer requests until the client or the replay ends."""
        try:
            while not self._ending and (line := await self._line()) is not None:
                await self._send(await self._answer(line))
        except OSError:
            pass  # the client is gone
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            await self._close()

    def end(self, task: asyncio.Task[None]) -> None:
        """End after the answer that is being made."""
        self._ending = True
        if self._idle:
            task.cancel()

    def abort(self) -> None:
        """Drop what the client has not read."""
        self._writer.transport.abort()

    async def refuse(self, reason: str) -> None:
        """Answer with an error, and close."""
        with contextlib.suppress(OSError):
            await self._send(_error(reason))
        self._writer.close()

    async def _close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
            if self._ending:
                with contextlib.suppress(OSError):
                    await self._send({"event": "ended", **self._control.status()})
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _line(self) -> bytes | None:
        """Return the next request, None at the end, and an empty one in place of one that is too long."""
        self._idle, too_long = True, False
        try:
            while True:
                try:
                    line = await self._reader.readuntil(b"\n")
                    return b"" if too_long else line
                except asyncio.IncompleteReadError as error:
                    return error.partial or None
                except asyncio.LimitOverrunError as error:
                    too_long = True
                    await self._reader.readexactly(error.consumed)
        finally:
            self._idle = False

    async def _send(self, answer: dict[str, Any]) -> None:
        self._writer.write(json.dumps(answer).encode() + b"\n")
        await self._writer.drain()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            if not line:
                raise StoreError(f"the request is longer than {LONGEST_REQUEST:,} bytes")
            verb, given = _request(line)
            done = await self._do(verb, given)
            return {"ok": True, **done, **self._control.status()}
        except StoreError as error:
            return _error(str(error))

    async def _do(self, verb: str, given: dict[str, Any]) -> dict[str, Any]:
        control = self._control
        if verb == "pause":
            control.pause()
        elif verb == "resume":
            control.resume()
        elif verb == "speed":
            control.set_speed(given["speed"])
        elif verb == "step":
            return {"messages": await control.step(**given)}
        elif verb == "next":
            return {"messages": await control.next(**given)}
        elif verb == "seek":
            await control.seek(given["point"], state=given.get("state", False))
        elif verb == "subscribe" and self._follower is None:
            self._follower = asyncio.create_task(self._follow())
        return {}

    async def _follow(self) -> None:
        """Send the status whenever it has changed."""
        before: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            while True:
                await asyncio.sleep(FOLLOW_S)
                status = self._control.status()
                if status != before:
                    await self._send({"event": "status", **status})
                    before = status


def _request(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the verb and the fields of a request. Raises `StoreError`."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise StoreError('the request is not JSON: send one object a line, such as {"verb": "status"}') from None
    verb = request.pop("verb", None) if isinstance(request, dict) else None
    fields = VERBS.get(verb) if isinstance(verb, str) else None
    if not isinstance(verb, str) or fields is None:
        raise StoreError(f"the request has no known verb: the verbs are {', '.join(VERBS)}")
    for name, value in request.items():
        if name not in fields:
            raise StoreError(f"{verb} has no field {name[:50]!r}: {_known(fields)}")
        if type(value) not in fields[name]:
            raise StoreError(f"the field {name!r} of {verb} is {_json_types(fields[name])}, not {str(value)[:50]!r}")
    if _NEEDED.get(verb, "") not in {"", *request}:
        raise StoreError(f"{verb} needs the field {_NEEDED[verb]!r}")
    return verb, request


def _known(fields: dict[str, tuple[type, ...]]) -> str:
    return f"its fields are {', '.join(fields)}" if fields else "it has none"


def _json_types(types: tuple[type, ...]) -> str:
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false", NoneType: "null"}
    return " or ".join(names[each] for each in types)


def _error(reason: str) -> dict[str, Any]:
    return {"ok": False, "error": " ".join(reason.split())}


def _listening(path: str) -> tuple[socket.socket, tuple[int, int]]:
    """Return a socket that listens at a path, with the permissions 0600, and the identity of its file.

    The folder is locked meanwhile, so that of two processes that find the socket of a dead one, only one replaces it.
    Raises `StoreError`.
    """
    listener = None
    try:
        with _locked(os.path.dirname(path)):
            _remove_stale(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen()  # until here, every attempt to connect is refused
            return listener, _identity(path)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise StoreError(
            f"cannot make the control socket {path}: {error.strerror or error}. Name another path with --control"
        ) from None


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: str) -> None:
    """Remove a socket at which nobody listens. Raises `StoreError` for anything else at the path."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise StoreError(f"{path} exists and is not a socket: name another path with --control")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass  # not refused: somebody may be there
    raise StoreError(f"a live process listens at {path}: end it, or name another path with --control")


def _remove_own(path: str, own: tuple[int, int]) -> None:
    """Remove the socket, unless another one has taken its place."""
    with contextlib.suppress(OSError):
        if _identity(path) == own:
            os.unlink(path)


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
