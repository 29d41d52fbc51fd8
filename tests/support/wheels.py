"""Published packages, imported from their wheels without being installed and without their dependencies.

A wheel is downloaded once, into build/wheels. Missing dependencies are replaced by modules in which every name is a
class that does nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import ROOT

WHEELS = ROOT / "build" / "wheels"
# Only pure Python is taken from a wheel, so its platform does not matter.
_ANY = ["--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux2014_x86_64"]


def wheel(requirement: str) -> Path:
    """Return the wheel of a requirement such as `name==1.2`. Raises `RuntimeError` if it cannot be downloaded."""
    name = f"{requirement.replace('==', '-')}-*.whl"
    found = next(WHEELS.glob(name), None)
    if found is not None:
        return found
    WHEELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WHEELS) as folder:  # several tests may download at the same time
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *_ANY, "-d", folder, requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        fetched = next(Path(folder).glob(name), None)
        if fetched is None:
            raise RuntimeError(f"{requirement} cannot be downloaded: {done.stderr}")
        return fetched.rename(WHEELS / fetched.name)


class _Anything(type):
    """Metaclass of classes in which every attribute is another such class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _anything(name, cls.__module__)
        setattr(cls, name, made)
        return made


def _anything(name: str, module: str) -> Any:
    return _Anything(name, (), {"__module__": module, "__init__": lambda self, *args, **kwargs: None})


class StandIn(types.ModuleType):
    """Module in which every name that is not set is a class that does nothing."""

    __path__: Sequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _anything(name, self.__name__)
        setattr(self, name, made)
        return made

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


class _StandsIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that finds a `StandIn` for every module of these packages."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = set(packages)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self._packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@contextlib.contextmanager
def importable(
    path: Path, package: str, stand_ins: Iterable[str], names: Mapping[str, Mapping[str, Any]]
) -> Iterator[None]:
    """Context in which the modules of a package can be imported from its wheel, without running its `__init__`.

    `stand_ins` are the top-level packages to replace, even if they are installed; `names` has the contents of some of
    their modules. The imported modules are restored at the end.
    """
    replaced = {package, *stand_ins}
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in replaced}
    finder = _StandsIn(stand_ins)
    sys.meta_path.insert(0, finder)
    top = types.ModuleType(package)
    top.__path__ = [os.path.join(path, package)]
    sys.modules[package] = top
    try:
        for name, held in names.items():
            vars(importlib.import_module(name)).update(held)
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.partition(".")[0] in replaced:
                del sys.modules[name]
        sys.modules.update(before)
