"""The progress display of a run: the current measurement, the outcomes, and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from ringroad_lab.record import Measurement, MeasurementStatus
from ringroad_lab.report.plain_text import printable_lines
from ringroad_lab.report.quantity import duration, quantity
from ringroad_lab.run.events import (
    DeviceGivenUp,
    Event,
    MeasurementBegan,
    MeasurementDone,
    RemainingKnown,
    SetupReady,
    StepNamed,
    StopRequested,
    TrialDone,
    Warned,
)

_STYLES = {
    MeasurementStatus.OK: "green",
    MeasurementStatus.DISTURBED: "yellow",
    MeasurementStatus.LOWER_BOUND: "cyan",
    MeasurementStatus.INCONCLUSIVE: "yellow",
    MeasurementStatus.INVALID: "red",
}


class RunProgress:
    """Shows events: a line for each measurement, and on a terminal a progress bar below."""

    def __init__(self, expected_s: Mapping[int, float], console: Console) -> None:
        """Take the expected duration of each remaining measurement, s, by its number."""
        self._left_s = dict(expected_s)
        self._total_s = sum(expected_s.values())
        self._step_until = 0.0
        self._console = console
        self._bar = Progress(
            # Steps are named after devices: their brackets are not markup.
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("preparing", total=max(self._total_s, 1e-9), left="")
        self._title = "preparing"
        self._reported: set[tuple[str, ...]] = set()
        """Reasons that were shown: one reason often stops several frame sizes, and can contain a log."""

    def __enter__(self) -> RunProgress:
        """Start the display."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal clean."""
        self._bar.stop()

    def watch(self, event: Event) -> None:
        """Show an event."""
        match event:
            case StepNamed():
                self._title = event.text
            case SetupReady():
                self._title = f"{event.dut.label}: ready"
            case MeasurementBegan():
                self._title = f"{event.dut} {event.method} {event.frame} #{event.repetition + 1}"
                self._left_s[event.number] = event.expected_s
                self._step_until = time.monotonic() + event.expected_s
            case RemainingKnown():
                self._left_s[event.number] = event.remaining_s
                self._step_until = time.monotonic() + event.remaining_s
            case TrialDone():
                loss = f"{100 * event.loss_ratio:.3g} % lost" if event.verdict == "valid" else "invalid"
                loss += ", disturbed by others" if event.is_disturbed else ""
                load = quantity(event.rate_fps, "frames/s")
                self._title = f"{self._title.split('  ')[0]}  {load}: {loss}"
                self._left_s[event.number] = max(0.0, self._step_until - time.monotonic())
            case MeasurementDone():
                self._left_s.pop(event.measurement.number, None)
                reasons = event.measurement.outcome.reasons
                self._console.print(describe(event.measurement, is_reported=reasons in self._reported), highlight=False, soft_wrap=True)
                self._reported.add(reasons)
            case StopRequested():
                self._console.print("stopping after the current trial; a second signal stops at once")
            case Warned():
                self._console.print(
                    f"warning: {printable_lines(event.text)}", style="yellow", highlight=False, markup=False, soft_wrap=True
                )
            case DeviceGivenUp():
                text = printable_lines(f"{event.dut}: {event.reason}")
                self._console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
                # The measurements without a trial need only its first line.
                self._reported.add((event.reason,))
            case _:
                pass
        left_s = sum(self._left_s.values())
        self._bar.update(
            self._task,
            description=self._title,
            completed=max(0.0, self._total_s - left_s),
            total=max(self._total_s, left_s, 1e-9),
            left=f"{duration(left_s, decimals=0)} left",
        )


def describe(measurement: Measurement, *, is_reported: bool = False) -> str:
    """Return one line of a measurement, with the markup of a console; reasons that were shown before are cut."""
    outcome = measurement.outcome
    style = _STYLES[outcome.status]
    headline = outcome.metrics.get(outcome.headline)
    figure = quantity(headline.value, headline.unit) if headline else "-"
    # Mark a lower bound: the device may be faster.
    figure = f"at least {figure}" if headline and outcome.status is MeasurementStatus.LOWER_BOUND else figure
    size = f"{measurement.frame.name} B" if measurement.frame.name.isdigit() else measurement.frame.name
    reasons = f": {'; '.join(outcome.reasons)}" if outcome.reasons else ""
    if is_reported and "\n" in reasons:
        reasons = reasons.partition("\n")[0] + " ..."
    return (
        # Labels come from users, and reasons quote programs: their brackets are not markup.
        f"{escape(f'{measurement.dut:<16}')} {measurement.topology:<4} {measurement.method:<14} {size:>8}  "
        f"#{measurement.repetition + 1:<2} "
        f"{figure:>24}  [{style}]{outcome.status.value}[/{style}]{escape(printable_lines(reasons))}"
    )
