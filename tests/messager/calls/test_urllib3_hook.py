"""Calls through requests and urllib3 are recorded as the program got them, and served without a server."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import urllib3

from tests.messager.calls.test_httpx_hook import BODY, CHAT, STREAM
from tests.support.model_stub import ModelStub
from tests.support.model_tape import Tape


def _whole(url: str) -> Any:
    response = requests.post(url + CHAT, json=BODY, timeout=9)
    return response.status_code, response.json(), response.cookies["visit"], response.headers["x-request-id"]


def _in_lines(url: str) -> Any:
    with requests.post(url + CHAT, json=STREAM, stream=True, timeout=9) as response:
        return list(response.iter_lines(chunk_size=1))


def _in_parts(url: str) -> Any:
    with requests.post(url + CHAT, json=STREAM, stream=True, timeout=9) as response:
        return list(response.iter_content(None))


def _raw(url: str) -> Any:
    with requests.post(f"{url}/other?encoding=identity", stream=True, timeout=9) as response:
        return [response.raw.read(7), response.raw.read(7), response.raw.read()]


def _redirected(url: str) -> Any:
    response = requests.post(f"{url}/redirect{CHAT}", json=BODY, timeout=9)
    return response.json(), len(response.history)


def _pool(url: str) -> Any:
    with urllib3.PoolManager() as pool:
        return pool.request("POST", url + CHAT, json=BODY).json()


def _read1(url: str) -> Any:
    with urllib3.PoolManager() as pool:
        response = pool.request("POST", url + CHAT, json=STREAM, preload_content=False)
        return b"".join(iter(response.read1, b""))


def _file(url: str) -> Any:
    return requests.post(url + "/other", data=io.BytesIO(b"12345678"), timeout=9).json()


def _iterator(url: str) -> Any:
    def parts() -> Iterator[bytes]:
        yield b"1234"
        yield b"5678"

    return requests.post(url + "/other", data=parts(), timeout=9).json()


WAYS = [_whole, _in_lines, _in_parts, _raw, _redirected, _pool, _read1, _file, _iterator]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_program_gets_the_same_with_the_server_and_from_the_recording(
    stub: ModelStub, tape: Tape, way: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("messager.calls.exchange.selects", lambda method, url: False)
        bare = repr(way(stub.url))
    recorded = way(stub.url)
    stub.stop()
    tape.rewind()
    assert way(stub.url) == recorded
    assert len(repr(recorded)) == pytest.approx(len(bare), abs=10)  # but for the numbers in it
    assert not any(answer.unread or answer.error for answer in tape.answers)
    assert tape.events == ["asked", "answered"] * (2 if way is _redirected else 1)


def test_body_is_recorded_decoded_with_the_parts_that_the_program_got(stub: ModelStub, tape: Tape) -> None:
    parts = _in_parts(stub.url)
    whole = _whole(stub.url)
    assert tape.answers[0].chunks == parts and len(parts) > 3
    assert whole[1]["choices"][0]["message"]["content"].encode() in tape.answers[1].body
    assert "content-encoding" not in dict(tape.answers[1].headers)
    assert [call.client for call in tape.calls] == ["urllib3", "urllib3"]


def test_body_read_without_decoding_is_recorded_decoded(stub: ModelStub, tape: Tape) -> None:
    with requests.post(f"{stub.url}/other?encoding=gzip", data=b"12345678", stream=True, timeout=9) as response:
        assert response.raw.read().startswith(b"\x1f\x8b")
    assert tape.answers[0].body == b'{"text": "answer 1 to 8 bytes", "got": 8}'


def test_response_that_is_closed_before_its_end_is_unread(stub: ModelStub, tape: Tape) -> None:
    with requests.post(stub.url + CHAT, json={**STREAM, "model": "slow"}, stream=True, timeout=9) as response:
        first = next(response.iter_content(None))
    assert tape.answers[0].unread and tape.answers[0].chunks == [first]


def test_error_is_recorded_and_raised_again(stub: ModelStub, tape: Tape) -> None:
    def kinds() -> list[type[BaseException]]:
        found = []
        for model in ("cut", "slow"):
            with pytest.raises(requests.RequestException) as error:
                requests.post(stub.url + CHAT, json={**STREAM, "model": model}, timeout=0.5)
            found.append(error.type)
        with pytest.raises(requests.RequestException) as error:
            requests.post("http://127.0.0.1:1", timeout=9)
        return [*found, error.type]

    recorded = kinds()
    stub.stop()
    tape.rewind()
    assert kinds() == recorded
    assert [answer.status for answer in tape.answers] == [200, 200, 0]
    assert all(answer.error for answer in tape.answers)


def test_refusal_is_an_answer_that_is_not_retried(stub: ModelStub, tape: Tape) -> None:
    tape.rewind()
    response = requests.post(stub.url + CHAT, json=BODY, timeout=9)
    assert response.status_code == 400 and response.headers["x-should-retry"] == "false"
    assert stub.answered == 0
