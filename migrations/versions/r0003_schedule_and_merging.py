"""Columns of the schedule, of forks and of model calls; chains that can be merged; side tables for queries.

Revision ID: 0003
Revises: 0002
Create Date: 2026-11-22
"""

import sqlalchemy as sa
from alembic import context, op

from messager_store.errors import DowngradeRefused
from messager_store.migrations import views, views_0003

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

VIEWS = views_0003
"""The views that `messager db check` compares and `messager db upgrade` restores."""

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")

EVENT_COLUMNS = (
    ("messager_id", "name.id of the Messager that sent or received it"),
    ("arrival", "received: its number within its Messager; sent: what the sender had heard"),
    ("origin_id", "name.id: the recorder of the parent experiment it was copied from"),
    ("origin_seq", "its seq in that recorder"),
)

SHOWN = 3
"""Maximum experiments in the error of a refused downgrade, for each reason."""

_EXPERIMENTS = "FROM experiment x WHERE x.status IN ('open', 'closed')"
_RECORDERS = "FROM experiment x JOIN recorder r ON r.experiment_id = x.id WHERE x.status IN ('open', 'closed')"
_NEW_FIELDS = "coalesce(e.messager_id, e.arrival, e.origin_id, e.origin_seq) IS NOT NULL"
LOSSES = (
    (
        "chains of recorders that began since 0003 would no longer verify",
        f"SELECT x.exp_id {_RECORDERS} AND r.last_seq > 0 "
        "AND r.chain_version <> CASE WHEN x.schema_version > 2 THEN 2 ELSE x.schema_version END",
    ),
    (
        "Messagers, arrivals and origins of events would be lost",
        f"SELECT x.exp_id {_RECORDERS} AND r.chain_version > 2 AND EXISTS (SELECT 1 FROM event e "
        f"WHERE e.id >= r.id * {1 << 40} AND e.id < (r.id + 1) * {1 << 40} AND {_NEW_FIELDS})",
    ),
    (
        "model calls would have no kind",
        f"SELECT x.exp_id {_RECORDERS} AND r.asked_count + r.answered_count > 0",
    ),
    (
        "forks would not know their parents",
        f"SELECT x.exp_id {_EXPERIMENTS} AND (x.parent_exp_id IS NOT NULL OR x.parent_head IS NOT NULL)",
    ),
    (
        "redactions would no longer fit their heads",
        "SELECT x.exp_id FROM experiment x JOIN redaction d ON d.experiment_id = x.id "
        "WHERE x.status IN ('open', 'closed') AND (x.schema_version > 2 OR d.origin IS NOT NULL)",
    ),
    (
        "heads of closed experiments would change",
        f"SELECT x.exp_id {_EXPERIMENTS} AND x.closed_at IS NOT NULL AND x.schema_version > 2 AND x.recorders > 1",
    ),
)
"""Guarantees that revision 0002 cannot keep, and the experiments that have them.

In revision 0002 the chains of an experiment have the form of its schema version. Chains of version 3 are not recomputed
in that form: a new digest would need the names of every event. Not listed, because nothing is guaranteed for them:
experiments that are being imported or removed, the heads of open experiments, and the side tables.
"""


