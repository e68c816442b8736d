"""The store's tables: created and upgraded; databases of other programs and newer schemas are rejected."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from fabricated_runs import fabricated_run
from ringroad_lab.errors import StoreError
from ringroad_lab.store.database import open_database
from ringroad_lab.store.location import default_path, parse_location
from ringroad_lab.store.models import Base
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.tables import Token

# Outputs of `sqlite3 .dump` for stores with one fabricated run: of the first migration, and of a released version.
FIRST_SCHEMA = Path(__file__).parent / "store_of_schema_0001.sql"
VERSION_0_1_0 = Path(__file__).parent / "store_of_version_0_1_0.sql"


def make_store(path: Path, dump: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as old:
        old.executescript(dump.read_text())
    old.close()


def test_a_store_of_version_0_1_0_is_upgraded_and_read(path: Path) -> None:
    make_store(path, VERSION_0_1_0)
    with ResultStore(str(path)) as store:
        record = store.get_run(store.resolve("baseline-of-0.1.0"))
        assert (record.name, record.lab_version) == ("RUN_OF_0_1_0", "0.1.0")
        assert record.measurements[0].outcome.metrics["throughput_fps"].value > 0
        store.add_run(fabricated_run())


def test_a_store_of_the_first_schema_is_upgraded_and_read(path: Path) -> None:
    make_store(path, FIRST_SCHEMA)
    with ResultStore(str(path)) as store:
        (summary,) = store.summaries(RunFilter(name="OLD_RUN", dut="ovs"))
        record = store.get_run(summary.run_id)
        assert record.measurements[0].outcome.metrics["throughput_fps"].value == 237_952.5
        assert store.resolve("old-baseline") == record.run_id
        store.add_run(fabricated_run())


def test_migrations_create_the_tables_that_the_program_uses(path: Path) -> None:
    assert Token.metadata is Base.metadata
    engine = open_database(parse_location(str(path)))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_a_newer_store_is_rejected_and_not_changed(path: Path) -> None:
    ResultStore(str(path)).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with pytest.raises(StoreError, match=r"newer ringroad-lab.*9999.*upgrade ringroad-lab"):
        ResultStore(str(path))
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    database.close()


def test_a_new_store_is_private(path: Path) -> None:
    ResultStore(str(path)).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_a_store_is_rejected(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("this text is long enough to be checked for a database header\n" * 100)
    with pytest.raises(StoreError, match="not a database"):
        ResultStore(str(text))
    assert text.read_text().startswith("this text is long")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE cookies (name)")
    database.close()
    with pytest.raises(StoreError, match="another program"):
        ResultStore(str(other))
    with pytest.raises(StoreError, match="Is a directory"):
        ResultStore(str(tmp_path))
    with pytest.raises(StoreError, match="text"):
        ResultStore(str(text / "below a file" / "results.db"))


@pytest.mark.parametrize("location", ["", "mysql://u:secret@h/d", "postgresql://u:secret@h:port/d"])
def test_invalid_locations_are_rejected_without_showing_the_password(location: str) -> None:
    with pytest.raises(StoreError) as raised:
        parse_location(location)
    assert "secret" not in str(raised.value)


def test_an_unreachable_database_is_reported_without_the_password() -> None:
    # Port 1 is reserved, and nothing listens there.
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1") as raised:
        ResultStore("postgresql://u:secret@127.0.0.1:1/d")
    assert "secret" not in str(raised.value)


def test_an_unknown_parameter_of_the_url_is_reported() -> None:
    with pytest.raises(StoreError, match="sslmode") as raised:
        ResultStore("postgresql://u:secret@127.0.0.1:1/d?sslmode=require")
    assert "secret" not in str(raised.value)


def test_the_default_store_is_in_the_data_folder_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "ringroad-lab" / "results.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "ringroad-lab" / "results.db"
