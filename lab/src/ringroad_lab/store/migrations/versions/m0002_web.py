"""The tables of the web page: users, tokens, annotations and the audit log, to which rows can only be added."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "web_user",
        sa.Column("name", sa.String(length=64), primary_key=True),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("session_stamp", sa.String(length=32), nullable=False),
        sa.Column("added_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "api_token",
        sa.Column("name", sa.String(length=64), primary_key=True),
        sa.Column("digest", sa.String(length=64), nullable=False, unique=True),
        sa.Column("added_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "annotation",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(length=64), sa.ForeignKey("run.run_id"), nullable=False, index=True),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("bug_link", sa.Text(), nullable=False),
        sa.Column("tester", sa.Text(), nullable=False),
        sa.Column("annotated_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True, index=True),
        sa.Column("old", sa.Text(), nullable=False),
        sa.Column("new", sa.Text(), nullable=False),
    )
    for statement in _append_only(op.get_bind().dialect.name):
        op.execute(statement)


def _append_only(dialect: str) -> list[str]:
    if dialect == "postgresql":
        return [
            "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is only added to'; END $$",
            "CREATE TRIGGER audit_entry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entry "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()",
        ]
    return [
        f"CREATE TRIGGER audit_entry_no_{event.lower()} BEFORE {event} ON audit_entry "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
        for event in ("UPDATE", "DELETE")
    ]
