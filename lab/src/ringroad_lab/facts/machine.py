"""Facts of a machine, read through its host: other machines in the same way as this one. An unavailable fact is `unknown`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from ringroad_lab.facts import memory, network_cards, processor
from ringroad_lab.host.interface import Host
from ringroad_lab.host.sysfs import UNKNOWN, fact, read_files, read_first

DMI = "/sys/class/dmi/id"
_PATTERNS = (
    "/etc/machine-id",
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/version",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/nmi_watchdog",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/sys/hypervisor/type",
    "/sys/kernel/debug/sched/preempt",
    *(f"{DMI}/{name}" for name in ("sys_vendor", "product_name")),
    *(f"{DMI}/{name}" for name in ("board_vendor", "board_name", "board_version", "bios_vendor", "bios_version", "bios_date")),
)
_ISOLATION_PARAMETERS = ("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity")


def machine_facts(host: Host, cpus: Mapping[str, frozenset[int]] | None = None) -> dict[str, dict[str, str]]:
    """Return facts by group and name; `cpus` are the processors of each role in the run.

    Raises:
        HostError: the host cannot be reached.
    """
    files = read_files(host, (*_PATTERNS, *processor.PATTERNS, *memory.PATTERNS, *network_cards.PATTERNS))
    return {
        "machine": _board(files, host),
        "system": _system(files),
        "processor": processor.processor_facts(files),
        "counters": processor.counter_facts(host),
        "processors used": {role: ", ".join(map(str, sorted(used))) or "any" for role, used in (cpus or {}).items()},
        "memory": memory.memory_facts(files, _dmidecode(host)),
        "huge pages": memory.huge_page_facts(files),
        "kernel": _kernel(files),
        "isolation": _isolation(files) | network_cards.interrupt_facts(files),
        "mitigations": processor.mitigation_facts(files) or {"all": UNKNOWN},
        "network cards": network_cards.card_facts(files, host),
        "offloads of network cards": network_cards.offload_facts(files, host),
        "network": network_cards.network_facts(files),
    }


def _board(files: Mapping[str, str], host: Host) -> dict[str, str]:
    virtualization = read_first(host, ["systemd-detect-virt", "--vm"])
    if virtualization == UNKNOWN:
        virtualization = fact(files, "/sys/hypervisor/type")
    if virtualization == UNKNOWN and processor.has_flag(files, "hypervisor"):
        virtualization = "a hypervisor, of unknown kind"
    return {
        "name": read_first(host, ["uname", "-n"]),
        "id": _identity(files),
        "vendor": fact(files, f"{DMI}/sys_vendor"),
        "product": fact(files, f"{DMI}/product_name"),
        "board": " ".join(filter(None, (files.get(f"{DMI}/board_{part}") for part in ("vendor", "name", "version")))) or UNKNOWN,
        "firmware": " ".join(filter(None, (files.get(f"{DMI}/bios_{part}") for part in ("vendor", "version", "date")))) or UNKNOWN,
        "virtualization": virtualization,
        "container": read_first(host, ["systemd-detect-virt", "--container"]),
    }


def _identity(files: Mapping[str, str]) -> str:
    """Return an id that does not change while the system is installed: a hash, as the machine's own id is confidential (machine-id(5))."""
    own = fact(files, "/etc/machine-id")
    return own if own == UNKNOWN else sha256(f"ringroad-lab {own}".encode()).hexdigest()[:16]


def is_same_machine(facts: Mapping[str, Mapping[str, str]], others: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether two runs were on one machine, by its id; by its name if one run has no id, as runs of an older ringroad-lab."""
    one, other = facts.get("machine", {}), others.get("machine", {})
    ids = [each.get("id", UNKNOWN) for each in (one, other)]
    return ids[0] == ids[1] if UNKNOWN not in ids else one.get("name") == other.get("name")


def _system(files: Mapping[str, str]) -> dict[str, str]:
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', files.get("/etc/os-release", ""), re.MULTILINE))
    return {"name": release.get("PRETTY_NAME", UNKNOWN), "id": release.get("ID", UNKNOWN), "version": release.get("VERSION_ID", UNKNOWN)}


def _kernel(files: Mapping[str, str]) -> dict[str, str]:
    clock = "/sys/devices/system/clocksource/clocksource0"
    return {
        "release": fact(files, "/proc/sys/kernel/osrelease"),
        "version": fact(files, "/proc/version"),
        "parameters": fact(files, "/proc/cmdline"),
        "clock source": fact(files, f"{clock}/current_clocksource"),
        "clock sources available": fact(files, f"{clock}/available_clocksource"),
        "preemption": _preemption(files),
        "sched_rt_runtime_us": fact(files, "/proc/sys/kernel/sched_rt_runtime_us"),
        "nmi_watchdog": fact(files, "/proc/sys/kernel/nmi_watchdog"),
    }


def _preemption(files: Mapping[str, str]) -> str:
    if found := re.search(r"\((\w+)\)", files.get("/sys/kernel/debug/sched/preempt", "")):
        return found[1]
    version = files.get("/proc/version", "")
    return next((kind for kind in ("PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT") if kind in version), "none or unknown")


def _isolation(files: Mapping[str, str]) -> dict[str, str]:
    parameters = dict(word.partition("=")[::2] for word in files.get("/proc/cmdline", "").split())
    facts = {name: parameters.get(name) or "not set" for name in _ISOLATION_PARAMETERS}
    if "/proc/cmdline" not in files:
        facts = dict.fromkeys(_ISOLATION_PARAMETERS, UNKNOWN)
    facts["isolated processors"] = files.get(f"{processor.CPU}/isolated", UNKNOWN) or "none"
    return facts


def _dmidecode(host: Host) -> str:
    if host.find_program("dmidecode") is None:
        return ""
    completed = host.run(["dmidecode", "--type", "memory"], check=False)
    return completed.stdout if completed.status == 0 else ""
