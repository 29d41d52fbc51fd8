"""A PostgreSQL store's URL: the part for the driver, and the part that may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from messager.credentials import without_credentials

from ...errors import StoreError

FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]*)(:\d{1,5})?")
_OF_LIBPQ = {
    "host", "hostaddr", "port", "dbname", "user", "password", "passfile", "channel_binding", "connect_timeout",
    "client_encoding", "options", "application_name", "fallback_application_name", "keepalives", "keepalives_idle",
    "keepalives_interval", "keepalives_count", "tcp_user_timeout", "sslmode", "sslnegotiation", "sslcompression",
    "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "gssencmode", "service",
    "target_session_attrs", "load_balance_hosts",
}  # fmt: skip
"""Parameters that libpq knows. asyncpg takes others as settings of the server."""
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

    @property
    def libpq(self) -> str:
        """The URL for libpq, credentials included: other parameters become options of the server."""
        address, _, query = self.dsn.partition("?")
        given = parse_qs(query, keep_blank_values=True)
        kept = [(key, values[-1]) for key, values in given.items() if key in _OF_LIBPQ]
        settings = [
            f"-c {key}={_escaped(values[-1])}" for key, values in given.items() if key not in (*_OF_LIBPQ, "database")
        ]
        if settings:
            kept = [(key, value) for key, value in kept if key != "options"]
            kept.append(("options", " ".join([*given.get("options", []), *settings])))
        return f"{address}?{urlencode(kept, quote_via=quote)}" if kept else address


def _escaped(value: str) -> str:
    """Return a value of a setting as the server's command line takes it."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


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
