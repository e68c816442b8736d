"""`ringroad-lab job`, as a user types it. The hub is a DOUBLE; `test_beaker_judges.py` has Beaker's own schema and client as judges."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from beaker_hub_double import PASSWORD, USER, BeakerHubDouble
from typer.testing import CliRunner

from ringroad_lab.cli.main import make_app
from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.fleet.engine.interface import EngineError

HOSTS = ("--host", "gen.example", "--host", "dut.example")
FLEET = """\
[engine.beaker]
task = "https://example.org/ringroad.tar.gz#lab/beaker/measure"
{hub}

[engine.beaker.recipe]
distro = "RHEL-9.4.0"
arch = "x86_64"
repos.lab = "https://example.org/lab"
kernel_options_post = "hugepages=16"
tasks = [{{name = "/performance/setup", params.ARGS = "cards"}}]

[engine.beaker.role.dut]
distro_requires = "<distro_family op='=' value='Fedora41'/>"

[[engine.beaker.role.dut.guests]]
args = "--ram=8192 --vcpus=4 --file-size=8 --hvm --kvm"
name = "guest"
repos.guest = "https://example.org/guest"
packages = ["dpdk"]
tasks = ["/distribution/install", {{name = "/performance/test", params.ARGS = "setup --guest"}}]

[bed.a]
machines = {{generator = "gen-a.example", dut = "dut-a.example"}}
settings = ["dut.ovs.host = 'dut'"]
"""


@pytest.fixture
def hub() -> Iterator[BeakerHubDouble]:
    with BeakerHubDouble() as hub:
        yield hub


@pytest.fixture(autouse=True)
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings without a hub: nothing to log in to."""
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(tmp_path))
    monkeypatch.delenv("RINGROAD_LAB_FLEET", raising=False)
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET.format(hub=""))
    return file


def job(*arguments: str) -> str:
    result = CliRunner().invoke(make_app(), ["job", "OVS_DPDK1q_GUEST_DPDK1q", *arguments])
    if isinstance(result.exception, LabError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def recipes(xml: str) -> dict[str, ElementTree.Element]:
    return {str(each.get("whiteboard")): each for each in ElementTree.fromstring(xml).iter("recipe")}


def machines(xml: str) -> dict[str, str | None]:
    return {role: each.find("hostRequires").get("force") for role, each in recipes(xml).items()}  # type: ignore[union-attr]


def distros(recipe: ElementTree.Element) -> list[str]:
    return [f"{each.tag}={each.get('value')}" for each in recipe.find("distroRequires").iter() if each.get("value")]  # type: ignore[union-attr]


def repos(recipe: ElementTree.Element) -> dict[str | None, str | None]:
    return {each.get("name"): each.get("url") for each in recipe.findall("repos/repo")}


def params(task: ElementTree.Element) -> dict[str | None, str | None]:
    return {each.get("name"): each.get("value") for each in task.iter("param")}


def ours(recipe: ElementTree.Element) -> dict[str | None, str | None]:
    (task,) = (each for each in recipe.findall("task") if each.find("fetch") is not None)
    return params(task)


def test_a_printed_job_measures_the_scenario_on_the_named_hosts() -> None:
    xml = job(*HOSTS, "--set", "queues=2", "--layer", "quick", "--label", "version=it's 2.6", "--tag", "for <bug> 7")
    assert machines(xml) == {"generator": "gen.example", "dut": "dut.example"}
    values = [ours(recipe) for recipe in recipes(xml).values()]
    assert shlex.split(str(values[0]["RINGROAD_LAB_ARGUMENTS"])) == [
        *("run", "OVS_DPDK1q_GUEST_DPDK1q", "--layer=quick", "--set=queues=2", "--label=version=it's 2.6", "--label=tag=for <bug> 7")
    ]
    assert [each["RINGROAD_LAB_ROLE"] for each in values] == ["generator", "dut"]
    assert values[0]["RINGROAD_LAB_RENDEZVOUS_SECRET"] == values[1]["RINGROAD_LAB_RENDEZVOUS_SECRET"]
    # A job of a dispatcher is found by the part before the tag.
    assert ElementTree.fromstring(xml).findtext("whiteboard") == f"ringroad-lab run={values[0]['RINGROAD_LAB_JOB']} bed=. for <bug> 7"


def test_two_jobs_are_two_runs_with_secrets_of_their_own() -> None:
    one, other = (ours(recipes(job())["generator"]) for _ in range(2))
    for name in ("RINGROAD_LAB_JOB", "RINGROAD_LAB_RENDEZVOUS_SECRET"):
        assert one[name] != other[name]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), {"generator": None, "dut": None}),
        (("--host", "dut=d", "--host", "generator=g"), {"generator": "g", "dut": "d"}),
        (("--host", "generator=", "--host", "d"), {"generator": None, "dut": "d"}),
        (("--host", "g"), {"generator": "g"}),
        (("--bed", "a"), {"generator": "gen-a.example", "dut": "dut-a.example"}),
    ],
)
def test_machines_are_named_by_role_in_order_or_by_a_bed(arguments: tuple[str, ...], found: dict[str, str | None]) -> None:
    assert machines(job(*arguments)) == found


