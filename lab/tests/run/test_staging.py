"""Packages and images, made and unpacked on this machine, without downloads."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import file_server
from package_files import make_deb, make_oci_layout, make_rpm

from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.errors import BuildError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.host.local import LocalHost
from ringroad_lab.run.staging import Staging
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario

needs_rpm_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("rpm", "rpm2cpio", "rpmbuild", "cpio"))), reason="rpm, rpm2cpio or cpio is not installed"
)
needs_skopeo = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Staging]:
    host = LocalHost(tmp_path)
    yield Staging(host)
    host.close()


def staged(stage: Staging, **build: object) -> tuple[Path, str]:
    """Unpack the build of one device; return its folder and description."""
    choice = BuildChoice.model_validate(build)
    scenario = Scenario(
        name="one",
        duts=(DutChoice(label="new", driver="ovs", build=choice), DutChoice(label="same", driver="ovs", build=choice)),
        methods=(MethodChoice(name="throughput"),),
        frames=(parse_frame_mix("64"),),
    )
    (made,) = stage.scenarios([scenario])
    one, same = (dut.build for dut in made.duts)
    assert one is not None
    # Unpacked once.
    assert one == same
    assert one.prefix is not None
    return Path(one.prefix), str(one)


def file_system(folder: Path) -> Path:
    (folder / "usr/sbin").mkdir(parents=True)
    (folder / "usr/sbin/ovs-vswitchd").write_text("#!/bin/sh\n")
    return folder


def test_packages_are_unpacked_into_one_folder(stage: Staging, tmp_path: Path) -> None:
    files = [str(make_deb(tmp_path, name)) for name in ("switch", "library")]
    root, origin = staged(stage, package=files)
    assert {file.name for file in root.iterdir()} == {"switch.file", "library.file"}
    assert origin == "package switch=1.2-3, library=1.2-3"
    # The sums identify the measured build, even if another package has the same version.
    sums = {Path(file).name: f"sha256:{hashlib.sha256(Path(file).read_bytes()).hexdigest()}" for file in files}
    assert stage.facts == {"dut.new.build": sums, "dut.same.build": sums}


def test_a_folder_of_packages_is_one_build(stage: Staging, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in ("switch", "library"):
        make_deb(tmp_path, name).rename(folder / f"{name}.deb")
    (folder / "switch.changes").touch()
    root, origin = staged(stage, package=str(folder))
    assert {file.name for file in root.iterdir()} == {"switch.file", "library.file"}
    assert origin == "package library=1.2-3, switch=1.2-3"


def test_an_empty_folder_is_not_a_build(stage: Staging, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BuildError, match=r"has 0 .deb and .rpm files"):
        staged(stage, package=str(tmp_path / "empty"))


@needs_rpm_tools
def test_an_rpm_package_is_unpacked_as_well(stage: Staging, tmp_path: Path) -> None:
    root, origin = staged(stage, package=[str(make_rpm(tmp_path, "switch")), str(make_deb(tmp_path, "library"))])
    assert (root / "usr/sbin/switch").read_text() == "#!/bin/sh\n"
    assert (root / "library.file").exists()
    assert origin == "package switch=1.2-3, library=1.2-3"


def test_a_package_that_was_replaced_meanwhile_is_another_build(stage: Staging, tmp_path: Path) -> None:
    package = make_deb(tmp_path, "switch")
    pinned = f"{package}#sha256={hashlib.sha256(package.read_bytes()).hexdigest()}"
    assert staged(stage, package=pinned)[1] == "package switch=1.2-3"
    package.write_bytes(package.read_bytes() + b"\n")
    with pytest.raises(BuildError, match="it is another build"):
        staged(Staging(stage._host), package=pinned)


def test_a_file_that_is_not_a_package_is_reported(stage: Staging, tmp_path: Path) -> None:
    (tmp_path / "page.deb").write_text("<html>not found</html>")
    with pytest.raises(BuildError, match=r"page.deb is neither a Debian nor an RPM package"):
        staged(stage, package=str(tmp_path / "page.deb"))


def test_a_package_from_a_url_must_have_the_requested_sum(stage: Staging, tmp_path: Path) -> None:
    package = make_deb(tmp_path, "switch")
    right, wrong = hashlib.sha256(package.read_bytes()).hexdigest(), "0" * 64
    with file_server(tmp_path) as url:
        root, origin = staged(stage, package=f"{url}/switch.deb#sha256={right}")
        assert (root / "switch.file").exists()
        assert origin == "package switch=1.2-3"
        assert stage.facts["dut.new.build"] == {"switch.deb": f"sha256:{right}"}
        with pytest.raises(BuildError, match=f"has the SHA-256 {right} instead of {wrong}"):
            staged(stage, package=f"{url}/switch.deb#sha256={wrong}")
        with pytest.raises(BuildError, match="answers with status 404"):
            staged(stage, package=f"{url}/absent.deb")


@pytest.mark.parametrize(
    ("package", "why"),
    [
        ("ftp://example.org/a.deb", "not the URL of a package"),
        ("https://me:secret@example.org/a.deb", "a password in it would be in every record"),
        ("https://example.org/a.deb#sha256=1", "with 64 hexadecimal digits"),
        ("/srv/a.deb#sha256=1", "with 64 hexadecimal digits"),
        ("switch=1#sha256=" + 64 * "0", "must follow the path"),
        ("--option", "is not a package"),
    ],
)
def test_an_invalid_package_is_rejected(package: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        BuildChoice.model_validate({"package": package})


def test_an_unavailable_package_is_reported_with_a_remedy(stage: Staging) -> None:
    with pytest.raises(BuildError, match=r"dut.new.build: package no-such-package=1 is not available.*`apt-cache policy no-such-package`"):
        staged(stage, package="no-such-package=1")


@needs_skopeo
@pytest.mark.parametrize("form", ["oci", "oci-archive", "docker-archive", "tar", "folder"])
def test_an_image_in_any_format_is_unpacked(stage: Staging, tmp_path: Path, form: str) -> None:
    tree = file_system(tmp_path / "tree")
    image = tree if form == "folder" else tmp_path / "image"
    packed = subprocess.run(["tar", "-C", tree, "-c", "."], check=True, capture_output=True).stdout
    if form == "tar":
        image.write_bytes(packed)
    elif form != "folder":
        layout = make_oci_layout(tmp_path / "layout", packed)
        to = f"{form}:{image}" + (":lab:1.0" if form == "docker-archive" else "")
        subprocess.run(["skopeo", "copy", "--insecure-policy", f"oci:{layout}:1.0", to], check=True, capture_output=True)
    root, origin = staged(stage, image=str(image))
    assert (root / "usr/sbin/ovs-vswitchd").read_text() == "#!/bin/sh\n"
    assert origin.startswith(f"image {image}")
    assert ("sha256:" in origin) == (form != "folder")


def test_a_folder_that_is_not_an_image_is_reported(stage: Staging, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BuildError, match="neither an OCI image nor a file system"):
        staged(stage, image=str(tmp_path / "empty"))
    with pytest.raises(BuildError, match="is not available"):
        staged(stage, image=str(tmp_path / "absent"))
