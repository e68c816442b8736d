"""The table of read positions of polled sources."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "source_position",
        sa.Column("source", sa.String(length=64), primary_key=True),
        sa.Column("part", sa.Text(), primary_key=True),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
    )
