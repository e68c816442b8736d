"""Notifications with their recipients and delivery state; they replace the single time of notification."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table, with a row for each done request whose end was not reported yet."""
    op.create_table(
        "notification",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("request_id", sa.Integer(), sa.ForeignKey("request.id", ondelete="CASCADE"), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("happened_at", sa.Double(), nullable=False),
        sa.Column("delivery", sa.String(length=36), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("held_until", sa.Double(), nullable=False),
    )
    op.create_index("uq_notification_key", "notification", ["request_id", "round", "stage", "target"], unique=True)
    op.create_index("ix_notification_state_target", "notification", ["state", "target"])
    op.execute(
        "INSERT INTO notification (request_id, round, stage, target, state, run_id, outcome, reason, happened_at, delivery, attempts,"
        " last_error, asked_at, not_before, changed_at, holder, held_until)"
        " SELECT id, 0, 'complete', '', 'waiting', run_id, verdict, '', changed_at, '', 0, '', changed_at, 0, changed_at, '', 0"
        " FROM request WHERE state = 'done' AND told_at = 0"
    )
    op.execute("UPDATE request SET lease_holder = '', lease_until = 0 WHERE state = 'done'")
    op.drop_column("request", "told_at")
