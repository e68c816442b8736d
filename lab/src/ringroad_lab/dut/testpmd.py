"""DPDK's testpmd as a switch that forwards between the two ports of a pair."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.deadline import wait_until_none
from ringroad_lab.dut.dpdk_veth import DpdkVeth, VethMode
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement, Rule
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.host.interface import Process
from ringroad_lab.record import LogExcerpt

MEMORY_MIB = 256
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
_CYCLES = re.compile(r"total cycles=(\d+) / total \w+ packets=\d+\) at (\d+) MHz")
_ANSWER = re.compile(r"show fwd stats all\n.*?asked-\d+\.\nCommand not found\n(testpmd> )?", re.DOTALL)
_DROPPED = re.compile(r"Forward statistics for port (\d+) .*\n.*\n\s*TX-packets: \d+\s+TX-dropped: (\d+)")
# Names in `rte_eth_stats`, and the lab's common names of counters.
COUNTERS = {
    "ipackets": "rx_frames",
    "opackets": "tx_frames",
    "imissed": "rx_missed",
    "ierrors": "rx_errors",
    "oerrors": "tx_errors",
    "rx_nombuf": "rx_no_buffer",
}


class ForwardMode(StrEnum):
    """Ways in which testpmd processes a frame (testpmd's user guide, "set fwd")."""

    IO = "io"
    """Forwards it unchanged."""
    MACSWAP = "macswap"
    """Swaps its addresses."""
    CSUM = "csum"
    """Parses its headers and recomputes their checksums."""


class TestpmdSettings(DutSettings):
    """Settings of testpmd."""

    forward_mode: ForwardMode = ForwardMode.IO
    veth_mode: VethMode = VethMode.AF_XDP
    """Driver of its ports on veth pairs."""
    descriptors: Annotated[int, Field(ge=64, le=4096)] = 1024
    """Descriptors of each ring."""
    burst_frames: Annotated[int, Field(ge=1, le=512)] = 32
    """Maximum frames of a burst."""
    mbufs: Annotated[int, Field(ge=2048, le=65536)] = 16384
    """Number of buffers of all ports together."""


class Testpmd(Dut):
    """One polling process; its processor time does not depend on its load."""

    title: ClassVar[str] = "DPDK testpmd"
    settings_type: ClassVar[type[DutSettings]] = TestpmdSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VHOST_USER, CableKind.MEMIF, CableKind.VETH, CableKind.VFIO})
    received_counters: ClassVar[tuple[str, ...]] = ("rx_frames", "rx_missed")
    no_room_counters: ClassVar[Mapping[CableKind, str]] = dict.fromkeys((CableKind.VHOST_USER, CableKind.MEMIF), "tx_dropped")
    huge_pages_mib: ClassVar[int] = MEMORY_MIB
    build_programs: ClassVar[Programs] = {"dpdk-testpmd": ()}
    settings: TestpmdSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings."""
        super().__init__(settings, placement)
        if not placement.cpus:
            raise DutError(f"{self.title}: no processor is reserved for it")
        self._prefix = f"testpmd-{placement.host.folder.name[-8:]}"
        # Folder of DPDK's sockets (EAL, eal_create_runtime_dir).
        self._env = {"RUNTIME_DIRECTORY": str(placement.host.folder)}
        self._commands = placement.host.folder / f"{self._prefix}.commands"
        self._veth = DpdkVeth(self, self.settings.veth_mode)
        self._process: Process | None = None
        self._queries = 0
        """Number of queries of the forward statistics so far."""
        self._ports: tuple[DutPort, ...] = ()
        """Ports in the order of DPDK's port numbers."""
        self._port_list: list[int] = []
        """DPDK's port numbers, the two of each pair adjacent."""

    def prepare(self) -> None:
        """Check for testpmd and for the client of its counters."""
        self._program = self.host.require("dpdk-testpmd", "dpdk-dev")
        self.host.require("stdbuf", "coreutils")
        self._telemetry = self.host.require("dpdk-telemetry.py", "dpdk")
        self._veth.prepare()

    def start(self) -> None:
        """Start the daemon of its libpcap; testpmd itself takes its ports as start arguments."""
        self._veth.start()

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Start testpmd with its ports, the two of each pair adjacent."""
        by_number = {port.number: port for port in ports}
        pairs = sorted({(min(rule.in_port, rule.out_port), max(rule.in_port, rule.out_port)) for rule in rules})
        both_ways = {(rule.in_port, rule.out_port) for rule in rules} == {way for a, b in pairs for way in ((a, b), (b, a))}
        if not both_ways or len({number for pair in pairs for number in pair}) != 2 * len(pairs):
            raise DutError(f"{self.title} joins ports in pairs, both ways: it does not support the rules {list(rules)}")
        paired = [by_number[number] for pair in pairs for number in pair]
        # DPDK probes cards first, in the order of their addresses, and then creates its virtual devices.
        cards = sorted((port for port in paired if port.cable.kind is CableKind.VFIO), key=lambda port: port.cable.dut_end)
        self._ports = (*cards, *(port for port in paired if port.cable.kind is not CableKind.VFIO))
        self._port_list = [self._ports.index(port) for port in paired]
        # --lcores binds the forwarding threads, which never sleep. The threads that set up ports must not wait behind them: DPDK
        # runs those on other processors, and they are idle while frames pass.
        self._process = self.launch("testpmd", self._command(), env=self._env, is_bound=False)
        # testpmd prints this when it polls its ports, whether or not the other ends are connected.
        if why := self._process.why_silent("packet forwarding - ports=", START_TIMEOUT_S):
            raise DutError(f"{self.title} did not start: it {why}")

    def _command(self) -> list[str]:
        cpus = sorted(self.placement.cpus)
        queues = self.placement.queues
        cores = min(len(cpus), len(self._ports) * queues)
        # The main thread sleeps while the others forward: it can share the first one's processor.
        lcores = ",".join([f"0@{cpus[0]}", *(f"{number}@{cpu}" for number, cpu in enumerate(cpus[:cores], start=1))])
        cards = [f"--allow={port.cable.dut_end}" for port in self._ports if port.cable.kind is CableKind.VFIO]
        # DPDK refuses both at once. A back end or a peer maps few regions, so memory must be in few segments.
        memory = ["--in-memory", "--single-file-segments"] if self.placement.huge_pages else ["--no-huge"]
        return [
            # testpmd reads commands from a pipe that stays open: it exits at the end of its input.
            "sh",
            "-c",
            'mkfifo "$0" && exec "$@" <>"$0"',
            str(self._commands),
            # Standard output is not a terminal: without this it would be buffered.
            "stdbuf",
            "-oL",
            *self._veth.command([self._program]),
            f"--lcores={lcores}",
            *(cards or ["--no-pci"]),
            *memory,
            f"-m{MEMORY_MIB}",
            f"--file-prefix={self._prefix}",
            *(
                f"--vdev={self._device(number, port.cable)}"
                for number, port in enumerate(self._ports)
                if port.cable.kind is not CableKind.VFIO
            ),
            "--",
            f"--forward-mode={self.settings.forward_mode}",
            "--port-topology=paired",
            f"--portlist={','.join(map(str, self._port_list))}",
            f"--nb-cores={cores}",
            f"--rxq={queues}",
            f"--txq={queues}",
            f"--rxd={self.settings.descriptors}",
            f"--txd={self.settings.descriptors}",
            f"--burst={self.settings.burst_frames}",
            f"--total-num-mbufs={self.settings.mbufs}",
            "--no-mlockall",
            # The far ends connect later: testpmd would wait for their links for 9 s.
            "--disable-link-check",
            "--no-lsc-interrupt",
            "--auto-start",
            "--interactive",
            "--record-core-cycles",
        ]

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every link is up."""

        def down() -> list[str]:
            answers = self._query([f"/ethdev/link_status,{index}" for index in range(len(self._ports))])
            return [
                f"{port.number} ({port.cable.dut_end})"
                for port, answer in zip(self._ports, answers, strict=True)
                if answer.get("status") != "UP"
            ]

        if left := wait_until_none(down, timeout_s, 0.05):
            raise DutError(f"{self.title}: port {', '.join(left)} is not up after {timeout_s:g} s: is its other end connected?")

    def check(self) -> None:
        """Check that testpmd is running."""
        if why := self._process.death() if self._process else "was not started":
            raise DutError(f"{self.title} {why}")
        self._veth.check()

    def collect(self) -> dict[str, int]:
        """Return the counters of its ports."""
        collected = {}
        answers = self._query([f"/ethdev/stats,{index}" for index in range(len(self._ports))])
        for port, answer in zip(self._ports, answers, strict=True):
            for dpdk_name, name in COUNTERS.items():
                if isinstance(value := answer.get(dpdk_name), int):
                    collected[f"{port.number}.{name}"] = value
        # DPDK's counters do not include frames that testpmd dropped at a full ring.
        for index, frames in dropped_by_port(self._forward_stats()).items():
            if index < len(self._ports):
                collected[f"{self._ports[index].number}.tx_dropped"] = frames
        return collected | self._veth.dropped([port for port in self._ports if port.cable.kind is CableKind.VETH])

    def busy_s(self) -> float | None:
        """Return the total time of bursts with frames (testpmd's user guide, "show fwd"), and that of its libpcap's daemon."""
        return busy_time_s(self._forward_stats()) + self._veth.busy_s()

    def _forward_stats(self) -> str:
        """Return the output so far, with the answer to `show fwd stats all` at the end."""
        self.check()
        self._queries += 1
        # testpmd echoes each line after answering the lines before.
        last = f"asked-{self._queries}."
        try:
            self.host.run(["sh", "-c", f"printf 'show fwd stats all\\n{last}\\n' > '{self._commands}'"])
        except HostError as error:
            raise DutError(f"{self.title} does not accept commands: {error}") from error
        if self._process is None or (why := self._process.why_silent(last, ANSWER_TIMEOUT_S)):
            raise DutError(f"{self.title} does not report its forward statistics: it {why}")
        return self._process.output()

    def versions(self) -> dict[str, str]:
        """Return the version of DPDK."""
        completed = self.host.run([self._program, "-v"], env=self._env, check=False)
        match = re.search(r"RTE Version: 'DPDK ([^']+)'", completed.stdout + completed.stderr)
        return ({"DPDK": match[1]} if match else {}) | self._veth.versions()

    def port_modes(self) -> dict[str, str]:
        """Return the driver of each port."""
        memory = "huge pages" if self.placement.huge_pages else "ordinary pages"
        return {str(port.number): f"{self._mode(index, port.cable)}, {memory}" for index, port in enumerate(self._ports)}

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output without the answers to the queries before and after each trial."""
        return [LogExcerpt(source=process.name, text=without_answers(process.output())) for process in self.processes()]

    def stop(self) -> None:
        """Stop testpmd and the daemon of its libpcap."""
        super().stop()
        if self._process is not None:
            # Sockets that DPDK leaves behind.
            self.host.run(["rm", "-rf", str(self.host.folder / "dpdk" / self._prefix)])

    def _query(self, requests: Sequence[str]) -> list[dict[str, Any]]:
        """Query DPDK's telemetry, which answers each request with a line."""
        self.check()
        try:
            completed = self.host.run([self._telemetry, "-f", self._prefix], env=self._env, stdin="\n".join([*requests, ""]))
            answers = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]
            return [dict(answers[-len(requests) + index][request.split(",")[0]]) for index, request in enumerate(requests)]
        except (HostError, ValueError, LookupError, TypeError) as error:
            raise DutError(f"{self.title} does not report its counters: {error}") from error

    def _mode(self, number: int, cable: Cable) -> str:
        match cable.kind:
            case CableKind.VFIO:
                return f"card {cable.dut_end}"
            case CableKind.VETH:
                return self._veth.port_mode(cable)
            case _:
                return self._device(number, cable).split(",")[0].rstrip("0123456789")

    def _device(self, number: int, cable: Cable) -> str:
        """Return DPDK's virtual device for the device's end of a cable."""
        match cable.kind:
            case CableKind.VHOST_USER:
                client = "" if cable.is_dut_server else ",client=1"
                return f"net_vhost{number},iface={cable.dut_end},queues={cable.queues}{client}"
            case CableKind.MEMIF:
                role = "server" if cable.is_dut_server else "client"
                return f"net_memif{number},id=0,role={role},socket={cable.dut_end},socket-abstract=no"
            case CableKind.VETH:
                return self._veth.devargs(str(number), cable)
            case _:
                raise DutError(f"DPDK testpmd has no port for {cable.kind} ({cable.name})")


def dropped_by_port(output: str) -> dict[int, int]:
    """Return the frames that testpmd could not transmit, from its latest report, by DPDK's number of the port."""
    return {int(port): int(frames) for port, frames in _DROPPED.findall(output)}


def without_answers(output: str) -> str:
    """Return testpmd's output without its answers to queries."""
    return _ANSWER.sub("", output)


def busy_time_s(output: str) -> float:
    """Return the time spent on frames from testpmd's latest report; testpmd omits it until there were frames."""
    reports = _CYCLES.findall(output)
    return int(reports[-1][0]) / (int(reports[-1][1]) * 1e6) if reports else 0.0
