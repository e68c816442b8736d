"""The verdict on a request's run: the result of its comparison with the baseline."""

from __future__ import annotations

from ringroad_lab.comparison import compare_runs
from ringroad_lab.errors import ReportError, StoreError, StoreFailedError
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.request.model import MEASURED, NOT_INSTALLED
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.result_store import ResultStore


def reach_verdict(store: ResultStore, record: RunRecord, baseline: str) -> tuple[str, str]:
    """Compare a run that ended with its baseline and store the comparison; return the verdict and a remark.

    A single regression makes the verdict a regression, as for the exit status of `ringroad-lab run`. Without a run to compare with, as for
    the first build, the verdict is `measured`, or `invalid` if a measurement is invalid.

    Raises:
        StoreFailedError: the database failed.
    """
    if record.state is RunState.NOT_INSTALLED:
        return NOT_INSTALLED, record.failure
    if not baseline:
        return _alone(record), ""
    try:
        before = store.get_run(store.resolve(baseline, record))
        if before.run_id == record.run_id:
            return _alone(record), f"the baseline {baseline} is this run itself"
        comparison = compare_runs(before, record)
    except StoreFailedError:
        raise
    except (StoreError, ReportError) as error:
        return _alone(record), f"not compared with {baseline}: {error}"
    store.keep_comparison(before.run_id, record.run_id, comparison)
    has_regression = any(row.is_headline and row.comparison.verdict is Verdict.REGRESSION for row in comparison.rows)
    return Verdict.REGRESSION if has_regression else comparison.verdict, f"compared with run {before.run_id}"


def _alone(record: RunRecord) -> str:
    is_invalid = any(each.outcome.status is MeasurementStatus.INVALID for each in record.measurements)
    return Verdict.INVALID if is_invalid else MEASURED
