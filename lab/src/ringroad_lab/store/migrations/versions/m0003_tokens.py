"""Users log in with tokens: the table of users with passwords is dropped."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Drop the table of users. Their actions stay in the audit log."""
    op.drop_table("web_user")
