"""Which broker a URL means."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from .protocol import Broker
from .redis import url as redis_url

SCHEMES = {
    **dict.fromkeys(redis_url.SCHEMES, ("redis.broker", "RedisBroker")),
    "mqtt": ("mqtt.broker", "MqttBroker"),
    "mqtts": ("mqtt.broker", "MqttBroker"),
}
"""By the scheme of a URL: the room and the class that takes it, imported when one is opened."""


def open_broker(url: str, **options: Any) -> Broker:
    """The broker at a URL, not yet connected; `options` are its `from_url`'s.

    Raises `TypeError` for what is no text, `ValueError` for a URL that no broker takes, and `MissingDriver` where what
    it takes is not installed, too old, or broken.
    """
    if not isinstance(url, str):
        raise TypeError(f"a broker is opened by its URL, as in redis://localhost:6379, not by {type(url).__name__}")
    scheme, slashes, _ = url.partition("://")
    found = SCHEMES.get(scheme.lower()) if slashes else None
    if found is None:
        *others, last = (f"{known}://" for known in SCHEMES)
        plain = slashes and re.fullmatch(r"[a-z0-9+.-]{1,20}", scheme, re.IGNORECASE)
        shown = f"{scheme}:// is no scheme of a broker" if plain else "that is no URL of a broker"
        raise ValueError(f"{shown}: one begins with {', '.join(others)} or {last}")
    room, name = found
    broker: Broker = getattr(import_module(f".{room}", __package__), name).from_url(url, **options)
    return broker
