"""The tables of comparisons and their findings, so that lists show them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "comparison",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id", ondelete="CASCADE"), nullable=False),
        sa.Column("baseline_run_id", sa.String(length=64), sa.ForeignKey("run.run_id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("dut", sa.Text(), nullable=False),
        sa.Column("baseline_dut", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("compared_at", sa.Double(), nullable=False),
    )
    op.create_index("uq_comparison_sides", "comparison", ["run_id", "baseline_run_id", "dut", "baseline_dut"], unique=True)
    op.create_table(
        "finding",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("comparison_id", sa.Integer(), sa.ForeignKey("comparison.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("topology", sa.Text(), nullable=False),
        sa.Column("dut", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("frame", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
    )
