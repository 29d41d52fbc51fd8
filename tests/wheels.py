"""Published packages, read from their wheels: not installed, and without what they would need.

A wheel is downloaded once, into build/wheels. What a module of it imports and is not there is
stood in for by modules that have any name, each a class that does nothing.
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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import ROOT

WHEELS = ROOT / "build" / "wheels"
# Only plain Python is taken out of a wheel, so the platform that it is built for does not matter.
_ANY = ["--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux2014_x86_64"]


def wheel(requirement: str) -> Path:
    """The wheel of a requirement such as `name==1.2`. Raises `RuntimeError` where the package index gives none."""
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


class StandIn(types.ModuleType):
    """A module that has every name: a class that does nothing, unless told otherwise."""

    __path__: Sequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__module__": self.__name__, "__init__": lambda self, *args, **kwargs: None})
        setattr(self, name, made)
        return made


class _StandsIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nobody else found, in packages of these names."""

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
def importable(path: Path, package: str, stand_ins: Iterable[str] = (), **names: dict[str, Any]) -> Iterator[None]:
    """The modules of a package can be imported from its wheel; the package's own `__init__` is not run.

    `stand_ins` are top-level packages to stand in for where they are not installed; `names` says for
    modules of these what they hold. All of it is forgotten at the end.
    """
    before = set(sys.modules)
    finder = _StandsIn(stand_ins)
    sys.meta_path.append(finder)
    top = types.ModuleType(package)
    top.__path__ = [os.path.join(path, package)]
    sys.modules[package] = top
    for name, held in names.items():
        vars(importlib.import_module(name.replace("__", "."))).update(held)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before | {package}:
            module = sys.modules[name]
            if name.partition(".")[0] == package or isinstance(module, StandIn):
                del sys.modules[name]
