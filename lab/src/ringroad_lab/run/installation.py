"""A run that measured nothing, because a build could not be installed: stored like other runs, so that it is reported like them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ringroad_lab.errors import BuildError
from ringroad_lab.record import LogExcerpt, RunRecord, RunState
from ringroad_lab.store.result_store import ResultStore


def keep_uninstalled(
    store: ResultStore, record: RunRecord, facts: Mapping[str, dict[str, str]], error: BuildError, *, is_resumed: bool
) -> RunRecord:
    """Store a run whose build could not be installed, with the known facts of its builds; return the run.

    Raises:
        StoreError: the database failed.
    """
    log = LogExcerpt(source="installing the build", text=error.log).shortened()
    update = {
        "ended_at": time.time(),
        "state": RunState.NOT_INSTALLED,
        "failure": str(error),
        "facts": {**record.facts, **facts},
        "logs": (*record.logs, log) if error.log else record.logs,
    }
    whole = record.model_copy(update=update)
    if not is_resumed:
        store.begin_run(record)
    store.end_run(whole)
    return whole
