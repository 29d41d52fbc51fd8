"""Annotations of experiments, and the bytes of each batch.

Revision ID: 0002
Revises: 0001
Create Date: 2026-11-24
"""

import sqlalchemy as sa
from alembic import op

from tests.support.next_revision import views

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

VIEWS = views
LOSSES = (
    (
        "annotations would be lost",
        "SELECT x.exp_id FROM experiment x JOIN annotation a ON a.experiment_id = x.id",
    ),
    (
        "recorders that count in groups would count alone",
        "SELECT x.exp_id FROM experiment x JOIN recorder r ON r.experiment_id = x.id WHERE r.durability = 'group'",
    ),
)


def upgrade() -> None:
    op.create_table(
        "annotation",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True),
        sa.Column("experiment_id", sa.BigInteger, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotation")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiment.id"], name=op.f("fk_annotation_experiment_id")),
    )
    op.add_column("batch", sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE batch SET bytes = (SELECT coalesce(sum(length(e.payload)), 0) FROM event e "
        "WHERE e.id >= batch.recorder_id * 1099511627776 + batch.first_seq "
        "AND e.id < batch.recorder_id * 1099511627776 + batch.first_seq + batch.count)"
    )
    for statement in views.CREATE[op.get_context().dialect.name][-1:]:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP VIEW annotated")
    op.drop_column("batch", "bytes")
    op.drop_table("annotation")
