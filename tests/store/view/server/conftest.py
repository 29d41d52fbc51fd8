from __future__ import annotations

import pytest

from messager_store.experiments import records
from messager_store.view.server import questions


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait until the experiment is indexed, however busy the machine is."""
    monkeypatch.setattr(questions, "PATIENCE_S", 60)


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder without heartbeats is not silent before the test ends, however busy the machine is."""
    monkeypatch.setattr(records, "SILENT_NS", 3_600_000_000_000)
