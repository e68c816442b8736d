"""A store with fabricated runs, and visitors of its web page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from web_visitor import OWNER_TOKEN, TESTER, WebVisitor

from fabricated_runs import fabricated_run
from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.application import make_application
from ringroad_lab.web.settings import WebSettings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    """A store without runs."""
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


@pytest.fixture
def run(store: ResultStore) -> RunRecord:
    """A run in the store."""
    record = fabricated_run(labels={"version": "3.1.0"})
    store.add_run(record)
    return record


@pytest.fixture
def make_visitor(store: ResultStore) -> Callable[..., WebVisitor]:
    """Makes a visitor of a server with these settings."""

    def make(**settings: bool | float | str | tuple[str, ...]) -> WebVisitor:
        return WebVisitor(make_application(store, WebSettings(**{"owner": TESTER, "owner_token": OWNER_TOKEN, **settings})))  # type: ignore[arg-type]

    return make


@pytest.fixture
def visitor(make_visitor: Callable[..., WebVisitor]) -> WebVisitor:
    """A visitor who is not logged in."""
    return make_visitor()


@pytest.fixture
def tester(visitor: WebVisitor) -> WebVisitor:
    """A visitor who is logged in."""
    assert visitor.log_in().status_code == 303
    return visitor
