"""A store with fabricated runs, and browsers without a window to look at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import argon2
import pytest
from web_visitor import PASSWORD, TESTER, Clock, WebVisitor

from fabricated_runs import fabricated_run
from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web import passwords
from ringroad_lab.web.accounts import set_password
from ringroad_lab.web.application import make_application
from ringroad_lab.web.settings import WebSettings


@pytest.fixture(scope="session")
def store_with_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store to copy. Its password is checked fast: how hard it is to guess lies in its hash."""
    path = tmp_path_factory.mktemp("store") / "results.db"
    with pytest.MonkeyPatch.context() as patch, ResultStore(str(path)) as store:
        patch.setattr(passwords, "_HASHER", argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        set_password(store, TESTER, PASSWORD)
    return path


@pytest.fixture
def store(store_with_user: Path, tmp_path: Path) -> Iterator[ResultStore]:
    """A store with one user and no run."""
    path = tmp_path / "results.db"
    shutil.copyfile(store_with_user, path)
    with ResultStore(str(path)) as store:
        yield store


@pytest.fixture
def run(store: ResultStore) -> RunRecord:
    """A run in the store."""
    record = fabricated_run(labels={"version": "3.1.0"})
    store.add_run(record)
    return record


@pytest.fixture
def clock() -> Clock:
    """The server's clock."""
    return Clock()


@pytest.fixture
def make_visitor(store: ResultStore, clock: Clock) -> Callable[..., WebVisitor]:
    """Make a visitor of a server with these settings."""

    def make(**settings: bool | float | tuple[str, ...]) -> WebVisitor:
        application = make_application(store, WebSettings(clock=clock, **settings))  # type: ignore[arg-type]
        return WebVisitor(application)

    return make


@pytest.fixture
def visitor(make_visitor: Callable[..., WebVisitor]) -> WebVisitor:
    """Somebody who is not logged in."""
    return make_visitor()


@pytest.fixture
def tester(visitor: WebVisitor) -> WebVisitor:
    """Somebody who is logged in."""
    assert visitor.log_in().status_code == 303
    return visitor
