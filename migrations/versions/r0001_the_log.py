"""The log: experiments, recorders, names, batches, events, and the view on them.

Until the first release the tables are those of `schema.py`, so that each is written once. The release writes them out
here, because a later revision changes `schema.py`.

Revision ID: 0001
Revises:
Create Date: 2026-11-21
"""

from alembic import op

from messager_store.db.schema import metadata
from messager_store.migrations import views

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

VIEWS = views


def upgrade() -> None:
    implementation = op.get_context().impl  # unlike `metadata.create_all`, it also writes a script for `--sql`
    for table in metadata.sorted_tables:
        implementation.create_table(table)
    for statement in views.CREATE[op.get_context().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    for statement in views.DROP[op.get_context().dialect.name]:
        op.execute(statement)
    for table in reversed(metadata.sorted_tables):
        op.drop_table(table.name)