def upgrade() -> None:
    dialect = op.get_context().dialect.name
    for statement in views_0003.DROP[dialect]:  # of any earlier revision
        op.execute(statement)
    op.add_column(
        "experiment",
        sa.Column("parent_exp_id", sa.String, comment="the experiment this one was forked from, of any store"),
    )
    op.add_column("experiment", sa.Column("parent_head", sa.LargeBinary, comment="its head at that time"))
    op.drop_column("experiment", "parent_id")
    op.add_column(
        "recorder",
        sa.Column("chain_version", sa.SmallInteger, nullable=False, server_default="2", comment="form of its chain"),
    )
    op.execute(
        "UPDATE recorder SET chain_version = 1 "
        "WHERE experiment_id IN (SELECT id FROM experiment WHERE schema_version = 1)"
    )
    op.execute("UPDATE experiment SET schema_version = 3 WHERE recorders = 0")  # there is no head to keep
    for kind in ("asked", "answered"):
        op.add_column("recorder", sa.Column(f"{kind}_count", sa.BigInteger, nullable=False, server_default="0"))
    for name, comment in EVENT_COLUMNS:
        op.add_column("event", sa.Column(name, sa.BigInteger, comment=comment))
    op.add_column(
        "redaction",
        sa.Column("origin", sa.String, comment="where it was made: uuid of the first recorder there"),
    )
    op.drop_table("delivery")
    op.create_table(
        "said",
        sa.Column("event_id", Id, primary_key=True, autoincrement=False),
        sa.Column("text", sa.Text, comment="the decoded text"),
        sa.Column("folded", sa.Text, comment="the text, NFKC-normalised and case-folded"),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_said")),
    )
    op.create_table(
        "delivery",
        sa.Column("event_id", Id, primary_key=True, autoincrement=False, comment="a reception"),
        sa.Column("sending_id", sa.BigInteger, nullable=False, comment="the event.id of the sending it belongs to"),
        sa.Column("received_at", sa.BigInteger, nullable=False, comment="ts of the reception"),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_delivery")),
    )
    op.create_index(op.f("ix_delivery_sending"), "delivery", ["sending_id", "received_at"])
    op.create_table(
        "activity",
        sa.Column("recorder_id", sa.BigInteger, nullable=False),
        sa.Column("bucket", sa.BigInteger, nullable=False, comment="start of a minute, ns UTC"),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("channel_id", sa.BigInteger, nullable=False, comment="0 for none, as in the next two"),
        sa.Column("from_id", sa.BigInteger, nullable=False),
        sa.Column("to_id", sa.BigInteger, nullable=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("payload_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "recorder_id", "bucket", "kind", "channel_id", "from_id", "to_id", name=op.f("pk_activity")
        ),
    )
    op.create_table(
        "indexed_recorder",
        sa.Column("recorder_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column(
            "text_seq", sa.BigInteger, nullable=False, comment="said and activity have its events up to this seq"
        ),
        sa.Column("delivery_seq", sa.BigInteger, nullable=False, comment="delivery knows its events up to this seq"),
        sa.PrimaryKeyConstraint("recorder_id", name=op.f("pk_indexed_recorder")),
    )
    op.create_table(
        "indexed_experiment",
        sa.Column("experiment_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("decoder", sa.SmallInteger, nullable=False, comment="version of the decoder of said"),
        sa.Column(
            "matched_until", sa.BigInteger, nullable=False, comment="deliveries of earlier receptions are complete"
        ),
        sa.Column("turn", sa.BigInteger, nullable=False, comment="raised by each page of deliveries"),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_indexed_experiment")),
    )
    _comment(
        ("experiment", "parent_cursor", "where the copied part ends: ts:uuid of a recorder:seq"),
        ("name", "what", "0 channel, 1 agent, 2 Messager, 3 recorder"),
        ("name", "value", "a channel's bytes, an agent's id as JSON, text"),
    )
    for statement in views_0003.CREATE[dialect]:
        op.execute(statement)


def _comment(*comments: tuple[str, str, str | None]) -> None:
    """Set the comments of columns, where the database keeps comments."""
    if op.get_context().dialect.supports_comments:
        for table, column, comment in comments:
            op.alter_column(table, column, comment=comment)


def downgrade() -> None:
    dialect = op.get_context().dialect.name
    if context.get_revision_argument() is not None:  # a downgrade to `base` removes the whole log
        _refuse_losses()
    # Only experiments and recorders without events have version 3 now, and such names belong to no event.
    op.execute("UPDATE experiment SET schema_version = 2 WHERE schema_version > 2")
    op.execute("DELETE FROM name WHERE what > 1")
    for statement in views_0003.DROP[dialect]:
        op.execute(statement)
    for table in ("indexed_experiment", "indexed_recorder", "activity", "delivery", "said"):
        op.drop_table(table)
    op.create_table(
        "delivery",
        sa.Column("event_id", Id, primary_key=True, autoincrement=False, comment="a sending"),
        sa.Column("received_at", sa.BigInteger, nullable=False, comment="when it was first received"),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_delivery")),
    )
    op.drop_column("redaction", "origin")
    for name, _ in reversed(EVENT_COLUMNS):
        op.drop_column("event", name)
    for name in ("answered_count", "asked_count", "chain_version"):
        op.drop_column("recorder", name)
    op.add_column(
        "experiment", sa.Column("parent_id", sa.BigInteger, comment="the experiment this one was forked from")
    )
    op.drop_column("experiment", "parent_head")
    op.drop_column("experiment", "parent_exp_id")
    _comment(
        ("experiment", "parent_cursor", None),
        ("name", "what", "0 channel, 1 agent"),
        ("name", "value", "a channel's bytes, an agent's id as JSON"),
    )
    for statement in views.CREATE[dialect]:
        op.execute(statement)


def _refuse_losses() -> None:
    """Raise `DowngradeRefused` with all reasons if guarantees would be lost."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # Closing, forking, recording and redacting write to one of these tables first. SQLite has one writer anyway.
        op.execute("LOCK TABLE experiment, recorder IN ACCESS EXCLUSIVE MODE")
    if reasons := losses(connection):
        raise DowngradeRefused(str(down_revision), reasons)


def losses(connection: sa.Connection) -> list[str]:
    """Return a reason for each guarantee that revision 0002 cannot keep, with the experiments concerned."""
    reasons = []
    for loss, query in LOSSES:
        found = sorted({exp_id for (exp_id,) in connection.execute(sa.text(query))})
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            reasons.append(f"{loss} ({', '.join(found[:SHOWN])}{more})")
    return reasons
