"""Who gets an answer from the page's server: only a browser that was let in, for pages of the server itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from messager_store.view.server import connection
from messager_store.view.server.access import HEADERS, LONGEST_BODY, LONGEST_HEAD, Access
from tests.store.view.server.client import Answer, Client, served

SECRET = "what only the user may see"


async def _show(request: Request) -> Response:
    return PlainTextResponse(SECRET, headers={"Cache-Control": "public", "X-Own": "kept"})


async def _take(request: Request) -> Response:
    return PlainTextResponse(f"{SECRET}: {len(await request.body())}")


APP = Starlette(routes=[Route("/", _show), Route("/take", _take, methods=["POST"])])


@pytest.fixture
async def entry() -> AsyncIterator[tuple[Client, Access]]:
    """A client that was not let in yet."""
    async with served(APP, "/?exp=e%2F1&x=<") as found:
        yield found


@pytest.fixture
async def client(entry: tuple[Client, Access]) -> Client:
    """A client that was let in."""
    client, access = entry
    await client.enter(access.entry())
    return client


def refused(answer: Answer, status: int = 403) -> None:
    """Check that an answer tells nothing but one line."""
    assert answer.status == status
    assert answer.headers["content-type"] == ["text/plain; charset=utf-8"]
    assert SECRET.encode() not in answer.body and answer.body.count(b"\n") == 1
    assert "set-cookie" not in answer.headers


async def test_a_link_lets_a_browser_in_once(entry: tuple[Client, Access]) -> None:
    client, access = entry
    used: list[bool] = []
    url = access.entry(lambda: used.append(True))
    refused(await client.get("/"))

    answer = await client.enter(url)
    assert answer.status == 200 and used == [True]
    assert (await client.get("/")).body.decode() == SECRET

    other = Client(client.port)
    refused(await other.enter(url))
    assert other.cookie is None and used == [True]
    refused(await other.get("/"))


async def test_a_browser_that_was_let_in_may_open_links_which_uses_them_up(entry: tuple[Client, Access]) -> None:
    client, access = entry
    url = access.entry()
    await client.enter(url)
    other = access.entry()
    for known in (url, other):
        again = await client.enter(known)
        assert again.status == 200 and b"http-equiv" in again.body
    refused(await Client(client.port).enter(other))


async def test_each_link_lets_one_browser_in(entry: tuple[Client, Access]) -> None:
    client, access = entry
    urls = access.entry(), access.entry()
    for url in urls:
        browser = Client(client.port)
        await browser.enter(url)
        assert (await browser.get("/")).status == 200
    assert urls[0] != urls[1]


async def test_the_cookie_is_no_secret_of_a_link_and_only_for_requests_of_the_page(
    entry: tuple[Client, Access],
) -> None:
    client, access = entry
    url = access.entry()
    answer = await client.enter(url)
    [line] = answer.headers["set-cookie"]
    cookie, *flags = line.split("; ")
    name, _, value = cookie.partition("=")
    assert set(flags) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert str(client.port) in name and len(value) > 40
    secret = parse_qs(urlsplit(url).query)["secret"][0]
    assert secret not in line and len(secret) > 40
    refused(await client.get("/", ("Cookie", f"{name}={secret}")))


async def test_the_page_follows_without_a_redirect_which_would_lose_the_cookie(entry: tuple[Client, Access]) -> None:
    client, access = entry
    answer = await client.enter(access.entry())
    assert b'content="0; url=/?exp=e%2F1&amp;x=&lt;"' in answer.body
    assert "location" not in answer.headers


async def test_a_wrong_or_missing_secret_gives_nothing(entry: tuple[Client, Access]) -> None:
    client, access = entry
    url = access.entry()
    for given in (
        "",
        "secret=",
        "secret=wrong",
        "secret=%C3%A9",
        "secret=%ff",
        "secret=wrong&secret=",
        "other=1",
        "%zz",
    ):
        refused(await client.get(f"/open?{given}"))
    assert (await client.request("HEAD", "/open?" + urlsplit(url).query)).status == 403
    assert (await client.enter(url)).status == 200, "the attempts have not used the link"


async def test_a_wrong_cookie_gives_nothing(client: Client) -> None:
    name, _, value = str(client.cookie).partition("=")
    for cookie in (f"{name}=wrong", f"{name}=", name, f"other={value}", f"{name}x={value}", value, f"{name}={value}x"):
        refused(await client.get("/", ("Cookie", cookie)))


async def test_the_cookie_counts_among_those_of_other_servers(client: Client) -> None:
    answer = await client.get("/", ("Cookie", f"a=b; {client.cookie}; c"))
    assert answer.status == 200


async def test_another_host_gets_nothing(entry: tuple[Client, Access]) -> None:
    client, access = entry
    port, link, entered = client.port, urlsplit(access.entry()), Client(client.port)
    await entered.enter(access.entry())
    for host in (
        *("evil.example", f"evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", f"127.0.0.2:{port}"),
        *(f"0.0.0.0:{port}", f"[::1]:{port}", f"127.0.0.1:{port}.evil.example", f"localhost.evil.example:{port}"),
        *(f"evil.example@127.0.0.1:{port}", f"127.0.0.1:{port}:{port}"),
    ):
        refused(await client.get(f"{link.path}?{link.query}", ("Host", host)))
        refused(await entered.get("/", ("Host", host)))


async def test_localhost_is_the_server_too(client: Client) -> None:
    client.host = f"LocalHost:{client.port}"
    assert (await client.get("/")).status == 200
    own = "Origin", f"http://localhost:{client.port}"
    assert (await client.request("POST", "/take", [own], b"x")).status == 200
    refused(await client.request("POST", "/take", [("Origin", f"http://127.0.0.1:{client.port}")], b"x"))


async def test_another_origin_gets_nothing(client: Client) -> None:
    port = client.port
    for origin in (
        *("null", "", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:1", f"https://127.0.0.1:{port}"),
        *(f"http://127.0.0.1:{port}.evil.example", f"http://127.0.0.1:{port}/", f"http://localhost:{port}"),
    ):
        for method, path in (("GET", "/"), ("POST", "/take"), ("OPTIONS", "/take")):
            answer = await client.request(method, path, [("Origin", origin)])
            refused(answer)
            assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_request_that_the_browser_marks_as_of_another_site_gets_nothing(client: Client) -> None:
    for site in ("cross-site", "same-site", "", "other"):
        refused(await client.get("/", ("Sec-Fetch-Site", site)))
    for site in ("same-origin", "none"):
        assert (await client.get("/", ("Sec-Fetch-Site", site))).status == 200


async def test_the_link_works_from_a_file_which_is_another_site(entry: tuple[Client, Access]) -> None:
    client, access = entry
    parts = urlsplit(access.entry())
    answer = await client.get(f"{parts.path}?{parts.query}", ("Sec-Fetch-Site", "cross-site"))
    assert answer.status == 200 and "set-cookie" in answer.headers


async def test_a_post_must_say_its_origin(client: Client) -> None:
    refused(await client.request("POST", "/take", [], b"x"))
    own = "Origin", f"http://127.0.0.1:{client.port}"
    assert (await client.request("POST", "/take", [own], b"xyz")).body.decode() == f"{SECRET}: 3"


async def test_other_methods_are_refused(client: Client) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "NONE"):
        refused(await client.request(method, "/"), 405)


async def test_large_requests_are_refused(client: Client) -> None:
    own = "Origin", f"http://127.0.0.1:{client.port}"
    assert (await client.request("POST", "/take", [own], b"x" * LONGEST_BODY)).status == 200
    refused(await client.request("POST", "/take", [own], b"x" * (LONGEST_BODY + 1)), 413)
    pieces = b"".join(b"8000\r\n" + b"x" * 0x8000 + b"\r\n" for _ in range(LONGEST_BODY // 0x8000 + 1)) + b"0\r\n\r\n"
    refused(await client.request("POST", "/take", [own, ("Transfer-Encoding", "chunked")], pieces), 413)
    refused(await client.get("/", ("X-Long", "x" * LONGEST_HEAD)), 431)
    refused(await client.get(f"/?{'x' * LONGEST_HEAD}"), 431)


async def test_every_answer_has_the_strict_headers(client: Client) -> None:
    own = "Origin", f"http://127.0.0.1:{client.port}"
    answers = [
        await client.get("/"),
        await client.get("/nothing"),
        await client.get("/open"),
        await client.request("POST", "/take", [own], b"x"),
        await client.request("POST", "/take", [own], b"x" * (LONGEST_BODY + 1)),
        await client.request("PUT", "/"),
        await client.get("/", ("Host", "evil.example")),
        await client.get("/", ("Cookie", "")),
    ]
    assert [answer.status for answer in answers] == [200, 404, 200, 200, 413, 405, 403, 403]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == [value]
    assert answers[0].headers["x-own"] == ["kept"]
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


async def test_only_this_machine_can_connect(client: Client) -> None:
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", client.port))


HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"


async def test_connections_that_never_finish_a_request_do_not_lock_the_user_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 1e6)
    request = HEAD % client.port + f"Cookie: {client.cookie}\r\n\r\n".encode()
    strangers: list[asyncio.StreamWriter] = []

    async def connected(sends: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(sends)
        strangers.append(writer)
        return reader

    mine = await connected(request)
    await mine.readuntil(SECRET.encode())
    first = await connected(HEAD % client.port)
    for _ in range(140):
        await connected(HEAD % client.port)
    with contextlib.suppress(ConnectionError):
        assert await first.read() == b""  # the oldest one of others is closed
    assert (await client.get("/")).body.decode() == SECRET
    strangers[0].write(request)
    await mine.readuntil(SECRET.encode())
    for writer in strangers:
        writer.close()


@pytest.mark.parametrize("let_in", [False, True])
async def test_a_request_that_does_not_end_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch, let_in: bool
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.1)
    head = HEAD % client.port
    if let_in:
        own = f"Cookie: {client.cookie}\r\nOrigin: http://127.0.0.1:{client.port}\r\nContent-Length: 9\r\n\r\nx"
        head = head.replace(b"GET /", b"POST /take") + own.encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(head)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_too_many_connections_of_the_user_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(HEAD % client.port + f"Cookie: {client.cookie}\r\n\r\n".encode())
    await reader.readuntil(SECRET.encode())
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 1)
    refused(await client.get("/"), 503)
    writer.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_of_the_machine_gets_nothing(client: Client) -> None:
    process = os.fork()
    if not process:
        try:
            os.setgid(65534)
            os.setuid(65534)
            with socket.create_connection(("127.0.0.1", client.port), 10) as wire:
                wire.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % client.port)
                answer = wire.makefile("rb").read()
            os._exit(0 if b" 403 " in answer and SECRET.encode() not in answer else 1)
        finally:
            os._exit(2)
    _, status = await asyncio.to_thread(os.waitpid, process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
