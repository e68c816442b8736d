"""A folder of packages as a source: a complete file is taken once, and described by its own name, version and architecture."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringroad_lab.errors import LabError
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.folder import FolderWatcher, describe_package
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.request.model import RequestState
from ringroad_lab.store.result_store import ResultStore

RULE = MessageRule(name="all", build="{name}-{full_version}.{arch}", scenario="BRIDGE_VETH", match={"@event": "package"})


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[Requests]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield Requests(store)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    made = tmp_path / "packages"
    made.mkdir()
    return made


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _program: None)


def watcher(packages: Path, requests: Requests, output: list[str] | None = None) -> FolderWatcher:
    return FolderWatcher("packages", packages, Intake(requests, [RULE], (output if output is not None else []).append))


@pytest.mark.usefixtures("without_tools")
def test_a_file_is_taken_once_after_two_equal_polls(packages: Path, requests: Requests) -> None:
    output: list[str] = []
    folder_watcher = watcher(packages, requests, output)
    package = packages / "ovs_3.5.0-1_amd64.deb"
    package.write_bytes(b"half")
    for hidden in (".ovs_1_all.deb", "notes.txt"):
        (packages / hidden).touch()
    (packages / "folder.deb").mkdir()
    folder_watcher.look()
    assert requests.count() == 0
    # The file grows: it is not complete yet.
    package.write_bytes(b"half and half")
    folder_watcher.look()
    assert requests.count() == 0
    folder_watcher.look()
    (request,) = requests.find()
    assert (request.build, request.source, request.event) == ("ovs-3.5.0-1.amd64", "packages", "package")
    assert output == [f"{package}: requested, request 1"]
    # Neither another poll nor another dispatcher takes the file again.
    folder_watcher.look()
    for again in (watcher(packages, requests), watcher(packages, requests)):
        again.look()
        again.look()
    assert requests.get(1).duplicates == 0
    os.utime(package, ns=(1, 1))
    folder_watcher.look()
    folder_watcher.look()
    assert requests.get(1).duplicates == 1
    with pytest.raises(LabError, match="No such file"):
        watcher(packages / "gone", requests).look()


@pytest.mark.usefixtures("without_tools")
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ovs_3.5.0-1ubuntu2_amd64.deb", ("ovs", "3.5.0", "1ubuntu2", "amd64", "3.5.0-1ubuntu2")),
        ("ovs_3.5_all.deb", ("ovs", "3.5", "", "all", "3.5")),
        ("open-vswitch-3.5.0-1.fc43.x86_64.rpm", ("open-vswitch", "3.5.0", "1.fc43", "x86_64", "3.5.0-1.fc43")),
    ],
)
def test_without_package_tools_the_file_names_describe_packages(packages: Path, name: str, fields: tuple[str, ...]) -> None:
    (packages / name).write_bytes(b"x")
    found = describe_package(packages / name)
    assert tuple(found[key] for key in ("name", "version", "release", "arch", "full_version")) == fields
    assert (found["kind"], found["bytes"], len(str(found["sha256"]))) == (name[-3:], 1, 64)


@pytest.mark.usefixtures("without_tools")
@pytest.mark.parametrize("name", ["ovs.deb", "a_b_c_d.deb", "ovs.rpm", "-1-2.x.rpm"])
def test_a_package_that_cannot_be_described_is_kept_as_dead(packages: Path, requests: Requests, name: str) -> None:
    (packages / name).write_bytes(b"x")
    folder_watcher = watcher(packages, requests)
    folder_watcher.look()
    folder_watcher.look()
    (dead,) = requests.find()
    assert (dead.state, dead.is_poison) == (RequestState.DEAD, True)
    assert name in dead.last_error
    assert json.loads(requests.get(dead.id).payload) == {"path": str(packages / name)}


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_debian_package_is_described_by_its_metadata_not_its_file_name(packages: Path, tmp_path: Path, requests: Requests) -> None:
    control = tmp_path / "made" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: ovs\nVersion: 1:3.5.0-1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: none\n")
    path = packages / "--some name.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", control.parents[1], path], check=True, capture_output=True)
    found = describe_package(path)
    assert (found["name"], found["version"], found["release"], found["arch"]) == ("ovs", "3.5.0", "1", "all")
    assert found["full_version"] == "1:3.5.0-1"
    (packages / "broken.deb").write_bytes(b"no archive")
    folder_watcher = watcher(packages, requests)
    folder_watcher.look()
    folder_watcher.look()
    assert {each.state: each.build for each in requests.find()}[RequestState.NEW] == "ovs-1:3.5.0-1.all"
    (dead,) = [each for each in requests.find() if each.is_poison]
    assert "broken.deb" in dead.last_error
