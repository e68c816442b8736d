"""From a message about a build to the measured build: a package in a folder, an RPM package of a Koji, a commit of a forge.

The tests run `ringroad-lab dispatch` itself, with real switches. A build that cannot be installed gets a verdict at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from file_server import file_server
from package_files import make_deb, make_rpm
from receivers import HttpReceiver, http_receiver

from ringroad_lab.fleet.intake import receive
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.settings import read_fleet
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.report.junit import JunitReporter
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import NOT_INSTALLED, RequestState
from ringroad_lab.request.table import Request
from ringroad_lab.store.result_store import ResultStore

BINARIES = Path(os.environ.get("RINGROAD_BIN_DIR", "/nonexistent"))
PATIENCE_S = 400.0
FLEET = """
[source.packages]
kind = "folder"
folder = "{packages}"

[[rule]]
name = "packages that somebody puts into a folder"
source = "packages"
build = "{{name}}-{{full_version}}"
settings.dut.ringroad.build.package = "{{path}}#sha256={{sha256}}"

[[rule]]
name = "builds of a Koji, once they are complete"
source = "koji"
match.new = 1
build = "{{name}}-{{version}}-{{release}}"
settings.dut.ringroad.build.package = "{url}/packages/{{name}}/{{version}}/{{release}}/x86_64/{{name}}-{{version}}-{{release}}.x86_64.rpm"

[[rule]]
name = "commits of a forge"
source = "forge"
match.ref = "refs/heads/main"
build = "{{repository.name}}@{{after}}"

[rule.settings.dut.ringroad.build.git]
repository = "{{repository.clone_url}}"
commit = "{{after}}"
recipe = "./make-it"
environment.BINARIES = "{binaries}"
environment.PUSHED_BY = "{{pusher.name}}"
"""
COMMON = """scenario = "RINGROAD_VETH"
layers = ["quick"]
settings.frames = [64]
settings.method.throughput.resolution = 0.4
"""
MAKE_IT = '#!/bin/sh\necho "of $PUSHED_BY"\nmkdir "$PREFIX/bin" && cp "$BINARIES/ringroadd" "$BINARIES/ringroad" "$PREFIX/bin"\n'

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not (BINARIES / "ringroadd").exists() or not all(map(shutil.which, ("dpkg-deb", "git"))),
    reason="needs root, RINGROAD_BIN_DIR, dpkg-deb and git",
)


def git(repository: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    argv = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(argv, cwd=repository, env=env, check=True, capture_output=True, text=True).stdout.strip()


class Fleet:
    """Messages, the program that processes them, and the results."""

    def __init__(self, folder: Path, url: str, store: ResultStore) -> None:
        self.folder = folder
        self.packages = folder / "packages"
        self.packages.mkdir()
        rules = FLEET.format(packages=self.packages, url=url, binaries=BINARIES)
        self.file = folder / "fleet.toml"
        # All three rules have the same measurement settings.
        self.file.write_text(rules.replace("[[rule]]\n", f"[[rule]]\n{COMMON}"))
        self.store = store
        self.requests = Requests(store)
        self.env = {
            **os.environ,
            "RINGROAD_LAB_CONFIG": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def say(self, source: str, fields: Mapping[str, object]) -> None:
        received = receive(self.requests, read_fleet(self.file).rules, Message(source, json.dumps(fields).encode(), 1e9))
        assert len(received.added) == 1, received

    def dispatch(self, location: str) -> str:
        argv = [sys.executable, "-m", "ringroad_lab.cli.main", "dispatch", "--once", "--poll", "0.1", "--store", location]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def of(self, source: str) -> tuple[Request, RunRecord]:
        (request,) = (each for each in self.requests.find() if each.source == source)
        assert request.state is RequestState.DONE, request
        return request, self.store.get_run(str(request.run_id))


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "results.db")


@pytest.fixture
def fleet(tmp_path: Path, location: str) -> Iterator[Fleet]:
    (tmp_path / "served").mkdir()
    with file_server(tmp_path / "served") as url, ResultStore(location) as store:
        yield Fleet(tmp_path, url, store)


def repository(folder: Path, make_it: str) -> tuple[Path, str]:
    place = folder / "repository"
    place.mkdir()
    git(place, "init", "--quiet", "--initial-branch=main")
    (place / "make-it").write_text(make_it)
    (place / "make-it").chmod(0o755)
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "x")
    return place, git(place, "rev-parse", "HEAD")


def push(place: Path, commit: str) -> dict[str, object]:
    """The fields of a forge's message about a push."""
    return {
        "ref": "refs/heads/main",
        "after": commit,
        "repository": {"name": "switch", "clone_url": str(place)},
        "pusher": {"name": "$(touch /tmp/never) it's me"},
    }


def programs(folder: Path) -> dict[str, Path]:
    return {f"{folder}/{name}": BINARIES / name for name in ("ringroadd", "ringroad")}


