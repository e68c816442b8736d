"""A cable between a port of the device under test and the generator or a guest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from ringroad_lab.errors import ScenarioError
from ringroad_lab.host.interface import Host
from ringroad_lab.trial import Frozen


class CableKind(str):
    """What a cable is made of: a name in the look-up of cables. There is one object of each name, so that `is` compares."""

    __slots__ = ()
    _known: ClassVar[dict[str, CableKind]] = {}

    VETH: ClassVar[CableKind]
    """A veth pair: an interface at each end."""
    VHOST_USER: ClassVar[CableKind]
    """A UNIX socket; the device under test is the back end, the other end is a virtio network card."""
    MEMIF: ClassVar[CableKind]
    """A UNIX socket; shared memory packet interface."""
    TAP: ClassVar[CableKind]
    """A TAP interface at the device's end, QEMU at the other."""
    NIC: ClassVar[CableKind]
    """A network card at each end, joined by a real cable."""
    VFIO: ClassVar[CableKind]
    """The same; DPDK drives the device's card."""

    def __new__(cls, name: str) -> CableKind:
        """Return the kind of that name."""
        return CableKind._known.setdefault(name, super().__new__(cls, name))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read it from a text; whether there is such a kind is checked with the scenario, not in records of other installations."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


CableKind.VETH = CableKind("veth")
CableKind.VHOST_USER = CableKind("vhost-user")
CableKind.MEMIF = CableKind("memif")
CableKind.TAP = CableKind("tap")
CableKind.NIC = CableKind("nic")
CableKind.VFIO = CableKind("vfio")


class NicPair(Frozen):
    """A real cable of the site, between two network cards."""

    generator_interface: str
    dut_interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+$")]
    """Interface, or PCI address, as `0000:3b:00.0`."""
    virtual_function: Annotated[int, Field(ge=0, le=255)] | None = None
    """Of `vfio`: the device gets this virtual function of the card, which is made where the card has none (SR-IOV)."""
    keeps_driver: bool = False
    """Of `vfio`: whether DPDK drives the card beside the kernel's driver, as mlx5; `dut_interface` is its PCI address."""
    devargs: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9_.:=,\[\]-]*$")] = ""
    """Of `vfio`: further arguments of DPDK's driver, as `representor=vf0`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.keeps_driver and self.virtual_function is not None:
            raise ValueError("give the PCI address of the virtual function itself where it keeps its driver")
        return self


@dataclass(frozen=True)
class Cable:
    """One cable, laid."""

    kind: CableKind
    name: str
    """Unique in the run, at most 8 characters: interfaces and sockets are called after it."""
    dut_end: str
    """What the device under test plugs in: the name of an interface, the path of a socket, or a PCI address with DPDK's arguments."""
    far_end: str
    """What the generator or guest plugs in: the same path for a socket, the other interface of a pair."""
    is_dut_server: bool = False
    """Of sockets: whether the device under test makes the socket and listens."""
    queues: int = 1
    """Queue pairs."""
    dut_netns: str | None = None
    """Network namespace of `dut_end`, where that is not the test bed's own."""


@dataclass(frozen=True)
class Laying:
    """How a cable is to be laid."""

    kind: CableKind
    name: str
    """Unique in the run, at most 8 characters."""
    host: Host
    """Where the device under test is."""
    is_dut_server: bool = True
    """Of sockets: whether the device makes the socket. It does so itself; here only the path is chosen."""
    queues: int = 1
    max_frame_bytes: int = 1518
    """The longest frame that has to pass, FCS included."""
    nics: NicPair | None = None
    """Of network cards: which."""
    far_host: Host | None = None
    """Of network cards: where the far end is; None: out of the lab's reach, and prepared by whoever has it."""


class CableType(ABC):
    """How cables of one kind are laid and taken away, and which port of Ringroad's generator is at their far end."""

    kind: ClassVar[str]
    """As scenarios name it."""
    title: ClassVar[str]
    """For people."""
    shares_memory: ClassVar[bool] = False
    """Whether both ends share its rings: the device itself takes frames out of the generator's ring, and puts them into it. Of others the
    ends are interfaces, whose counters tell what passed."""
    joins_cards: ClassVar[bool] = False
    """Whether it is a real cable between network cards of the site, which is there already."""
    reaches_generator: ClassVar[bool] = True
    """Whether Ringroad's generator has ports for it."""
    can_loop: ClassVar[bool] = False
    """Whether one cable can join two ports of Ringroad's generator, for its test of itself."""

    @abstractmethod
    def lay(self, laying: Laying) -> Cable:
        """Lay a cable.

        Raises:
            HostError: an interface could not be made or set.
            MissingProgramError: a program for it is not there.
        """

    def remove(self, cable: Cable, host: Host) -> None:
        """Take away what was made for a cable; possible any number of times, and after the device took its end with it."""

    def generator_location(self, cable: Cable) -> str:
        """Name of the generator's port that plugs in at the far end (docs/port-names.md).

        Raises:
            ScenarioError: it has no port for such a cable.
        """
        raise ScenarioError(f"the generator has no port for {cable.kind}: use veth, vhost-user or memif as physical cables")

    def loop_location(self, cable: Cable) -> str:
        """Name of the generator's port at the device's end, where `can_loop`."""
        raise NotImplementedError
