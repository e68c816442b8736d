"""A repository of packages as a source: indexes of both forms, served by HTTP."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import json
import lzma
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.settings import read_fleet
from ringroad_lab.fleet.sources import package_index
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.fleet.sources.repository import RepositorySource, RepositoryWatcher
from ringroad_lab.store.result_store import ResultStore

RULE = MessageRule(name="all", build="{name}-{full_version}", scenario="BRIDGE_VETH", match={"@event": "package"})
REPOMD = """<?xml version="1.0" encoding="UTF-8"?>
<repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary"><location href="repodata/primary.xml.gz"/></data></repomd>
"""
PACKAGE = """<package type="rpm"><name>{name}</name><arch>{arch}</arch><version epoch="{epoch}" ver="3.5.0" rel="1.el9"/>
<checksum type="sha256" pkgid="YES">{digest}</checksum><size package="7" installed="9"/><location href="Packages/{name}.rpm"/></package>
"""
PRIMARY = '<metadata xmlns="http://linux.duke.edu/metadata/common" packages="1">{packages}</metadata>'


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401
        pass


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[Requests]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield Requests(store)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def watcher(index: str, requests: Requests, output: list[str] | None = None, **values: Any) -> RepositoryWatcher:  # noqa: ANN401
    source = RepositorySource.model_validate({"index": index, "packages": ["openvswitch*"], **values})
    return RepositoryWatcher("repo", source, Intake(requests, [RULE], (output if output is not None else []).append))


def make_deb(folder: Path, name: str, version: str) -> Path:
    tree = folder / f"tree-{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: a switch\n of packets\n"
    )
    made = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(made)], check=True, capture_output=True)
    shutil.rmtree(tree)
    return made


def paragraph(deb: Path, name: str, version: str) -> str:
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nFilename: pool/{deb.name}\nSize: {deb.stat().st_size}\n"
        f"Description: a switch\n of packets\n .\n Filename: not this\nSHA256: {digest}\n\n"
    )


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_new_package_in_a_debian_repository_is_taken_once_with_its_url_and_checksum(served: tuple[Path, str], requests: Requests) -> None:
    folder, url = served
    (folder / "pool").mkdir()
    index = folder / "dists/stable/main/binary-amd64/Packages.xz"
    index.parent.mkdir(parents=True)
    old = paragraph(make_deb(folder / "pool", "openvswitch", "3.4-1"), "openvswitch", "3.4-1")
    index.write_bytes(lzma.compress(old.encode()))
    output: list[str] = []
    repository_watcher = watcher(f"{url}/dists/stable/main/binary-amd64/Packages.xz", requests, output)
    repository_watcher.work()
    assert requests.count() == 0
    new = make_deb(folder / "pool", "openvswitch-dpdk", "1:3.5.0-2")
    other = paragraph(make_deb(folder / "pool", "dpdk", "23.11-1"), "dpdk", "23.11-1")
    index.write_bytes(lzma.compress((old + other + paragraph(new, "openvswitch-dpdk", "1:3.5.0-2")).encode()))
    repository_watcher.work()
    repository_watcher.work()
    # Another dispatcher, later.
    watcher(f"{url}/dists/stable/main/binary-amd64/Packages.xz", requests).work()
    (request,) = requests.find()
    assert (request.build, request.duplicates) == ("openvswitch-dpdk-1:3.5.0-2", 0)
    assert json.loads(requests.get(request.id).payload) == {
        **{"kind": "deb", "name": "openvswitch-dpdk", "version": "3.5.0", "release": "2", "arch": "all", "full_version": "1:3.5.0-2"},
        **{"file": new.name, "path": f"{url}/pool/{new.name}", "bytes": new.stat().st_size},
        "sha256": hashlib.sha256(new.read_bytes()).hexdigest(),
    }
    assert output == ["source 'repo': openvswitch-dpdk 1:3.5.0-2: requested, request 1"]


def test_a_new_package_in_an_rpm_repository_is_taken_and_source_packages_are_not(served: tuple[Path, str], requests: Requests) -> None:
    folder, url = served
    (folder / "repodata").mkdir()
    (folder / "repodata/repomd.xml").write_text(REPOMD)

    def publish(*packages: str) -> None:
        (folder / "repodata/primary.xml.gz").write_bytes(gzip.compress(PRIMARY.format(packages="".join(packages)).encode()))

    kernel = PACKAGE.format(name="kernel", arch="x86_64", epoch=0, digest="0" * 64)
    publish(kernel)
    repository_watcher = watcher(f"{url}/repodata/repomd.xml", requests)
    repository_watcher.work()
    publish(
        kernel,
        PACKAGE.format(name="openvswitch3.5", arch="x86_64", epoch=1, digest="1" * 64),
        PACKAGE.format(name="openvswitch3.5-src", arch="src", epoch=1, digest="2" * 64),
    )
    repository_watcher.work()
    (request,) = requests.find()
    fields = json.loads(requests.get(request.id).payload)
    assert (request.build, fields["path"]) == ("openvswitch3.5-1:3.5.0-1.el9", f"{url}/Packages/openvswitch3.5.rpm")
    assert (fields["kind"], fields["release"], fields["bytes"], fields["sha256"]) == ("rpm", "1.el9", 7, "1" * 64)


def test_packages_present_at_the_first_poll_are_taken_if_configured(served: tuple[Path, str], requests: Requests) -> None:
    folder, url = served
    (folder / "Packages").write_text(f"Package: openvswitch\nVersion: 3\nArchitecture: all\nFilename: ./o.deb\nSHA256: {'0' * 64}")
    watcher(f"{url}/Packages", requests, takes_present=True).work()
    (request,) = requests.find()
    assert json.loads(requests.get(request.id).payload)["path"] == f"{url}/o.deb"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("Packages", None, "404"),
        ("Packages.xz", b"no xz", "cannot be unpacked"),
        ("Packages.gz", b"\x1f\x8b\x08\x00broken", "cannot be unpacked"),
        ("Packages", b"Package: a\n" * 20_000, "longer than 100000 bytes"),
        ("Packages.xz", lzma.compress(b"Package: a\n" * 200_000), "once unpacked"),
        ("repodata/repomd.xml", b"<repomd", "invalid XML"),
        ("repodata/repomd.xml", b"<!DOCTYPE a [<!ENTITY b 'c'>]><repomd/>", "document type"),
        ("repodata/repomd.xml", b"<repomd/>", "has no primary"),
    ],
)
def test_an_invalid_index_is_reported_and_nothing_is_recorded_as_seen(
    served: tuple[Path, str], requests: Requests, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None, words: str
) -> None:
    folder, url = served
    monkeypatch.setattr(package_index, "MAX_INDEX_BYTES", 100_000)
    monkeypatch.setattr(package_index, "MAX_PLAIN_BYTES", 1_000_000)
    if content is not None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    repository_watcher = watcher(f"{url}/{name}", requests)
    with pytest.raises(LabError, match=words):
        repository_watcher.work()
    assert repository_watcher._positions.get("repo", "first look") is None


def test_an_invalid_url_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[source.a]\nkind = "repository"\nindex = "ftp://x/Packages"\npackages = ["a"]\n')
    with pytest.raises(ScenarioError, match=r"source.a: 'ftp://x/Packages' is not an index URL"):
        read_fleet(file)
