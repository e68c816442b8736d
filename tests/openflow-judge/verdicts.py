"""The tester's result for each case, beside the known failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cases import KINDS, Case

_VERDICT = re.compile(r"    (\S.*?) +(OK|ERROR)")
_DETAIL = re.compile(r" {8}(\S.*)")


@dataclass
class Verdict:
    """The tester's word on a case."""

    name: str
    passed: bool
    detail: str = ""
    """Why it did not pass."""


def verdicts_in(lines: Iterable[str], titles: set[str]) -> Iterator[Verdict]:
    """Read verdicts from the tester's output. One comes as soon as all of it is known."""
    title = ""
    last: Verdict | None = None
    for line in lines:
        if last and (detail := _DETAIL.fullmatch(line)):
            last.detail = detail[1]
            continue
        if last:
            yield last
            last = None
        if line in titles:
            title = line
        elif verdict := _VERDICT.fullmatch(line):
            last = Verdict(f"{title} | {verdict[1]}", verdict[2] == "OK")
        elif line == "--- Test report ---":
            # What follows repeats it.
            return
    if last:
        yield last


def differences(
    chosen: Sequence[Case], verdicts: Mapping[str, Verdict], known_failures: Mapping[str, str]
) -> Iterator[str]:
    """Report the differences between the verdicts and the known failures."""
    for case in chosen:
        verdict = verdicts.get(case.name)
        if verdict and verdict.passed and case.name in known_failures:
            yield f"passed, though it is known to fail: {case.name}"
        if verdict and not verdict.passed and known_failures.get(case.name) != verdict.detail:
            yield f"failed: {case.name}\n    {verdict.detail}"
    if missing := [case.name for case in chosen if case.name not in verdicts]:
        yield f"no verdict on {len(missing)} cases, of which the first is: {missing[0]}"


def table(chosen: Sequence[Case], verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Count the verdicts by kind; the last line has all of them."""

    def count(cases: Sequence[Case]) -> str:
        passed = sum(case.name in verdicts and verdicts[case.name].passed for case in cases)
        return f"{passed} of {len(cases)}"

    yield f"{'':14}{'required':>12}{'optional':>12}{'all':>12}"
    for kind in (*KINDS, "all"):
        cases = [case for case in chosen if kind in (case.kind, "all")]
        if cases:
            required = [case for case in cases if case.is_required]
            optional = [case for case in cases if not case.is_required]
            yield f"{kind:14}{count(required):>12}{count(optional):>12}{count(cases):>12}"
