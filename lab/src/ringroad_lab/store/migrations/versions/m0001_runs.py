"""The tables of runs, their measurements and metrics, baselines and judgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(length=64), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, index=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("is_ended", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False, index=True),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("lab_version", sa.Text(), nullable=False),
        sa.Column("generator_version", sa.Text(), nullable=False),
        sa.Column("supersedes", sa.String(length=64), nullable=True, index=True),
    )

    op.create_table(
        "baseline",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, index=True),
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
    )

    op.create_table(
        "judgement",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), nullable=False, index=True),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("tester", sa.Text(), nullable=False),
        sa.Column("judged_at", sa.Double(), nullable=False),
    )

    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("dut", sa.Text(), nullable=False, index=True),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("topology", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("frame", sa.Text(), nullable=False),
        sa.Column("repetition", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("elapsed_s", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("headline", sa.Text(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
    )
    op.create_index("uq_measurement_run_id_number", "measurement", ["run_id", "number"], unique=True)

    op.create_table(
        "run_dut",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), nullable=False, index=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False, index=True),
        sa.Column("driver", sa.Text(), nullable=False, index=True),
    )

    op.create_table(
        "run_head",
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("sequence", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("raw", sa.Text(), nullable=False),
    )
    op.create_table(
        "run_label",
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("ix_run_label_name_value", "run_label", ["name", "value"])

    op.create_table(
        "dut_version",
        sa.Column("dut_id", sa.Integer(), sa.ForeignKey("run_dut.id"), primary_key=True),
        sa.Column("program", sa.Text(), primary_key=True),
        sa.Column("version", sa.Text(), nullable=False, index=True),
    )

    op.create_table(
        "metric",
        sa.Column("measurement_id", sa.Integer(), sa.ForeignKey("measurement.id"), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True, index=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("better", sa.String(length=16), nullable=False),
    )