def test_the_job_of_a_bed_brings_the_settings_of_the_bed() -> None:
    values = ours(recipes(job("--bed", "a"))["generator"])
    assert values["RINGROAD_LAB_BED"] == "a"
    assert values["RINGROAD_LAB_FLEET_TOML"]


def test_a_distribution_replaces_those_of_all_machines_and_repositories_are_added() -> None:
    before, after = recipes(job()), recipes(job("--distro", "RHEL-7.3", "--repo", "https://example.org/?a=1", "--repo", "lab=https://l"))
    assert distros(before["generator"]) == ["distro_name=RHEL-9.4.0", "distro_arch=x86_64"]
    assert distros(before["dut"]) == ["distro_family=Fedora41"]
    for role in ("generator", "dut"):
        assert distros(after[role])[0] == "distro_name=RHEL-7.3"
        assert repos(after[role]) == {"lab": "https://l", "job-1": "https://example.org/?a=1"}


def test_machines_are_reserved_however_the_job_ended() -> None:
    assert all(recipe.find("reservesys") is None for recipe in recipes(job()).values())
    for recipe in recipes(job("--reserve", "100")).values():
        assert recipe.find("reservesys").attrib == {"duration": "100", "when": "always"}  # type: ignore[union-attr]


def test_a_guest_is_a_recipe_in_the_recipe_of_its_machine() -> None:
    before, after = (recipes(job(*arguments)) for arguments in ((), ("--distro", "RHEL-7.3", "--repo", "https://new")))
    assert before["generator"].find("guestrecipe") is None
    guest = before["dut"].find("guestrecipe")
    assert guest is not None
    assert guest.attrib == {"guestargs": "--ram=8192 --vcpus=4 --file-size=8 --hvm --kvm", "guestname": "guest"}
    assert distros(guest) == ["distro_family=Fedora41"]
    assert repos(guest) == {"lab": "https://example.org/lab", "guest": "https://example.org/guest"}
    assert [each.get("name") for each in guest.iter("package")] == ["dpdk"]
    assert [(each.get("name"), params(each)) for each in guest.findall("task")] == [
        ("/distribution/install", {}),
        ("/performance/test", {"ARGS": "setup --guest"}),
    ]
    guest = after["dut"].find("guestrecipe")
    assert guest is not None
    assert distros(guest)[0] == "distro_name=RHEL-7.3"
    assert repos(guest)["job-1"] == "https://new"


def test_tasks_before_the_measurement_have_parameters() -> None:
    for recipe in recipes(job()).values():
        first = recipe.find("task")
        assert first is not None
        assert (first.get("name"), params(first)) == ("/performance/setup", {"ARGS": "cards"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--layer", "quik"), "did you mean 'quick'"),
        (("--label", "version"), "NAME=VALUE"),
        (("--host", "device=d"), "there is no role 'device'"),
        (("--host", "a", "--host", "b", "--host", "c"), "--host c: it has no role left; there are dut, generator"),
        (("--host", "a", "--host", "generator=b"), "the role generator has two machines"),
        (("--host", "dut=a"), "no --host for the generator"),
        (("--host", "a\tb"), "cannot be printed"),
        (("--bed", "b"), "there is no bed 'b' in fleet.toml"),
        (("--bed", "a", *HOSTS), "use one of them"),
        (("--distro", "a\nb"), "cannot be printed"),
        (("--tag", "a\x1bb"), "cannot be printed"),
        (("--repo", "a b=https://x"), "repos"),
        (("--submit",), "names no hub: add hub, user, and password_file"),
    ],
)
def test_a_job_that_cannot_be_made_is_an_error(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        job(*arguments)


def test_a_fleet_without_beaker_makes_no_jobs(fleet: Path) -> None:
    fleet.write_text("")
    with pytest.raises(ScenarioError, match=r"add \[engine.beaker\] to fleet.toml"):
        job()


def test_a_submitted_job_is_the_one_that_is_printed(hub: BeakerHubDouble, fleet: Path) -> None:
    fleet.write_text(FLEET.format(hub=f'hub = "{hub.url}"\nuser = "{USER}"\npassword_file = "{fleet.parent / "password"}"'))
    # The password is only needed to submit.
    arguments = (*HOSTS, "--tag", "nightly", "--reserve", "60")
    printed = job(*arguments)
    with pytest.raises(ScenarioError, match="password cannot be read"):
        job(*arguments, "--submit")
    (fleet.parent / "password").write_text(PASSWORD)
    said = job(*arguments, "--submit")
    values = ours(recipes(hub.jobs[1].xml)["generator"])
    assert said == f"J:1: {hub.url}/jobs/1, run {values['RINGROAD_LAB_JOB']}\n"
    assert machines(hub.jobs[1].xml) == machines(printed)
    hub.loses_answers_to = {"jobs.upload"}
    assert job(*arguments, "--submit").startswith("J:2: ")
    assert len(hub.jobs) == 2


def test_a_hub_that_cannot_be_reached_is_an_error(hub: BeakerHubDouble, fleet: Path) -> None:
    fleet.write_text(FLEET.format(hub=f'hub = "{hub.url}"\nuser = "{USER}"\npassword_file = "{fleet.parent / "password"}"'))
    (fleet.parent / "password").write_text(PASSWORD)
    with hub.is_down(), pytest.raises(EngineError, match="cannot be reached"):
        job("--submit")
