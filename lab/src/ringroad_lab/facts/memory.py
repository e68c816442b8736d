"""Facts of memory: size, NUMA nodes, pages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringroad_lab.host.sysfs import UNKNOWN, fact

NODE = "/sys/devices/system/node"
PAGES = "/sys/kernel/mm"
PATTERNS = (
    "/proc/meminfo",
    f"{NODE}/online",
    f"{NODE}/node[0-9]*/cpulist",
    f"{NODE}/node[0-9]*/meminfo",
    f"{PAGES}/hugepages/hugepages-*/nr_hugepages",
    f"{PAGES}/hugepages/hugepages-*/free_hugepages",
    f"{PAGES}/transparent_hugepage/enabled",
    f"{PAGES}/transparent_hugepage/defrag",
    f"{PAGES}/ksm/run",
    "/proc/sys/vm/swappiness",
    "/proc/sys/kernel/numa_balancing",
)


def memory_facts(files: Mapping[str, str], modules: str) -> dict[str, str]:
    """Return facts of the memory; `modules` is the output of `dmidecode --type memory`, which may be empty."""
    meminfo = fact(files, "/proc/meminfo")
    facts = {
        "total": _kib(meminfo, "MemTotal"),
        "available at the start": _kib(meminfo, "MemAvailable"),
        "swap": _kib(meminfo, "SwapTotal"),
        "swappiness": fact(files, "/proc/sys/vm/swappiness"),
        "modules": _modules(modules),
        "NUMA nodes": fact(files, f"{NODE}/online"),
        "NUMA balancing": fact(files, "/proc/sys/kernel/numa_balancing"),
        "same-page merging": fact(files, f"{PAGES}/ksm/run"),
    }
    for path, cpus in sorted(files.items()):
        if found := re.fullmatch(rf"{NODE}/(node\d+)/cpulist", path):
            size = _kib(files.get(f"{NODE}/{found[1]}/meminfo", ""), "MemTotal")
            facts[found[1]] = f"processors {cpus or 'none'}, {size}"
    return facts


def huge_page_facts(files: Mapping[str, str]) -> dict[str, str]:
    """Return the reserved huge pages, and the settings of transparent huge pages."""
    facts = {}
    for path, count in sorted(files.items()):
        if found := re.fullmatch(rf"{PAGES}/hugepages/hugepages-(\d+)kB/nr_hugepages", path):
            free = fact(files, path.replace("nr_hugepages", "free_hugepages"))
            kib = int(found[1])
            facts[f"{kib // 1024} MiB" if kib >= 1024 else f"{kib} KiB"] = f"{count}, {free} free"
    facts["transparent"] = _chosen(fact(files, f"{PAGES}/transparent_hugepage/enabled"))
    facts["transparent, defragmentation"] = _chosen(fact(files, f"{PAGES}/transparent_hugepage/defrag"))
    return facts


def _kib(text: str, name: str) -> str:
    found = re.search(rf"\b{name}:\s+(\d+) kB", text)
    return f"{int(found[1]) / 2**20:.2f} GiB" if found else UNKNOWN


def _chosen(text: str) -> str:
    """Return the word in brackets, which marks the active value in sysfs."""
    found = re.search(r"\[(.+?)\]", text)
    return found[1] if found else text


def _modules(text: str) -> str:
    """Return size, kind and speed of memory modules."""
    kinds: dict[str, int] = {}
    for block in text.split("Memory Device")[1:]:
        values = dict(re.findall(r"^\s*(Size|Type|Speed|Configured Memory Speed):\s*(.+?)\s*$", block, re.MULTILINE))
        if values.get("Size", "No")[0].isdecimal():
            speed = values.get("Configured Memory Speed") or values.get("Speed", UNKNOWN)
            kind = f"{values['Size']} {values.get('Type', UNKNOWN)}, {speed}"
            kinds[kind] = kinds.get(kind, 0) + 1
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.items()) or UNKNOWN
