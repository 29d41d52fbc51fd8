"""Start of the recording, or the serving, of the calls of this process, as `MESSAGER_CALLS` says."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from ..credentials import mask_text
from ..hooks import say
from ..variables import ALL_HTTP, ALSO, CALLS
from .exchange import Call, Exchange
from .installing import install
from .model_paths import is_model_call
from .recording import Recording
from .serving import Serving

KEPT_HEADERS = frozenset(
    {"content-type", "anthropic-version", "anthropic-beta", "openai-beta", "x-stainless-retry-count", "retry-after"}
)
"""Headers of a request that are kept; of the others, some are secrets."""

_unselected: set[str] = set()


def record() -> None:
    """Record the calls to models of this process, for example in a notebook. Needs `MESSAGER_STORE`, or a Recorder."""
    install(_recorded, _selects)


def start() -> None:
    """Record or serve the calls of this process. Has no effect without `MESSAGER_CALLS`."""
    mode = os.environ.get(CALLS)
    if mode == "serve":
        install(_served, _selects)
    elif mode == "record":
        record()
    elif mode:
        say(f"{CALLS} is {mode!r:.50}: calls are not recorded. Set it to record")


def _recorded(call: Call) -> Exchange | None:
    return Recording.of(call, _public(call))


def _served(call: Call) -> Exchange | None:
    return Serving.of(call, _public(call))


def _selects(method: str, url: str) -> bool:
    """Return whether a request is a call to a model, or to a host of `--also`; other hosts are named once."""
    place = urlsplit(url)
    host = place.hostname or ""
    if host.startswith(("169.254.", "fe80:")):
        return False
    if is_model_call(method, place.path) or os.environ.get(ALL_HTTP) or host in os.environ.get(ALSO, "").split(","):
        return True
    if host not in _unselected:
        _unselected.add(host)
        say(f"requests to {host} are not recorded, and are refused when the run is reproduced: add --also {host}")
    return False


def _public(call: Call) -> dict[str, Any]:
    """Return what may be kept of a call beside its body."""
    headers = {name.lower(): value for name, value in call.headers if name.lower() in KEPT_HEADERS}
    return {"method": call.method, "url": mask_text(call.url), "client": call.client, "headers": headers}
