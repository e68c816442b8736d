"""The tables of the web page: users, tokens, annotations and the audit log, to which rows can only be added."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "web_user",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("session_stamp", sa.String(length=32), nullable=False),
        sa.Column("added_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_web_user"),
    )
    op.create_table(
        "api_token",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("added_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_api_token"),
        sa.UniqueConstraint("digest", name="uq_api_token_digest"),
    )
    op.create_table(
        "annotation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("bug_link", sa.Text(), nullable=False),
        sa.Column("tester", sa.Text(), nullable=False),
        sa.Column("annotated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_annotation_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_annotation"),
    )
    op.create_index("ix_annotation_run_id", "annotation", ["run_id"])
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("old", sa.Text(), nullable=False),
        sa.Column("new", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entry"),
    )
    op.create_index("ix_audit_entry_run_id", "audit_entry", ["run_id"])
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
