"""What every test has: a machine's lock of its own, since a run of the machine's user, or of another test, may be under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringroad_lab.run.machine_lock import LOCK_VARIABLE


@pytest.fixture(autouse=True)
def own_machine_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "machine.lock"))
