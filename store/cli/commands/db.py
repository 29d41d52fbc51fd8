"""messager db"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...text import safe
from ..options import confirm, run, store_option
from ..output import note
from ..place import PLACE

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")


@click.group()
def command() -> None:
    """Migrate a store to another schema revision, or check it."""


@command.command()
@click.argument("revision", type=PLACE, default="head")
@store_option
def upgrade(revision: str, store: str) -> None:
    """Upgrade a store to a newer revision (default: the newest). Creates the store if there is none.

    Views that were changed or removed are made again.
    """
    from ...db import migrations

    run(_on(store, lambda connection: migrations.upgrade(connection, revision), write=True))
    _tell_current(store)


@command.command()
@click.argument("revision", type=PLACE)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
def downgrade(revision: str, yes: bool, store: str) -> None:
    """Downgrade a store to an older revision; `base` removes all tables and all events.

    Refused, with the reasons, if the older revision cannot keep a guarantee of an experiment.
    """
    from ...db import migrations

    run(_on(store, lambda connection: migrations.check_downgrade(connection, revision), there=True))
    question = f"Revision {safe(revision)} lacks tables and columns of this one: their data is removed. Continue?"
    confirm(question, yes, "nothing was done")
    run(_on(store, lambda connection: migrations.downgrade(connection, revision), write=True, there=True))
    _tell_current(store)


@command.command()
@store_option
def current(store: str) -> None:
    """Print the revision of a store."""
    click.echo(safe(run(_on(store, _revision, there=True)) or "none"))


@command.command()
@store_option
def history(store: str) -> None:
    """List the revisions, newest first, and mark that of the store, if there is one."""
    from ...db import migrations
    from ...errors import StoreError

    found = problem = None
    try:
        found = run(_on(store, _revision, there=True))
    except StoreError as error:
        problem = str(error)
    for script in migrations.scripts().walk_revisions():
        newest = " (newest)" if script.is_head else ""
        here = " (this store)" if script.revision == found else ""
        click.echo(f"{script.revision}  {script.doc}{newest}{here}")
    if problem:
        note(problem)


@command.command()
@store_option
def check(store: str) -> None:
    """Check that a store is at the newest revision and that its tables match it. Exit code 1 if not."""
    from ...db import migrations
    from ...db.database import is_newer
    from ...db.schema import HEAD_REVISION

    found = run(_on(store, _revision, there=True))
    if found != HEAD_REVISION:
        remedy = "made by another version" if is_newer(found or "") else "`messager db upgrade`"
        click.echo(f"at revision {safe(found or 'none')}, not {HEAD_REVISION}: {remedy}")
        raise click.exceptions.Exit(1)
    differences = run(_on(store, migrations.differences, there=True))
    for difference in differences:
        click.echo(safe(difference))
    if reason := run(_on(store, migrations.not_compared, there=True)):
        note(safe(reason))
    if differences:
        raise click.exceptions.Exit(1)
    click.echo(f"at revision {found}, tables as they should be")


async def _on(store: str, act: Callable[[Connection], T], *, write: bool = False, there: bool = False) -> T:
    """Run a function on a connection of the store, in one transaction. With `there`, the store must exist."""
    from alembic.script.revision import RevisionError
    from alembic.util import CommandError

    from ...db.database import Database
    from ...errors import StoreError, StoreUnavailable

    database = Database(store)
    if there and not database.dialect.exists():
        raise StoreUnavailable(database.location, "there is none")
    await database.open_engines()
    try:
        await database.read_revision()
        async with database.migrating(long=True) if write else database.reading() as connection:
            return await connection.run_sync(act)
    except (CommandError, RevisionError) as error:
        raise StoreError(f"{error}. `messager db history` lists the revisions.") from None
    finally:
        await database.close()


def _revision(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _tell_current(store: str) -> None:
    from ...db.database import Database

    found: Any = run(_on(store, _revision, there=True))
    note(f"{Database(store).location} is at revision {found or 'none'}")
