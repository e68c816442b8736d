"""Packages and images, made here and unpacked: nothing is fetched."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.build.stage import Stage
from ringroad_lab.errors import BuildError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.host.local import LocalHost
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario

needs_image_tools = pytest.mark.skipif(not (shutil.which("umoci") and shutil.which("skopeo")), reason="umoci or skopeo is not installed")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    host = LocalHost(tmp_path)
    yield Stage(host)
    host.close()


def staged(stage: Stage, **build: object) -> tuple[Path, str]:
    """Unpack the build of one device; its folder, and what it is called."""
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


def test_packages_are_unpacked_into_one_folder(stage: Stage, tmp_path: Path) -> None:
    files = []
    for name in ("switch", "library"):
        tree = tmp_path / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / f"{name}.file").touch()
        control = f"Package: {name}\nVersion: 1.2-3\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: none\n"
        (tree / "DEBIAN/control").write_text(control)
        subprocess.run(["dpkg-deb", "--build", tree, tmp_path / f"{name}.deb"], check=True, capture_output=True)
        files.append(str(tmp_path / f"{name}.deb"))
    root, told = staged(stage, package=files)
    assert {file.name for file in root.iterdir()} == {"switch.file", "library.file"}
    assert told == "package switch=1.2-3, library=1.2-3"


def test_a_package_that_cannot_be_had_is_told_with_what_to_do(stage: Stage) -> None:
    with pytest.raises(
        BuildError, match=r"dut.new.build: package no-such-package=1 cannot be unpacked.*`apt-cache policy no-such-package`"
    ):
        staged(stage, package="no-such-package=1")


@needs_image_tools
@pytest.mark.parametrize("form", ["oci", "oci-archive", "docker-archive", "tar", "folder"])
def test_an_image_of_any_form_is_unpacked(stage: Stage, tmp_path: Path, form: str) -> None:
    tree, layout = file_system(tmp_path / "tree"), tmp_path / "layout"
    image = tree if form == "folder" else tmp_path / "image"
    if form == "tar":
        subprocess.run(["tar", "-C", tree, "-cf", image, "."], check=True)
    elif form != "folder":
        for command in (["init", "--layout", layout], ["new", "--image", f"{layout}:1.0"]):
            subprocess.run(["umoci", *command], check=True, capture_output=True)
        subprocess.run(["umoci", "insert", "--image", f"{layout}:1.0", tree / "usr", "/usr"], check=True, capture_output=True)
        to = f"{form}:{image}" + (":lab:1.0" if form == "docker-archive" else "")
        subprocess.run(["skopeo", "copy", "--insecure-policy", f"oci:{layout}:1.0", to], check=True, capture_output=True)
    root, told = staged(stage, image=str(image))
    assert (root / "usr/sbin/ovs-vswitchd").read_text() == "#!/bin/sh\n"
    assert told.startswith(f"image {image}")
    assert ("sha256:" in told) == (form != "folder")


def test_what_is_no_image_is_told(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BuildError, match="neither an image of the OCI's form nor a file system"):
        staged(stage, image=str(tmp_path / "empty"))
    with pytest.raises(BuildError, match="cannot be unpacked"):
        staged(stage, image=str(tmp_path / "absent"))
