"""An adapter is installed when its framework is imported, and never stops the program."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from messager.compat import loading
from messager.compat.loading import Adapter

ADAPTER = """
installed = 0

def install():
    global installed
    import the_framework.bus as bus  # this is one of the modules that call for the adapter, too
    installed += 1
    bus.Bus.recorded = True
"""


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "the_framework"
    package.mkdir()
    (package / "__init__.py").write_text("from .base import Bus\n")
    (package / "base.py").write_text("class Bus:\n    recorded = False\n")
    (package / "bus.py").write_text("from .base import Bus\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    folder = tmp_path / "adapters"
    folder.mkdir()
    (folder / "the_adapter.py").write_text(code)
    package = importlib.import_module("messager.compat")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.setattr(loading, "_begun", set())
    monkeypatch.setattr(loading, "ADAPTERS", {"it": Adapter("the_adapter", ("the_framework", "the_framework.bus"))})


def test_an_adapter_is_installed_once_when_its_framework_is_imported(
    framework: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, tmp_path, ADAPTER)
    loading.watch(["it"])
    assert importlib.util.find_spec("the_framework") is not None  # as programs ask whether it is there
    assert "messager.compat.the_adapter" not in sys.modules
    bus = importlib.import_module("the_framework.bus")
    assert bus.Bus.recorded and importlib.import_module("the_framework").Bus.recorded
    assert type(bus.__spec__.loader).__module__ == "_frozen_importlib_external"  # as without an adapter
    loading.watch(["it"])  # imported already
    assert importlib.import_module("messager.compat.the_adapter").installed == 1


def test_an_adapter_that_cannot_be_installed_is_logged_and_the_program_goes_on(
    framework: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, tmp_path, "def install():\n    raise ValueError('of an unknown version')\n")
    loading.watch(["it"])
    with caplog.at_level(logging.ERROR, "messager"):
        assert not importlib.import_module("the_framework").Bus.recorded
    assert "messager.compat.the_adapter cannot be installed" in caplog.text


def test_every_adapter_has_a_module_with_an_install() -> None:
    for name, adapter in loading.ADAPTERS.items():
        module = importlib.import_module(f"messager.compat.{adapter.module}")
        assert callable(module.install), name
