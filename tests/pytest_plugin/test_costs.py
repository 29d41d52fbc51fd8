"""The plugin costs next to nothing where it is not used, and loads no database and no network where it is."""

from __future__ import annotations

import subprocess
import sys

from .shop import TALK, TEST, Shop

HEAVY = ("sqlalchemy", "aiosqlite", "alembic", "redis", "pydantic", "click", "rich")


def test_the_entry_point_imports_pytest_and_the_standard_library_only() -> None:
    look = (
        "import pytest, sys; before = set(sys.modules); import messager_pytest.plugin\n"
        "new = {name.partition('.')[0] for name in sys.modules.keys() - before} - set(sys.stdlib_module_names)\n"
        "sys.exit(str(new - {'messager_pytest'} or ''))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr


def test_a_run_without_replays_imports_nothing_of_this_project_but_the_entry_point(shop: Shop) -> None:
    shop.write("""
def test_it():
    import sys
    assert sorted(name for name in sys.modules if name.startswith("messager")) == [
        "messager_pytest", "messager_pytest.plugin"
    ]
""")
    shop.run(own_process=True).assert_outcomes(passed=1)


def test_a_replay_in_memory_loads_no_database_and_no_client_of_a_broker(shop: Shop) -> None:
    shop.record(TALK)
    shop.write(f"{TEST}    import sys\n    assert not [name for name in {HEAVY} if name in sys.modules]\n")
    shop.run(own_process=True).assert_outcomes(passed=1)
