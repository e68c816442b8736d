"""Registries of all kinds in the laboratory: devices, guests, cables, methods, generators, reporters, engines, ...

The laboratory's own kinds are listed here, so that they work in a source tree too. Other packages add kinds by entry points, in the groups
below (docs/lab/plugins.md). A kind is imported when it is used, so a broken kind does not affect others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Generic, TypeVar

from ringroad_lab.errors import PluginError

if TYPE_CHECKING:
    from ringroad_lab.cable.interface import CableType
    from ringroad_lab.dut.interface import Dut
    from ringroad_lab.fleet.engine.interface import Engine
    from ringroad_lab.fleet.sources.interface import Source
    from ringroad_lab.generator.interface import GeneratorDriver
    from ringroad_lab.guest.interface import Guest
    from ringroad_lab.method.interface import Method
    from ringroad_lab.notification.interface import Notifier
    from ringroad_lab.report.interface import Reporter

OWN_PACKAGE = "ringroad-lab"

T = TypeVar("T")


@dataclass(frozen=True)
class Kinds(Mapping[str, type[T]], Generic[T]):
    """The classes of one group by their names in scenarios and on the command line; a class is imported on access."""

    group: str
    """Group of the entry points: `ringroad_lab.duts`."""
    base: str
    """Required base class of a plug-in's class, as `MODULE:CLASS`."""
    name_attribute: str
    """Attribute of the class with its name; for a plug-in it is set to the name of the entry point."""
    own: Mapping[str, str] = field(hash=False)
    """The laboratory's own classes, as `MODULE:CLASS` below `ringroad_lab`."""

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        """All entries by name, the laboratory's own first: a plug-in cannot replace them."""
        mine = [EntryPoint(name, f"ringroad_lab.{value}", self.group) for name, value in self.own.items()]
        found: dict[str, EntryPoint] = {}
        for entry in [*mine, *sorted(entry_points(group=self.group), key=lambda each: (each.name, package_of(each)))]:
            found.setdefault(entry.name, entry)
        return found

    def __getitem__(self, name: str) -> type[T]:
        """Import a class.

        Raises:
            KeyError: there is no kind with that name.
            PluginError: its package is broken.
        """
        entry = self._entries[name]
        if name in self.own:
            own: type[T] = entry.load()
            return own
        where = f"{entry.value} of the package {package_of(entry)} (entry point '{name}' of {self.group})"
        try:
            # For any failure during the import, the error names the plug-in.
            loaded = entry.load()
        except Exception as error:
            raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}; fix the package, or uninstall it") from error
        base = EntryPoint("base", f"ringroad_lab.{self.base}", self.group).load()
        if not (isinstance(loaded, type) and issubclass(loaded, base)):
            raise PluginError(f"{where} is not a subclass of {base.__module__}.{base.__name__}: the laboratory cannot use it")
        if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
            raise PluginError(f"{where} does not define {', '.join(missing)}")
        setattr(loaded, self.name_attribute, name)
        kind: type[T] = loaded
        return kind

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names: the laboratory's own in their order, then those of plug-ins."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of kinds."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a kind with that name, without importing it."""
        return name in self._entries

    def package(self, name: str) -> str:
        """Return the package that provides a kind, with its version."""
        return OWN_PACKAGE if name in self.own else package_of(self._entries[name])

    def loadable(self) -> dict[str, type[T] | PluginError]:
        """Return all kinds for a list, each with its class, or with the error of loading it."""
        found: dict[str, type[T] | PluginError] = {}
        for name in self:
            try:
                found[name] = self[name]
            except PluginError as error:
                found[name] = error
        return found


