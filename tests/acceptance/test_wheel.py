"""The wheel: its contents, and no conflict with a `store/` in the project of a user."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "messager", "messager_pytest", "store", "migrations"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(source / name)], check=True)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, folder], cwd=source, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    [made] = folder.glob("messager-*.whl")
    return made


def test_it_holds_the_packages_the_migrations_the_types_and_the_plugin_and_no_top_level_store(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        [entry_points] = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        assert "[pytest11]\nmessager = messager_pytest.plugin\n" in opened.read(entry_points).decode()
    packages = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {"messager", "messager_pytest", "messager_store"}
    for name in (
        "messager/py.typed",
        "messager_store/py.typed",
        "messager_pytest/py.typed",
        "messager_pytest/plugin.py",
        "messager_store/migrations/env.py",
        "messager_store/migrations/script.py.mako",
        "messager_store/migrations/versions/r0001_the_log.py",
        "messager_store/cli/commands/demo.py",
    ):
        assert name in names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "store").rglob("*.py")}
    assert {f"messager_store/{name.removeprefix('store/')}" for name in modules} <= set(names)


@pytest.mark.nightly
def test_a_project_with_its_own_store_keeps_its_imports_and_its_pytest_runs(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    project = tmp_path / "project"
    (project / "store").mkdir(parents=True)
    (project / "migrations").mkdir()
    (project / "store" / "__init__.py").write_text("MINE = True\n")
    (project / "migrations" / "__init__.py").write_text("MINE = True\n")
    (project / "test_mine.py").write_text(
        "import asyncio, store, migrations, messager, messager_store, pathlib\n"
        "from messager_store import EventLog\n"
        "def test_it(tmp_path):\n"
        "    assert store.MINE and migrations.MINE\n"
        f"    assert messager_store.__file__.startswith({str(site)!r})\n"
        "    async def main():\n"
        "        async with EventLog.open(str(tmp_path / 'a.db')) as log:\n"
        "            assert log.location.endswith('a.db')\n"
        "    asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    # without site-packages' editable finder in front, the wheel's own files are what is imported
    code = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        "sys.path.insert(0, '')\n"
        "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
