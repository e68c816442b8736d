"""The two sides of a comparison, from the query of a URL."""

from __future__ import annotations

from ringroad_lab.comparison import RunComparison, compare_labels, compare_runs
from ringroad_lab.errors import StoreError, StoreFailedError
from ringroad_lab.report.rates import Rates
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.trial import Frozen
from ringroad_lab.web.run_query import Text


class UnknownRunError(Exception):
    """The query does not name runs that can be compared."""


class ComparisonQuery(Frozen):
    """Two runs; or two devices of one run."""

    baseline: Text = None
    """Id of a run, the beginning of an id, name of a baseline, `latest` or `last-stable`."""
    candidate: Text = None
    baseline_dut: Text = None
    """Label of a device; `candidate_dut` is then a device of the same run."""
    candidate_dut: Text = None
    rates: Rates = Rates.DIRECTION


def read_comparison(store: ResultStore, query: ComparisonQuery) -> RunComparison:
    """Compare the runs or devices of the query.

    Raises:
        UnknownRunError: the query does not name two runs or devices, or a run does not exist.
        ReportError: the two have nothing in common.
    """
    baseline = _resolve(store, "baseline", query.baseline)
    candidate = _resolve(store, "candidate", query.candidate)
    if query.baseline_dut is not None or query.candidate_dut is not None:
        if query.baseline_dut is None or query.candidate_dut is None or baseline != candidate:
            raise UnknownRunError("Devices are compared within one run: name this run twice, and two of its devices.")
        return compare_labels(query.rates.of(store.get_run(baseline)), query.baseline_dut, query.candidate_dut)
    if baseline == candidate:
        raise UnknownRunError("Baseline and candidate are the same run.")
    before, after = (query.rates.of(store.get_run(each)) for each in (baseline, candidate))
    return compare_runs(before, after)


def _resolve(store: ResultStore, side: str, text: str | None) -> str:
    if text is None:
        raise UnknownRunError(f"The {side} run is missing.")
    try:
        return store.resolve(text)
    except StoreFailedError:
        raise
    except StoreError as error:
        raise UnknownRunError(f"The {side}: {text!r} matches no run, or several runs.") from error
