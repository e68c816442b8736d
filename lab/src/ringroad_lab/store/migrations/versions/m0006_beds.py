"""The tables of beds: holders, occupancies and calibrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "bed",
        sa.Column("name", sa.String(length=64), primary_key=True),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.Column("quarantine", sa.Text(), nullable=False),
        sa.Column("quarantined_at", sa.Double(), nullable=False),
        sa.Column("quarantined_by", sa.Text(), nullable=False),
    )
    op.create_table(
        "bed_occupancy",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("bed", sa.String(length=64), sa.ForeignKey("bed.name"), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False, index=True),
        sa.Column("request_id", sa.Integer(), sa.ForeignKey("request.id"), nullable=True),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.Double(), nullable=False, index=True),
        sa.Column("waited_s", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
    )
    op.create_index("uq_bed_occupancy_bed_token", "bed_occupancy", ["bed", "token"], unique=True)
    op.create_table(
        "bed_calibration",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("bed", sa.String(length=64), sa.ForeignKey("bed.name"), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("load_digest", sa.String(length=64), nullable=False),
        sa.Column("transport", sa.Text(), nullable=False),
        sa.Column("frame", sa.Text(), nullable=False),
        sa.Column("ceiling_fps", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.Double(), nullable=False),
        sa.Column("is_good", sa.Boolean(), nullable=False),
    )
    op.create_index("ix_bed_calibration_bed_load_digest_transport_frame", "bed_calibration", ["bed", "load_digest", "transport", "frame"])
    op.add_column("request", sa.Column("beds", sa.Text(), nullable=False, server_default=""))
    op.drop_index("ix_request_owner_served_at", "request")
    op.create_index("ix_request_owner_priority_served_at", "request", ["owner", "priority", "served_at"])
