"""Both ways to make record batches."""

from __future__ import annotations

import pytest

from messager_store.arrow import batches, driver


@pytest.fixture(params=["driver", "event"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Record batches by a driver in another process, in small pages, and event by event."""
    monkeypatch.setattr(batches, "MANY", 0 if request.param == "driver" else 2**63)
    monkeypatch.setattr(driver, "PAGE", 7)
    return str(request.param)
