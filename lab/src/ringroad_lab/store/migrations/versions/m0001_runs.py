"""The tables of runs, their measurements and metrics, baselines and judgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("is_ended", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("lab_version", sa.Text(), nullable=False),
        sa.Column("generator_version", sa.Text(), nullable=False),
        sa.Column("supersedes", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("run_id", name="pk_run"),
    )
    op.create_index("ix_run_name", "run", ["name"])
    op.create_index("ix_run_started_at", "run", ["started_at"])
    op.create_index("ix_run_supersedes", "run", ["supersedes"])

    op.create_table(
        "baseline",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_baseline_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_baseline"),
    )
    op.create_index("ix_baseline_name", "baseline", ["name"])

    op.create_table(
        "judgement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("tester", sa.Text(), nullable=False),
        sa.Column("judged_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_judgement_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_judgement"),
    )
    op.create_index("ix_judgement_run_id", "judgement", ["run_id"])

    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("dut", sa.Text(), nullable=False),
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
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_measurement_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
    )
    op.create_index("ix_measurement_dut", "measurement", ["dut"])
    op.create_index("uq_measurement_run_id_number", "measurement", ["run_id", "number"], unique=True)

    op.create_table(
        "run_dut",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_run_dut_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_run_dut"),
    )
    op.create_index("ix_run_dut_driver", "run_dut", ["driver"])
    op.create_index("ix_run_dut_label", "run_dut", ["label"])
    op.create_index("ix_run_dut_run_id", "run_dut", ["run_id"])

    op.create_table(
        "run_head",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_run_head_run_id"),
        sa.PrimaryKeyConstraint("run_id", "sequence", name="pk_run_head"),
    )
    op.create_table(
        "run_label",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_run_label_run_id"),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_run_label"),
    )
    op.create_index("ix_run_label_name_value", "run_label", ["name", "value"])

    op.create_table(
        "dut_version",
        sa.Column("dut_id", sa.Integer(), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dut_id"], ["run_dut.id"], name="fk_dut_version_dut_id"),
        sa.PrimaryKeyConstraint("dut_id", "program", name="pk_dut_version"),
    )
    op.create_index("ix_dut_version_version", "dut_version", ["version"])

    op.create_table(
        "metric",
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("better", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurement.id"], name="fk_metric_measurement_id"),
        sa.PrimaryKeyConstraint("measurement_id", "name", name="pk_metric"),
    )
    op.create_index("ix_metric_name", "metric", ["name"])
