"""`[engine.beaker]` of `fleet.toml`: which hub, and what the jobs there ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from ringroad_lab.fleet.inventory import GENERATOR
from ringroad_lab.fleet.request import Name, Word
from ringroad_lab.safe_xml import parse_fragment
from ringroad_lab.trial import Frozen

# Of names that become variables of a shell.
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _fragment(text: str) -> str:
    parse_fragment(text)
    return text


def _http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError(f"'{url}' is no URL of a hub: write https://HOST/bkr, without a password in it")
    return url.rstrip("/")


Requirements = Annotated[str, Field(max_length=20_000), AfterValidator(_fragment)]
"""Elements of job XML, as they stand inside `distroRequires` and `hostRequires`."""
Options = Annotated[str, Field(max_length=2000)]
Text = Annotated[str, Field(max_length=4000)]


class Partition(Frozen):
    """A partition that Beaker is to make."""

    name: Annotated[str, Field(pattern=r"^/|^swap$", max_length=200)]
    """Where it is mounted."""
    size_gib: Annotated[int, Field(ge=1, le=1_000_000)]
    fs: Word = ""
    type: Literal["part", "lvm"] = "part"


class Recipe(Frozen):
    """What the recipe of a machine asks for."""

    distro: Word | None = None
    """Name of the distribution, as `RHEL-9.4.0`."""
    variant: Word | None = None
    arch: Word | None = None
    distro_requires: Requirements | None = None
    """In place of these three."""
    host_requires: Requirements | None = None
    """Of requests without a bed; the machines of a bed are named."""
    kernel_options: Options | None = None
    """While it is installed."""
    kernel_options_post: Options | None = None
    """From then on: huge pages, IOMMU."""
    ks_meta: Options | None = None
    packages: Annotated[tuple[Word, ...], Field(max_length=500)] | None = None
    repos: Annotated[Mapping[Name, Text], Field(max_length=100)] | None = None
    """By name, the URLs of repositories of packages."""
    partitions: Annotated[tuple[Partition, ...], Field(max_length=50)] | None = None
    tasks: Annotated[tuple[Word, ...], Field(max_length=50)] | None = None
    """Tasks of Beaker's library before the measurement, by name."""

    def over(self, below: Recipe) -> Recipe:
        """Return this one, with what it does not say from another."""
        said = {name: value for name, value in self if value is not None}
        if self.distro_requires is not None:
            said = dict.fromkeys(("distro", "variant", "arch")) | said
        elif self.distro is not None:
            said = {"distro_requires": None} | said
        return below.model_copy(update=said)


class BeakerSettings(Frozen):
    """Of the engine."""

    hub: Annotated[str, AfterValidator(_http)]
    """Its URL, as `HUB_URL` of Beaker's own client."""
    user: Annotated[Word, Field(min_length=1)]
    password_file: Path | None = None
    """The first line is the password."""
    password_env: Word | None = None
    ca_file: Path | None = None
    """Certificates of the authorities that the hub's is checked with; the system's unless given."""
    answer_within_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    look_every_s: Annotated[float, Field(ge=0, le=600)] = 15.0
    """How often the hub is asked for a job's state, and how long it is left alone after it did not answer."""
    task: Annotated[str, Field(min_length=1, max_length=2000)]
    """URL from which the machines fetch the laboratory's task: an archive or a git repository, `#` and the path of the task in it."""
    group: Word = ""
    """On whose behalf jobs are submitted."""
    priority: Literal["Low", "Medium", "Normal", "High", "Urgent"] = "Normal"
    whiteboard: Annotated[Word, Field(min_length=1)] = "ringroad-lab"
    """Begins the jobs' whiteboards. Fleets that share a hub and a user need different ones."""
    most_jobs: Annotated[int, Field(ge=1, le=1000)] = 20
    """So many of this fleet's jobs may be in Beaker's queue or run; the other requests wait in the store, in its order."""
    watchdog: Literal["panic", "ignore-panic"] = "panic"
    """Whether a kernel's panic ends the recipe."""
    max_time_s: Annotated[int, Field(ge=60, le=30 * 86_400)] = 86_400
    """After that Beaker's watchdog ends the task, and with it the job."""
    meet_within_s: Annotated[int, Field(ge=10, le=86_400)] = 3600
    """How long generator and device wait for each other: one may be installed long before the other."""
    reserve_s: Annotated[int, Field(ge=0, le=30 * 86_400)] = 0
    """For so long the machines stay reserved for people afterwards."""
    reserve_when: Literal["always", "onwarn", "onfail", "onabort"] = "onabort"
    params: Annotated[Mapping[Annotated[str, Field(pattern=_VARIABLE, max_length=100)], Text], Field(max_length=100)] = {}
    """Further parameters of the task, which are its environment. Everybody who can see the job can read them."""
    recipe: Recipe = Recipe()
    """Of every machine."""
    roles: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] = (GENERATOR, "dut")
    """The machines of a request without a bed."""
    role: Annotated[Mapping[Name, Recipe], Field(max_length=16)] = {}
    """Of the machines of a role, `generator` or `dut`: what is different there."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.password_file is None) is (self.password_env is None):
            raise ValueError("give one of password_file and password_env")
        if GENERATOR not in self.roles:
            raise ValueError(f"roles has no '{GENERATOR}', on which the laboratory runs")
        for role in (*self.roles, *self.role):
            recipe = self.recipe_of(role)
            if (recipe.distro is None) is (recipe.distro_requires is None):
                raise ValueError(f"give the recipe of the {role} one of distro and distro_requires")
        return self

    def recipe_of(self, role: str) -> Recipe:
        """Return what the machine of a role asks for."""
        return self.role[role].over(self.recipe) if role in self.role else self.recipe
