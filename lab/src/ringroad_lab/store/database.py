"""Opens the database of the store, brought to the present schema, for several processes at once."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, event, inspect
from sqlalchemy.exc import SQLAlchemyError

from ringroad_lab.errors import StoreError, StoreFailedError

# What a database fails with; the second is for texts that are no Unicode, the third for connections that were cut: pg8000 passes it on.
DATABASE_ERRORS = (SQLAlchemyError, UnicodeEncodeError, OSError)
# How long a process waits for another that writes, ms.
BUSY_TIMEOUT_MS = 30_000
# Any number, the same in every process: the lock under which PostgreSQL's tables are brought up to date.
_MIGRATION_LOCK = 2544
_VERSION_TABLE = "alembic_version"
# Set on connections that write: see _begin.
_WRITES = "ringroad_lab_writes"
# Else it prints a traceback where a connection that was cut cannot be closed; what failed by it is told by its error.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


def open_database(url: URL) -> Engine:
    """Open a database, make or upgrade its tables.

    Raises:
        StoreError: it cannot be opened, is not a result store, or is newer than this program.
    """
    shown = url.database if url.drivername == "sqlite" else url.render_as_string()
    try:
        if url.drivername == "sqlite":
            path = Path(url.database or "")
            path.parent.mkdir(parents=True, exist_ok=True)
            # It holds the digests of tokens, and results that are not everybody's.
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # A run takes hours, in which the other end may have gone and come again.
        engine = sqlalchemy.create_engine(url, pool_pre_ping=True)
        if url.drivername == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin)
        with for_writing(engine).begin() as connection:
            _upgrade(connection, str(shown))
    except StoreError:
        raise
    except DATABASE_ERRORS as error:
        raise StoreFailedError(f"result store {shown}: {why(error)}") from error
    return engine


def for_writing(engine: Engine) -> Engine:
    """Return the engine for transactions that write."""
    return engine.execution_options(**{_WRITES: True})


def why(error: Exception) -> str:
    """Return what the database said, without SQLAlchemy's additions."""
    said = getattr(error, "orig", None) or error
    if isinstance(said, OSError):
        return said.strerror or str(said)
    # PostgreSQL's messages have parts, of which M is for people.
    parts = said.args[0] if said.args else None
    return str(parts["M"] if isinstance(parts, dict) and "M" in parts else said)


def _migration_scripts(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _prepare_sqlite(dbapi_connection: Any, _record: object) -> None:  # noqa: ANN401
    # Transactions are begun by _begin: the module's own begin neither covers changes of tables nor waits well.
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys = ON")
    # Readers do not wait for a writer. Synced at each commit: a measurement that was told to be stored stays.
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads first and then writes fails at once, without the wait, when another wrote in between.
    # So those that write say so.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _upgrade(connection: Connection, shown: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
    config = _migration_scripts(connection)
    scripts = ScriptDirectory.from_config(config)
    tables = inspect(connection).get_table_names()
    if tables and _VERSION_TABLE not in tables:
        raise StoreError(f"result store {shown}: this database is another program's; name a new file or an empty database")
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreError(
            f"result store {shown}: it was made by a newer ringroad-lab (its schema is {revision}, this one knows up to "
            f"{scripts.get_current_head()}); upgrade ringroad-lab, or name another store"
        )
    if revision != scripts.get_current_head():
        command.upgrade(config, "head")
