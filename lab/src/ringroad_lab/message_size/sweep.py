"""Two stations joined by a device: a sweep over message sizes with NetPIPE and with sockperf over UDP and TCP, or a load of TCP.

Each measures the cost of the device and of the stations, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Literal, TypeVar

from ringroad_lab.cable.interface import CableKind, Laying
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.cost import PROCESSORS_RESOLUTION, Cost, ProcessCosts
from ringroad_lab.dut.interface import DUTS, Dut, DutPort, Placement
from ringroad_lab.errors import ScenarioError
from ringroad_lab.guest.interface import guest_cable
from ringroad_lab.message_size import iperf3
from ringroad_lab.message_size.guest_station import GuestStation
from ringroad_lab.message_size.namespace_station import NamespaceStation
from ringroad_lab.message_size.netpipe import measure_by_netpipe
from ringroad_lab.message_size.points import Point
from ringroad_lab.message_size.sockperf import MAX_BYTES, MIN_BYTES, measure_by_sockperf
from ringroad_lab.message_size.station import Station
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.message_size import MessageSizeSettings, StationKind, StationSettings, Tool
from ringroad_lab.method.tcp_load import TcpLoadSettings
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome
from ringroad_lab.topology import Topology, wire

T = TypeVar("T")

READY_TIMEOUT_S = 30.0
ADDRESSES = ("198.18.0.1/24", "198.18.0.2/24")
STATIONS: dict[StationKind, type[NamespaceStation | GuestStation]] = {"namespaces": NamespaceStation, "guests": GuestStation}
PROGRAMS: dict[Tool, tuple[str, str]] = {
    "netpipe": ("NPtcp", "netpipe-tcp"),
    "sockperf-udp": ("sockperf", "sockperf"),
    "sockperf-tcp": ("sockperf", "sockperf"),
}
"""Program of each tool, and the Debian package of the program."""
ETHTOOL = ("ethtool", "ethtool")
PING = ("ping", "iputils-ping")


def sockperf_sizes(max_bytes: int) -> tuple[int, ...]:
    """Return the sizes that sockperf measures: its smallest, powers of two and the sizes half-way (as NetPIPE), up to UDP's largest."""
    limit = min(max_bytes, MAX_BYTES)
    sizes = {MIN_BYTES, limit} | {size for power in range(4, 17) for size in (1 << power, 3 << power >> 1) if size <= limit}
    return tuple(sorted(size for size in sizes if size >= MIN_BYTES))


def require_programs(settings: StationSettings, placement: Placement) -> list[str]:
    """Check for the programs that stations need and that create stations; return the paths of the former.

    Raises:
        MissingProgramError: names the Debian package.
    """
    STATIONS[settings.stations]("station", placement).prepare()
    return [placement.host.require(*found) for found in dict.fromkeys((ETHTOOL, *_programs(settings)))]


def _programs(settings: StationSettings) -> list[tuple[str, str]]:
    match settings:
        case MessageSizeSettings():
            return [PROGRAMS[tool] for tool in settings.tools]
        case TcpLoadSettings():
            return [iperf3.PROGRAM]
        case _:
            return [PING]


def station_cable(driver: str, settings: StationSettings, wanted: CableKind | None = None) -> CableKind:
    """Return the kind of cable between a device and stations: `wanted` if both carry it, else the best kind.

    Raises:
        ScenarioError: no kind of cable fits.
    """
    carried = STATIONS[settings.stations].carries
    both = DUTS[driver].carries & carried
    kind = guest_cable(wanted if wanted in both else None, both)
    if kind is None:
        names = " or ".join(sorted(carried))
        raise ScenarioError(f"{settings.stations} are joined by {names}, and {driver} has no ports for these")
    return kind


@contextmanager
def joined_stations(
    dut: Dut,
    kind: CableKind,
    settings: StationSettings,
    placements: tuple[Placement, Placement],
    on_step: Callable[[str], None] = lambda step: None,
) -> Iterator[tuple[Station, Station]]:
    """Connect two stations by a device, and remove everything afterwards.

    Args:
        dut: A device that is not started yet.
        kind: Kind of the cables.
        settings: Settings of the method.
        placements: Placements of the stations, on the device's host.
        on_step: Called with each step, for the user.

    Raises:
        LabError: a part could not be started.
    """
    host = dut.placement.host
    programs = require_programs(settings, placements[0])
    dut.prepare()
    with ExitStack() as stack:
        on_step(f"starting {dut.title}")
        stack.callback(dut.stop)
        dut.start()
        wiring = wire(Topology.P2P)
        cables = []
        for number in wiring.physical_ports:
            cables.append(lay_cable(Laying(kind, f"{host.cable_prefix}m{number}", host, dut.serves_sockets)))
            stack.callback(remove_cable, cables[-1], host)
        dut.configure([DutPort(number, cable) for number, cable in zip(wiring.physical_ports, cables, strict=True)], wiring.rules)
        first, second = (STATIONS[settings.stations](f"station{n}", placement) for n, placement in enumerate(placements, 1))
        for station, cable, address in zip((first, second), cables, ADDRESSES, strict=True):
            on_step(f"starting {station.name}")
            stack.callback(station.stop)
            station.start(dut.plugged_in(cable), address, programs)
        dut.await_ready(READY_TIMEOUT_S)
        yield first, second


