"""A busy machine takes its time: the broker of the tests is a Python program."""

from __future__ import annotations

import pytest

from messager.brokers.mqtt import session


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT", 60.0)
