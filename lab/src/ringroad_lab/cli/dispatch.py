"""`ringroad-lab dispatch`: requests are carried out."""

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
from ringroad_lab.cli.store_options import StoreOption
from ringroad_lab.errors import ScenarioError
from ringroad_lab.report.plain_text import printable
from ringroad_lab.run.job import FLEET_VARIABLE

if TYPE_CHECKING:
    from ringroad_lab.fleet.engine.interface import Engine
    from ringroad_lab.fleet.inventory import Bed


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(dispatch)


def dispatch(
    once: Annotated[bool, typer.Option("--once", help="End when no request waits any more.")] = False,
    engine: Annotated[str, typer.Option(metavar="NAME", help="What carries out the runs; `list engines` shows all.")] = "local",
    bed_class: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Class of bed that is here, besides `any`; of the fleet's beds only these. May be repeated."),
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, max=100, help="After so many failed attempts a request is dead.")] = 3,
    retry_wait: Annotated[float, typer.Option(min=0, max=86400, help="Until the next attempt, s; n times as long after the n-th.")] = 60.0,
    poll: Annotated[float, typer.Option(min=0.05, max=60, help="How often to look, s.")] = 2.0,
    jobs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where what runs say is kept.", show_default="in your folder of state")
    ] = None,
    fleet: FleetFile = None,
    notify: NotifyFile = None,
    store: StoreOption = None,
) -> None:
    """Carry out requests until SIGTERM or Ctrl-C: in their order, each by a run, with a verdict; look into sources, and tell others.

    Ended so, it stops the run under way after its trial; the next dispatcher goes on with it.
    """
    from pydantic import ValidationError

    from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
    from ringroad_lab.fleet.engine.interface import EngineSettings
    from ringroad_lab.fleet.leases import Leases
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.fleet.settings import default_file, load_fleet
    from ringroad_lab.fleet.sources.interface import Intake
    from ringroad_lab.kinds import ENGINES
    from ringroad_lab.scenario.near_miss import suggest
    from ringroad_lab.store.result_store import ResultStore

    if engine not in ENGINES:
        raise ScenarioError(f"there is no engine '{engine}'{suggest(engine, ENGINES)}")
    settings = load_fleet(fleet)
    beds = _beds(settings.beds, ENGINES[engine], bed_class)
    if fleet:
        # Its runs read it too.
        os.environ[FLEET_VARIABLE] = str(fleet.absolute())
    try:
        own = settings.engines.get(engine) or ENGINES[engine].settings_type()
    except ValidationError as error:
        raise ScenarioError(
            f"the engine {engine} has no settings: [engine.{engine}] in {fleet or default_file()} has to name them"
        ) from error
    recipients = load_targets(notify, None)
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with ResultStore(store) as results:
        intake = Intake(Requests(results), settings.rules, _say)
        watchers = [watcher for name, source in settings.sources.items() if (watcher := source.watcher(name, intake))]
        Dispatcher(
            results,
            ENGINES[engine](EngineSettings(store=store, folder=jobs or _state_folder(), own=own)),
            Leases(results, engine, bed_class or (), beds=beds),
            DispatcherSettings(attempts=attempts, retry_wait_s=retry_wait, poll_s=poll),
            watchers=watchers,
            recipients=recipients,
            say=_say,
        ).run(stopping, once=once)


def _beds(beds: Mapping[str, Bed], engine: type[Engine], classes: Sequence[str] | None) -> dict[str, Bed]:
    """Return the beds of a fleet on which an engine has jobs run.

    Raises:
        ScenarioError: the fleet has beds, and none of them is one.
    """
    machine = socket.gethostname()
    found = {
        name: bed
        for name, bed in beds.items()
        if (bed.is_of_machine(machine) or not engine.is_of_machine) and (not classes or bed.bed_class in classes)
    }
    if beds and not found:
        where = f", and has machine {machine} as its generator," if engine.is_of_machine else ""
        raise ScenarioError(
            f"no bed of the fleet{where} is here for the engine '{engine.name}': see [bed.NAME] in fleet.toml, and --bed-class"
        )
    return found


def _state_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "ringroad-lab" / "jobs"


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
