"""Access to the server: for the user who started it, in pages that it serves, and for nobody else.

Any program of the machine can reach the port, and any page in the user's browser can send requests to it. So a request
must

- name the server as its host (a name that an attacker's DNS server makes point here is refused),
- not come from a page of another origin, by `Origin` and `Sec-Fetch-Site`; a POST must say its origin,
- have a cookie, which the browser gets at a URL with a secret. Such a URL works once.

Cookies do not know ports: another server at 127.0.0.1 that the user opens receives the cookie as well.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, MutableMapping
from html import escape
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_BODY = 64 * 1024
"""Maximum bytes of the body of a request."""
LONGEST_HEAD = 128 * 1024
"""Maximum bytes of the query and the headers of a request: a tail position has a number for each recorder."""
ENTRY = "/open"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer."""
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_METHODS = ("GET", "HEAD", "POST")
_ENTERED = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={home}">
<link rel="icon" href="data:,">
<title>messager</title>
<p><a href="{home}">Continue</a></p>
</html>
"""
"""Answer to the secret. A redirect by status would not do: the browser follows it on behalf of the page that linked
here, and does not send it a cookie that is `SameSite=Strict`."""

Headers = dict[str, list[str]]
"""Values by lower-case name."""


class Access:
    """ASGI application that passes the requests of the user on to another one, and refuses all others."""

    def __init__(self, app: ASGIApp, port: int, home: str = "/") -> None:
        self._app = app
        self._home = home
        """Path of the page that follows the secret."""
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._cookie = f"messager-view-{port}", secrets.token_urlsafe(32)
        self._entries: list[tuple[str, Callable[[], None]]] = []
        """Secrets that were not used yet, and what to call when they are."""

    def entry(self, used: Callable[[], None] = lambda: None) -> str:
        """Return a new URL that gives a browser access, once. `used` is called then."""
        secret = secrets.token_urlsafe(32)
        self._entries.append((secret, used))
        return f"http://{self._hosts[0]}{ENTRY}?secret={secret}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the page is served over http, not {scope['type']}")
        headers = _headers_of(scope)
        head = len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        entering = scope["path"] == ENTRY and scope["method"] == "GET"
        refusal = self._refusal(scope["method"], headers, entering)
        if refusal is not None:
            await _answer(send, *refusal)
        elif head > LONGEST_HEAD:
            await _answer(send, 431, f"a request has at most {LONGEST_HEAD} bytes before its body")
        elif entering:
            await self._enter(scope, headers, send)
        elif not self._has_cookie(headers):
            await _answer(send, 403, "open the link that `messager view` printed")
        elif not scope["state"]["connection"].admit():
            await _answer(send, 503, "there are too many connections: close other pages of this server")
        elif (body := await _body(headers, receive)) is None:
            await _answer(send, 413, f"the body of a request has at most {LONGEST_BODY} bytes")
        else:
            await self._app(scope, _again(body, receive), _with_headers(send))

    def _refusal(self, method: str, headers: Headers, entering: bool) -> tuple[int, str] | None:
        """Return the status and the reason to refuse a request, wherever it comes from."""
        hosts = [host.lower() for host in headers.get("host", [])]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 403, f"this server is {self._hosts[0]}"
        origins = headers.get("origin", [])
        if any(origin != f"http://{hosts[0]}" for origin in origins) or (method == "POST" and not origins):
            return 403, "requests of other pages are refused"
        sites = headers.get("sec-fetch-site", [])
        if not entering and any(site not in ("same-origin", "none") for site in sites):
            return 403, "requests of other pages are refused"
        return None if method in _METHODS else (405, f"{method} is not supported")

    async def _enter(self, scope: Scope, headers: Headers, send: Send) -> None:
        """Give the browser the cookie for a secret that was not used yet. With the cookie, it needs no secret."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("secret", [""])[0]
        found = [entry for entry in self._entries if _equal(entry[0], given)]
        for entry in found:
            self._entries.remove(entry)
            entry[1]()
        if not found and not self._has_cookie(headers):
            await _answer(send, 403, "this link was used before: each works once; `messager view` prints another")
            return
        name, value = self._cookie
        cookie = f"{name}={value}; Path=/; HttpOnly; SameSite=Strict"
        page = _ENTERED.format(home=escape(self._home))
        await _answer(send, 200, page, ("content-type", "text/html; charset=utf-8"), ("set-cookie", cookie))

    def _has_cookie(self, headers: Headers) -> bool:
        name, value = self._cookie
        pairs = [pair.strip().partition("=") for line in headers.get("cookie", []) for pair in line.split(";")]
        return any(_equal(given, value) for key, _, given in pairs if key == name)


def _equal(given: str, secret: str) -> bool:
    """Return whether two texts are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode("utf-8", "replace"))


def _headers_of(scope: Scope) -> Headers:
    found: Headers = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too long, or the client is gone."""
    lengths = headers.get("content-length", ["0"])
    if any(not length.isdecimal() or int(length) > LONGEST_BODY for length in lengths):
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was received already, and then what follows it."""
    waiting: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return waiting.pop() if waiting else await receive()

    return received


def _with_headers(send: Send) -> Send:
    """Return a `send` that adds `HEADERS` to the answer, and replaces others of these names."""
    names = {name for name, _ in _HEADERS}

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
            message = {**message, "headers": [*others, *_HEADERS]}
        await send(message)

    return sent


async def _answer(send: Send, status: int, text: str, *headers: tuple[str, str]) -> None:
    """Send an answer: a page with the headers, or else one line of text."""
    lines: Iterable[tuple[str, str]] = headers
    if not headers:
        text, lines = f"{HTTPStatus(status).phrase}: {text}\n", [("content-type", "text/plain; charset=utf-8")]
    body = text.encode()
    sending = _with_headers(send)
    fields = [(name.encode(), value.encode()) for name, value in (*lines, ("content-length", str(len(body))))]
    await sending({"type": "http.response.start", "status": status, "headers": fields})
    await sending({"type": "http.response.body", "body": body})
