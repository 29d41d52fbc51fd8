"""Run migrations: on the connection handed over by messager, or on the URL of alembic.ini."""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection

from messager_store.db.migrations import take_turn
from messager_store.db.schema import metadata


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


def store() -> str:
    """Return the URL of the store: `-x store=URL`, or that of alembic.ini."""
    url = context.get_x_argument(as_dictionary=True).get("store") or context.config.get_main_option("sqlalchemy.url")
    assert url is not None
    return url


async def run_on_url() -> None:
    from messager_store.db.database import Database

    database = Database(store())
    await database.open_engines()
    try:
        async with database.writing(long=True) as connection:
            await connection.run_sync(take_turn)
            await connection.run_sync(run)
    finally:
        await database.close()


given = context.config.attributes.get("connection")
if context.is_offline_mode():
    name = "postgresql" if store().startswith("postgres") else "sqlite"
    context.configure(dialect_name=name, target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif given is not None:
    run(given)
else:
    asyncio.run(run_on_url())
