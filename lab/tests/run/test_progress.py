"""The display of a run for the user."""

from __future__ import annotations

import io

from rich.console import Console

from fabricated_runs import fabricated_throughput
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.message_size import MESSAGES
from ringroad_lab.record import GIVEN_UP, MeasurementStatus
from ringroad_lab.run.events import DeviceGivenUp, MeasurementDone, StepNamed, TrialDone, Warned
from ringroad_lab.run.progress import RunProgress, describe
from ringroad_lab.trial import TrialVerdict

# Rich would read this as markup, and reject a closing tag without an opening tag.
BRACKETS = "[/bold] [red] \\[x]"


def test_values_have_the_format_of_the_report_and_brackets_are_text() -> None:
    console = Console(file=io.StringIO(), width=400, force_terminal=True, color_system=None)
    bound = fabricated_throughput(
        0, BRACKETS, parse_frame_mix("64"), 4_102_000.0, status=MeasurementStatus.LOWER_BOUND, reasons=(f"ceiling {BRACKETS}",)
    )
    with RunProgress({0: 10.0}, console) as progress:
        progress.watch(StepNamed(text=f"starting {BRACKETS}"))
        progress.watch(TrialDone(number=0, purpose="search", rate_fps=5_000_000.0, loss_ratio=0.25, verdict=TrialVerdict.VALID))
        progress.watch(Warned(text=f"steal {BRACKETS}"))
        progress.watch(MeasurementDone(measurement=bound))
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
    assert "at least 4.102 Mframes/s  lower-bound: ceiling " + BRACKETS in shown
    assert f"warning: steal {BRACKETS}" in shown
    assert BRACKETS in shown.partition("at least")[0]


def test_output_of_programs_loses_control_characters() -> None:
    shown = io.StringIO()
    foreign = "in /usr/lib: failed\x1b[2J"
    failed = fabricated_throughput(0, "dut", parse_frame_mix("64"), 1.0, status=MeasurementStatus.INVALID, reasons=(foreign,))
    with RunProgress({0: 1.0}, Console(file=shown, width=40)) as progress:
        progress.watch(Warned(text=foreign))
        progress.watch(MeasurementDone(measurement=failed))
    # Also no line breaks at the console's width: readers of a file search for whole sentences.
    assert shown.getvalue().count("in /usr/lib: failed\ufffd[2J\n") == 2


def test_a_log_that_fails_several_measurements_is_shown_once() -> None:
    shown = io.StringIO()
    with RunProgress({0: 1.0, 1: 1.0}, Console(file=shown, width=40)) as progress:
        for number, size in enumerate(("64", "512")):
            failed = fabricated_throughput(
                number, "dut", parse_frame_mix(size), 1.0, status=MeasurementStatus.INVALID, reasons=("it ended\nlast words",)
            )
            progress.watch(MeasurementDone(measurement=failed))
    assert shown.getvalue().count("it ended") == 2
    assert shown.getvalue().count("last words") == 1


def test_only_sizes_in_bytes_have_a_unit() -> None:
    shown = [describe(fabricated_throughput(0, "dut", mix, 1.0)) for mix in (parse_frame_mix("64"), parse_frame_mix("imix"), MESSAGES)]
    assert [" 64 B  " in shown[0], " imix  " in shown[1], " messages  " in shown[2]] == [True] * 3


def test_a_device_that_is_given_up_is_named_before_its_measurements_and_its_log_is_shown_once() -> None:
    shown = io.StringIO()
    reason = f"{GIVEN_UP}3 starts failed\nlast words {BRACKETS}"
    with RunProgress({0: 1.0, 1: 1.0}, Console(file=shown, width=40)) as progress:
        progress.watch(DeviceGivenUp(dut="dut", reason=reason))
        for number in range(2):
            untried = fabricated_throughput(number, "dut", parse_frame_mix("64"), 1.0, status=MeasurementStatus.INVALID, reasons=(reason,))
            progress.watch(MeasurementDone(measurement=untried))
    assert shown.getvalue().startswith(f"dut: {reason}\n")
    assert shown.getvalue().count("3 starts failed") == 3
    assert shown.getvalue().count("last words") == 1
