"""A sweep over message sizes through a device: NetPIPE, and the same with sockperf over UDP and TCP, with the device's cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.cost import ProcessCosts
from ringroad_lab.dut.interface import Dut, DutPort
from ringroad_lab.host.interface import Host
from ringroad_lab.message_size.netpipe import measure_by_netpipe
from ringroad_lab.message_size.points import Point
from ringroad_lab.message_size.sockperf import MAX_BYTES, MIN_BYTES, measure_by_sockperf
from ringroad_lab.message_size.station import Station
from ringroad_lab.method.message_size import MessageSizeSettings, Tool
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome
from ringroad_lab.topology import Topology, wire

READY_TIMEOUT_S = 30.0
ADDRESSES = ("198.18.0.1/24", "198.18.0.2/24")


def sockperf_sizes(max_bytes: int) -> tuple[int, ...]:
    """Sizes that sockperf measures: its smallest, then powers of two and what lies half-way (as NetPIPE), up to UDP's greatest."""
    limit = min(max_bytes, MAX_BYTES)
    sizes = {MIN_BYTES, limit} | {size for power in range(4, 17) for size in (1 << power, 3 << power >> 1) if size <= limit}
    return tuple(sorted(size for size in sizes if size >= MIN_BYTES))


def sweep_message_sizes(
    host: Host,
    dut: Dut,
    settings: MessageSizeSettings,
    *,
    station_cpus: frozenset[int] = frozenset(),
    on_step: Callable[[str], None] = lambda step: None,
) -> Outcome:
    """Join two stations by a device, measure, and take everything down.

    Args:
        host: Where all of it runs.
        dut: A device that was not started yet, and carries veth.
        settings: What to measure.
        station_cpus: Processors of the stations' programs; empty: any.
        on_step: Called with what is being done, for the user.

    Raises:
        LabError: what could not be started, or measured, and why.
    """
    require_programs(host, settings)
    dut.prepare()
    with ExitStack() as stack:
        on_step(f"starting {dut.title}")
        stack.callback(dut.stop)
        dut.start()
        wiring = wire(Topology.P2P)
        cables = []
        for number in wiring.physical_ports:
            cables.append(lay_cable(CableKind.VETH, f"{host.cable_prefix}m{number}", host))
            stack.callback(remove_cable, cables[-1], host)
        dut.configure([DutPort(number, cable) for number, cable in zip(wiring.physical_ports, cables, strict=True)], wiring.rules)
        stations = [Station(host, f"station{number}", station_cpus) for number in wiring.physical_ports]
        for station, cable, address in zip(stations, cables, ADDRESSES, strict=True):
            stack.callback(station.stop)
            station.start(cable, address)
        dut.await_ready(READY_TIMEOUT_S)
        return _measure(host, dut, stations[0], stations[1], settings, on_step)


def require_programs(host: Host, settings: MessageSizeSettings) -> None:
    """Look for the stations' programs.

    Raises:
        MissingProgramError: names the Debian package.
    """
    programs = [("ip", "iproute2"), ("ss", "iproute2"), ("ethtool", "ethtool")]
    if "netpipe" in settings.tools:
        programs.append(("NPtcp", "netpipe-tcp"))
    if {"sockperf-udp", "sockperf-tcp"} & set(settings.tools):
        programs.append(("sockperf", "sockperf"))
    for program, package in programs:
        host.require(program, package)


def _measure(
    host: Host, dut: Dut, sender: Station, receiver: Station, settings: MessageSizeSettings, on_step: Callable[[str], None]
) -> Outcome:
    curves: list[Curve] = []
    metrics: dict[str, Metric] = {}
    meter = ProcessCosts(host, dut.processes())
    for tool in settings.tools:
        on_step(f"measuring message sizes by {tool}")
        points, cost = meter.over(partial(_points, host, sender, receiver, tool, settings))
        dut.check()
        curves += _curves(tool, points)
        name = _metric_name(tool)
        metrics |= {
            f"{name}_throughput_bps": Metric(value=max(point.throughput_bps for point in points), unit="bit/s", better=Better.HIGHER),
            f"{name}_latency_ns": Metric(value=points[0].latency_ns, unit="ns", better=Better.LOWER),
        }
        # The kernel's own devices have no process: what they cost is not told apart from the rest.
        if cost.processors is not None:
            metrics[f"{name}_dut_processors"] = Metric(value=max(0.0, cost.processors), unit="processors", better=Better.LOWER)
        if cost.memory_bytes is not None:
            metrics["dut_memory_bytes"] = Metric(value=cost.memory_bytes, unit="bytes", better=Better.LOWER)
    return Outcome(
        status=MeasurementStatus.OK, headline=f"{_metric_name(settings.tools[0])}_throughput_bps", metrics=metrics, curves=tuple(curves)
    )


def _points(host: Host, sender: Station, receiver: Station, tool: Tool, settings: MessageSizeSettings) -> list[Point]:
    if tool == "netpipe":
        return measure_by_netpipe(
            host,
            sender,
            receiver,
            max_bytes=settings.max_bytes,
            perturbation_bytes=settings.perturbation_bytes,
            timeout_s=settings.timeout_s,
        )
    sizes = sockperf_sizes(settings.max_bytes)
    return measure_by_sockperf(sender, receiver, "udp" if tool == "sockperf-udp" else "tcp", sizes, seconds_each=settings.seconds_each)


def _metric_name(tool: Tool) -> str:
    return tool.replace("-", "_")


def _curves(tool: Tool, points: Sequence[Point]) -> list[Curve]:
    return [
        Curve(
            name=f"{tool} throughput",
            x_name="message size",
            x_unit="bytes",
            y_name="throughput",
            y_unit="bit/s",
            points=tuple((point.size_bytes, point.throughput_bps) for point in points),
        ),
        Curve(
            name=f"{tool} latency",
            x_name="message size",
            x_unit="bytes",
            y_name="one-way latency",
            y_unit="ns",
            points=tuple((point.size_bytes, point.latency_ns) for point in points),
        ),
    ]
