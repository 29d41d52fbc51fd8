"""Run the server of the page until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from ...errors import PortTaken
from .access import LONGEST_HEAD, Access
from .connection import MOST_CONNECTIONS, Connection
from .opening import RedirectFile, has_browser

HOST = "127.0.0.1"
CLOSE_S = 1
"""Seconds that a client which does not read has at the end."""


def listening(port: int | None) -> socket.socket:
    """Return a socket on a port of this machine, a free one for None. Raises `PortTaken`."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port or 0))
        listener.listen(MOST_CONNECTIONS)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise PortTaken(f"cannot listen on {HOST}:{port}: {reason}. Name another --port, or none.") from None
    listener.setblocking(False)
    return listener


async def serve(
    access: Access,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None],
    browser: bool,
) -> None:
    """Serve until SIGINT or SIGTERM, or until `stop` is set, which ends the streams too.

    `started` is called with a URL that works once. With `browser`, the browser is opened at another one.
    """
    server = _Server(
        uvicorn.Config(
            access,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
            h11_max_incomplete_event_size=LONGEST_HEAD,
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    redirect = RedirectFile()
    with _interrupting(stop):
        try:
            started(access.entry())
            if browser and has_browser():
                redirect.open(access.entry(redirect.remove))
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        finally:
            redirect.remove()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    """A server that leaves the signals to `serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _interrupting(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    numbers = signal.SIGINT, signal.SIGTERM
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
