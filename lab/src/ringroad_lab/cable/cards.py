"""Real cables between network cards of the site: the lab configures the cards, and restores them when it leaves their machines."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableType, Laying, NicPair
from ringroad_lab.cable.interfaces import OFFLOADS_OFF, mtu_bytes, require_tools
from ringroad_lab.host.interface import Host

_SET = Path(__file__).with_name("card_settings.sh")
_GIVE = Path(__file__).with_name("card_to_vfio.sh")
# Unbinding a card of 100 Gbit/s takes some seconds.
_TIMEOUT_S = 60.0


class NicCable(CableType):
    """Two network cards, each with its kernel driver."""

    title: ClassVar[str] = "two network cards of the site, joined by a real cable"
    joins_cards: ClassVar[bool] = True

    def lay(self, laying: Laying) -> Cable:
        """Configure the cards."""
        nics = _nics(laying)
        set_card(laying.host, nics.dut_interface, laying.max_frame_bytes)
        _set_far_end(laying, nics)
        return Cable(laying.kind, laying.name, nics.dut_interface, nics.generator_interface, queues=laying.queues)

    def generator_location(self, cable: Cable) -> str:
        """Name the card at the far end, with the best mechanism that its driver supports."""
        return f"netmap:{cable.far_end}@queues={cable.queues},promisc=1"


class VfioCable(NicCable):
    """Two network cards; the device's card is unbound from its kernel driver, and DPDK drives it."""

    title: ClassVar[str] = "two network cards of the site; DPDK drives the device's by vfio-pci"

    def lay(self, laying: Laying) -> Cable:
        """Bind the device's card to vfio-pci, unless it keeps its driver, and configure the other card."""
        nics = _nics(laying)
        address = give_card(laying.host, nics)
        _set_far_end(laying, nics)
        devargs = f",{nics.devargs}" if nics.devargs else ""
        return Cable(laying.kind, laying.name, f"{address}{devargs}", nics.generator_interface, queues=laying.queues)


def set_card(host: Host, interface: str, max_frame_bytes: int) -> None:
    """Configure a card to pass frames unmodified; its settings are restored when the lab leaves the host.

    Raises:
        HostError: the card does not exist, or cannot be configured.
        MissingProgramError: a required program is missing.
    """
    require_tools(host)
    undo = host.undo_script(f"card-{interface}")
    _run(host, _SET, interface, str(mtu_bytes(max_frame_bytes)), str(undo), *OFFLOADS_OFF)


def give_card(host: Host, nics: NicPair) -> str:
    """Bind the device's card to vfio-pci, and return its PCI address; its driver is restored when the lab leaves the host.

    A card that is bound to vfio-pci already stays bound. For a card that keeps its driver (mlx5), only the address is returned.

    Raises:
        HostError: the card does not exist, its machine has no IOMMU, or the card carries traffic of its machine.
    """
    if nics.keeps_driver:
        return nics.dut_interface
    host.require("ip", "iproute2")
    function = "" if nics.virtual_function is None else str(nics.virtual_function)
    undo = host.undo_script(f"card-{nics.dut_interface}-{function}")
    return _run(host, _GIVE, nics.dut_interface, function, str(undo))


def _run(host: Host, script: Path, *arguments: str) -> str:
    there = host.folder / script.name
    host.write_text(there, script.read_text())
    return host.run(["sh", str(there), *arguments], timeout_s=_TIMEOUT_S).stdout.strip()


def _nics(laying: Laying) -> NicPair:
    if laying.nics is None:
        raise ValueError(f"cable {laying.name}: a cable between network cards needs `nics`")
    return laying.nics


def _set_far_end(laying: Laying, nics: NicPair) -> None:
    if laying.far_host is not None:
        set_card(laying.far_host, nics.generator_interface, laying.max_frame_bytes)
