"""A build on the host where it runs: inspected, checked, and ready to start.

Each of its programs gets a launcher, a script with which the program finds the libraries and drivers of its own build. So drivers do not
depend on builds, and no other program on the host uses those libraries.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ringroad_lab.build.choice import BuildChoice, GuestBuildChoice, StagedBuild
from ringroad_lab.errors import BuildError, HostError
from ringroad_lab.host.interface import Completed, Host, Process

Programs = Mapping[str, Sequence[str]]
"""Programs that a build can have, by the name that drivers request from their host: names or paths in the build; empty: the same name. A
build must have the first program."""

_PROGRAM_FOLDERS = ("sbin", "bin", "usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin", ".")
# Executable files. In an unpacked build, files whose links lead out of it belong to the machine and are left out.
_FIND = """\
only=$1; shift
for file; do
    [ -f "$file" ] && [ -x "$file" ] || continue
    real=$(readlink -f "$file")
    case $real in "$only"*) printf '%s\\t%s\\n' "$file" "$real" ;; esac
done
"""
_LIBRARIES = """\
cd "$1" || exit 1
for folder in lib lib64 usr/lib usr/lib64 usr/local/lib lib/*-linux-* usr/lib/*-linux-* usr/local/lib/*-linux-*; do
    ls "$folder" 2>/dev/null | grep -q '\\.so' && printf 'libraries\\t%s\\n' "$1/$folder"
    for loader in "$folder"/ld-linux*.so* "$folder"/ld-musl*.so*; do
        [ -x "$loader" ] && printf 'loader\\t%s\\n' "$1/$loader"
    done
done
for folder in usr/lib/*/dpdk; do [ ! -d "$folder" ] || printf 'drivers\\t%s\\n' "$folder"; done
for kernel in boot/vmlinuz*; do [ ! -e "$kernel" ] || printf 'kernel\\t%s\\n' "$kernel"; done
"""
# The path at which DPDK searches for its drivers is compiled into it.
_MOUNT = ("unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh")
_ELF = "7f454c46"
# ELF's e_machine of architectures with packages.
_MACHINES = {0x3E: "x86-64", 0xB7: "64-bit ARM", 0x03: "32-bit x86", 0x28: "32-bit ARM", 0xF3: "RISC-V", 0x15: "64-bit POWER"}


@dataclass(frozen=True)
class Build:
    """A build that can be run."""

    source: str
    """The source of the build, for users."""
    root: str | None
    """Folder of the build; None for a single program."""
    launchers: Mapping[str, str]
    """Launchers of its programs, by the name that drivers request."""
    is_unpacked: bool = False
    """Whether the lab unpacked it into a folder whose name differs in each run."""
    drivers: str | None = None
    """Folder of the machine at which its DPDK searches for its own drivers."""
    kernel: PurePosixPath | None = None
    """Folder with a guest's kernel and its modules."""

    def shown(self, path: str) -> str:
        """Return the path of one of its files in a form that is the same in every run."""
        return path.removeprefix(self.root) if self.is_unpacked and self.root else path


