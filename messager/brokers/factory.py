"""Kinds of brokers, and the broker at a URL."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from .base import Broker
from .kind import BrokerKind

_FOLDERS = ("redis", "mqtt", "memory")
"""One line registers a broker: the folder in which `kind.py` has its `KIND`."""

BROKER_KINDS: tuple[BrokerKind, ...] = tuple(import_module(f".{folder}.kind", __package__).KIND for folder in _FOLDERS)
_BY_SCHEME = {scheme: kind for kind in BROKER_KINDS for scheme in kind.schemes}


def kind_of(url: str) -> BrokerKind:
    """Return the kind of broker that a URL leads to, with or without credentials in it.

    An unknown scheme, such as that of a `Broker` of another package, counts as Redis.
    """
    return _BY_SCHEME.get(url.partition(":")[0].lower(), BROKER_KINDS[0])


def open_broker(url: str, **options: Any) -> Broker:
    """Return the broker at a URL, not yet connected; `options` are those of its `from_url`.

    Raises `TypeError` for anything but text, `ValueError` for a URL that no broker accepts, and `MissingDriver` if its
    driver is not installed, or broken.
    """
    if not isinstance(url, str):
        raise TypeError(
            f"a broker is opened by a URL, not by {type(url).__name__}. Give one such as redis://localhost:6379."
        )
    scheme, slashes, _ = url.partition("://")
    kind = _BY_SCHEME.get(scheme.lower()) if slashes else None
    if kind is None or kind.broker is None:
        *others, last = (f"{known}://" for known, kind in _BY_SCHEME.items() if kind.broker is not None)
        plain = slashes and re.fullmatch(r"[a-z0-9+.-]{1,20}", scheme, re.IGNORECASE)
        shown = f"unknown scheme of a broker: {scheme}://" if plain else "not the URL of a broker"
        raise ValueError(f"{shown}. Use a URL that begins with {', '.join(others)} or {last}")
    module, _, name = kind.broker.partition(":")
    broker: Broker = getattr(import_module(module, __package__), name).from_url(url, **options)
    return broker
