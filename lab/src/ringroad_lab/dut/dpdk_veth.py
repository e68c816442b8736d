"""DPDK's ports on veth pairs: over AF_XDP, or over libpcap, the system's or Ringroad's."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ringroad_lab.cable.interface import Cable
from ringroad_lab.dut.interface import Dut, DutPort
from ringroad_lab.dut.ringroad_daemon import RingroadDaemon
from ringroad_lab.errors import DutError


class VethMode(StrEnum):
    """How DPDK joins a veth pair (DPDK's guides of network interface controllers)."""

    AF_XDP = "af_xdp"
    """Its driver `net_af_xdp`."""
    PCAP = "pcap"
    """Its driver `net_pcap`, with the system's libpcap."""
    PCAP_RINGROAD = "pcap-ringroad"
    """Its driver `net_pcap`, with Ringroad's preloaded libpcap: the same program, over a daemon on the device's processors."""


class DpdkVeth:
    """The veth ports of a device with DPDK, and the daemon of Ringroad that serves them, if any."""

    def __init__(self, dut: Dut, mode: VethMode) -> None:
        """Take the device and its mode."""
        self._mode = mode
        self._daemon = RingroadDaemon(dut) if mode is VethMode.PCAP_RINGROAD else None
        self._title = dut.title

    def prepare(self) -> None:
        """Check for the daemon's programs."""
        if self._daemon:
            self._daemon.prepare()

    def start(self) -> None:
        """Start the daemon."""
        if self._daemon:
            self._daemon.start()

    def check(self) -> None:
        """Check that the daemon is running."""
        if self._daemon:
            self._daemon.check()

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command of the device's program with its libpcap."""
        return self._daemon.serve(argv) if self._daemon else [*argv]

    def devargs(self, number: str, cable: Cable) -> str:
        """Return the arguments of DPDK's device for the device's end of a cable; `number` ends its name.

        Raises:
            DutError: the driver has one queue, not those of the cable.
        """
        if self._mode is VethMode.AF_XDP:
            queues = f",start_queue=0,queue_count={cable.queues}" if cable.queues > 1 else ""
            return f"net_af_xdp{number},iface={cable.dut_end}{queues}"
        if cable.queues > 1:
            raise DutError(f"{self._title}: DPDK's net_pcap has one queue ({cable.name}), not {cable.queues}: use one queue")
        return f"net_pcap{number},iface={self._name(cable)}"

    def dropped(self, ports: Sequence[DutPort]) -> dict[str, int]:
        """Return the frames that the daemon dropped, by port and cause."""
        names = {self._name(port.cable): port for port in ports}
        counters = self._daemon.collect(names) if self._daemon else {}
        return {name: frames for name, frames in counters.items() if ".dropped_" in name}

    def busy_s(self) -> float:
        """Return the time of the daemon's turns that moved frames, s."""
        return self._daemon.busy_s() if self._daemon else 0.0

    def versions(self) -> dict[str, str]:
        """Return the version of Ringroad, if its libpcap is used."""
        return {"Ringroad": self._daemon.version()} if self._daemon else {}

    def port_mode(self, cable: Cable) -> str:
        """Return the driver of a port, and its libpcap."""
        if self._mode is VethMode.AF_XDP:
            return "net_af_xdp"
        if self._daemon is None:
            return "net_pcap over the system's libpcap"
        return f"net_pcap over Ringroad's libpcap, {self._daemon.ports().get(self._name(cable), {}).get('mode', 'no port')}"

    def _name(self, cable: Cable) -> str:
        """Return the name of the device for libpcap."""
        return f"xdp:{cable.dut_end}" if self._mode is VethMode.PCAP_RINGROAD else cable.dut_end