@pytest.mark.skipif(not all(map(shutil.which, ("rpm", "rpm2cpio", "rpmbuild", "cpio"))), reason="needs rpm, rpm2cpio and cpio")
@pytest.mark.long
def test_the_build_that_a_message_names_is_measured(fleet: Fleet, location: str, tmp_path: Path) -> None:
    package = make_deb(tmp_path, "ringroad-switch", files=programs(Path("usr/bin"))).rename(fleet.packages / "switch.deb")
    served = tmp_path / "served/packages/ringroad-switch/1.2/3/x86_64"
    served.mkdir(parents=True)
    rpm = make_rpm(tmp_path, "ringroad-switch", programs(Path("usr/bin"))).rename(served / "ringroad-switch-1.2-3.x86_64.rpm")
    place, commit = repository(tmp_path, MAKE_IT)
    fleet.say("koji", {"name": "ringroad-switch", "version": "1.2", "release": "3", "new": 1})
    fleet.say("forge", push(place, commit))
    output = fleet.dispatch(location)
    ringroadd = hashlib.sha256((BINARIES / "ringroadd").read_bytes()).hexdigest()
    facts = {
        "packages": ("package ringroad-switch=1.2-3", {"switch.deb": f"sha256:{hashlib.sha256(package.read_bytes()).hexdigest()}"}),
        "koji": ("package ringroad-switch=1.2-3", {rpm.name: f"sha256:{hashlib.sha256(rpm.read_bytes()).hexdigest()}"}),
        "forge": (f"commit {commit} of {place}", None),
    }
    for source, (origin, sums) in facts.items():
        request, record = fleet.of(source)
        assert (request.verdict, record.state) == ("measured", RunState.FINISHED), output
        (dut,) = record.duts
        assert dut.build == origin
        # The program of the build ran.
        assert [found for path, found in dut.files.items() if path.endswith("/ringroadd")] == [ringroadd]
        if sums is not None:
            assert record.facts["dut.ringroad.build"] == sums
        else:
            assert record.facts["dut.ringroad.build"]["commit"] == commit
    assert not Path("/tmp/never").exists()
    # Only the build is left, which can be requested again.
    (log,) = (tmp_path / "cache").rglob("log")
    assert log.read_text() == "of $(touch /tmp/never) it's me\n"


def test_a_build_that_cannot_be_installed_gets_a_verdict_that_is_reported(fleet: Fleet, location: str, tmp_path: Path) -> None:
    place, commit = repository(tmp_path, "#!/bin/sh\necho compiling; echo 'no rule to make switch' >&2; exit 2\n")
    fleet.say("forge", push(place, commit))
    fleet.say("koji", {"name": "absent", "version": "1", "release": "1", "new": 1})
    with http_receiver(HttpReceiver()) as receiver:
        (tmp_path / "notifications.toml").write_text(f'[[webhook]]\nurl = "{receiver.url}"\n')
        fleet.dispatch(location)
    request, record = fleet.of("forge")
    assert (request.verdict, request.attempts, record.state) == (NOT_INSTALLED, 1, RunState.NOT_INSTALLED)
    assert "no rule to make switch" in request.last_error
    assert [log.text for log in record.logs] == ["compiling\nno rule to make switch\n"]
    case = ElementTree.fromstring(JunitReporter().render(record, None).encode()).find("testsuite/testcase")
    assert case is not None
    assert case.get("name") == "installing the build"
    error = case.find("error")
    assert error is not None
    assert str(error.get("message")).startswith("not installed: dut.ringroad.build: the recipe for ")
    assert "compiling" in str(error.text)
    absent, _ = fleet.of("koji")
    assert absent.verdict == NOT_INSTALLED
    assert "answers with status 404" in absent.last_error
    notifications = [json.loads(body) for _, _, body in receiver.got]
    assert sorted(each["state"] for each in notifications) == ["not installed", "not installed"]
    # After a repair a user can have the build measured again.
    fleet.requests.retry(request.id, "tester")
    again = fleet.requests.get(request.id)
    assert (again.state, again.verdict, again.run_id, again.attempts) == (RequestState.NEW, "", None, 0)


def test_a_package_of_the_systems_repository_is_measured_by_name(location: str, tmp_path: Path) -> None:
    fetched = subprocess.run(
        ["apt-get", "download", "openvswitch-switch"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    if fetched.returncode:
        pytest.skip(f"apt serves no openvswitch-switch: {fetched.stderr.strip()}")
    (package,) = tmp_path.glob("openvswitch-switch_*.deb")
    settings = ("frames=[64]", "method.throughput.resolution=0.4", "dut.ovs.build.package=openvswitch-switch")
    argv = [sys.executable, "-m", "ringroad_lab.cli.main", "run", "OVS_VANILLA", "--layer=quick", *(f"--set={each}" for each in settings)]
    done = subprocess.run([*argv, "--store", location], capture_output=True, text=True, timeout=PATIENCE_S)
    with ResultStore(location) as store:
        (summary,) = store.summaries()
        record = store.get_run(summary.run_id)
    assert record.state is RunState.FINISHED, done.stderr
    (dut,) = record.duts
    assert dut.build.startswith("package openvswitch-switch=")
    (sum_of_package,) = record.facts["dut.ovs.build"].values()
    assert sum_of_package == f"sha256:{hashlib.sha256(package.read_bytes()).hexdigest()}"
    # The unpacked program ran, not the machine's.
    assert any(path.endswith("/ovs-vswitchd") and not path.startswith("/usr/sbin") for path in dut.files)
