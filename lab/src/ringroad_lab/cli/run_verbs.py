"""`ringroad-lab run` and `ringroad-lab resume`: their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ringroad_lab.cli.notify import NotifyFile, WebhookUrl, load_targets
from ringroad_lab.cli.rules import FleetFile
from ringroad_lab.cli.scenario_options import AsJson, Assignments, LayerNames, ScenarioName
from ringroad_lab.cli.status import FailOnInconclusive, JunitFile
from ringroad_lab.cli.store_options import StoreOption
from ringroad_lab.fleet.engine.job_environment import BED_VARIABLE, job_of_this_process

BaselineName = Annotated[
    str | None, typer.Option("--baseline", "-b", metavar="NAME|RUN", help="Compare with a baseline, a run, or `last-stable`.")
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        "-r",
        metavar="FILE",
        help="Write the report into this file, in the format that its ending names: .html, .md, .csv, .json, .xml (JUnit).",
    ),
]
BedName = Annotated[
    str | None,
    typer.Option(
        "--bed",
        metavar="NAME",
        envvar=BED_VARIABLE,
        help="Bed of fleet.toml to measure on; no other run can use the bed until this run ends.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def run(
    scenario: ScenarioName,
    layer: LayerNames = None,
    set_: Assignments = None,
    store: StoreOption = None,
    baseline: BaselineName = None,
    report: ReportFile = None,
    junit: JunitFile = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Label of the run: version=3.2, build=17, ...; can be repeated."),
    ] = None,
    until_decided: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,LABEL",
            help="Compare these two devices, the baseline first, and measure pairs until the comparison is decided.",
        ),
    ] = None,
    most_pairs: Annotated[
        int | None,
        typer.Option(min=1, help="With --until-decided: maximum number of repetitions.", show_default="8 times the scenario's repetitions"),
    ] = None,
    supersedes: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="The run replaces this run of the same scenario in trends, and as last-stable, once it is finished."
        ),
    ] = None,
    bed: BedName = None,
    fleet: FleetFile = None,
    notify: NotifyFile = None,
    webhook: WebhookUrl = None,
    fail_on_inconclusive: FailOnInconclusive = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure a scenario, keep the result, and compare it.

    Ctrl-C stops after the current trial and keeps the finished measurements; `resume` continues.
    The status is 5 if the comparison shows a regression, else 4 if a measurement is invalid; 8 if the bed is not available.
    """
    from ringroad_lab.cli.run import begin_run
    from ringroad_lab.cli.run_end import EndOptions
    from ringroad_lab.run.chosen_bed import find_bed

    job = job_of_this_process()
    recipients = () if job else tuple(load_targets(notify, webhook))
    end = EndOptions(quiet, as_json, fail_on_inconclusive, report, junit, recipients)
    decision = (until_decided, most_pairs)
    begin_run(scenario, layer, set_, label, store, baseline, decision, end, supersedes, job, find_bed(bed, fleet))


def resume(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run that was stopped, failed or killed, or `latest`.")],
    store: StoreOption = None,
    baseline: BaselineName = None,
    report: ReportFile = None,
    junit: JunitFile = None,
    bed: BedName = None,
    fleet: FleetFile = None,
    notify: NotifyFile = None,
    webhook: WebhookUrl = None,
    fail_on_inconclusive: FailOnInconclusive = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make the missing measurements of a stopped run, on its bed if it was started on a bed."""
    from ringroad_lab.cli.run import resume_run
    from ringroad_lab.cli.run_end import EndOptions

    recipients = () if job_of_this_process() else tuple(load_targets(notify, webhook))
    end = EndOptions(quiet, as_json, fail_on_inconclusive, report, junit, recipients)
    resume_run(run_, store, baseline, end, bed, fleet)
