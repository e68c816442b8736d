"""Reads the counters of all hops of a test setup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringroad_lab.cable.interface import CABLES, CableKind
from ringroad_lab.cable.interface_counters import interface_counters, show_links
from ringroad_lab.dut.interface import Dut, DutPort
from ringroad_lab.errors import DutError
from ringroad_lab.generator.traffic import PORT_NAMES
from ringroad_lab.host.interface import Host
from ringroad_lab.loss import EndCounts, HopCounters, drop_counters


@dataclass(frozen=True)
class HopReader:
    """The device with its ports, and the ends of the generator's cables."""

    dut: Dut
    ports: Sequence[DutPort]
    """All ports of the device; the first two have the generator's cables."""
    host: Host
    """The lab's machine."""
    is_dut_here: bool
    is_generator_here: bool
    """Interfaces of other machines may have the names of interfaces here."""

    def read(self) -> HopCounters:
        """Read the device's own counters, and those of cable ends that are interfaces of this machine."""
        cables = [port.cable for port in self.ports[: len(PORT_NAMES)]]
        links = {} if CABLES[cables[0].kind].shares_memory else show_links(self.host)
        far_links = links if self.is_generator_here else {}
        dut_links = links if self.is_dut_here else {}
        ends: dict[str, EndCounts] = {}
        drops: dict[str, int] = {}
        for name, cable in zip(PORT_NAMES, cables, strict=True):
            if counters := interface_counters(far_links.get(cable.far_end, {})):
                ends[name] = EndCounts(received=_arrived(counters), sent=counters.get("tx_frames"))
            for end, link in (("generator's end", far_links.get(cable.far_end)), ("device's end", dut_links.get(cable.dut_end))):
                dropped = drop_counters(interface_counters(link or {}))
                drops |= {f"cable {name}, {end}: {counter}": value for counter, value in dropped.items()}
        try:
            collected = self.dut.collect()
        except DutError:
            # The other counters are still valid.
            return HopCounters(generator=ends, drops=drops)
        device = self.dut.end_counts(self.ports, collected)
        for port in self.ports:
            # An AF_XDP driver may not count frames that the kernel dropped at its full ring; the interface counts them.
            if port.cable.kind is CableKind.VETH and (counters := interface_counters(dut_links.get(port.cable.dut_end, {}))):
                device[port.number] = replace(device[port.number], received=_arrived(counters))
        drops |= {f"device: {name}": value for name, value in drop_counters(collected).items()}
        return HopCounters(device, ends, drops)


def _arrived(counters: Mapping[str, int]) -> int | None:
    """Return the frames that reached an interface; frames missed for lack of buffers are counted separately."""
    received = counters.get("rx_frames")
    return None if received is None else received + counters.get("rx_missed", 0)
