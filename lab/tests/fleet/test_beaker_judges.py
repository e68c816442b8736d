"""Checks the submitted jobs with Beaker's own schema and client. The hub for client and engine is a DOUBLE."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beaker_hub_double import PASSWORD, USER, BeakerHubDouble

from ringroad_lab.fleet.engine.beaker.engine import LOG_NAME, BeakerEngine
from ringroad_lab.fleet.engine.beaker.job_xml import job_xml
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import EngineSettings, Job, JobState
from ringroad_lab.fleet.inventory import BedSettings

BKR = Path(os.environ.get("RINGROAD_BKR", "/nonexistent"))
"""The environment with beaker-client, which `make lab` creates."""
VALIDATE = """\
import os, sys
import bkr.common
import lxml.etree
schema = os.path.join(os.path.dirname(bkr.common.__file__), "schema", "beaker-job.rng")
lxml.etree.RelaxNG(lxml.etree.parse(schema)).assertValid(lxml.etree.fromstring(sys.stdin.buffer.read()))
"""
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
            "tasks": ["/distribution/check-install", "/kernel/setup"],
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
    return BeakerSettings.model_validate({**base, "task": "https://example.org/ringroad.tar.gz#lab/beaker/measure", **PLAIN, **values})


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
