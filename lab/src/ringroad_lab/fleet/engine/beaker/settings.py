"""`[engine.beaker]` of `fleet.toml`: the hub, and the requirements of the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ringroad_lab.fleet.inventory import GENERATOR
from ringroad_lab.safe_xml import parse_fragment
from ringroad_lab.text_types import Name, Word
from ringroad_lab.trial import Frozen

# Names that become shell variables.
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _fragment(text: str) -> str:
    parse_fragment(text)
    return text


def _http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError(f"'{url}' is not a hub URL: use https://HOST/bkr, without a password")
    return url.rstrip("/")


Requirements = Annotated[str, Field(max_length=20_000), AfterValidator(_fragment)]
"""Job XML elements inside `distroRequires` and `hostRequires`."""
Options = Annotated[str, Field(max_length=2000)]
Text = Annotated[str, Field(max_length=4000)]
Parameters = Annotated[Mapping[Annotated[str, Field(pattern=_VARIABLE, max_length=100)], Text], Field(max_length=100)]
"""Parameters of a task, set as environment variables. All users who can see the job can read them."""


class Partition(Frozen):
    """A partition that Beaker creates."""

    name: Annotated[str, Field(pattern=r"^/|^swap$", max_length=200)]
    """Mount point."""
    size_gib: Annotated[int, Field(ge=1, le=1_000_000)]
    fs: Word = ""
    type: Literal["part", "lvm"] = "part"


class Task(Frozen):
    """A task of Beaker's library."""

    name: Annotated[Word, Field(min_length=1)]
    params: Parameters = {}


def _task(value: Any) -> Any:  # noqa: ANN401
    return {"name": value} if isinstance(value, str) else value


Tasks = Annotated[tuple[Annotated[Task, BeforeValidator(_task)], ...], Field(max_length=50)]
"""Tasks in their order; a name alone is a task without parameters."""


class Installation(Frozen):
    """Requirements of a system that Beaker installs."""

    distro: Word | None = None
    """Name of the distribution, for example `RHEL-9.4.0`."""
    variant: Word | None = None
    arch: Word | None = None
    distro_requires: Requirements | None = None
    """Replaces `distro`, `variant` and `arch`."""
    host_requires: Requirements | None = None
    """Requirements for requests without a bed; the machines of a bed are selected by name."""
    kernel_options: Options | None = None
    """Kernel options during the installation."""
    kernel_options_post: Options | None = None
    """Kernel options after the installation: huge pages, IOMMU."""
    ks_meta: Options | None = None
    packages: Annotated[tuple[Word, ...], Field(max_length=500)] | None = None
    repos: Annotated[Mapping[Name, Text], Field(max_length=100)] | None = None
    """URLs of package repositories by name."""
    partitions: Annotated[tuple[Partition, ...], Field(max_length=50)] | None = None
    tasks: Tasks | None = None
    """Tasks of Beaker's library; on a machine they run before the measurement."""

    def over(self, below: Installation) -> Self:
        """Return this recipe, with unset values from another."""
        replaced: tuple[str, ...] = ()
        if self.distro_requires is not None:
            replaced = ("distro", "variant", "arch")
        elif self.distro is not None:
            replaced = ("distro_requires",)
        return self.model_copy(update={name: value for name, value in below if getattr(self, name) is None and name not in replaced})


class GuestRecipe(Installation):
    """Requirements of a virtual machine. It has its machine's distribution unless it names one, and its machine's repositories."""

    args: Annotated[Options, Field(min_length=1)]
    """Arguments of virt-install: `--ram=8192 --vcpus=4 --file-size=8 --kvm`."""
    name: Word = ""
    """Name of the virtual machine; empty: Beaker gives it its host name."""
    tasks: Annotated[Tasks, Field(min_length=1)]

    def on(self, machine: Installation) -> Self:
        """Return this recipe, with what it has from its machine."""
        distribution = machine.model_dump(include={"distro", "variant", "arch", "distro_requires"})
        repos = {**(machine.repos or {}), **(self.repos or {})}
        return self.over(Installation.model_validate(distribution)).model_copy(update={"repos": repos})


class Recipe(Installation):
    """Requirements of a machine's recipe."""

    guests: Annotated[tuple[GuestRecipe, ...], Field(max_length=16)] | None = None
    """Virtual machines, which Beaker's task `/distribution/virt/install` installs."""


class BeakerSettings(Frozen):
    """Settings of the Beaker engine."""

    hub: Annotated[str, AfterValidator(_http)] = ""
    """URL of the hub, as `HUB_URL` of Beaker's own client; empty: jobs can only be printed."""
    user: Word = ""
    password_file: Path | None = None
    """The first line is the password."""
    password_env: Word | None = None
    ca_file: Path | None = None
    """CA certificates for the hub's certificate; default: the system's."""
    answer_within_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    look_every_s: Annotated[float, Field(ge=0, le=600)] = 15.0
    """Interval at which the hub is polled for a job's state, and pause after the hub did not answer."""
    task: Annotated[str, Field(min_length=1, max_length=2000)]
    """URL from which the machines fetch the laboratory's task: an archive or a git repository, `#` and the task's path inside."""
    group: Word = ""
    """Beaker group of the submitted jobs."""
    priority: Literal["Low", "Medium", "Normal", "High", "Urgent"] = "Normal"
    whiteboard: Annotated[Word, Field(min_length=1)] = "ringroad-lab"
    """Prefix of the jobs' whiteboards. Fleets that share a hub and a user need different prefixes."""
    most_jobs: Annotated[int, Field(ge=1, le=1000)] = 20
    """Maximum number of jobs of this fleet that are queued or running in Beaker; other requests wait in the store, in its order."""
    watchdog: Literal["panic", "ignore-panic"] = "panic"
    """Whether a kernel panic ends the recipe."""
    max_time_s: Annotated[int, Field(ge=60, le=30 * 86_400)] = 86_400
    """Time after which Beaker's watchdog ends the task and thus the job."""
    meet_within_s: Annotated[int, Field(ge=10, le=86_400)] = 3600
    """Time that generator and device wait for each other; their installation times can differ a lot."""
    reserve_s: Annotated[int, Field(ge=0, le=30 * 86_400)] = 0
    """Time that the machines stay reserved for users after the job."""
    reserve_when: Literal["always", "onwarn", "onfail", "onabort"] = "onabort"
    params: Parameters = {}
    """Additional parameters of our task."""
    recipe: Recipe = Recipe()
    """Recipe of every machine."""
    roles: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] = (GENERATOR, "dut")
    """The machines of a request without a bed."""
    role: Annotated[Mapping[Name, Recipe], Field(max_length=16)] = {}
    """Differences from `recipe`, by role: `generator` or `dut`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hub and (not self.user or (self.password_file is None) is (self.password_env is None)):
            raise ValueError("hub needs user, and one of password_file and password_env")
        if GENERATOR not in self.roles:
            raise ValueError(f"roles has no '{GENERATOR}', which runs the laboratory")
        for role in (*self.roles, *self.role):
            recipe = self.recipe_of(role)
            if (recipe.distro is None) is (recipe.distro_requires is None):
                raise ValueError(f"the recipe of the {role} needs one of distro and distro_requires")
        return self

    def recipe_of(self, role: str) -> Recipe:
        """Return the recipe of a role."""
        return self.role[role].over(self.recipe) if role in self.role else self.recipe
