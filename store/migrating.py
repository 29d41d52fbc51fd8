"""Alembic, driven from code: the same revisions for the command line and for first use."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory


def folder() -> Path:
    """Where the revisions are: inside the wheel, or `migrations/` of a checkout."""
    module = import_module("messager_store.migrations")
    assert module.__file__ is not None
    return Path(module.__file__).parent


def config(connection: Connection | None = None, output: io.StringIO | None = None) -> Config:
    """An Alembic configuration that works on `connection` and needs no alembic.ini."""
    from alembic.config import Config

    made = Config(stdout=output or io.StringIO())
    made.set_main_option("script_location", str(folder()).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def scripts() -> ScriptDirectory:
    """The revisions."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config())


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the tables to a newer revision, in the running transaction."""
    from alembic import command

    command.upgrade(config(connection), revision)


def downgrade(connection: Connection, revision: str) -> None:
    """Bring the tables back to an older revision, in the running transaction."""
    from alembic import command

    command.downgrade(config(connection), revision)


def differences(connection: Connection) -> list[str]:
    """What the tables of the database lack, or have too much, next to `schema.py`."""
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    from .schema import metadata

    context = MigrationContext.configure(connection, opts={"compare_type": True})
    found = [str(difference) for difference in compare_metadata(context, metadata)]
    missing = {"event_view", "message"} - set(inspect(connection).get_view_names())
    return found + [f"the view {view} is missing" for view in sorted(missing)]
