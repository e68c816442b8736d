"""`ringroad-lab job`: a run as a job of Beaker, without a request and a dispatcher."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from ringroad_lab.cli.rules import FleetFile
from ringroad_lab.cli.scenario_options import Assignments, LayerNames, ScenarioName, read_labels, resolve_arguments
from ringroad_lab.errors import ScenarioError, value_problems
from ringroad_lab.request.model import Order
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.text_types import Name, Word

if TYPE_CHECKING:
    from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
    from ringroad_lab.fleet.settings import FleetSettings

ENGINE = "beaker"
TAG_LABEL = "tag"


def job(
    scenario: ScenarioName,
    submit: Annotated[
        bool,
        typer.Option("--submit/--print", help="Submit the job to the hub, or print its XML, which has a secret of the job."),
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROLE=]NAME",
            help="Machine of the job, first the generator, then the device; without a NAME Beaker chooses. Can be repeated.",
            show_default="chosen by Beaker",
        ),
    ] = None,
    bed: Annotated[str, typer.Option(metavar="NAME", help="Bed of fleet.toml whose machines the job has, instead of --host.")] = "",
    distro: Annotated[
        str | None, typer.Option(metavar="NAME", help="Distribution of all machines.", show_default="as in fleet.toml")
    ] = None,
    repo: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]URL", help="Package repository of all machines, besides those of fleet.toml; can be repeated."),
    ] = None,
    reserve: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=30 * 86_400,
            help="Keep the machines for you after the job, however it ended.",
            show_default="as in fleet.toml",
        ),
    ] = None,
    tag: Annotated[str, typer.Option(metavar="TEXT", help=f"Text in the job's whiteboard, and the run's label `{TAG_LABEL}`.")] = "",
    layer: LayerNames = None,
    set_: Assignments = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Label of the run; can be repeated.")] = None,
    fleet: FleetFile = None,
) -> None:
    """Print or submit the job by which Beaker measures a scenario, by [engine.beaker] of fleet.toml; it needs no dispatcher.

    The run keeps its results in the store that its generator knows.
    """
    from ringroad_lab.fleet.engine.beaker.hub import BeakerHub
    from ringroad_lab.fleet.engine.beaker.job_xml import job_xml
    from ringroad_lab.fleet.engine.interface import Job
    from ringroad_lab.fleet.settings import load_fleet

    # Checked now, so that a wrong name is not reported hours later.
    resolve_arguments(scenario, layer, set_)
    fleet_settings = load_fleet(fleet)
    settings = _settings(fleet_settings)
    labels = read_labels(label) | ({TAG_LABEL: tag} if tag else {})
    try:
        machines = TypeAdapter(dict[Name, Word]).validate_python(_machines(settings, fleet_settings, host or (), bed))
        order = Order(layers=tuple(layer or ()), settings=tuple(set_ or ()), labels=labels)
        changed = _changed(settings, machines, distro, _repos(repo or ()), reserve)
    except ValidationError as error:
        raise ScenarioError("; ".join(value_problems(error))) from error
    made = Job(str(uuid.uuid4()), order.run_arguments(scenario), {bed: fleet_settings.beds[bed]} if bed else {})
    xml = job_xml(changed, made, bed, machines, tag)
    if submit:
        key = BeakerHub(changed).upload_job(made.name, xml)
        typer.echo(f"{key}: {changed.hub}/jobs/{key.partition(':')[2]}, run {made.name}")
    else:
        typer.echo(xml)


def _settings(fleet: FleetSettings) -> BeakerSettings:
    from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings

    settings = fleet.engines.get(ENGINE)
    if not isinstance(settings, BeakerSettings):
        raise ScenarioError(f"the engine {ENGINE} has no settings: add [engine.{ENGINE}] to fleet.toml, or name another file with --fleet")
    return settings


def _machines(settings: BeakerSettings, fleet: FleetSettings, hosts: Sequence[str], bed: str) -> dict[str, str]:
    """Return the names of the job's machines by role; an empty name: Beaker chooses.

    Raises:
        ScenarioError: a role does not exist, is named twice or is missing; there is no such bed.
    """
    from ringroad_lab.fleet.inventory import GENERATOR

    if bed:
        if hosts:
            raise ScenarioError("--host and --bed both name the machines: use one of them")
        if bed not in fleet.beds:
            raise ScenarioError(f"there is no bed '{bed}' in fleet.toml{suggest(bed, fleet.beds)}")
        return dict(fleet.beds[bed].machines)
    machines: dict[str, str] = {}
    for number, text in enumerate(hosts):
        role, is_pair, name = text.rpartition("=")
        if not is_pair and number < len(settings.roles):
            role = settings.roles[number]
        if role not in settings.roles:
            what = f"there is no role '{role}'" if role else "it has no role left"
            raise ScenarioError(f"--host {text}: {what}{suggest(role, settings.roles)}; see roles of [engine.{ENGINE}]")
        if role in machines:
            raise ScenarioError(f"--host {text}: the role {role} has two machines")
        machines[role] = name
    if machines and GENERATOR not in machines:
        raise ScenarioError(f"no --host for the {GENERATOR}, which runs the laboratory; --host {GENERATOR}= has Beaker choose it")
    return machines or dict.fromkeys(settings.roles, "")


def _repos(texts: Iterable[str]) -> dict[str, str]:
    """Return URLs by name; those without a name are numbered."""
    repos = {}
    for number, text in enumerate(texts, 1):
        name, is_pair, url = text.partition("=")
        # A URL can have this character, too.
        is_named = bool(is_pair) and "/" not in name
        repos[name if is_named else f"job-{number}"] = url if is_named else text
    return repos


def _changed(
    settings: BeakerSettings, machines: Mapping[str, str], distro: str | None, repos: Mapping[str, str], reserve_s: int | None
) -> BeakerSettings:
    """Return the settings with the changes for one job.

    Raises:
        ValidationError: a text is too long, or has characters that cannot be printed.
    """
    from ringroad_lab.fleet.engine.beaker.settings import Recipe

    recipes = {role: settings.recipe_of(role) for role in machines}
    roles = {role: Recipe(distro=distro, repos={**(recipe.repos or {}), **repos}).over(recipe) for role, recipe in recipes.items()}
    reserved = {} if reserve_s is None else {"reserve_s": reserve_s, "reserve_when": "always"}
    return settings.model_copy(update={"role": roles, **reserved})
