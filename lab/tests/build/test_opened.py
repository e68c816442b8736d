"""Existing builds: the programs that run, and why others are rejected. Real programs and libraries, copied into folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringroad_lab.build.choice import BuildChoice, GuestBuildChoice, StagedBuild
from ringroad_lab.build.opened import Build, BuildHost, open_build, running_files
from ringroad_lab.errors import BuildError
from ringroad_lab.host.local import LocalHost

PROGRAMS = {"cat": (), "ls": ()}
LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")
# A program for 64-bit ARM; the bytes before e_machine are the same as for x86-64.
ARM = b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (0xB7).to_bytes(2, "little") + bytes(44)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


def copied(program: str, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    found = shutil.which(program)
    assert found
    shutil.copy2(os.path.realpath(found), place)
    return place


def test_a_build_runs_its_own_programs_and_the_hosts_others(host: LocalHost, tmp_path: Path) -> None:
    own = copied("cat", tmp_path / "built/usr/bin/cat")
    build = open_build(host, BuildChoice(prefix=str(tmp_path / "built")), PROGRAMS, "new")
    within = BuildHost(host, build)
    assert list(build.launchers) == ["cat"]
    assert within.run(["cat"], stdin="as it is").stdout == "as it is"
    # A driver can use any path.
    assert within.require("/elsewhere/cat", "coreutils") == build.launchers["cat"]
    assert within.require("ls", "coreutils") == host.find_program("ls")
    os.mkfifo(tmp_path / "pipe")
    process = within.start("cat", ["sh", "-c", 'exec "$0" "$1"', within.require("cat", "coreutils"), str(tmp_path / "pipe")])
    with (tmp_path / "pipe").open("w"):
        assert list(running_files(host, [process], build)) == [str(own)]


def test_the_sums_of_the_program_and_its_own_libraries_are_reported(host: LocalHost, tmp_path: Path) -> None:
    root = tmp_path / "built"
    copied("cat", root / "bin/cat")
    library = root / "lib" / LIBC.name
    library.parent.mkdir()
    shutil.copy2(os.path.realpath(LIBC), library)
    build = open_build(host, StagedBuild(prefix=str(root), origin="package coreutils=1"), PROGRAMS, "new")
    os.mkfifo(tmp_path / "pipe")
    process = BuildHost(host, build).start("cat", ["cat", str(tmp_path / "pipe")])
    with (tmp_path / "pipe").open("w"):
        sums = running_files(host, [process], build)
    # The folder of an unpacked build differs in each run: the record has the paths in the package.
    assert sums == {path: host.run(["sha256sum", f"{root}{path}"]).stdout[:64] for path in ("/bin/cat", "/lib/libc.so.6")}


def test_files_of_a_program_are_those_of_its_build(host: LocalHost, tmp_path: Path) -> None:
    schema = tmp_path / "built/share/openvswitch/vswitch.ovsschema"
    schema.parent.mkdir(parents=True)
    schema.touch()
    within = BuildHost(host, Build("prefix", str(tmp_path / "built"), {}))
    assert within.locate("/usr/share/openvswitch/vswitch.ovsschema") == str(schema)
    assert within.locate("/usr/share/openvswitch/other") == "/usr/share/openvswitch/other"


@pytest.mark.parametrize(
    ("place", "content", "expected"),
    [
        ("bin/other", b"#!/bin/sh\n", "has no program cat on this machine: searched sbin, bin"),
        ("bin/cat", ARM, "is a program for 64-bit ARM, and this machine is x86-64: use a build for x86-64"),
    ],
)
def test_a_build_that_cannot_run_is_rejected(host: LocalHost, tmp_path: Path, place: str, content: bytes, expected: str) -> None:
    file = tmp_path / "built" / place
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    file.chmod(0o755)
    with pytest.raises(BuildError, match=expected):
        open_build(host, BuildChoice(prefix=str(tmp_path / "built")), PROGRAMS, "dut.new.build")


def test_a_build_without_its_libraries_is_rejected(host: LocalHost, tmp_path: Path) -> None:
    program = copied("cat", tmp_path / "built/bin/cat")
    # The name of a library that no machine has, with the length of the original name.
    program.write_bytes(program.read_bytes().replace(b"libc.so.6\0", b"libq.so.6\0"))
    with pytest.raises(BuildError, match=r"libraries of .*/bin/cat are missing on this machine: libq.so.6; install them"):
        open_build(host, BuildChoice(prefix=str(tmp_path / "built")), PROGRAMS, "new")


def test_links_out_of_an_unpacked_build_are_not_its_programs(host: LocalHost, tmp_path: Path) -> None:
    (tmp_path / "built/bin").mkdir(parents=True)
    # Like Debian's alternatives in an image: they would lead to the machine's own programs.
    (tmp_path / "built/bin/cat").symlink_to("/bin/cat")
    with pytest.raises(BuildError, match="has no program cat"):
        open_build(host, StagedBuild(prefix=str(tmp_path / "built"), origin="image"), PROGRAMS, "new")


def test_a_program_alone_and_an_absent_folder(host: LocalHost, tmp_path: Path) -> None:
    assert list(open_build(host, BuildChoice(program=os.path.realpath("/bin/cat")), PROGRAMS, "new").launchers) == ["cat"]
    with pytest.raises(BuildError, match="/absent is no executable file"):
        open_build(host, BuildChoice(program="/absent"), PROGRAMS, "new")
    with pytest.raises(BuildError, match="there is no folder /absent on this machine: name the folder of the build"):
        open_build(host, BuildChoice(prefix="/absent"), PROGRAMS, "new")


def test_a_guest_takes_the_kernel_of_its_build(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="has no boot/vmlinuz-VERSION"):
        open_build(host, GuestBuildChoice(kernel=str(tmp_path)), PROGRAMS, "guest")
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1").touch()
    for choice in (GuestBuildChoice(kernel=str(tmp_path)), GuestBuildChoice(prefix=str(tmp_path))):
        build = open_build(host, choice, PROGRAMS, "guest")
        assert (str(build.kernel), dict(build.launchers)) == (str(tmp_path), {})
