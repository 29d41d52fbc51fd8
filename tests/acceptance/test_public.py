"""The public surface is one sorted list, and everything in it exists."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest

from tests.support import ROOT


@pytest.mark.parametrize("package", ["messager", "messager_store", "messager.brokers", "messager_store.replay"])
def test_what_a_package_exports_is_sorted_and_there(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


@pytest.mark.parametrize("package", ["messager", "messager_store", "messager.brokers"])
def test_dir_lists_the_public_names_before_they_are_used(package: str) -> None:
    look = (
        f"import {package} as module; import sys; sys.exit(str(sorted(set(module.__all__) - set(dir(module))) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr


def test_the_examples_of_the_docs_import_from_messager_itself() -> None:
    """Modules with the contract of another project are allowed as well."""
    texts = [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
    found = {module for text in texts for module in re.findall(r"^from (messager(?:\.[\w.]+)?) import", text, re.M)}
    assert {module for module in found if not module.startswith("messager.compat")} == {"messager", "messager.mqtt"}


def test_the_docs_name_only_public_names_of_the_store() -> None:
    """`ray` and `testing` are modules of their own: they need packages that the others do not."""
    texts = [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
    found = {name for text in texts for name in re.findall(r"messager_store\.([\w.]*\w)", text)}
    public = importlib.import_module("messager_store").__all__
    assert {name for name in found if name.split(".")[0] not in ("ray", "testing")} <= set(public)


def test_redis_py_is_pinned_below_the_next_major_version() -> None:
    """Its transport is reached through a private attribute, which another major version may not have."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    [bound] = [re.search(r"<(\d+)$", one) for one in required if re.match(r"redis\b", one)]
    assert bound is not None and int(bound[1]) <= int(metadata.version("redis").split(".")[0]) + 1


@pytest.mark.parametrize("package", ["messager", "messager_store"])
def test_the_tree_of_errors_in_the_docstring_has_every_public_error(package: str) -> None:
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(module.__path__, f"{package}."):
        if found.name != "messager.compat.agentscope_inboxes":  # it needs AgentScope
            importlib.import_module(found.name)
    errors = importlib.import_module(f"{package}.errors")
    root = errors.MessagerError if package == "messager" else errors.StoreError
    drawn = re.findall(r"^(?:[│ ]*[├└]── )?(\w*[A-Z]\w+)", errors.__doc__.partition("\n\n")[2], re.MULTILINE)
    defined = {cls for cls in {root, *subclasses(root)} if cls.__module__.split(".")[0] == package}
    assert sorted(drawn) == sorted(cls.__name__ for cls in defined)


def subclasses(cls: type) -> Iterator[type]:
    """Return all direct and indirect subclasses."""
    for found in cls.__subclasses__():
        yield found
        yield from subclasses(found)


def test_no_hint_names_an_extra_of_this_package_which_no_index_has() -> None:
    texts = {
        path: path.read_text() for folder in ("messager", "store", "examples") for path in (ROOT / folder).rglob("*.py")
    }
    named = [str(path) for path, text in texts.items() if re.search(r"pip install[^`\n]*\bmessager\b", text)]
    assert not named


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
