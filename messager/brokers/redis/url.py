"""Parser of Redis URLs. `RedisBroker.from_url` lists their forms."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ...credentials import ambiguous
from ..urls import ESCAPES, URLFault

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
REDIS_PORT, SENTINEL_PORT = 6379, 26379
SERVICE = "mymaster"
"""Name of the master in the example configuration of Redis Sentinel."""

Address = tuple[str, int]
"""A host and a port."""

_PARTS = re.compile(
    r"(?P<scheme>[^:/?#]+)://(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?"
)
_HOST = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]]+)(?::(?P<port>\d+))?")
_OWN_OPTIONS = ("sentinel_username", "sentinel_password")
OPTIONS = ("db", "username", "password", "client_name", "socket_keepalive")
TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
    "ssl_cert_reqs",
    "ssl_ciphers",
    "ssl_min_version",
)
"""With `OPTIONS`, the options of redis-py that a URL may have. Others would change the protocol or repeat commands."""


class SeveralHosts(NamedTuple):
    """Parts of a URL that names several hosts."""

    hosts: list[Address]
    service: str
    """Name of the master, for sentinels."""
    template: str
    """URL of one server; its host is a placeholder."""
    sentinel_username: str | None
    sentinel_password: str | None


def scheme_of(url: str) -> str:
    """Return the scheme of a URL. Raises `URLFault` for any but `SCHEMES`, and for an ambiguous URL."""
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in SCHEMES:
        raise URLFault(f"it begins with none of {', '.join(SCHEMES)}, each followed by ://")
    if ambiguous(url) or ("@" in _path(url)):
        raise URLFault(ESCAPES)  # the parsers below would read another host in it, and repeat parts of a password
    return scheme


def check_options(url: str, scheme: str) -> None:
    """Raise `URLFault` for an unknown option, and for a database that is no number."""
    given = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    own = _OWN_OPTIONS if scheme.endswith("+sentinel") else ()
    if not scheme.startswith("rediss") and any(name in TLS_OPTIONS for name in given):
        raise URLFault("ssl_... are for rediss://")
    known = (*OPTIONS, *own, *(TLS_OPTIONS if scheme.startswith("rediss") else ()))
    if not given.keys() <= set(known):
        raise URLFault(f"its options are {', '.join(known)}")
    path = _path(url) if scheme in ("redis", "rediss") else ""
    if not all(re.fullmatch("[0-9]+", number) for number in (unquote(path).rstrip("/") or "0", given.get("db", "0"))):
        raise URLFault(f"the database is a number, as in {scheme}://HOST/0 or ?db=0")


def several_hosts(url: str) -> SeveralHosts:
    """Parse a URL of sentinels or of a cluster. Raises `URLFault`."""
    parts = _PARTS.fullmatch(url)
    if parts is None:
        raise URLFault(ESCAPES)
    base, _, kind = parts["scheme"].lower().partition("+")
    hosts = [_address(host, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT) for host in parts["hosts"].split(",")]
    path = [unquote(step) for step in parts["path"].strip("/").split("/") if step]
    service = path.pop(0) if kind == "sentinel" and path else SERVICE
    if len(path) > 1 or not all(step.isdecimal() for step in path):
        raise URLFault(
            "behind the hosts comes /SERVICE or /SERVICE/DB" if kind == "sentinel" else "behind the hosts comes nothing"
        )
    if kind == "cluster" and path not in ([], ["0"]):
        raise URLFault("a cluster has the database 0 and no other")
    words = [word for word in (parts["query"] or "").split("&") if word]
    own = {name: unquote(value) for name, _, value in (word.partition("=") for word in words) if name in _OWN_OPTIONS}
    query = "&".join(word for word in words if word.partition("=")[0] not in _OWN_OPTIONS)
    if own and kind != "sentinel":
        raise URLFault(f"there are no sentinels to give {' and '.join(own)} to")
    user = "" if parts["user"] is None else parts["user"] + "@"
    template = f"{base}://{user}localhost/{path[0] if path else 0}?{query}"
    return SeveralHosts(hosts, service, template, *map(own.get, _OWN_OPTIONS))


def _address(text: str, port: int) -> Address:
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or port) > 65535:
        raise URLFault("hosts are written as HOST:PORT,HOST:PORT")
    return unquote(found["host"].strip("[]")), int(found["port"] or port)


def shown(address: Address) -> str:
    """Return an address as `host:port`, with an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _path(url: str) -> str:
    return url.partition("://")[2].partition("?")[0].partition("/")[2]
