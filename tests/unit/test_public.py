"""The public surface is one sorted list, and everything in it exists."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("package", ["messager", "messager_store", "messager.brokers", "messager_store.replay"])
def test_what_a_package_exports_is_sorted_and_there(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    import messager_store

    with pytest.raises(AttributeError, match="Nonsense"):
        _ = messager_store.Nonsense
