"""A stub of model APIs, and a tape on which the hooks of this process record."""

from collections.abc import Iterator

import pytest

from messager.calls import exchange, install
from tests.support.model_stub import ModelStub
from tests.support.model_tape import Tape


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> Tape:
    tape = Tape()
    monkeypatch.setattr(exchange, "begin", exchange.begin)  # put back behind the test
    monkeypatch.setattr(exchange, "selects", exchange.selects)
    install(tape.begin, lambda method, url: True)
    return tape
