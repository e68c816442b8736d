"""Facts of processors: model, microcode, frequency, idle states, mitigations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringroad_lab.cost import read_cycles
from ringroad_lab.host.interface import Host
from ringroad_lab.host.sysfs import UNKNOWN, fact, same_or_each
from ringroad_lab.package_names import package_name

CPU = "/sys/devices/system/cpu"
PATTERNS = (
    "/proc/cpuinfo",
    f"{CPU}/online",
    f"{CPU}/isolated",
    f"{CPU}/nohz_full",
    f"{CPU}/smt/active",
    f"{CPU}/smt/control",
    f"{CPU}/intel_pstate/no_turbo",
    f"{CPU}/cpufreq/boost",
    f"{CPU}/cpuidle/current_driver",
    f"{CPU}/cpuidle/current_governor",
    f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor",
    f"{CPU}/cpu[0-9]*/cpufreq/scaling_driver",
    f"{CPU}/cpu[0-9]*/cpufreq/scaling_min_freq",
    f"{CPU}/cpu[0-9]*/cpufreq/scaling_max_freq",
    f"{CPU}/cpu0/cpuidle/state[0-9]*/name",
    f"{CPU}/cpu0/cpuidle/state[0-9]*/disable",
    f"{CPU}/vulnerabilities/*",
)


def processor_facts(files: Mapping[str, str]) -> dict[str, str]:
    """Return facts of the processors."""
    cpuinfo = _cpuinfo(fact(files, "/proc/cpuinfo"))
    first = cpuinfo[0] if cpuinfo else {}
    sockets = {entry["physical id"] for entry in cpuinfo if "physical id" in entry}
    cores = {(entry.get("physical id"), entry["core id"]) for entry in cpuinfo if "core id" in entry}
    return {
        "model": first.get("model name", UNKNOWN),
        "family, model, stepping": " ".join(first[key] for key in ("cpu family", "model", "stepping") if key in first) or UNKNOWN,
        "microcode": first.get("microcode", UNKNOWN),
        "sockets": str(len(sockets) or UNKNOWN),
        "cores": str(len(cores) or UNKNOWN),
        "online": fact(files, f"{CPU}/online"),
        "cache": first.get("cache size", UNKNOWN),
        "SMT": fact(files, f"{CPU}/smt/control"),
        "frequency governor": same_or_each(_each(files, "cpufreq/scaling_governor")),
        "frequency driver": same_or_each(_each(files, "cpufreq/scaling_driver")),
        "least frequency": same_or_each(_frequencies(files, "scaling_min_freq")),
        "greatest frequency": same_or_each(_frequencies(files, "scaling_max_freq")),
        "frequency at the start": same_or_each({f"cpu{cpu['processor']}": f"{cpu['cpu MHz']} MHz" for cpu in cpuinfo if "cpu MHz" in cpu}),
        "turbo": _turbo(files),
        "C-states": _idle_states(files),
        "idle driver": fact(files, f"{CPU}/cpuidle/current_driver"),
        "idle governor": fact(files, f"{CPU}/cpuidle/current_governor"),
    }


def counter_facts(host: Host) -> dict[str, str]:
    """Return whether programs can read the processors' cycle counters, which the cost of a frame in cycles needs."""
    if host.find_program("perf") is None:
        return {"processor cycles": f"unknown: perf is not installed ({package_name('linux-perf')})"}
    completed = host.run(["perf", "stat", "--field-separator", ",", "--event", "cycles", "true"], check=False)
    if completed.status:
        return {"processor cycles": f"unknown: perf ended with status {completed.status}"}
    has_counter = read_cycles(completed.stderr) is not None
    return {"processor cycles": "yes" if has_counter else "none: the processor has no cycle counter, or the hypervisor hides it"}


def mitigation_facts(files: Mapping[str, str]) -> dict[str, str]:
    """Return the kernel's status of each processor vulnerability."""
    folder = f"{CPU}/vulnerabilities/"
    return {path.removeprefix(folder): text for path, text in sorted(files.items()) if path.startswith(folder)}


def has_flag(files: Mapping[str, str], flag: str) -> bool:
    """Return whether the first processor has a feature."""
    cpuinfo = _cpuinfo(files.get("/proc/cpuinfo", ""))
    return bool(cpuinfo) and flag in cpuinfo[0].get("flags", "").split()


def _cpuinfo(text: str) -> list[dict[str, str]]:
    entries = []
    for block in re.split(r"\n\s*\n", text):
        pairs = [line.partition(":") for line in block.splitlines() if ":" in line]
        entry = {key.strip(): value.strip() for key, _, value in pairs}
        if "processor" in entry:
            entries.append(entry)
    return entries


def _each(files: Mapping[str, str], name: str) -> dict[str, str]:
    pattern = re.compile(rf"{CPU}/(cpu\d+)/{re.escape(name)}")
    return {found[1]: text for path, text in files.items() if (found := pattern.fullmatch(path))}


def _frequencies(files: Mapping[str, str], name: str) -> dict[str, str]:
    return {cpu: f"{int(khz) / 1000:g} MHz" for cpu, khz in _each(files, f"cpufreq/{name}").items() if khz.isdecimal()}


def _turbo(files: Mapping[str, str]) -> str:
    if (no_turbo := files.get(f"{CPU}/intel_pstate/no_turbo")) is not None:
        return "off" if no_turbo == "1" else "on"
    if (boost := files.get(f"{CPU}/cpufreq/boost")) is not None:
        return "on" if boost == "1" else "off"
    return UNKNOWN


def _idle_states(files: Mapping[str, str]) -> str:
    names = {path.rpartition("/")[0]: text for path, text in files.items() if "/cpuidle/state" in path and path.endswith("/name")}
    states = [f"{name}{' (disabled)' if files.get(f'{state}/disable') == '1' else ''}" for state, name in sorted(names.items())]
    return ", ".join(states) or UNKNOWN