def open_build(host: Host, choice: BuildChoice, programs: Programs, name: str) -> Build:
    """Inspect a build and make its launchers; `name` is the device or guest, for the launchers and for errors.

    Raises:
        BuildError: its program is missing, is not for this host's processor, or lacks libraries; with a remedy.
        HostError: a command on the host failed.
    """
    if not programs:
        raise BuildError(f"{name}: it has no programs of its own and cannot have another build: remove {choice}")
    if isinstance(choice, GuestBuildChoice) and choice.kernel:
        folder = _Folder.read(host, choice.kernel, name)
        if not folder.has_kernel:
            raise BuildError(f"{name}: {choice.kernel} has no boot/vmlinuz-VERSION: name a folder with an unpacked linux-image")
        return Build(str(choice), choice.kernel, {}, kernel=PurePosixPath(choice.kernel))
    if choice.program:
        found = _executables(host, "", [choice.program])
        if not found:
            raise BuildError(f"{name}: {choice.program} is no executable file on {host.name}: name the device's program by its path")
        folder, chosen = _Folder(), {next(iter(programs)): found[choice.program]}
    else:
        assert choice.prefix is not None, "packages and images are unpacked first"
        folder = _Folder.read(host, choice.prefix, name)
        chosen = _choose(host, choice, programs, name, has_kernel=folder.has_kernel)
    launchers = {}
    for requested, program in chosen.items():
        command = _command(host, program, folder, name)
        launcher = host.folder / "builds" / name / PurePosixPath(requested).name
        host.write_text(launcher, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        host.run(["chmod", "755", str(launcher)])
        launchers[requested] = str(launcher)
    return Build(
        source=str(choice),
        root=choice.prefix,
        launchers=launchers,
        is_unpacked=isinstance(choice, StagedBuild),
        drivers=folder.drivers[1] if folder.drivers else None,
        kernel=PurePosixPath(choice.prefix) if choice.prefix and folder.has_kernel else None,
    )


@dataclass(frozen=True)
class _Folder:
    """The content of a build's folder except programs."""

    libraries: tuple[str, ...] = ()
    loader: str | None = None
    """The dynamic loader, if the build contains its C library: only its own loader matches it."""
    drivers: tuple[str, str] | None = None
    """Folder of DPDK's drivers, and the path at which its DPDK searches for them."""
    has_kernel: bool = False

    @classmethod
    def read(cls, host: Host, root: str, name: str) -> _Folder:
        listing = host.run(["sh", "-c", _LIBRARIES, "sh", root], check=False)
        if listing.status == 1:
            raise BuildError(f"{name}: there is no folder {root} on {host.name}: name the folder of the build, such as /opt/ovs-3.4")
        found: dict[str, list[str]] = {}
        for line in listing.stdout.splitlines():
            kind, _, path = line.partition("\t")
            found.setdefault(kind, []).append(path)
        drivers = found.get("drivers", [])
        here = f"{root.rstrip('/')}/{drivers[0]}" if drivers else ""
        return cls(
            libraries=tuple(found.get("libraries", [])),
            loader=found.get("loader", [None])[0],
            drivers=(here, f"/{drivers[0]}") if drivers and here != f"/{drivers[0]}" else None,
            has_kernel="kernel" in found,
        )


def _executables(host: Host, only: str, files: Sequence[str]) -> dict[str, str]:
    """Return the real paths of executable files, by given path."""
    output = host.run(["sh", "-c", _FIND, "sh", only, *files], check=False).stdout
    return dict((*line.split("\t"),) for line in output.splitlines())  # type: ignore[misc]


def _choose(host: Host, choice: BuildChoice, programs: Programs, name: str, *, has_kernel: bool) -> dict[str, str]:
    """Find the programs of a folder, by the name that drivers request."""
    root = str(choice.prefix).rstrip("/")
    wanted = {program: [path for each in names or (program,) for path in _places(root, each)] for program, names in programs.items()}
    only = f"{root}/" if isinstance(choice, StagedBuild) else ""
    found = _executables(host, only, [path for paths in wanted.values() for path in paths])
    chosen = {program: next((found[path] for path in paths if path in found), "") for program, paths in wanted.items()}
    main = next(iter(programs))
    if not chosen[main] and not (has_kernel and isinstance(choice, GuestBuildChoice)):
        names = " or ".join(dict.fromkeys(PurePosixPath(each).name for each in programs[main] or (main,)))
        raise BuildError(
            f"{name}: {choice} has no program {names} on {host.name}: searched {', '.join(_PROGRAM_FOLDERS[:-1])} and the folder "
            "itself; name another folder or package, or the executable as `program`"
        )
    return {program: path for program, path in chosen.items() if path}


def _places(root: str, name: str) -> list[str]:
    return [f"{root}/{name}"] if "/" in name else [f"{root}/{folder}/{name}" for folder in _PROGRAM_FOLDERS]


def _command(host: Host, program: str, folder: _Folder, name: str) -> list[str]:
    """Return the command that runs a program with the libraries and drivers of its build."""
    machine, own = _machine(host, program), _machine(host, "/proc/self/exe")
    if machine is None:
        # A script: its interpreter is the machine's.
        return [program]
    if machine != own:
        kinds = [_MACHINES.get(number, f"processor {number:#x}") for number in (machine, own or 0)]
        raise BuildError(f"{name}: {program} is a program for {kinds[0]}, and {host.name} is {kinds[1]}: use a build for {kinds[1]}")
    libraries = ":".join(folder.libraries)
    if folder.loader and host.run([folder.loader, "--verify", program], check=False).status != 1:
        command = [folder.loader, "--library-path", libraries, program]
        listed = host.run([*command[:-1], "--list", program], check=False).stdout
    else:
        command = ["env", f"LD_LIBRARY_PATH={libraries}", program] if libraries else [program]
        listed = host.run(["ldd", program], env={"LD_LIBRARY_PATH": libraries} if libraries else {}, check=False).stdout
    if missing := [line.split()[0] for line in listed.splitlines() if "=> not found" in line]:
        raise BuildError(
            f"{name}: libraries of {program} are missing on {host.name}: {', '.join(missing)}; install them, or add their packages to "
            "the build"
        )
    if folder.drivers and any("librte_eal" in line for line in listed.splitlines()):
        if host.run(["test", "-d", folder.drivers[1]], check=False).status:
            raise BuildError(
                f"{name}: its DPDK searches for drivers in {folder.drivers[1]}, which {host.name} lacks: install the package dpdk there"
            )
        return [*_MOUNT, *folder.drivers, *command]
    return command


def _machine(host: Host, program: str) -> int | None:
    """Return the processor of a program by its ELF number; None for a script."""
    dump = host.run(["od", "-An", "-v", "-tx1", "-N20", program], check=False).stdout
    head = "".join(dump.split())
    return int.from_bytes(bytes.fromhex(head[36:40]), "little") if head.startswith(_ELF) and len(head) == 40 else None


def presumed_build(choice: BuildChoice, programs: Programs) -> Build:
    """Return a build that is not unpacked yet, as if it had all its programs: to find out what else is needed."""
    return Build(str(choice), None, {program: program for program in programs})


class BuildHost(Host):
    """The host of a device that runs a build: programs of the build replace those of the host."""

    def __init__(self, host: Host, build: Build) -> None:
        """Wrap a host."""
        self._host = host
        self._build = build
        self._launchers = {PurePosixPath(program).name: launcher for program, launcher in build.launchers.items()}
        self.name = host.name
        self.folder = host.folder

    def run(self, argv: Sequence[str], **options: Any) -> Completed:  # noqa: ANN401 - as of any host
        """Run a command to its end."""
        return self._host.run(self._launched(argv), **options)

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Start a process."""
        return self._host.start(name, self._launched(argv), env=env, cpus=cpus)

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Write a file on the host."""
        self._host.write_text(path, text)

    def read_text(self, path: PurePosixPath) -> str:
        """Read a file of the host."""
        return self._host.read_text(path)

    def find_program(self, program: str) -> str | None:
        """Return the path of the build's program of that name, else of the host's."""
        return self._launchers.get(PurePosixPath(program).name) or self._host.find_program(program)

    def require(self, program: str, package: str) -> str:
        """Return the path of the build's program of that name, else of the host's."""
        return self._launchers.get(PurePosixPath(program).name) or self._host.require(program, package)

    def locate(self, path: str) -> str:
        """Return the path of the build's file, else of the host's."""
        if self._build.root is None:
            return self._host.locate(path)
        root = self._build.root.rstrip("/")
        places = [f"{root}{path}", f"{root}{path.removeprefix('/usr')}"]
        found = self._host.run(["sh", "-c", 'for file; do [ ! -e "$file" ] || echo "$file"; done', "sh", *places], check=False).stdout
        return found.splitlines()[0] if found else self._host.locate(path)

    def close(self) -> None:
        """Leave the host open."""

    def _launched(self, argv: Sequence[str]) -> list[str]:
        return [self._launchers.get(PurePosixPath(argv[0]).name, argv[0]), *argv[1:]]


_SUMS = """\
pid=$1; shift
sha256sum "/proc/$pid/exe" | sed "s|  .*|  $(readlink "/proc/$pid/exe")|"
[ $# = 0 ] || grep -o '/.*' "/proc/$pid/maps" | sort -u | while read -r file; do
    for root; do case $file in "$root"/*) sha256sum "$file" ;; esac; done
done
"""


def running_files(host: Host, processes: Sequence[Process], build: Build | None) -> dict[str, str]:
    """Return the SHA-256 sums of running files, by path: each process's executable, and the mapped files of its build's folder.

    Files that cannot be read, for example of a process that just ended, are left out.
    """
    roots = [root for root in (build.root, build.drivers) if root] if build else []
    sums: dict[str, str] = {}
    for process in processes:
        # Files have these paths only in the mount namespace of the process.
        argv = ["nsenter", "--mount", "--target", str(process.pid), "--", "sh", "-c", _SUMS, "sh", str(process.pid), *roots]
        try:
            output = host.run(argv, check=False, timeout_s=60.0).stdout
        except HostError:
            continue
        for line in output.splitlines():
            found, _, path = line.partition("  ")
            if path:
                sums[build.shown(path) if build else path] = found
    return sums


def file_sums(host: Host, files: Sequence[str], build: Build | None) -> dict[str, str]:
    """Return the SHA-256 sums of files, by path."""
    lines = host.run(["sha256sum", *files], check=False, timeout_s=60.0).stdout.splitlines() if files else []
    sums = (line.partition("  ") for line in lines)
    return {build.shown(path) if build else path: found for found, _, path in sums if path}
