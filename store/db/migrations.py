"""Alembic, called from code: the same revisions for the command line and for first use.

Migrations run on a connection of `Database.migrating`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Index, Table, inspect, text

from .databases import package_of
from .schema import HEAD_REVISION

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory


SHOWN = 3
"""Maximum experiments in the error of a refused downgrade, for each reason."""
RESTORE = ": `messager db upgrade` makes the views of this revision again"


def folder() -> Path:
    """Return the folder of the revisions: in the wheel, or `migrations/` of a checkout."""
    module = import_module("messager_store.migrations")
    assert module.__file__ is not None
    return Path(module.__file__).parent


def folders() -> list[str]:
    """Return the folders of the revisions."""
    return [str(folder() / "versions")]


def config(connection: Connection | None = None) -> Config:
    """Return an Alembic configuration for `connection`, without alembic.ini."""
    from alembic.config import Config

    made = Config(stdout=io.StringIO())
    made.set_main_option("script_location", str(folder()).replace("%", "%%"))
    made.set_main_option("path_separator", "newline")
    made.set_main_option("version_locations", "\n".join(folders()).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def scripts() -> ScriptDirectory:
    """Return the revisions."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config())


def take_turn(connection: Connection) -> None:
    """Wait for migrations of this store in other processes."""
    package_of(connection.dialect.name).lock_migrations(connection)


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Upgrade the tables to a newer revision, in the current transaction; restore views that were changed."""
    from alembic import command

    take_turn(connection)
    command.upgrade(config(connection), revision)
    if _current(connection) == HEAD_REVISION:
        _restore_views(connection)


def downgrade(connection: Connection, revision: str) -> None:
    """Downgrade the tables to an older revision, in the current transaction. Raises `DowngradeRefused`."""
    from alembic import command

    take_turn(connection)
    package_of(connection.dialect.name).lock_writers(connection)
    check_downgrade(connection, revision)
    command.downgrade(config(connection), revision)


def _current(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def check_downgrade(connection: Connection, revision: str) -> None:
    """Raise `DowngradeRefused` if guarantees would be lost, and `CommandError` for an unknown revision.

    A revision names the guarantees that the one before it cannot keep: `LOSSES`, pairs of a reason and a query for the
    exp_ids of the experiments that have it. A downgrade to `base` removes the whole log, and is not refused.
    """
    from alembic.script.revision import RevisionError
    from alembic.util import CommandError

    from ..errors import DowngradeRefused

    current = _current(connection)
    if current is None:
        return
    try:
        affected = list(scripts().iterate_revisions(current, revision, select_for_downgrade=True))
    except RevisionError as error:
        raise CommandError(str(error)) from None
    for script in affected:
        guarantees = () if revision == "base" else getattr(script.module, "LOSSES", ())
        if reasons := _losses(connection, guarantees):
            raise DowngradeRefused(str(script.down_revision), reasons)


def _losses(connection: Connection, guarantees: Iterable[tuple[str, str]]) -> list[str]:
    """Return a reason for each guarantee that would be lost, with the experiments that its query returns."""
    reasons = []
    for loss, query in guarantees:
        found = sorted({exp_id for (exp_id,) in connection.execute(text(query))})
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            reasons.append(f"{loss} ({', '.join(found[:SHOWN])}{more})")
    return reasons


def _described(difference: Any) -> str:
    """Return one difference of `compare_metadata` as text."""
    what = {"add": "is missing", "remove": "is unknown"}
    match difference:
        case (operation, Table() as table):
            return f"the table {table.name} {what.get(operation.partition('_')[0], 'differs')}"
        case (operation, Index() as index):
            return f"the index {index.name} {what.get(operation.partition('_')[0], 'differs')}"
        case (operation, _, str() as table, Column() as column):
            return f"the column {table}.{column.name} {what.get(operation.partition('_')[0], 'differs')}"
        case _:
            return str(difference)


def differences(connection: Connection) -> list[str]:
    """Return the differences between the tables of the database and `schema.py`, and between its views and theirs.

    Of views, only the names are compared if the tables differ, or if `not_compared` returns a reason.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    from .schema import metadata

    context = MigrationContext.configure(connection, opts={"compare_type": True})
    found = [_described(difference) for difference in compare_metadata(context, metadata)]
    if found or not_compared(connection) is not None:
        missing = {"event_view"} - set(inspect(connection).get_view_names())
        return found + [f"the view {view} is missing{RESTORE}" for view in sorted(missing)]
    return found + [line + RESTORE for line in _view_differences(connection)]


def not_compared(connection: Connection) -> str | None:
    """Return a line with the reason if this user cannot compare the views with their definitions; None if it can."""
    reason: str | None = package_of(connection.dialect.name).not_compared(connection)
    return reason


def _view_differences(connection: Connection) -> list[str]:
    package = package_of(connection.dialect.name)
    lines: list[str] = package.view_differences(connection, _views().CREATE[connection.dialect.name])
    return lines


def _views() -> ModuleType:
    """Return the views of the newest revision: a module with statements by dialect, `CREATE` and `DROP`."""
    for script in scripts().walk_revisions():
        if isinstance(found := getattr(script.module, "VIEWS", None), ModuleType):
            return found
    raise LookupError("no revision has views")


def _restore_views(connection: Connection) -> None:
    """Make the views of the newest revision again if they are missing or changed."""
    if not_compared(connection) is None and _view_differences(connection):
        for statement in (*_views().DROP[connection.dialect.name], *_views().CREATE[connection.dialect.name]):
            connection.execute(text(statement))
