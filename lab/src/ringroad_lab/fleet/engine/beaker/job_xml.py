"""Writes the job XML of Beaker: one recipe set, so that all machines run at the same time, with a recipe for each role.

The elements follow `beaker-job.rng` of beaker-common 29.3. Beaker's documentation explains them in "Job XML" and "Multihost tasks".
"""

from __future__ import annotations

import secrets
import shlex
from base64 import b64encode
from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement, indent, register_namespace, tostring

from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings, GuestRecipe, Installation, Task
from ringroad_lab.fleet.engine.interface import Job
from ringroad_lab.fleet.engine.job_environment import job_environment
from ringroad_lab.fleet.inventory import GENERATOR, fleet_file
from ringroad_lab.safe_xml import parse_fragment

TASK = "/ringroad/measure"
"""The name of the laboratory's task."""
NAMESPACE = "urn:ringroad:lab"
"""Namespace of the element with the run id: Beaker keeps elements of a foreign namespace."""
# Beaker shares roles only among tasks at the same position.
_PADDING = Task(name="/distribution/utils/dummy")


def whiteboard(settings: BeakerSettings, name: str, bed: str = "", tag: str = "") -> str:
    """Return a job's whiteboard, which identifies the job in searches; `tag` is text for users."""
    return f"{settings.whiteboard} {name_mark(name)}{bed_mark(bed)} {tag}".rstrip()


def name_mark(name: str) -> str:
    """Return the part of a whiteboard that names the job."""
    return f"run={name} "


def bed_mark(bed: str) -> str:
    """Return the part of a whiteboard that names the bed."""
    # The final dot keeps bed-1 from matching bed-10.
    return f"bed={bed}."


def job_xml(settings: BeakerSettings, job: Job, bed: str, machines: Mapping[str, str], tag: str = "") -> str:
    """Return the XML of a job. `machines` has the machine names by role; for an empty name, Beaker selects by requirements."""
    register_namespace("lab", NAMESPACE)
    root = Element("job", {"group": settings.group} if settings.group else {})
    SubElement(root, "whiteboard").text = whiteboard(settings, job.name, bed, tag)
    SubElement(root, f"{{{NAMESPACE}}}run", {"id": job.name, "bed": bed})
    recipes = SubElement(root, "recipeSet", {"priority": settings.priority})
    # The generator is first. All recipes have the same number of tasks before ours.
    roles = sorted(machines, key=lambda role: (role != GENERATOR, role))
    before = {role: settings.recipe_of(role).tasks or () for role in roles}
    length = max(map(len, before.values()))
    # The machines of this job authenticate each other with it.
    secret = secrets.token_hex(16)
    for role in roles:
        recipe = _recipe(recipes, settings, role, machines[role])
        for task in (*before[role], *[_PADDING] * (length - len(before[role]))):
            _task(recipe, task, {"role": _beaker_role(role)})
        _measure(recipe, settings, job, role, bed, secret)
        if settings.reserve_s:
            SubElement(recipe, "reservesys", {"duration": str(settings.reserve_s), "when": settings.reserve_when})
    indent(root)
    return tostring(root, encoding="unicode")


def _beaker_role(role: str) -> str:
    """Return the name of a role in the job, which is also a variable name. Never SERVERS or CLIENTS: restraint would synchronize these."""
    return role.upper().replace("-", "_").replace(".", "_")


def _recipe(recipes: Element, settings: BeakerSettings, role: str, machine: str) -> Element:
    wanted = settings.recipe_of(role)
    recipe = SubElement(recipes, "recipe", {"role": _beaker_role(role), "whiteboard": role})
    for guest in wanted.guests or ():
        _guest_recipe(recipe, settings, guest, wanted)
    _fill(recipe, settings, wanted, machine)
    return recipe


def _guest_recipe(recipe: Element, settings: BeakerSettings, guest: GuestRecipe, machine: Installation) -> None:
    name = {"guestname": guest.name} if guest.name else {}
    # Without a role: the variable of its machine's role has only machines.
    inner = SubElement(recipe, "guestrecipe", {"guestargs": guest.args, **name})
    _fill(inner, settings, guest.on(machine), "")
    for task in guest.tasks:
        _task(inner, task, {})


def _fill(recipe: Element, settings: BeakerSettings, wanted: Installation, machine: str) -> None:
    """Add what recipes of machines and of guests have in common, but for the tasks."""
    options = {"kernel_options": wanted.kernel_options, "kernel_options_post": wanted.kernel_options_post, "ks_meta": wanted.ks_meta}
    recipe.attrib.update({name: value for name, value in options.items() if value})
    SubElement(recipe, "watchdog", {"panic": "ignore"} if settings.watchdog == "ignore-panic" else {})
    packages = SubElement(recipe, "packages")
    for package in wanted.packages or ():
        SubElement(packages, "package", {"name": package})
    repos = SubElement(recipe, "repos")
    for name, url in (wanted.repos or {}).items():
        SubElement(repos, "repo", {"name": name, "url": url})
    _distro(recipe, wanted)
    if machine:
        SubElement(recipe, "hostRequires", {"force": machine})
    else:
        SubElement(recipe, "hostRequires").extend(parse_fragment(wanted.host_requires or ""))
    partitions = SubElement(recipe, "partitions")
    for each in wanted.partitions or ():
        fs = {"fs": each.fs} if each.fs else {}
        SubElement(partitions, "partition", {"name": each.name, "size": str(each.size_gib), "type": each.type, **fs})


def _task(recipe: Element, task: Task, role: Mapping[str, str]) -> None:
    element = SubElement(recipe, "task", {"name": task.name, **role})
    if task.params:
        _params(element, task.params)


def _params(task: Element, values: Mapping[str, str]) -> None:
    params = SubElement(task, "params")
    for name, value in values.items():
        SubElement(params, "param", {"name": name, "value": value})


def _distro(recipe: Element, wanted: Installation) -> None:
    requires = SubElement(recipe, "distroRequires")
    if wanted.distro_requires is not None:
        requires.extend(parse_fragment(wanted.distro_requires))
        return
    all_of = SubElement(requires, "and")
    for name, value in {"distro_name": wanted.distro, "distro_variant": wanted.variant, "distro_arch": wanted.arch}.items():
        if value:
            SubElement(all_of, name, {"op": "=", "value": value})


def _fleet_file(job: Job, bed: str) -> str:
    """Return the `fleet.toml` of the generator, with its own bed only. In base64, since not every harness preserves line ends."""
    if bed not in job.beds:
        return ""
    return b64encode(fleet_file({bed: job.beds[bed]}).encode()).decode()


def _measure(recipe: Element, settings: BeakerSettings, job: Job, role: str, bed: str, secret: str) -> None:
    task = SubElement(recipe, "task", {"name": TASK, "role": _beaker_role(role)})
    SubElement(task, "fetch", {"url": settings.task})
    values = {
        **settings.params,
        **job_environment(job.name),
        "RINGROAD_LAB_ARGUMENTS": shlex.join(job.arguments),
        "RINGROAD_LAB_BED": bed,
        "RINGROAD_LAB_FLEET_TOML": _fleet_file(job, bed),
        "RINGROAD_LAB_ROLE": role,
        "RINGROAD_LAB_RENDEZVOUS_SECRET": secret,
        "RINGROAD_LAB_MEET_WITHIN_S": str(settings.meet_within_s),
        # Beaker and restraint take the time limit of the task from it.
        "KILLTIMEOVERRIDE": str(settings.max_time_s),
    }
    _params(task, values)
