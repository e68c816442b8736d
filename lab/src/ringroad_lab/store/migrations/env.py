"""Alembic's entry: runs the migrations on the connection that the store gives, within its transaction."""

from __future__ import annotations

from alembic import context

from ringroad_lab.store.models import Base

# Migrations can be written by `alembic revision`, but run in the program alone, which opens the database as it has to be.
context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True)
context.run_migrations()
