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


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"content": "{\\"content\\": \\"h\\\\u00e9\\"}"}', "h\u00e9"),
        (b'{"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}', "a\nb"),
        (b'{"text": "t"}', "t"),
        (b'{"other": 1}', '{"other": 1}'),
        (b'"word"', "word"),
        (b"plain", "plain"),
        (b"[" * 100_000, "[" * 100_000),
        (b"\xff", "\\xff"),
    ],
)
def test_a_payload_is_shown_as_what_it_says(payload: bytes, text: str) -> None:
    from messager_store.event import readable

    assert readable(payload) == text
