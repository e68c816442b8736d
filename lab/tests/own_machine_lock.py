"""A private machine lock for every test, as another run or test may be using the machine at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringroad_lab.sandbox.machine_lock import LOCK_VARIABLE


@pytest.fixture(autouse=True)
def own_machine_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "machine.lock"))
