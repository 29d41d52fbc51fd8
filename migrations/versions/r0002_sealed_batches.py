"""Columns for the wait of batches, and for the watermark, unclean end, durability and spool of recorders.

Revision ID: 0002
Revises: 0001
Create Date: 2026-11-21
"""

import hashlib
import struct

import sqlalchemy as sa
from alembic import context, op

from messager_store.errors import DowngradeRefused

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SHOWN = 3
"""Maximum experiments in the error of a refused downgrade, for each reason."""

_RECORDERS = "FROM experiment x JOIN recorder r ON r.experiment_id = x.id"
LOSSES = (
    (
        "redactions would no longer fit their heads",
        "SELECT x.exp_id FROM experiment x JOIN redaction d ON d.experiment_id = x.id WHERE x.schema_version > 1",
    ),
    (
        "heads of closed experiments would change",
        f"SELECT x.exp_id {_RECORDERS} WHERE x.closed_at IS NOT NULL AND x.schema_version > 1 AND r.last_seq > 0",
    ),
    (
        "strict recorders would count as buffered",
        f"SELECT x.exp_id {_RECORDERS} WHERE r.durability = 'strict'",
    ),
    (
        "recorders that ended uncleanly would count as ended",
        f"SELECT x.exp_id {_RECORDERS} WHERE r.unclean <> 0",
    ),
    (
        "spools of recorders that have not ended would be forgotten",
        f"SELECT x.exp_id {_RECORDERS} WHERE r.ended_at IS NULL AND r.spool IS NOT NULL",
    ),
)
"""Guarantees that revision 0001 cannot keep, and the experiments that have them.

Not listed, because nothing is guaranteed for them: the waits of single batches, the watermark of a recorder (replaced
by its start, which claims less), and the heads of open experiments.
"""


def upgrade() -> None:
    op.add_column(
        "batch",
        sa.Column(
            "unacknowledged", sa.BigInteger, nullable=False, server_default="0", comment="wait of its oldest event, ns"
        ),
    )
    op.add_column(
        "recorder",
        sa.Column("complete_until", sa.BigInteger, comment="what happened before this moment is in the log"),
    )
    op.add_column(
        "recorder",
        sa.Column(
            "unclean", sa.SmallInteger, nullable=False, server_default="0", comment="1: it ended without saying so"
        ),
    )
    op.add_column(
        "recorder",
        sa.Column("durability", sa.String, nullable=False, server_default="buffered", comment="buffered or strict"),
    )
    op.add_column("recorder", sa.Column("spool", sa.String, comment="the file it writes to while the store is away"))


def downgrade() -> None:
    if context.get_revision_argument() is not None:  # a downgrade to `base` removes the whole log
        _refuse_losses()
    _seal_as_before()
    op.drop_column("recorder", "spool")
    op.drop_column("recorder", "durability")
    op.drop_column("recorder", "unclean")
    op.drop_column("recorder", "complete_until")
    op.drop_column("batch", "unacknowledged")


def _refuse_losses() -> None:
    """Raise `DowngradeRefused` with all reasons if guarantees would be lost."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # Changes nothing, but locks the table until the end of the transaction, and fails for anyone but the owner. All
        # writers of the log use this table. SQLite has one writer anyway.
        op.alter_column("recorder", "spool", nullable=True)
    if reasons := losses(connection):
        raise DowngradeRefused(str(down_revision), reasons)


def losses(connection: sa.Connection) -> list[str]:
    """Return a reason for each guarantee that revision 0001 cannot keep, with the experiments concerned."""
    reasons = []
    for loss, query in LOSSES:
        found = sorted({exp_id for (exp_id,) in connection.execute(sa.text(query))})
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            reasons.append(f"{loss} ({', '.join(found[:SHOWN])}{more})")
    return reasons


def _seal_as_before() -> None:
    """Recompute the chains in the form of revision 0001, which changes the heads of these experiments."""
    connection = op.get_bind()
    recorders = connection.execute(
        sa.text(
            "SELECT r.id, r.uuid FROM recorder r JOIN experiment x ON x.id = r.experiment_id WHERE x.schema_version > 1"
        )
    ).all()
    for number, uuid in recorders:
        link = hashlib.sha256(b"messager recorder " + uuid.encode()).digest()
        batches = connection.execute(
            sa.text(
                "SELECT first_seq, count, min_ts, max_ts, digest FROM batch WHERE recorder_id = :id ORDER BY first_seq"
            ),
            {"id": number},
        ).all()
        for first_seq, count, min_ts, max_ts, digest in batches:
            link = hashlib.sha256(link + digest + struct.pack("<qqqq", first_seq, count, min_ts, max_ts)).digest()
            connection.execute(
                sa.text("UPDATE batch SET chain_hash = :link WHERE recorder_id = :id AND first_seq = :first_seq"),
                {"link": link, "id": number, "first_seq": first_seq},
            )
        connection.execute(
            sa.text("UPDATE recorder SET head_hash = :link WHERE id = :id"), {"link": link, "id": number}
        )
    connection.execute(sa.text("UPDATE experiment SET schema_version = 1 WHERE schema_version > 1"))
