"""Parsers of the output of Open vSwitch's tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_PORT = re.compile(r"^\s*port\s+(\S+?):")
_COUNTER = re.compile(r"(\w+)=(\d+)")
_THREAD = re.compile(r"^(pmd thread numa_id (\d+) core_id (\d+)|main thread):$")
_THREAD_COUNTER = re.compile(r"^\s+([a-z][a-z ./]*): ([\d.]+)")
_DROP = re.compile(r"^(datapath_drop_\w+|drop_action_\w+|netdev_\w*drop\w*)\s.*total: (\d+)", re.MULTILINE)


def parse_ports(text: str) -> dict[str, int]:
    """Parse `ovs-ofctl -O OpenFlow14 dump-ports`: counters of the numbered ports, as `PORT.COUNTER`.

    `rx_frames`, `tx_frames`, `rx_bytes`, `tx_bytes`, `rx_drops`, `rx_errors`, ..., and causes of drops such as `ovs_tx_failure_drops`
    if the port reports them. Counters that the port does not have (`?`) are left out.
    """
    names = {"pkts": "frames", "drop": "drops", "errs": "errors", "frame": "frame_errors", "over": "overruns", "crc": "crc_errors"}
    result: dict[str, int] = {}
    port = direction = ""
    for line in text.splitlines():
        if match := _PORT.match(line):
            port = match[1]
        elif re.match(r"^OFPST_PORT", line):
            continue
        if re.search(r"\brx pkts=", line):
            direction = "rx_"
        elif re.search(r"\btx pkts=", line):
            direction = "tx_"
        elif "CUSTOM" in line:
            direction = ""
        elif "duration=" in line:
            continue
        if port.isdigit():
            for name, value in _COUNTER.findall(line):
                result[f"{port}.{direction}{names.get(name, name) if direction else name}"] = int(value)
    return result


def parse_polling_threads(text: str) -> dict[str, int]:
    """Parse `dpif-netdev/pmd-stats-show`: counters of each thread, as `cpu1.packets_received`; the main thread's as `main.…`.

    Cycles per packet are rounded to whole cycles.
    """
    result: dict[str, int] = {}
    thread = ""
    for line in text.splitlines():
        if match := _THREAD.match(line):
            thread = f"cpu{match[3]}" if match[3] else "main"
        elif thread and (match := _THREAD_COUNTER.match(line)):
            name = re.sub(r"[^a-z]+", "_", match[1].strip())
            result[f"{thread}.{name}"] = round(float(match[2]))
    return result


class PollingCycles(NamedTuple):
    """Cycles of all polling threads."""

    threads: int
    processing: int
    """Spent on frames."""
    all: int


def polling_cycles(counters: Mapping[str, int]) -> PollingCycles | None:
    """Sum the cycles that [`parse_polling_threads`] found; None if no thread polls."""
    threads = [name.partition(".")[0] for name in counters if name.endswith(".idle_cycles") and not name.startswith("main.")]
    processing = sum(counters.get(f"{thread}.processing_cycles", 0) for thread in threads)
    idle = sum(counters[f"{thread}.idle_cycles"] for thread in threads)
    return PollingCycles(len(threads), processing, processing + idle) if threads else None


def parse_drops(text: str) -> dict[str, int]:
    """Parse `coverage/show`: drops of the datapath, by cause."""
    return {name: int(total) for name, total in _DROP.findall(text)}


def parse_version(text: str) -> dict[str, str]:
    """Parse `ovs-vswitchd --version`."""
    result = {}
    if match := re.search(r"\(Open vSwitch\) (\S+)", text):
        result["Open vSwitch"] = match[1]
    if match := re.search(r"^DPDK (\S+)", text, re.MULTILINE):
        result["DPDK"] = match[1]
    return result


def parse_interfaces(table: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 (it is JSON)
    """Parse the table that `ovs-vsctl --format=json list interface` prints: columns by name of the interface.

    OVSDB's maps become dicts; its empty sets, None.

    Raises:
        ValueError: it is not such a table.
    """
    try:
        rows = [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]
        return {row["name"]: {name: _plain(value) for name, value in row.items()} for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a table of interfaces as ovs-vsctl prints it: {error!r}") from error


def _plain(value: Any) -> Any:  # noqa: ANN401
    match value:
        case ["map", pairs]:
            return dict(pairs)
        case ["set", []]:
            return None
        case _:
            return value