def package_of(entry: EntryPoint) -> str:
    """Return name and version of the package that provides an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"


DUTS: Kinds[Dut] = Kinds(
    "ringroad_lab.duts",
    "dut.interface:Dut",
    "driver",
    {
        "linux-bridge": "dut.linux_bridge:LinuxBridge",
        "ovs": "dut.open_vswitch:Ovs",
        "ovs-dpdk": "dut.open_vswitch:OvsDpdk",
        "ringroad": "dut.ringroad:RingroadSwitch",
        "testpmd": "dut.testpmd:Testpmd",
    },
)
GUESTS: Kinds[Guest] = Kinds(
    "ringroad_lab.guests",
    "guest.interface:Guest",
    "kind",
    {
        "testpmd": "guest.testpmd:TestpmdGuest",
        "testpmd-macswap": "guest.testpmd:TestpmdMacswapGuest",
        "linux-bridge": "guest.namespace_bridge:NamespaceBridgeGuest",
        "qemu-testpmd": "guest.qemu:QemuTestpmdGuest",
        "qemu-linux-bridge": "guest.qemu:QemuBridgeGuest",
    },
)
CABLES: Kinds[CableType] = Kinds(
    "ringroad_lab.cables",
    "cable.interface:CableType",
    "kind",
    {
        "veth": "cable.interfaces:VethCable",
        "vhost-user": "cable.sockets:VhostUserCable",
        "memif": "cable.sockets:MemifCable",
        "tap": "cable.interfaces:TapCable",
        "nic": "cable.cards:NicCable",
        "vfio": "cable.cards:VfioCable",
    },
)
# In the order of the RFCs, then methods without an RFC.
METHODS: Kinds[Method] = Kinds(
    "ringroad_lab.methods",
    "method.interface:Method",
    "name",
    {
        "throughput": "method.throughput:ThroughputMethod",
        "frame-loss": "method.frame_loss:FrameLossMethod",
        "latency": "method.latency:LatencyMethod",
        "back-to-back": "method.back_to_back:BackToBackMethod",
        "recovery": "method.recovery:RecoveryMethod",
        "forwarding-rate": "method.forwarding_rate:ForwardingRateMethod",
        "address-caching": "method.address_caching:AddressCachingMethod",
        "learning-rate": "method.learning_rate:LearningRateMethod",
        "mlrsearch": "method.mlrsearch:MlrSearchMethod",
        "soak": "method.soak:SoakMethod",
        "processor-cost": "method.processor_cost:ProcessorCostMethod",
        "flow-counts": "method.flow_counts:FlowCountsMethod",
        "tuple-space-explosion": "method.tuple_space_explosion:TupleSpaceExplosionMethod",
        "message-size": "method.message_size:MessageSizeMethod",
    },
)
GENERATORS: Kinds[GeneratorDriver] = Kinds(
    "ringroad_lab.generators",
    "generator.interface:GeneratorDriver",
    "driver",
    {
        "ringroad": "generator.ringroad:RingroadGenerator",
        "otg": "generator.otg_server:OtgServer",
        "trex": "generator.trex:TrexServer",
    },
)
REPORTERS: Kinds[Reporter] = Kinds(
    "ringroad_lab.reporters",
    "report.interface:Reporter",
    "form",
    {
        "html": "report.html:HtmlReporter",
        "markdown": "report.markdown:MarkdownReporter",
        "json": "report.json:JsonReporter",
        "csv": "report.csv:CsvReporter",
        "junit": "report.junit:JunitReporter",
        "tmt": "report.tmt_results:TmtReporter",
    },
)
ENGINES: Kinds[Engine] = Kinds(
    "ringroad_lab.engines",
    "fleet.engine.interface:Engine",
    "name",
    {
        "local": "fleet.engine.local:LocalEngine",
        "slurm": "fleet.engine.slurm:SlurmEngine",
        "beaker": "fleet.engine.beaker.engine:BeakerEngine",
        "tmt": "fleet.engine.tmt:TmtEngine",
    },
)
# Sources of messages about builds, which become requests.
SOURCES: Kinds[Source] = Kinds(
    "ringroad_lab.sources",
    "fleet.sources.interface:Source",
    "kind",
    {
        "github": "fleet.sources.http:GithubSource",
        "gitlab": "fleet.sources.http:GitlabSource",
        "gitea": "fleet.sources.http:GiteaSource",
        "generic": "fleet.sources.http:GenericSource",
        "folder": "fleet.sources.folder:FolderSource",
        "repository": "fleet.sources.repository:RepositorySource",
        "amqp": "fleet.sources.amqp:AmqpSource",
        "koji": "fleet.sources.koji:KojiSource",
    },
)
# Kinds of notification targets in `notifications.toml`.
NOTIFIERS: Kinds[Notifier] = Kinds(
    "ringroad_lab.notifiers",
    "notification.interface:Notifier",
    "kind",
    {
        "webhook": "notification.webhook:Webhook",
        "mail": "notification.mail:Mail",
        "github": "notification.github:GithubStatus",
        "gitlab": "notification.gitlab:GitlabStatus",
        "report": "notification.report_file:ReportFile",
        "ci-message": "notification.ci_message:CiMessage",
    },
)
