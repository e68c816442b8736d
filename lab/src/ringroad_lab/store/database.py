"""Opens the database of the store for several processes at once and upgrades it to the current schema."""

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
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError, SQLAlchemyError

from ringroad_lab.errors import StoreError, StoreFailedError

# Errors that a database raises; UnicodeEncodeError for invalid Unicode, OSError for cut connections: pg8000 does not wrap it.
DATABASE_ERRORS = (SQLAlchemyError, UnicodeEncodeError, OSError)
# Time that a process waits for another process that writes, ms.
BUSY_TIMEOUT_MS = 30_000
# Any number, the same in every process: the lock under which PostgreSQL's tables are upgraded.
_MIGRATION_LOCK = 2544
_VERSION_TABLE = "alembic_version"
# Set on connections that write: see _begin.
_WRITES = "ringroad_lab_writes"
# A cut connection that cannot be closed prints a traceback without a handler; the failed operation reports its own error.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


def open_database(url: URL) -> Engine:
    """Open a database and create or upgrade its tables.

    Raises:
        StoreError: the database cannot be opened, is not a result store, or is newer than this program.
    """
    shown = url.database if url.drivername == "sqlite" else url.render_as_string()
    try:
        if url.drivername == "sqlite":
            path = Path(url.database or "")
            path.parent.mkdir(parents=True, exist_ok=True)
            # The file holds digests of tokens, and results that not all users may see.
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        engine = sqlalchemy.create_engine(url)
        # A run takes hours; the database server can restart in that time.
        _replace_lost_connections(engine)
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
    """Return the database's own error message, without SQLAlchemy's additions."""
    original = getattr(error, "orig", None) or error
    if isinstance(original, OSError):
        return original.strerror or str(original)
    # PostgreSQL's errors have fields; M is the message for users.
    fields = original.args[0] if original.args else None
    return str(fields["M"] if isinstance(fields, dict) and "M" in fields else original)


def _migration_scripts(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _prepare_sqlite(dbapi_connection: Any, _record: object) -> None:  # noqa: ANN401
    # _begin starts the transactions: the sqlite3 module's own BEGIN does not cover schema changes and does not wait well.
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys = ON")
    # Readers do not wait for a writer. Synced at each commit: a measurement that was reported as stored survives a crash.
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _replace_lost_connections(engine: Engine) -> None:
    # The pool's own ping (pool_pre_ping) fails where pg8000 raises an error of the socket, or the server says that it ends.
    def ping(dbapi_connection: DBAPIConnection, _record: object, _proxy: object) -> None:
        try:
            engine.dialect.do_ping(dbapi_connection)
        except (engine.dialect.loaded_dbapi.Error, OSError) as error:
            raise InvalidatePoolError from error

    event.listen(engine, "checkout", ping)


def _begin(connection: Connection) -> None:
    # A transaction that reads and then writes fails at once, without waiting, if another process wrote in between.
    # So transactions that write take the lock at their start.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _upgrade(connection: Connection, shown: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
    config = _migration_scripts(connection)
    scripts = ScriptDirectory.from_config(config)
    tables = inspect(connection).get_table_names()
    if tables and _VERSION_TABLE not in tables:
        raise StoreError(f"result store {shown}: this database belongs to another program; name a new file or an empty database")
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreError(
            f"result store {shown}: created by a newer ringroad-lab (schema {revision}; this ringroad-lab supports schemas up to "
            f"{scripts.get_current_head()}); upgrade ringroad-lab, or name another store"
        )
    if revision != scripts.get_current_head():
        command.upgrade(config, "head")
