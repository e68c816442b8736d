"""The tables of requests, their state changes, and message counts of the sources."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "request",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("scenario", sa.Text(), nullable=False),
        sa.Column("bed_class", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("order", sa.Text(), nullable=False),
        sa.Column("package", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("built_at", sa.Double(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("duplicates", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("delivery", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("superseded_by", sa.Integer(), sa.ForeignKey("request.id"), nullable=True),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("job_key", sa.Text(), nullable=False),
        sa.Column("lease_holder", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True, index=True),
        sa.Column("verdict", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("served_at", sa.Double(), nullable=False),
        sa.Column("told_at", sa.Double(), nullable=False),
    )
    op.create_index("uq_request_key", "request", ["source", "build", "scenario", "bed_class"], unique=True)
    op.create_index("ix_request_state_bed_class", "request", ["state", "bed_class"])
    op.create_index("ix_request_package_tag", "request", ["package", "tag"])
    op.create_index("ix_request_source_delivery", "request", ["source", "delivery"])
    op.create_index("ix_request_owner_served_at", "request", ["owner", "served_at"])
    op.create_table(
        "request_change",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("request_id", sa.Integer(), sa.ForeignKey("request.id"), nullable=False, index=True),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("old", sa.String(length=16), nullable=False),
        sa.Column("new", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
    )
    op.create_table(
        "source_count",
        sa.Column("source", sa.String(length=64), primary_key=True),
        sa.Column("outcome", sa.String(length=32), primary_key=True),
        sa.Column("messages", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
    )
