"""The tables. The revisions in `migrations/` create the same tables (tested).

Times are int64 nanoseconds UTC. JSON is stored as text; names and payloads are stored as bytes, because they may hold
any bytes.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    literal,
    literal_column,
    tuple_,
)

from .codes import KINDS, SEQ_BITS

HEAD_REVISION = "0001"
"""The revision that this code requires: the newest one in `migrations/` (tested)."""

VISIBLE = ("open", "closed")
"""The statuses of visible experiments. Others are being imported or removed."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite gives its fast rowid alias only to columns declared INTEGER.
Id = BigInteger().with_variant(Integer, "sqlite")

experiment = Table(
    "experiment",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("exp_id", String, nullable=False, unique=True),
    Column("name", String),
    Column("status", String, nullable=False, comment="open, closed, importing or removing"),
    Column("created_at", BigInteger, nullable=False),
    Column("closed_at", BigInteger),
    Column("parent_exp_id", String, comment="the experiment this one was forked from, of any store"),
    Column("parent_head", LargeBinary, comment="its head at that time"),
    Column("parent_cursor", String, comment="where the copied part ends: ts:uuid of a recorder:seq"),
    Column("meta", Text, nullable=False, comment="JSON object"),
    Column("recorders", Integer, nullable=False, comment="how many there are, so that a removed one shows"),
    sqlite_autoincrement=True,
)

tag = Table(
    "tag",
    metadata,
    Column("experiment_id", BigInteger, ForeignKey("experiment.id"), nullable=False),
    Column("tag", String, nullable=False),
    PrimaryKeyConstraint("experiment_id", "tag"),
)

recorder = Table(
    "recorder",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("uuid", String, nullable=False, unique=True),
    Column("experiment_id", BigInteger, ForeignKey("experiment.id"), nullable=False),
    Column("ordinal", Integer, nullable=False, comment="1, 2, 3 ... within the experiment; cursors name it"),
    Column("epoch", Integer, nullable=False, comment="raised to fence a writer that was taken for dead"),
    Column("role", String, nullable=False, comment="messager, tap, import or repair"),
    Column("patterns", Text, nullable=False, comment="JSON list: what it was subscribed to"),
    Column("meta", Text, nullable=False, comment="JSON object: git commit, versions, command line"),
    Column("host", String),
    Column("pid", Integer),
    Column("boot_id", String),
    Column("anchor_wall", BigInteger, comment="wall clock at the clock's anchor"),
    Column("anchor_monotonic", BigInteger, comment="monotonic clock at the same moment"),
    Column("broker", String, comment="where it listened, without credentials"),
    Column("broker_offset", BigInteger, comment="how far the broker's clock was ahead"),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("last_seq", BigInteger, nullable=False),
    Column("head_hash", LargeBinary, nullable=False, comment="chain hash of the last batch"),
    *(Column(f"{kind}_count", BigInteger, nullable=False) for kind in KINDS),
    Column("payload_bytes", BigInteger, nullable=False),
    Column("first_ts", BigInteger),
    Column("last_ts", BigInteger),
    Column("worst_unacknowledged", BigInteger, nullable=False, comment="longest wait for a commit, ns"),
    Column("complete_until", BigInteger, comment="what happened before this moment is in the log"),
    Column("unclean", SmallInteger, nullable=False, comment="1: it ended without saying so"),
    Column("durability", String, nullable=False, comment="buffered or strict"),
    Column("spool", String, comment="the file it writes to while the store is away"),
    Column("seal", LargeBinary, comment="SHA-256 over the row once it has ended; see `experiments/seal.py`"),
    UniqueConstraint("experiment_id", "ordinal"),
    sqlite_autoincrement=True,  # ids are never reused, so a late writer cannot write to the events of another
)

name = Table(
    "name",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("experiment_id", BigInteger, ForeignKey("experiment.id"), nullable=False),
    Column("what", SmallInteger, nullable=False, comment="0 channel, 1 agent, 2 Messager"),
    Column("value", LargeBinary, nullable=False, comment="a channel's bytes, an agent's id as JSON, text"),
    Column("hash", LargeBinary, nullable=False, comment="first 16 bytes of the SHA-256 of the value"),
    Column("text", Text, comment="the value as text, where it is text; for the views"),
    UniqueConstraint("experiment_id", "what", "hash"),
)

batch = Table(
    "batch",
    metadata,
    Column("recorder_id", BigInteger, ForeignKey("recorder.id"), nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("min_ts", BigInteger, nullable=False),
    Column("max_ts", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False, comment="SHA-256 over the events"),
    Column("checks", LargeBinary, nullable=False, comment="CRC-32 of each event, to locate a changed one"),
    Column("chain_hash", LargeBinary, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("unacknowledged", BigInteger, nullable=False, comment="wait of its oldest event, ns"),
    PrimaryKeyConstraint("recorder_id", "first_seq"),
)

# No foreign keys and one index: each slows down every append, and the ids are those of rows that the same writer
# committed before.
event = Table(
    "event",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("experiment_id", BigInteger, nullable=False),
    Column("ts", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("channel_id", BigInteger),
    Column("from_id", BigInteger, comment="name.id"),
    Column("to_id", BigInteger, comment="name.id"),
    Column("messager_id", BigInteger, comment="name.id of the Messager that sent or received it"),
    Column("flags", SmallInteger, nullable=False, comment="bits, see FROM_DERIVED"),
    Column("attributes", Text, comment="JSON object, see `log/attributes.py`; null if empty"),
    Column("payload", LargeBinary, nullable=False),
    Index("ix_event_replay", "experiment_id", "ts", "id"),
)

RECORDER_ID = event.c.id.op(">>")(literal_column(str(SEQ_BITS)))
"""The recorder id of an event. The number is part of the statement: a parameter would be another expression in each
statement, which GROUP BY does not accept."""

replay_place = tuple_(event.c.ts, event.c.id)
"""An event's place in replay order."""


def place_at(ts: int, number: int) -> ColumnElement[Any]:
    """Return a place to compare `replay_place` with. The parameters get the types of the columns."""
    return tuple_(literal(ts, BigInteger), literal(number, BigInteger))


redaction = Table(
    "redaction",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("experiment_id", BigInteger, ForeignKey("experiment.id"), nullable=False),
    Column("who", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
    Column("events", Text, nullable=False, comment="JSON: which ones"),
    Column("head_before", LargeBinary, nullable=False),
    Column("head_after", LargeBinary, nullable=False, comment="over the chain hashes at that time, without seals"),
    Column("origin", String, nullable=False, comment="where it was made: uuid of the first recorder there"),
)

LOG_TABLES = (experiment, tag, recorder, name, batch, event, redaction)
"""The tables of the log."""
