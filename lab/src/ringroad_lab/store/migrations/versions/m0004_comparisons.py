"""The tables of comparisons and their findings, so that lists show them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "comparison",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("baseline_run_id", sa.String(length=64), nullable=False),
        sa.Column("dut", sa.Text(), nullable=False),
        sa.Column("baseline_dut", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("compared_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_comparison_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["baseline_run_id"], ["run.run_id"], name="fk_comparison_baseline_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_comparison"),
    )
    op.create_index("ix_comparison_baseline_run_id", "comparison", ["baseline_run_id"])
    op.create_index("uq_comparison_sides", "comparison", ["run_id", "baseline_run_id", "dut", "baseline_dut"], unique=True)
    op.create_table(
        "finding",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("topology", sa.Text(), nullable=False),
        sa.Column("dut", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("frame", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["comparison_id"], ["comparison.id"], name="fk_finding_comparison_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_finding"),
    )
    op.create_index("ix_finding_comparison_id", "finding", ["comparison_id"])
