"""The two sides of a comparison, as a URL names them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ringroad_lab.comparison import RunComparison, compare_labels, compare_runs
from ringroad_lab.errors import StoreError, StoreFailedError
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.run_query import Text


class UnknownRunError(Exception):
    """What was named is no run."""


class ComparisonQuery(BaseModel):
    """Two runs; or two devices, where the runs are one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: Text = None
    """Id of a run, the beginning of it, name of a baseline, `latest` or `last-stable`."""
    candidate: Text = None
    baseline_dut: Text = None
    """Label of a device; with `candidate_dut`, of one and the same run."""
    candidate_dut: Text = None


def read_comparison(store: ResultStore, query: ComparisonQuery) -> RunComparison:
    """Compare what the query names.

    Raises:
        UnknownRunError: it does not name two, or one of them is not there.
        ReportError: they have nothing in common.
    """
    baseline = _resolve(store, "baseline", query.baseline)
    candidate = _resolve(store, "candidate", query.candidate)
    if query.baseline_dut is not None or query.candidate_dut is not None:
        if query.baseline_dut is None or query.candidate_dut is None or baseline != candidate:
            raise UnknownRunError("Devices are compared within one run: name it twice, and two devices of it.")
        return compare_labels(store.get_run(baseline), query.baseline_dut, query.candidate_dut)
    if baseline == candidate:
        raise UnknownRunError("Baseline and candidate are the same run.")
    return compare_runs(store.get_run(baseline), store.get_run(candidate))


def _resolve(store: ResultStore, side: str, text: str | None) -> str:
    if text is None:
        raise UnknownRunError(f"Say which run is the {side}.")
    try:
        return store.resolve(text)
    except StoreFailedError:
        raise
    except StoreError as error:
        raise UnknownRunError(f"The {side}: no run, or not one alone, is meant by {text!r}.") from error
