"""`ringroad-lab dispatch`: carries out requests."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.notify import NotifyFile, load_targets
from ringroad_lab.cli.rules import FleetFile
from ringroad_lab.cli.store_options import StoreOption, open_store
from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.engine.job_environment import FLEET_VARIABLE
from ringroad_lab.report.plain_text import printable

if TYPE_CHECKING:
    from ringroad_lab.fleet.inventory import BedSettings


def dispatch(
    once: Annotated[bool, typer.Option("--once", help="Exit when no request is waiting.")] = False,
    engine: Annotated[str, typer.Option(metavar="NAME", help="Engine that carries out the runs; `list engines` shows all.")] = "local",
    bed_class: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Class of beds that this dispatcher uses, besides `any`; it uses no other beds of the fleet. Can be repeated.",
        ),
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, max=100, help="Number of failed attempts after which a request is dead.")] = 3,
    retry_wait: Annotated[
        float, typer.Option(min=0, max=86400, help="Wait before the next attempt, s; n times as long after the n-th attempt.")
    ] = 60.0,
    poll: Annotated[float, typer.Option(min=0.05, max=60, help="Interval between polls, s.")] = 2.0,
    jobs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for the output of runs.", show_default="in your state folder")
    ] = None,
    fleet: FleetFile = None,
    notify: NotifyFile = None,
    store: StoreOption = None,
) -> None:
    """Carry out requests in their order until SIGTERM or Ctrl-C, each with a run and a verdict; poll sources, and send notifications.

    When it is stopped, it stops the current run after the current trial; the next dispatcher resumes the run.
    """
    from pydantic import ValidationError

    from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
    from ringroad_lab.fleet.engine.interface import ENGINES, EngineSettings
    from ringroad_lab.fleet.leases import Leases
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.fleet.settings import default_file, load_fleet
    from ringroad_lab.fleet.sources.interface import Intake
    from ringroad_lab.scenario.near_miss import suggest

    if engine not in ENGINES:
        raise ScenarioError(f"there is no engine '{engine}'{suggest(engine, ENGINES)}")
    settings = load_fleet(fleet)
    beds = _beds(settings.beds, engine, ENGINES[engine].is_of_machine, bed_class)
    if fleet:
        # The runs that it starts read this file too.
        os.environ[FLEET_VARIABLE] = str(fleet.absolute())
    try:
        own = settings.engines.get(engine) or ENGINES[engine].settings_type()
    except ValidationError as error:
        raise ScenarioError(f"the engine {engine} has no settings: add [engine.{engine}] to {fleet or default_file()}") from error
    recipients = load_targets(notify, None)
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        # The signal can interrupt `stopping.wait`, which holds the lock that `set` takes.
        threading.Thread(target=stopping.set).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with open_store(store) as results:
        intake = Intake(Requests(results), settings.rules, _log)
        watchers = [watcher for name, source in settings.sources.items() if (watcher := source.watcher(name, intake))]
        Dispatcher(
            results,
            ENGINES[engine](EngineSettings(store=store, folder=jobs or _state_folder(), own=own)),
            Leases(results, engine, bed_class or (), beds=beds),
            DispatcherSettings(attempts=attempts, retry_wait_s=retry_wait, poll_s=poll),
            watchers=watchers,
            recipients=recipients,
            say=_log,
        ).run(stopping, once=once)


def _beds(beds: Mapping[str, BedSettings], engine: str, is_of_machine: bool, classes: Sequence[str] | None) -> dict[str, BedSettings]:
    """Return the beds of a fleet on which an engine can run jobs.

    Raises:
        ScenarioError: the fleet has beds, but the engine can use none of them.
    """
    machine = socket.gethostname()
    found = {
        name: bed
        for name, bed in beds.items()
        if (bed.is_of_machine(machine) or not is_of_machine) and (not classes or bed.bed_class in classes)
    }
    if beds and not found:
        where = f" has machine {machine} as its generator and" if is_of_machine else ""
        raise ScenarioError(
            f"no bed of the fleet{where} can be used by the engine '{engine}': see [bed.NAME] in fleet.toml, and --bed-class"
        )
    return found


def _state_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "ringroad-lab" / "jobs"


def _log(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
