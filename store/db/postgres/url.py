"""A PostgreSQL store's URL: the part for the driver, and the part that may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from messager.credentials import without_credentials

from ...errors import StoreError

FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]*)(:\d{1,5})?")
_IDENTIFYING = ("host", "port", "search_path")
"""Parameters that identify the store. Others may be secrets."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The URL of a store, in the forms that are needed."""

    dsn: str
    """The URL for asyncpg, credentials included."""
    location: str
    """The URL without credentials, in one canonical form."""
    database: str
    user: str | None
    """The user, if the URL names one."""


def parse_url(url: str) -> StoreUrl:
    """Return the parts of a URL. Raises `StoreError` for a bad URL, without showing any of it."""
    try:
        url.encode()  # the driver could not send it, and its error would show it
        parts = urlsplit(url)
        given = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:
        raise StoreError(f"this is not a PostgreSQL URL: write {FORM}") from None
    if "#" in url or parts.netloc.count("@") > 1 or "@" in parts.path or "@" in parts.query:
        raise StoreError(f"write {FORM}, with / ? # @ and % in a user or a password percent-encoded")
    hosts, _, path = without_credentials(url).partition("://")[2].partition("/")
    found = [_HOST.fullmatch(host) for host in hosts.lower().split(",")]
    if not all(host and int((host[2] or ":0")[1:]) < 65536 for host in found):
        raise StoreError(f"the port is not a number below 65,536 in this PostgreSQL URL: write {FORM}")
    database = unquote(path)
    if not database:
        raise StoreError(f"this PostgreSQL URL names no database: write {FORM}")
    shown = ",".join(host[1] + ("" if host[2] == ":5432" else host[2] or "") for host in found if host)
    kept = [(key, given[key][-1]) for key in _IDENTIFYING if key in given]
    behind = f"?{urlencode(kept, safe='/,')}" if kept else ""
    user = unquote(parts.username or "") or given.get("user", [""])[-1]
    return StoreUrl(
        f"postgresql://{url.partition('://')[2]}",
        f"postgresql://{shown}/{path}{behind}",
        database,
        user or None,
    )
