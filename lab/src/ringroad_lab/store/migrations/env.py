"""Alembic's entry point: runs the migrations on the store's connection, within its transaction."""

from __future__ import annotations

from alembic import context

from ringroad_lab.store.models import Base

# `alembic revision` can write migrations, but only the program runs them: it configures the connection.
context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True)
context.run_migrations()
