"""The public surface is one sorted list, and everything in it exists."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["messager", "messager_store", "messager.brokers", "messager_store.replay"])
def test_what_a_package_exports_is_sorted_and_there(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


@pytest.mark.parametrize("package", ["messager", "messager_store", "messager.brokers"])
def test_a_name_that_is_not_exported_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = module.Nonsense


@pytest.mark.parametrize(
    "what", ["import messager", "import messager_store", "import messager_store.cli", "from messager import Msg"]
)
def test_what_takes_long_to_import_waits_until_it_is_needed(what: str) -> None:
    heavy = "redis", "pydantic", "sqlalchemy", "aiosqlite", "alembic", "rich"
    look = f"{what}; import sys; sys.exit(str([name for name in {heavy} if name in sys.modules] or ''))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr


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
