"""A cable between a port of the device under test and the generator or a guest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from ringroad_lab.errors import ScenarioError
from ringroad_lab.host.interface import Host
from ringroad_lab.kinds import Kinds
from ringroad_lab.trial import Frozen


class CableKind(str):
    """The technology of a cable: a name in the registry of cables. There is one object per name, so `is` compares names."""

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
    NETMAP: ClassVar[CableKind]
    """A port of a switch for netmap programs; QEMU opens it."""
    NIC: ClassVar[CableKind]
    """A network card at each end, joined by a real cable."""
    VFIO: ClassVar[CableKind]
    """The same; DPDK drives the device's card."""

    def __new__(cls, name: str) -> CableKind:
        """Return the kind with that name."""
        return CableKind._known.setdefault(name, super().__new__(cls, name))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Parse any text. The scenario check verifies that the kind exists; records of other installations may have other kinds."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


CableKind.VETH = CableKind("veth")
CableKind.VHOST_USER = CableKind("vhost-user")
CableKind.MEMIF = CableKind("memif")
CableKind.TAP = CableKind("tap")
CableKind.NETMAP = CableKind("netmap")
CableKind.NIC = CableKind("nic")
CableKind.VFIO = CableKind("vfio")


class NicPair(Frozen):
    """A real cable of the site, between two network cards."""

    generator_interface: str
    dut_interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+$")]
    """Interface, or PCI address such as `0000:3b:00.0`."""
    virtual_function: Annotated[int, Field(ge=0, le=255)] | None = None
    """Virtual function (SR-IOV) of the card that the device gets over `vfio`. It is created if the card has no virtual functions."""
    keeps_driver: bool = False
    """Whether, for `vfio`, DPDK drives the card beside the kernel driver, as with mlx5; `dut_interface` is its PCI address."""
    devargs: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9_.:=,\[\]-]*$")] = ""
    """Further arguments of DPDK's driver for `vfio`, such as `representor=vf0`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.keeps_driver and self.virtual_function is not None:
            raise ValueError("with keeps_driver, give the PCI address of the virtual function itself in place of virtual_function")
        return self


@dataclass(frozen=True)
class Cable:
    """A cable that has been laid."""

    kind: CableKind
    name: str
    """Unique in the run, at most 8 characters: interfaces and sockets are named after it."""
    dut_end: str
    """End of the device under test: the name of an interface, the path of a socket, or a PCI address with DPDK's arguments."""
    far_end: str
    """End of the generator or guest: the same path for a socket, the other interface of a pair."""
    is_dut_server: bool = False
    """Whether the device under test creates the socket and listens."""
    queues: int = 1
    """Queue pairs."""
    dut_netns: str | None = None
    """Network namespace of `dut_end` if it is not the test setup's own."""


@dataclass(frozen=True)
class Laying:
    """Parameters for laying a cable."""

    kind: CableKind
    name: str
    """Unique in the run, at most 8 characters."""
    host: Host
    """Host of the device under test."""
    is_dut_server: bool = True
    """Whether the device creates the socket. The device does so itself; here only the path is chosen."""
    queues: int = 1
    max_frame_bytes: int = 1518
    """The longest frame that must pass, FCS included."""
    nics: NicPair | None = None
    """The two cards of a cable between network cards."""
    far_host: Host | None = None
    """Host of the far end's network card; None: the lab cannot reach that host, and its operator has configured the card."""


class CableType(ABC):
    """Lays and removes cables of one kind, and names the port of Ringroad's generator at their far end."""

    title: ClassVar[str]
    """Title for people."""
    shares_memory: ClassVar[bool] = False
    """Whether both ends share rings: the device itself takes frames from the generator's ring and puts frames into it. The ends of other
    cables are interfaces, whose counters show the frames that passed."""
    joins_cards: ClassVar[bool] = False
    """Whether it is a real cable between network cards of the site, which exists already."""
    reaches_generator: ClassVar[bool] = True
    """Whether Ringroad's generator has ports for it."""
    can_loop: ClassVar[bool] = False
    """Whether one cable can join two ports of Ringroad's generator, for the generator's self-test."""

    @abstractmethod
    def lay(self, laying: Laying) -> Cable:
        """Lay a cable.

        Raises:
            HostError: an interface could not be created or configured.
            MissingProgramError: a required program is missing.
        """

    def remove(self, cable: Cable, host: Host) -> None:
        """Remove a cable. Can be called any number of times, also if the device has already removed its end."""

    def generator_location(self, cable: Cable) -> str:
        """Return the name of the generator's port at the far end (docs/port-names.md).

        Raises:
            ScenarioError: the generator has no port for such a cable.
        """
        raise ScenarioError(f"the generator has no port for {cable.kind}: use veth, vhost-user or memif as physical cables")

    def loop_location(self, cable: Cable) -> str:
        """Return the name of the generator's port at the device's end, if `can_loop`."""
        raise NotImplementedError


CABLES: Kinds[CableType] = Kinds(
    "ringroad_lab.cables",
    CableType,
    {
        "veth": "cable.interfaces:VethCable",
        "vhost-user": "cable.sockets:VhostUserCable",
        "memif": "cable.sockets:MemifCable",
        "tap": "cable.interfaces:TapCable",
        "netmap": "cable.sockets:NetmapCable",
        "nic": "cable.cards:NicCable",
        "vfio": "cable.cards:VfioCable",
    },
)
