"""Start of the recording, or the serving, of the calls of this process, as `MESSAGER_CALLS` says."""

from __future__ import annotations

import atexit
import os
from urllib.parse import urlsplit

from ..hooks import say
from ..variables import ALL_HTTP, ALLOW, ALSO, CALLS
from .exchange import Call, Exchange
from .guard import Guard, watch
from .installing import install
from .model_paths import ModelCalls
from .public import public_call
from .recording import Recording
from .serving import Serving

_PORTS = {"redis": 6379, "rediss": 6379, "mqtt": 1883, "mqtts": 8883, "postgresql": 5432, "postgres": 5432}
"""Ports of URLs without one."""

_guard: Guard | None = None


def record() -> None:
    """Record the calls to models of this process, for example in a notebook. Needs `MESSAGER_STORE`, or a Recorder."""
    _begin(Recording, Guard("note"))


def start() -> None:
    """Record or serve the calls of this process. Has no effect without `MESSAGER_CALLS`, and a second time."""
    mode = os.environ.get(CALLS)
    if _guard is not None or not mode:
        return
    if mode == "serve":
        _begin(Serving, Guard("refuse"))
        for place in filter(None, os.environ.get(ALLOW, "").split(",")):
            allow(place)
    elif mode == "record":
        record()
    else:
        say(f"{CALLS} is {mode!r:.50}: calls are not recorded. Set it to record")


def allow(place: str) -> None:
    """Let this process connect to the address of a URL, or to HOST:PORT, such as that of its broker or store."""
    parts = urlsplit(place if "://" in place else f"//{place}")
    port = parts.port or _PORTS.get(parts.scheme.partition("+")[0], 0)
    if _guard is not None and parts.hostname and port:
        _guard.allow(parts.hostname, port)


def _begin(exchange: type[Recording], guard: Guard) -> None:
    """Report the calls of this process to exchanges of a class, and what else it connects to, to a guard."""
    global _guard
    _guard = guard

    def begin(call: Call) -> Exchange:
        return exchange.of(call, public_call(call))

    also = [host for host in os.environ.get(ALSO, "").split(",") if host]
    install(begin, _Selection(also, all_http=bool(os.environ.get(ALL_HTTP))))
    watch(guard)
    atexit.register(_say_what_was_not_seen, guard)


class _Selection(ModelCalls):
    """Selection that names each host of which it leaves requests out."""

    def __call__(self, method: str, url: str) -> bool:
        known = len(self.others)
        selected = super().__call__(method, url)
        if len(self.others) > known:
            host = next(reversed(self.others))
            say(f"requests to {host} are not recorded, and would be refused in a reproduction: add --also {host}")
        return selected


def _say_what_was_not_seen(guard: Guard) -> None:
    for line in guard.lines():
        say(line)
