"""What the URLs of all brokers have in common: how one is shown, and what is said of one that cannot be used."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

ESCAPES = "a port is a number, and / @ : # ? % in a password are written as %2F %40 %3A ..."


class URLFault(ValueError):
    """What is wrong with a URL, in words that repeat no part of it in which a password may be."""


def fault_of(error: Exception) -> str:
    """What is wrong with a URL. Words that are not ours may repeat parts of it, and so of a password."""
    return str(error) if isinstance(error, URLFault) else ESCAPES


def is_mqtt(url: str) -> bool:
    """Whether it is the URL of an MQTT broker."""
    return url.lower().startswith(("mqtt://", "mqtts://"))


def without_credentials(url: str) -> str:
    """The URL with its user and password taken out, also where they were not escaped as they should be."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        if ambiguous(url):
            return f"{scheme}://..."
        hosts = parts.netloc.rpartition("@")[2]
        whole = all(map(_whole, hosts.split(","))) and "@" not in parts.path
        socket = not hosts and ("@" in parts.netloc or not parts.netloc)
        rest = hosts + parts.path if whole or socket else rest.rpartition("@")[2]
    except ValueError:  # where no @ is there, the host may have been forgotten, and the port be a password
        rest = rest.rpartition("@")[2] if "@" in rest else "..."
    return f"{scheme}://" + re.split(r"[?#]", rest, maxsplit=1)[0]


def _whole(host: str) -> bool:
    """Whether this is a host, and a port where there is a colon. Raises `ValueError` for a port that is no number."""
    parts = urlsplit("//" + host)
    return bool(parts.hostname) and (parts.port is not None or ":" not in host.rpartition("]")[2])


def ambiguous(url: str) -> bool:
    """Whether a password may reach beyond where the URL's host seems to begin."""
    place, _, query = url.partition("://")[2].partition("?")
    host, _, path = place.partition("/")
    return "#" in url or "@" in query or ("@" in host and "@" in path)
