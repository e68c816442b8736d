"""A run that did not come to measure, because a build could not be installed: kept like others, so that it is told like others."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ringroad_lab.errors import BuildError
from ringroad_lab.record import LogExcerpt, RunRecord, RunState
from ringroad_lab.store.result_store import ResultStore

# As of other logs: it is to explain, not to fill a store.
_LOG_CHARACTERS = 16_384


def keep_uninstalled(
    store: ResultStore, record: RunRecord, facts: Mapping[str, dict[str, str]], error: BuildError, *, is_resumed: bool
) -> RunRecord:
    """Keep a run whose build could not be installed, with what is known of its builds; return it.

    Raises:
        StoreError: the database failed.
    """
    log = LogExcerpt(source="installing the build", text=error.log[-_LOG_CHARACTERS:], is_cut=len(error.log) > _LOG_CHARACTERS)
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
