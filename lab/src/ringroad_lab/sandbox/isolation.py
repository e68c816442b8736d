"""Settings that keep other programs off a run's processors for its duration, as tuned's profile cpu-partitioning does.

A keeper applies the settings that the kernel allows, reports them, and restores the old values at the end. Values that another program has
changed in the meantime are left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ringroad_lab.sandbox.keeper import be_keeper, keeper
from ringroad_lab.sandbox.processor_set import cpu_list, own_processors, read_cpu_list

KEEPER_TIMEOUT_S = 60.0
# Documentation/power/pm_qos_interface.rst: a process that holds the file open limits the wake-up latency, us, as a binary number. All but
# the shallowest idle states of usual processors take longer.
_WAKE_UP_US = 2
_IRQBALANCE_TIMEOUT_S = 2.0
REFUSED = "refused"


class IsolationLevel(StrEnum):
    """Changes of this machine that a run can make until its end, to reduce disturbances."""

    OFF = "off"
    """No change."""
    SETTINGS = "settings"
    """Settings of the run's processors and of the kernel: frequency, idle states, interrupts, kernel work that other processors can do."""
    FULL = "full"
    """The same, and other programs are kept off the run's processors."""


@dataclass(frozen=True)
class Isolation:
    """Result of isolating processors."""

    facts: dict[str, str] = field(default_factory=dict)
    """The requested level, and for each setting, by name, its applied value, that it is not available, or why it was refused."""
    enter: Path | None = None
    """The file that a process writes its PID to in order to use the run's processors; None if no processor set was created."""

    def refused(self) -> tuple[str, ...]:
        """Return the refused settings, a sentence each."""
        return tuple(f"Isolation: {name}: {text}." for name, text in self.facts.items() if text.startswith(REFUSED))


@contextmanager
def isolated(level: IsolationLevel, processors: Set[int], root: Path = Path("/")) -> Iterator[Isolation]:
    """Isolate processors until the block or this process ends, as far as the kernel allows.

    Args:
        level: Which settings to change.
        processors: The run's processors.
        root: Folder of /sys, /proc, /dev and /run.
    """
    facts = {"level": level.value}
    if level is IsolationLevel.OFF:
        yield Isolation(facts)
        return
    args = [level.value, cpu_list(processors), str(root)]
    with keeper(__name__, args, KEEPER_TIMEOUT_S) as (answer, _):
        if not answer:
            yield Isolation(facts | {"all": f"{REFUSED}: the keeper process {'timed out' if answer is None else 'ended'}"})
            return
        applied = json.loads(answer)
        facts |= {"processors": cpu_list(processors)} | applied["facts"]
        yield Isolation(facts, Path(applied["enter"]) if applied["enter"] else None)


def main(argv: list[str]) -> int:
    """Run as a keeper."""
    be_keeper()
    level, processors, root = IsolationLevel(argv[0]), read_cpu_list(argv[1]), Path(argv[2])
    with ExitStack() as undo:
        facts, enter = _apply(level, processors, root, undo)
        print(json.dumps({"facts": facts, "enter": str(enter) if enter else None}), flush=True)
        sys.stdin.read()
    return 0


def _apply(level: IsolationLevel, processors: frozenset[int], root: Path, undo: ExitStack) -> tuple[dict[str, str], Path | None]:
    if not _is_alone(root, undo):
        return {"all": f"{REFUSED}: another run isolates its processors"}, None
    cpus = root / "sys/devices/system/cpu"
    online = read_cpu_list((cpus / "online").read_text())
    governors = [cpus / f"cpu{number}/cpufreq/scaling_governor" for number in sorted(processors)]
    facts = {
        "frequency governor": _set_all(dict.fromkeys(governors, "performance"), undo, "processors have no frequency settings"),
        "idle states": _bound_wake_up(root / "dev/cpu_dma_latency", undo),
        "irqbalance": _configure_irqbalance(root / "run/irqbalance", processors, undo),
        "interrupts": _move_interrupts(root / "proc/irq", processors, online, undo),
        "kernel's work": _set_all(
            {
                file: _mask(read_mask(file.read_text()) - processors)
                for file in sorted((root / "sys/devices/virtual/workqueue").rglob("cpumask"))
                if read_mask(file.read_text()) - processors
            },
            undo,
            "no processor list for it, or no other processor",
        ),
        "kernel's watches": _set_all(
            {
                root / "proc/sys/kernel/numa_balancing": "0",
                root / "proc/sys/kernel/nmi_watchdog": "0",
                root / "proc/sys/vm/stat_interval": "10",
            },
            undo,
            "none of them",
        ),
        "tuned": _tuned(root),
    }
    enter = None
    if level is IsolationLevel.FULL:
        facts["other programs"], enter = own_processors(processors, undo, root / "sys/fs/cgroup")
    return facts, enter


