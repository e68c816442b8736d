"""Hostile packages and images: nothing leaves the folder of the build, and nothing in it is of use to another user."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_files import make_oci_layout, make_raw_deb, make_rpm, tar_head, tar_of

from ringroad_lab.build.packages import unpack_packages
from ringroad_lab.build.unpack import Unpacker
from ringroad_lab.errors import HostError
from ringroad_lab.host.local import LocalHost

needs_rpm_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("rpm", "rpm2cpio", "rpmbuild", "cpio"))), reason="rpm, rpm2cpio or cpio is not installed"
)
needs_skopeo = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


@pytest.fixture
def root(host: LocalHost) -> Path:
    made = Path(host.folder) / "build/root"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    made = tmp_path / "victim"
    made.mkdir()
    return made


def test_a_package_does_not_write_through_the_link_of_an_earlier_one(host: LocalHost, root: Path, victim: Path, tmp_path: Path) -> None:
    link = make_raw_deb(tmp_path / "link.deb", tar_of(tar_head("./evil", tarfile.SYMTYPE, str(victim))))
    behind = make_raw_deb(tmp_path / "behind.deb", tar_of(("./evil/file", b"written")))
    with pytest.raises(HostError, match=r"behind.deb cannot be unpacked: tar: \./evil/file: Cannot open"):
        unpack_packages(host, [str(link), str(behind)], root.parent, root)
    assert list(victim.iterdir()) == []


@needs_rpm_tools
def test_nor_does_an_rpm_package(host: LocalHost, root: Path, victim: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("written")
    packages = [
        str(make_rpm(tmp_path, "link", links={"evil": victim})),
        str(make_rpm(tmp_path, "behind", files={"evil/file": tmp_path / "file"})),
    ]
    with pytest.raises(HostError, match=r"behind-1\.2-3\..*rpm cannot be unpacked: cpio: "):
        unpack_packages(host, packages, root.parent, root)
    assert list(victim.iterdir()) == []


def test_a_file_system_does_not_link_to_a_file_of_the_machine(host: LocalHost, root: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.tar"
    image.write_bytes(tar_of(tar_head("passwd", tarfile.LNKTYPE, "/etc/passwd")))
    with pytest.raises(HostError, match="passwd: Cannot hard link to"):
        Unpacker(host, root).unpack("image", image)


@needs_skopeo
def test_nor_does_a_layer_of_an_image_remove_what_lies_behind_a_link(host: LocalHost, root: Path, victim: Path, tmp_path: Path) -> None:
    (victim / "kept").touch()
    layers = tar_of(tar_head("evil", tarfile.SYMTYPE, str(victim))), tar_of(("evil/.wh.kept", b""))
    Unpacker(host, root).unpack("image", make_oci_layout(tmp_path / "image", *layers))
    assert (victim / "kept").exists()


@needs_skopeo
def test_a_layer_removes_what_it_names_of_the_layers_below(host: LocalHost, root: Path, tmp_path: Path) -> None:
    below = tar_of(("usr/old", b""), ("usr/kept", b""), ("opt/a/b", b""), ("lib/below", b""))
    above = tar_of(("usr/.wh.old", b""), (".wh.opt", b""), ("lib/.wh..wh..opq", b""), ("lib/above", b""))
    Unpacker(host, root).unpack("image", make_oci_layout(tmp_path / "image", below, above), "1.0")
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["lib", "lib/above", "usr", "usr/kept"]


def test_no_other_user_gains_rights_by_a_file_of_a_build(host: LocalHost, root: Path, tmp_path: Path) -> None:
    folder = tar_head("./open", tarfile.DIRTYPE, mode=0o1777)
    members = [tar_head("./open/program", mode=0o6777), tar_head("./closed", tarfile.DIRTYPE, mode=0o500), tar_head("./none", mode=0)]
    for member in (folder, *members):
        member.uid = member.gid = 12345
    package = make_raw_deb(tmp_path / "switch.deb", tar_of(folder, *members))
    # An unchanged mode would keep this out of the closed folder.
    more = make_raw_deb(tmp_path / "more.deb", tar_of(("./closed/file", b"")))
    unpack_packages(host, [str(package), str(more)], root.parent, root)
    found = {str(path.relative_to(root)): path.lstat() for path in root.rglob("*")}
    modes = {name: stat.S_IMODE(status.st_mode) for name, status in found.items()}
    assert modes == {"open": 0o755, "open/program": 0o755, "closed": 0o700, "closed/file": 0o644, "none": 0o600}
    assert {(status.st_uid, status.st_gid) for status in found.values()} == {(os.geteuid(), os.getegid())}


def test_a_build_has_no_devices(host: LocalHost, root: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.tar"
    # Those in /dev are common in archives of whole systems, and of no use.
    image.write_bytes(tar_of(tar_head("./dev/mem", tarfile.CHRTYPE), tar_head("dev/mem", tarfile.CHRTYPE), ("usr/bin/dev/file", b"")))
    Unpacker(host, root).unpack("image", image)
    assert not (root / "dev").exists() or list((root / "dev").iterdir()) == []
    assert (root / "usr/bin/dev/file").exists()
    image.write_bytes(tar_of(tar_head("mem", tarfile.CHRTYPE)))
    with pytest.raises(HostError, match="mem: Cannot mknod: Operation not permitted"):
        Unpacker(host, root).unpack("image", image)


@pytest.mark.parametrize("kind", ["deb", "image"])
def test_a_build_of_too_many_bytes_or_files_is_refused(host: LocalHost, root: Path, tmp_path: Path, kind: str) -> None:
    zeros = tar_of(("./zeros", bytes(3 << 20)))
    files = tar_of(*(tar_head(f"./{number}") for number in range(20)))
    if kind == "deb":
        large, many = make_raw_deb(tmp_path / "large.deb", zeros), make_raw_deb(tmp_path / "many.deb", files)
    else:
        large, many = tmp_path / "large.tar", tmp_path / "many.tar"
        large.write_bytes(zeros)
        many.write_bytes(files)
    unpack = Unpacker(host, root, max_bytes=2 << 20, max_files=30).unpack
    with pytest.raises(HostError, match=rf"{large.name} cannot be unpacked: it has {2 << 20} bytes or more$"):
        unpack("deb" if kind == "deb" else "image", large)
    assert list(root.iterdir()) == []
    # The limits are those of the whole build.
    unpack("deb" if kind == "deb" else "image", many)
    with pytest.raises(HostError, match=rf"{many.name} cannot be unpacked: it has more than 10 files$"):
        unpack("deb" if kind == "deb" else "image", many)


def test_what_unpacks_sees_only_the_archive_and_the_build(host: LocalHost, root: Path, victim: Path, tmp_path: Path) -> None:
    unpacker = Unpacker(host, root)
    # In place of what unpacks, a script that looks around.
    Path(unpacker._scripts[1]).write_text(
        f"""
        for path in {victim} /etc/passwd /run /home /root /old/etc /proc/self /sys/class; do [ ! -e $path ] || echo "$path is there"; done
        ! touch /usr/written 2>/dev/null || echo "/usr can be written"
        ! mknod /build/device c 1 3 2>/dev/null || echo "devices can be made"
        ! mount -t tmpfs none /tmp 2>/dev/null || echo "mounts can be made"
        [ "$(ls /dev)" = null ] || echo "there are other devices"
        [ $$ = 1 ] || echo "other processes can be signalled"
        setpriv --dump | grep -x 'no_new_privs: 0'
        ! setpriv --dump | grep apabilit | grep -v 'none' || echo "there are capabilities"
        touch /build/own; echo; echo 0 0
        """
    )
    assert unpacker.unpack("deb", make_raw_deb(tmp_path / "switch.deb", tar_of())) == ""
    assert (root / "own").exists()
