"""One look-up for all that the laboratory has several kinds of: devices, guests, cables, methods, generators, reporters, engines, ...

The laboratory's own kinds stand here, so that they are there in a source tree too. Other packages add theirs by entry points, in the groups
below (docs/lab/plugins.md). A kind is imported when it is used: one that is broken disturbs nobody else.
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
    """The classes of one group by the names that scenarios and users have for them; a class is imported when it is asked for."""

    group: str
    """Of the entry points: `ringroad_lab.duts`."""
    base: str
    """What a class of a plug-in has to extend, as `MODULE:CLASS`."""
    name_attribute: str
    """Where such a class has its name; a plug-in's gets that of its entry point."""
    own: Mapping[str, str] = field(hash=False)
    """Those of the laboratory, as `MODULE:CLASS` below `ringroad_lab`."""

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        """All entries by name: the laboratory's own first, and none of a plug-in takes the place of one."""
        mine = [EntryPoint(name, f"ringroad_lab.{value}", self.group) for name, value in self.own.items()]
        found: dict[str, EntryPoint] = {}
        for entry in [*mine, *sorted(entry_points(group=self.group), key=lambda each: (each.name, package_of(each)))]:
            found.setdefault(entry.name, entry)
        return found

    def __getitem__(self, name: str) -> type[T]:
        """Import a class.

        Raises:
            KeyError: there is none of that name.
            PluginError: its package is broken.
        """
        entry = self._entries[name]
        if name in self.own:
            own: type[T] = entry.load()
            return own
        where = f"{entry.value} of the package {package_of(entry)} (entry point '{name}' of {self.group})"
        try:
            # Whatever a plug-in does when it is imported, the user is told whose fault it is.
            loaded = entry.load()
        except Exception as error:
            raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}; mend the package, or uninstall it") from error
        base = EntryPoint("base", f"ringroad_lab.{self.base}", self.group).load()
        if not (isinstance(loaded, type) and issubclass(loaded, base)):
            raise PluginError(f"{where} is no subclass of {base.__module__}.{base.__name__}: the laboratory cannot use it")
        if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
            raise PluginError(f"{where} does not define {', '.join(missing)}")
        setattr(loaded, self.name_attribute, name)
        kind: type[T] = loaded
        return kind

    def __iter__(self) -> Iterator[str]:
        """Go through the names: the laboratory's own in their order, then those of plug-ins."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Say whether there is one of that name, without importing it."""
        return name in self._entries

    def package(self, name: str) -> str:
        """Return the package that a kind is from, with its version."""
        return OWN_PACKAGE if name in self.own else package_of(self._entries[name])

    def loadable(self) -> dict[str, type[T] | PluginError]:
        """Return all, each with its class, or with the reason why there is none: to list them."""
        found: dict[str, type[T] | PluginError] = {}
        for name in self:
            try:
                found[name] = self[name]
            except PluginError as error:
                found[name] = error
        return found


def package_of(entry: EntryPoint) -> str:
    """Return name and version of the package that an entry point is from."""
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
# In the order of the RFCs; then what no RFC has.
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
# Of requests: where messages about builds come from.
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
# Of `notifications.toml`: by what way others are told.
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
