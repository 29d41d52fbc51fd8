"""The log: experiments, recorders, names, batches, events, and the two views on them.

Revision ID: 0001
Revises:
Create Date: 2026-11-21
"""

import sqlalchemy as sa
from alembic import op

from messager_store.migrations import views

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "experiment",
        sa.Column("id", Id, primary_key=True, autoincrement=True),
        sa.Column("exp_id", sa.String, nullable=False),
        sa.Column("name", sa.String),
        sa.Column("status", sa.String, nullable=False, comment="open, closed, importing or removing"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("closed_at", sa.BigInteger),
        sa.Column("parent_id", sa.BigInteger, comment="the experiment this one was forked from"),
        sa.Column("parent_cursor", sa.String),
        sa.Column("meta", sa.Text, nullable=False, comment="JSON object"),
        sa.Column("schema_version", sa.SmallInteger, nullable=False),
        sa.Column("recorders", sa.Integer, nullable=False, comment="how many there are, so that a removed one shows"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("exp_id", name=op.f("uq_experiment_exp_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tag",
        sa.Column("experiment_id", sa.BigInteger, nullable=False),
        sa.Column("tag", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "tag", name=op.f("pk_tag")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiment.id"], name=op.f("fk_tag_experiment_id")),
    )
    op.create_table(
        "recorder",
        sa.Column("id", Id, primary_key=True, autoincrement=True),
        sa.Column("uuid", sa.String, nullable=False),
        sa.Column("experiment_id", sa.BigInteger, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False, comment="1, 2, 3 ... within the experiment; cursors name it"),
        sa.Column("epoch", sa.Integer, nullable=False, comment="raised to fence a writer that was taken for dead"),
        sa.Column("role", sa.String, nullable=False, comment="messager, tap, import or repair"),
        sa.Column("patterns", sa.Text, nullable=False, comment="JSON list: what it was subscribed to"),
        sa.Column("meta", sa.Text, nullable=False, comment="JSON object: git commit, versions, command line"),
        sa.Column("host", sa.String),
        sa.Column("pid", sa.Integer),
        sa.Column("boot_id", sa.String),
        sa.Column("anchor_wall", sa.BigInteger, comment="wall clock at the clock's anchor"),
        sa.Column("anchor_monotonic", sa.BigInteger, comment="monotonic clock at the same moment"),
        sa.Column("broker", sa.String, comment="where it listened, without credentials"),
        sa.Column("broker_offset", sa.BigInteger, comment="how far the broker's clock was ahead"),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.LargeBinary, nullable=False, comment="chain hash of the last batch"),
        sa.Column("sent_count", sa.BigInteger, nullable=False),
        sa.Column("received_count", sa.BigInteger, nullable=False),
        sa.Column("blocked_count", sa.BigInteger, nullable=False),
        sa.Column("failed_count", sa.BigInteger, nullable=False),
        sa.Column("gap_count", sa.BigInteger, nullable=False),
        sa.Column("mark_count", sa.BigInteger, nullable=False),
        sa.Column("payload_bytes", sa.BigInteger, nullable=False),
        sa.Column("first_ts", sa.BigInteger),
        sa.Column("last_ts", sa.BigInteger),
        sa.Column("worst_unacknowledged", sa.BigInteger, nullable=False, comment="longest wait for a commit, ns"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recorder")),
        sa.UniqueConstraint("uuid", name=op.f("uq_recorder_uuid")),
        sa.UniqueConstraint("experiment_id", "ordinal", name=op.f("uq_recorder_experiment_id_ordinal")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiment.id"], name=op.f("fk_recorder_experiment_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "name",
        sa.Column("id", Id, primary_key=True, autoincrement=True),
        sa.Column("experiment_id", sa.BigInteger, nullable=False),
        sa.Column("what", sa.SmallInteger, nullable=False, comment="0 channel, 1 agent"),
        sa.Column("value", sa.LargeBinary, nullable=False, comment="a channel's bytes, an agent's id as JSON"),
        sa.Column("hash", sa.LargeBinary, nullable=False, comment="first 16 bytes of the SHA-256 of the value"),
        sa.Column("text", sa.Text, comment="the value as text, where it is text; for the views"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_name")),
        sa.UniqueConstraint("experiment_id", "what", "hash", name=op.f("uq_name_experiment_id_what_hash")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiment.id"], name=op.f("fk_name_experiment_id")),
    )
    op.create_table(
        "batch",
        sa.Column("recorder_id", sa.BigInteger, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("min_ts", sa.BigInteger, nullable=False),
        sa.Column("max_ts", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, comment="SHA-256 over the events"),
        sa.Column("checks", sa.LargeBinary, nullable=False, comment="CRC-32 of each event, to locate a changed one"),
        sa.Column("chain_hash", sa.LargeBinary, nullable=False),
        sa.Column("committed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("recorder_id", "first_seq", name=op.f("pk_batch")),
        sa.ForeignKeyConstraint(["recorder_id"], ["recorder.id"], name=op.f("fk_batch_recorder_id")),
    )
    op.create_table(
        "event",
        sa.Column("id", Id, primary_key=True, autoincrement=False),
        sa.Column("experiment_id", sa.BigInteger, nullable=False),
        sa.Column("ts", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("channel_id", sa.BigInteger),
        sa.Column("from_id", sa.BigInteger, comment="name.id"),
        sa.Column("to_id", sa.BigInteger, comment="name.id"),
        sa.Column(
            "flags",
            sa.SmallInteger,
            nullable=False,
            comment="bits, see FROM_DERIVED",
        ),
        sa.Column("msg_id", sa.String),
        sa.Column("duration_ns", sa.BigInteger),
        sa.Column("receivers", sa.Integer),
        sa.Column("cause", sa.BigInteger, comment="event.id of what this one answers or retracts"),
        sa.Column("meta", sa.Text, comment="JSON object"),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index(op.f("ix_event_replay"), "event", ["experiment_id", "ts", "id"])
    op.create_table(
        "delivery",
        sa.Column("event_id", Id, primary_key=True, autoincrement=False, comment="a sending"),
        sa.Column("received_at", sa.BigInteger, nullable=False, comment="when it was first received"),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_delivery")),
    )
    op.create_table(
        "redaction",
        sa.Column("id", Id, primary_key=True, autoincrement=True),
        sa.Column("experiment_id", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False, comment="JSON: which ones"),
        sa.Column("head_before", sa.LargeBinary, nullable=False),
        sa.Column("head_after", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_redaction")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiment.id"], name=op.f("fk_redaction_experiment_id")),
    )
    for statement in views.CREATE[op.get_context().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    for statement in views.DROP[op.get_context().dialect.name]:
        op.execute(statement)
    for table in ("redaction", "delivery", "event", "batch", "name", "recorder", "tag", "experiment"):
        op.drop_table(table)
