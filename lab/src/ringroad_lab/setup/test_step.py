"""Test steps: commands around measurements, with their expected results."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Host
from ringroad_lab.record import StepRecord
from ringroad_lab.scenario.model import StepChoice

# Limit of the stored end of a command's output: enough to explain a failure.
OUTPUT_CHARACTERS = 4000
# Limit of the output in a reason, which is shown in tables.
REASON_CHARACTERS = 500


def run_test_step(step: StepChoice, host: Host, environment: Mapping[str, str]) -> StepRecord:
    """Run a command by the shell, and check its result."""
    began_s = time.monotonic()
    status, output = None, ""
    try:
        done = host.run(["sh", "-c", step.run], timeout_s=step.timeout_s, env=environment, check=False)
    except HostError as error:
        failure = str(error)
    else:
        status, output = done.status, done.stdout + done.stderr
        failure = _failure(step, done.status, output)
    return StepRecord(
        name=step.name,
        when=step.when,
        on=step.on,
        run=step.run,
        status=status,
        output=output[-OUTPUT_CHARACTERS:],
        elapsed_s=time.monotonic() - began_s,
        failure=failure,
    )


def _failure(step: StepChoice, status: int, output: str) -> str:
    """Return the differences from the expected result, with the end of the command's output; empty if there are none."""
    reasons = []
    if step.status not in ("any", status):
        reasons.append(f"it ended with status {status}, not {step.status}")
    if step.expect and not re.search(step.expect, output, re.MULTILINE):
        reasons.append(f"its output does not match {step.expect!r}")
    end = output.strip()[-REASON_CHARACTERS:] or "none"
    return f"{' and '.join(reasons)}; output: {end}" if reasons else ""
