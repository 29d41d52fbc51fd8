"""The log: experiments, recorders, names, batches, events, and the two views on them.

Revision ID: 0001
Revises:
Create Date: 2026-11-21
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")

# One row an event, with names for ids. Ids keep their JSON type (5 is not '5'); whole
# numbers that the database cannot hold, and names that are no text, are shown as they
# are kept: JSON, or bytes in hex.
ID = """CASE
        WHEN {name}.value IS NULL THEN NULL
        WHEN {name}.text IS NULL THEN 'hex:' || hex({name}.value)
        WHEN json_valid({name}.text) IS NOT 1 THEN {name}.text
        WHEN json_type({name}.text) = 'integer' AND length({name}.text) > 18 THEN {name}.text
        ELSE json_extract({name}.text, '$') END"""

EVENT_VIEW = f"""
CREATE VIEW event_view AS
SELECT
    x.exp_id AS exp_id,
    e.ts || ':' || r.ordinal || ':' || (e.id & 1099511627775) AS cursor,
    e.ts AS ts,
    strftime('%Y-%m-%dT%H:%M:%S', (e.ts - ((e.ts % 1000000000) + 1000000000) % 1000000000) / 1000000000, 'unixepoch')
        || printf('.%09dZ', ((e.ts % 1000000000) + 1000000000) % 1000000000) AS time,
    r.ordinal AS recorder,
    e.id & 1099511627775 AS seq,
    CASE e.kind WHEN 1 THEN 'sent' WHEN 2 THEN 'received' WHEN 3 THEN 'blocked'
        WHEN 4 THEN 'failed' WHEN 5 THEN 'gap' WHEN 6 THEN 'mark' END AS kind,
    coalesce(c.text, 'hex:' || hex(c.value)) AS channel,
    {ID.format(name="f")} AS from_id,
    {ID.format(name="t")} AS to_id,
    e.flags & 3 AS derived,
    e.msg_id AS msg_id,
    e.duration_ns AS duration_ns,
    e.receivers AS receivers,
    e.cause AS cause,
    e.meta AS meta,
    CASE
        WHEN e.kind > 4 THEN e.meta
        WHEN e.flags & 4 THEN NULL
        WHEN json_valid(CAST(e.payload AS TEXT)) IS NOT 1 THEN CAST(e.payload AS TEXT)
        WHEN json_type(CAST(e.payload AS TEXT)) <> 'object' THEN json_extract(CAST(e.payload AS TEXT), '$')
        WHEN json_valid(json_extract(CAST(e.payload AS TEXT), '$.content')) = 1
            AND json_type(json_extract(CAST(e.payload AS TEXT), '$.content')) = 'object'
            THEN coalesce(
                json_extract(json_extract(CAST(e.payload AS TEXT), '$.content'), '$.content'),
                json_extract(CAST(e.payload AS TEXT), '$.content'))
        ELSE coalesce(
            json_extract(CAST(e.payload AS TEXT), '$.content'),
            json_extract(CAST(e.payload AS TEXT), '$.text'),
            CAST(e.payload AS TEXT))
    END AS text,
    e.payload AS payload,
    e.id AS id,
    e.experiment_id AS experiment_id
FROM event e
JOIN experiment x ON x.id = e.experiment_id AND x.status IN ('open', 'closed')
JOIN recorder r ON r.id = e.id >> 40
LEFT JOIN name c ON c.id = e.channel_id
LEFT JOIN name f ON f.id = e.from_id
LEFT JOIN name t ON t.id = e.to_id
"""

# One row a message: its `sent` event where the channel has any; else the receptions of
# the listeners that messages.py would choose. `received_at` is known once the experiment
# is closed. Every subquery runs once for a query, none for each row.
MESSAGE_VIEW = """
CREATE VIEW message AS
WITH heard AS (
    SELECT e.experiment_id, e.channel_id, r.id AS recorder_id, count(*) AS events,
        CASE r.role WHEN 'import' THEN coalesce(json_extract(r.meta, '$.role'), 'import') ELSE r.role END <> 'messager'
            AS tap,
        CASE r.role WHEN 'import' THEN coalesce(json_extract(r.meta, '$.started_at'), -9223372036854775807)
            ELSE r.started_at END AS began,
        CASE r.role WHEN 'import' THEN coalesce(json_extract(r.meta, '$.ended_at'), 9223372036854775807)
            ELSE coalesce(r.ended_at, r.heartbeat_at) END AS ended
    FROM event e JOIN recorder r ON r.id = e.id >> 40
    WHERE e.kind = 2
    GROUP BY e.experiment_id, e.channel_id, r.id
), listener AS (
    SELECT h.experiment_id, h.channel_id, h.recorder_id FROM heard h
    WHERE NOT EXISTS (
        SELECT 1 FROM heard o
        WHERE o.experiment_id = h.experiment_id AND o.channel_id = h.channel_id
            AND o.began <= h.ended AND h.began <= o.ended
            AND (o.tap, o.events, -o.recorder_id) > (h.tap, h.events, -h.recorder_id))
)
SELECT v.*, CASE v.kind WHEN 'received' THEN v.ts ELSE d.received_at END AS received_at
FROM event_view v
JOIN event e ON e.id = v.id
LEFT JOIN delivery d ON d.event_id = e.id
WHERE (e.kind = 1 AND e.id NOT IN (SELECT cause FROM event WHERE kind = 4 AND cause IS NOT NULL))
    OR (e.kind = 2
        AND (e.experiment_id, e.channel_id) NOT IN (SELECT experiment_id, channel_id FROM event WHERE kind = 1)
        AND (e.experiment_id, e.channel_id, e.id >> 40) IN (SELECT * FROM listener))
"""


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
        sa.Column("role", sa.String, nullable=False, comment="messager, tap or import"),
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
            comment="1 from_id derived, 2 to_id derived, 4 payload is no text",
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
    op.execute(EVENT_VIEW)
    op.execute(MESSAGE_VIEW)


def downgrade() -> None:
    op.execute("DROP VIEW message")
    op.execute("DROP VIEW event_view")
    for table in ("redaction", "delivery", "event", "batch", "name", "recorder", "tag", "experiment"):
        op.drop_table(table)
