from __future__ import annotations

import pytest

from messager_store.view.server import examiner


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait until the experiment is indexed, however busy the machine is."""
    monkeypatch.setattr(examiner, "PATIENCE_S", 60)
