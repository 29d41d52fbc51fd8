"""Fixtures of the tests of the plugin, which run pytest inside tests."""

from __future__ import annotations

import pytest

from .shop import Shop


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Project of a user, with nothing in it."""
    return Shop(pytester, monkeypatch)