def _is_alone(root: Path, undo: ExitStack) -> bool:
    """Return whether no other run isolates processors: two runs would restore each other's values."""
    folder = root / "run/lock"
    folder.mkdir(parents=True, exist_ok=True)
    # O_NOFOLLOW: another user may have created a link with this name.
    lock = os.open(folder / "ringroad-lab-isolation", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    undo.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _set_all(values: dict[Path, str], undo: ExitStack, absent: str) -> str:
    """Write a value into each existing file, and return a description of the result."""
    existing = {file: value for file, value in values.items() if file.exists()}
    if not existing:
        return f"not available: {absent}"
    problems = [problem for file, value in existing.items() if (problem := _set(file, value, undo))]
    names = ", ".join(dict.fromkeys(f"{file.name} {value}" for file, value in existing.items()))
    done = len(existing) - len(problems)
    if not done:
        return f"{REFUSED}: {problems[0]}"
    return f"{names}: {done} of {len(existing)}" + (f"; {REFUSED}: {problems[0]}" if problems else "")


def _set(file: Path, value: str, undo: ExitStack) -> str:
    """Write a value; return an error text, empty on success."""
    try:
        before = file.read_text().strip()
        if before == value:
            return ""
        file.write_text(value)
        now = file.read_text().strip()
    except OSError as error:
        return f"{file}: {error.strerror}"
    if now == before:
        return f"{file} stays {before}"
    undo.callback(_put_back, file, now, before)
    return ""


def _put_back(file: Path, now: str, before: str) -> None:
    with suppress(OSError):
        if file.read_text().strip() == now:
            file.write_text(before)


def _bound_wake_up(file: Path, undo: ExitStack) -> str:
    if not file.exists():
        return "not available: the kernel cannot limit idle states"
    try:
        held = undo.enter_context(file.open("wb", buffering=0))
        held.write(_WAKE_UP_US.to_bytes(4, sys.byteorder))
    except OSError as error:
        return f"{REFUSED}: {file}: {error.strerror}"
    return f"none that takes more than {_WAKE_UP_US} us to wake up, on all processors"


def _move_interrupts(folder: Path, processors: frozenset[int], online: frozenset[int], undo: ExitStack) -> str:
    """Move interrupts to other processors, also those that devices request later."""
    others = online - processors
    if not others:
        return f"{REFUSED}: no processor would be left for them; name fewer in `cpus`"
    default = folder / "default_smp_affinity"
    if default.exists():
        _set(default, _mask(others), undo)
    moved = kept = 0
    for file in sorted(folder.glob("[0-9]*/smp_affinity_list")):
        try:
            now = read_cpu_list(file.read_text())
        except OSError:
            continue
        if now & processors:
            is_moved = not _set(file, cpu_list(now - processors or others), undo)
            moved, kept = moved + is_moved, kept + (not is_moved)
    return f"{moved} moved to other processors, {kept} that the kernel does not move"


def _configure_irqbalance(folder: Path, processors: frozenset[int], undo: ExitStack) -> str:
    """Configure irqbalance to leave the run's processors alone (irqbalance(1), API)."""
    sockets = sorted(folder.glob("irqbalance*.sock"))
    if not sockets:
        return "not available: it is not running"
    try:
        before = read_mask(_ask(sockets[0], "setup").partition("BANNED ")[2].split()[0])
        _ask(sockets[0], f"settings cpus {cpu_list(before | processors)}")
    except (OSError, ValueError, IndexError) as error:
        return f"{REFUSED}: {sockets[0]}: {error}"
    undo.callback(_put_back_irqbalance, sockets[0], before)
    return f"configured to leave processors {cpu_list(before | processors)} alone"


def _put_back_irqbalance(path: Path, before: frozenset[int]) -> None:
    with suppress(OSError):
        # NULL lets irqbalance determine by itself which processors to leave alone.
        _ask(path, f"settings cpus {cpu_list(before) or 'NULL'}")


def _ask(path: Path, text: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_IRQBALANCE_TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(65536).decode(errors="replace")


def _tuned(root: Path) -> str:
    """Return whether tuned runs: the settings to be restored include tuned's."""
    profile = root / "etc/tuned/active_profile"
    if not (root / "run/tuned/tuned.pid").exists():
        return "not available: it is not running"
    return f"runs with profile {profile.read_text().strip() if profile.exists() else 'unknown'}; its settings are restored at the end"


def read_mask(text: str) -> frozenset[int]:
    """Parse a processor mask in the kernel's format: `ff,00000001`."""
    bits = int(text.strip().replace(",", "") or "0", 16)
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _mask(processors: frozenset[int]) -> str:
    """Format processors as a mask of the kernel: groups of 32 bits."""
    bits = f"{sum(1 << number for number in processors):x}"
    groups = [bits[max(0, end - 8) : end] for end in range(len(bits), 0, -8)]
    return ",".join(reversed(groups))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
