"""Checks the submitted jobs with Beaker's own schema and client. The hub for client and engine is a DOUBLE."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beaker_hub_double import PASSWORD, USER, BeakerHubDouble
from typer.testing import CliRunner

from ringroad_lab.cli.main import make_app
from ringroad_lab.fleet.engine.beaker.engine import LOG_NAME, BeakerEngine
from ringroad_lab.fleet.engine.beaker.job_xml import job_xml
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import EngineSettings, Job, JobState
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.scenario.toml_text import toml_text

BKR = Path(os.environ.get("RINGROAD_BKR", "/nonexistent"))
"""The environment with beaker-client, which `make lab` creates."""
VALIDATE = """\
import os, sys
import bkr.common
import lxml.etree
schema = os.path.join(os.path.dirname(bkr.common.__file__), "schema", "beaker-job.rng")
lxml.etree.RelaxNG(lxml.etree.parse(schema)).assertValid(lxml.etree.fromstring(sys.stdin.buffer.read()))
"""
TASK_URL = "https://example.org/ringroad.tar.gz#lab/beaker/measure"
RUN = "11111111-2222-3333-4444-555555555555"
PLAIN = {"recipe": {"distro": "Fedora-41"}}
EVERYTHING: dict[str, Any] = {
    "group": "perf",
    "priority": "Urgent",
    "watchdog": "ignore-panic",
    "reserve_s": 3600,
    "reserve_when": "onwarn",
    "params": {"RINGROAD_LAB_STORE": "postgresql://lab@store.example/lab?a=1&b=2"},
    "recipe": {
        "distro": "RHEL-9.4.0",
        "variant": "BaseOS",
        "arch": "x86_64",
        "kernel_options": "console=ttyS0",
        "kernel_options_post": "intel_iommu=on iommu=pt default_hugepagesz=1G hugepagesz=1G hugepages=16",
        "ks_meta": "harness=restraint-rhts",
        "packages": ["ringroad-lab", "openvswitch3.5"],
        "repos": {"lab": "https://example.org/repo?a=1&b=2"},
        "partitions": [{"name": "/srv", "size_gib": 20, "fs": "xfs", "type": "lvm"}, {"name": "swap", "size_gib": 4}],
        "tasks": ["/distribution/check-install"],
    },
    "role": {
        "dut": {
            "distro_requires": "<and><distro_family op='=' value='Fedora41'/><distro_arch op='=' value='x86_64'/></and>",
            "host_requires": (
                "<and><cpu><flag op='=' value='avx2'/><processors op='&gt;=' value='8'/></cpu><memory op='&gt;=' value='8192'/>"
                "<device op='=' driver='ice'/><not><hostname op='=' value='broken.example'/></not></and>"
            ),
            "tasks": ["/distribution/virt/install", {"name": "/kernel/setup", "params": {"ARGS": 'a="1" & b'}}, "/distribution/virt/start"],
            "guests": [
                {"args": "--ram=8192 --vcpus=4 --file-size=8 --hvm --kvm", "tasks": ["/distribution/install"]},
                {
                    "args": "--ram=1024 --kvm",
                    "name": "guest-2",
                    "distro_requires": "<distro_name op='=' value='RHEL-7.3'/>",
                    "host_requires": "<system_type value='Virtual'/>",
                    "kernel_options_post": "hugepages=4",
                    "packages": ["dpdk"],
                    "partitions": [{"name": "/srv", "size_gib": 2}],
                    "tasks": [{"name": "/performance/test", "params": {"ARGS": "setup --guest OVS_DPDK1q_GUEST_DPDK1q"}}],
                },
            ],
        }
    },
}
BED = BedSettings.model_validate({"machines": {"generator": "gen.example", "dut": "dut.example", "tester-2": "more.example"}})


@pytest.fixture(autouse=True)
def _needs_bkr() -> None:
    # In CI, `make lab` sets the variable.
    if "RINGROAD_BKR" not in os.environ:
        pytest.skip("RINGROAD_BKR does not name an environment with beaker-client")


@pytest.fixture
def hub() -> Iterator[BeakerHubDouble]:
    with BeakerHubDouble() as hub:
        yield hub


def settings(hub_url: str, folder: Path, **values: Any) -> BeakerSettings:  # noqa: ANN401
    (folder / "password").write_text(PASSWORD)
    base = {"hub": hub_url, "user": USER, "password_file": str(folder / "password"), "look_every_s": 0.0}
    return BeakerSettings.model_validate({**base, "task": TASK_URL, **PLAIN, **values})


class Client:
    """The real `bkr`, configured for the hub by its settings file."""

    def __init__(self, hub: BeakerHubDouble, folder: Path) -> None:
        file = folder / "client.conf"
        file.write_text(f'HUB_URL = "{hub.url}"\nAUTH_METHOD = "password"\nUSERNAME = "{USER}"\nPASSWORD = "{PASSWORD}"\n')
        self._env = {**os.environ, "BEAKER_CLIENT_CONF": str(file)}
        self._env.pop("PYTHONPATH", None)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        argv = [str(BKR / "bin" / "bkr"), *arguments]
        done = subprocess.run(argv, env=self._env, input=stdin, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "WARNING: job xml" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture
def bkr(hub: BeakerHubDouble, tmp_path: Path) -> Client:
    return Client(hub, tmp_path)


def schema_errors(xml: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([BKR / "bin" / "python", "-c", VALIDATE], env=env, input=xml, capture_output=True, text=True, timeout=120)
    return done.stderr


@pytest.mark.parametrize("values", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("machines", [{"generator": "", "dut": ""}, BED.machines], ids=["by requirements", "of a bed"])
def test_jobs_are_valid_in_beakers_schema(tmp_path: Path, values: dict[str, Any], machines: dict[str, str]) -> None:
    job = Job(RUN, ("run", "OVS_DPDK1q", '--label=what=it\'s "new" <&>'))
    xml = job_xml(settings("http://127.0.0.1:9", tmp_path, **values), job, "bed-1", machines)
    assert schema_errors(xml) == ""


def printed_job(folder: Path, *arguments: str) -> str:
    """Return what `ringroad-lab job` prints with all settings that a fleet can have."""
    fleet = folder / "fleet.toml"
    bed = {"machines": {"generator": "gen.example", "dut": "dut.example"}, "settings": ["dut.ovs.host = 'dut'"]}
    fleet.write_text(toml_text({"engine": {"beaker": {"task": TASK_URL, **EVERYTHING}}, "bed": {"a": bed}}))
    printed = CliRunner().invoke(make_app(), ["job", "OVS_DPDK1q_GUEST_DPDK1q", "--fleet", str(fleet), *arguments])
    assert printed.exit_code == 0, printed.output
    return printed.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--host", "generator=", "--host", "dut=dut.example", "--repo", "ovs=https://example.org/ovs"),
        ("--host", "alone.example", "--layer", "quick", "--set", "queues=2", "--label", "version=2.6 <&>"),
        ("--bed", "a", "--reserve", "0"),
    ],
    ids=["roles", "one machine", "bed"],
)
def test_printed_jobs_are_valid_in_beakers_schema(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert schema_errors(printed_job(tmp_path, *arguments)) == ""


def test_beakers_client_submits_a_printed_job(hub: BeakerHubDouble, bkr: Client, tmp_path: Path) -> None:
    repos = ("--repo", "https://example.org/dpdk/16.11?a=1&b=2", "--repo", "https://example.org/openvswitch/2.6.1")
    hosts = ("--host", "moongen.example", "--host", "dut.example")
    xml = printed_job(tmp_path, *hosts, "--distro", "RHEL-7.3", *repos, "--tag", 'it\'s <a> tag & "more"', "--reserve", "100")
    assert schema_errors(xml) == ""
    assert "J:1" in bkr("job-submit", "-", stdin=xml)
    assert hub.jobs[1].whiteboard.endswith('bed=. it\'s <a> tag & "more"')


def test_the_schema_rejects_invalid_jobs(tmp_path: Path) -> None:
    xml = job_xml(settings("http://127.0.0.1:9", tmp_path), Job(RUN, ("run",)), "", {"generator": ""})
    for broken in (xml.replace("hostRequires", "hostWishes"), xml.replace('panic="', 'alarm="').replace("<watchdog", '<watchdog a="1"')):
        assert "DocumentInvalid" in schema_errors(broken)


def test_beakers_client_lists_watches_and_cancels_jobs_of_the_engine(hub: BeakerHubDouble, bkr: Client, tmp_path: Path) -> None:
    engine = BeakerEngine(EngineSettings(None, tmp_path / "jobs", own=settings(hub.url, tmp_path, **EVERYTHING)))
    key = engine.submit(Job(RUN, ("run", "OVS_DPDK1q"), {"bed-1": BED}))
    other = engine.submit(Job("another", ("run", "OVS_DPDK1q")))
    assert bkr("job-list", "--unfinished", "--owner", USER, "--whiteboard", f"run={RUN}", "--format", "list").split() == [key]
    hub.jobs[1].status, hub.jobs[1].result = "Completed", "Pass"
    hub.jobs[1].results = {"GENERATOR": [("/ringroad/measure/exit-status", "Pass", 0, "")]}
    hub.jobs[1].logs = {LOG_NAME: b"measured\n"}
    assert "Completed" in bkr("job-watch", key)
    assert 'path="/ringroad/measure/exit-status"' in bkr("job-results", "--prettyxml", key)
    assert bkr("job-logs", key).strip() == f"{hub.url}/logs/1/{LOG_NAME}"
    report = engine.state(key)
    assert (report.state, report.exit_status) == (JobState.ENDED, 0)
    assert report.output.startswith("measured")
    bkr("job-cancel", other)
    assert engine.state(other).state is JobState.ENDED
    assert hub.jobs[2].status == "Cancelled"


def test_the_engine_finds_and_cancels_jobs_of_beakers_client(hub: BeakerHubDouble, bkr: Client, tmp_path: Path) -> None:
    own = settings(hub.url, tmp_path)
    xml = job_xml(own, Job(RUN, ("run", "OVS_DPDK1q")), "bed-1", {"generator": "gen.example", "dut": "dut.example"})
    # The client's own check finds no error either: otherwise it would warn.
    assert "J:1" in bkr("job-submit", "-", stdin=xml)
    engine = BeakerEngine(EngineSettings(None, tmp_path / "jobs", own=own))
    assert engine.find(RUN) == "J:1"
    assert engine.submit(Job(RUN, ("run", "OVS_DPDK1q"))) == "J:1"
    hub.jobs[1].status = "Running"
    assert engine.state("J:1").state is JobState.RUNNING
    engine.cancel("J:1")
    assert bkr("job-list", "--finished", "--whiteboard", RUN, "--format", "list").split() == ["J:1"]
