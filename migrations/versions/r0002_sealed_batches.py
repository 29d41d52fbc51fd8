"""What a batch's chain hash covers besides, how a recorder keeps its promise, and where it spools.

Revision ID: 0002
Revises: 0001
Create Date: 2026-11-21
"""

import hashlib
import struct

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


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
    _seal_as_before()
    op.drop_column("recorder", "spool")
    op.drop_column("recorder", "durability")
    op.drop_column("recorder", "unclean")
    op.drop_column("recorder", "complete_until")
    op.drop_column("batch", "unacknowledged")


def _seal_as_before() -> None:
    """Make the chains that revision 0001 can check. The heads of these experiments change."""
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