def sweep_message_sizes(
    dut: Dut,
    stations: tuple[Station, Station],
    settings: MessageSizeSettings,
    watch: SweepWatch,
    on_step: Callable[[str], None] = lambda step: None,
) -> Outcome:
    """Measure between two stations, and watch what others do meanwhile.

    Raises:
        LabError: the measurement failed.
    """
    curves: list[Curve] = []
    metrics: dict[str, Metric] = {}
    for tool in settings.tools:
        on_step(f"measuring message sizes by {tool}")
        name = _metric_name(tool)
        points, costs = _with_costs(dut, stations, name, partial(_points, stations, tool, settings, watch))
        curves += _curves(tool, points)
        metrics |= {
            f"{name}_throughput_bps": Metric(value=max(point.throughput_bps for point in points), unit="bit/s", better=Better.HIGHER),
            f"{name}_latency_ns": Metric(value=points[0].latency_ns, unit="ns", better=Better.LOWER),
            **costs,
        }
    # A device with processes may pass frames within the kernel, too.
    compared = ("_dut_processors", "_kernel_processors", "_stations_processors", "_memory_bytes")
    return Outcome(
        status=MeasurementStatus.OK,
        headline=f"{_metric_name(settings.tools[0])}_throughput_bps",
        compared=tuple(name for name in metrics if name.endswith(compared)),
        metrics=metrics,
        curves=tuple(curves),
        parts=tuple(watch.parts),
    )


def _with_costs(dut: Dut, stations: Sequence[Station], name: str, work: Callable[[], T]) -> tuple[T, dict[str, Metric]]:
    """Carry out a measurement; return its result, and the metrics of what it cost, whose names begin with `name`."""
    host = dut.placement.host
    of_dut = ProcessCosts(host, dut.processes())
    of_stations = ProcessCosts(host, [process for station in stations for process in station.processes()])
    try:
        (result, dut_cost), stations_cost = of_stations.over(partial(of_dut.over, work))
    finally:
        # The error of a device or station that has ended explains more than the error of a tool without a peer.
        _check(dut, stations)
    metrics = _costs(name, "dut", dut_cost) | _costs(name, "stations", stations_cost)
    # Devices of the kernel have no process: their cost is in the kernel's time.
    if dut_cost.kernel_s is not None:
        metrics[f"{name}_kernel_processors"] = _processors(dut_cost.kernel_s / dut_cost.elapsed_s)
    return result, metrics


def _check(dut: Dut, stations: Sequence[Station]) -> None:
    dut.check()
    for station in stations:
        station.check()


def _costs(tool: str, part: str, cost: Cost) -> dict[str, Metric]:
    """Return the metrics of a cost; empty without processes."""
    metrics = {}
    if cost.processors is not None:
        metrics[f"{tool}_{part}_processors"] = _processors(cost.processors)
    if cost.memory_bytes is not None:
        metrics[f"{part}_memory_bytes"] = Metric(value=cost.memory_bytes, unit="bytes", better=Better.LOWER)
    return metrics


def _processors(value: float) -> Metric:
    return Metric(value=max(0.0, value), unit="processors", better=Better.LOWER, resolution=PROCESSORS_RESOLUTION)


def _points(stations: tuple[Station, Station], tool: Tool, settings: MessageSizeSettings, watch: SweepWatch) -> list[Point]:
    sender, receiver = stations
    if tool == "netpipe":
        limits = {"max_bytes": settings.max_bytes, "perturbation_bytes": settings.perturbation_bytes}
        return watch.over(tool, partial(measure_by_netpipe, sender, receiver, **limits, timeout_s=settings.timeout_s))
    sizes = sockperf_sizes(settings.max_bytes)
    protocol: Literal["udp", "tcp"] = "udp" if tool == "sockperf-udp" else "tcp"
    return measure_by_sockperf(sender, receiver, protocol, sizes, seconds_each=settings.seconds_each, watch=watch)


def _metric_name(tool: Tool) -> str:
    return tool.replace("-", "_")


def _curves(tool: Tool, points: Sequence[Point]) -> list[Curve]:
    shown: tuple[tuple[str, str, str, Callable[[Point], float]], ...] = (
        ("throughput", "throughput", "bit/s", lambda point: point.throughput_bps),
        ("latency", "one-way latency", "ns", lambda point: point.latency_ns),
    )
    return [
        Curve(
            name=f"{tool} {what}",
            x_name="message size",
            x_unit="bytes",
            y_name=y_name,
            y_unit=y_unit,
            points=tuple((point.size_bytes, of(point)) for point in points),
        )
        for what, y_name, y_unit, of in shown
    ]


def measure_tcp_load(
    dut: Dut,
    stations: tuple[Station, Station],
    settings: TcpLoadSettings,
    watch: SweepWatch,
    on_step: Callable[[str], None] = lambda step: None,
) -> Outcome:
    """Load the device with TCP between two stations, and watch what others do meanwhile.

    Raises:
        LabError: the measurement failed.
    """
    on_step("loading by iperf3")
    work = partial(watch.over, "iperf3", partial(iperf3.measure_by_iperf3, *stations, settings))
    load, costs = _with_costs(dut, stations, "tcp_load", work)
    rates = {"throughput": sum(load.throughput_bps.values()), **(load.throughput_bps if len(load.throughput_bps) > 1 else {})}
    metrics = {
        **{f"tcp_load_{name}_bps": Metric(value=rate, unit="bit/s", better=Better.HIGHER) for name, rate in rates.items()},
        "tcp_load_retransmissions": Metric(value=load.retransmissions, unit="segments", better=Better.LOWER),
        **costs,
    }
    return Outcome(
        status=MeasurementStatus.OK,
        headline="tcp_load_throughput_bps",
        compared=tuple(name for name in metrics if name.endswith(("_processors", "_memory_bytes"))),
        metrics=metrics,
        parts=tuple(watch.parts),
    )
