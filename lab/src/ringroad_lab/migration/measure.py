"""A guest migrates from one switch to another one, while a station on the first switch exchanges messages with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from ringroad_lab.cable.interface import Cable, CableKind, Laying
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.deadline import wait_until
from ringroad_lab.dut.interface import Dut, DutPort, Placement
from ringroad_lab.errors import GuestError
from ringroad_lab.host.interface import Process
from ringroad_lab.loss import drop_counters
from ringroad_lab.message_size.namespace_station import NamespaceStation
from ringroad_lab.message_size.sweep import ADDRESSES, READY_TIMEOUT_S, require_programs
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.live_migration import LiveMigrationSettings
from ringroad_lab.migration.echoes import EchoCounts, Echoes, EchoLoad, echo_counts
from ringroad_lab.migration.migrating_guest import MigratingGuest, MigrationReport
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome

# Ports of both switches, and their names in metrics.
_GUEST, _STATION, _TRUNK = 1, 2, 3
_PORTS = {_GUEST: "guest", _STATION: "station", _TRUNK: "trunk"}
# An emulated guest on a busy machine is slow.
_ANSWER_TIMEOUT_S = 60.0
# Messages under way when the load ends have arrived, or are lost, when the counters stand still for this time, s.
_QUIET_S = 0.2
_QUIET_LIMIT_S = 10.0
_CURVE_BIN_S = 0.1


@dataclass(frozen=True)
class Places:
    """Two switches joined by a cable, with the ends of a migration."""

    source: Dut
    destination: Dut
    guest: MigratingGuest
    """The guest's first place."""
    arrival: MigratingGuest
    """The guest's second place."""
    station: NamespaceStation
    """The other station, on the source's switch."""
    ports: dict[str, DutPort]
    """The guest's port on each switch."""

    def check(self) -> None:
        """Check that all programs are running.

        Raises:
            DutError, GuestError: one has ended.
        """
        for dut in (self.source, self.destination):
            dut.check()
        for end in (self.guest, self.arrival):
            end.check()

    def processes(self) -> dict[str, Sequence[Process]]:
        """Return all processes, by the part that they belong to."""
        return {
            "source": self.source.processes(),
            "destination": self.destination.processes(),
            self.guest.name: self.guest.processes(),
            self.arrival.name: self.arrival.processes(),
        }

    def counters(self) -> dict[str, int]:
        """Return the counters of both switches, named `source 1.rx_frames`."""
        switches = {"source": self.source, "destination": self.destination}
        return {f"{place} {name}": value for place, dut in switches.items() for name, value in dut.collect().items()}

    def received(self) -> int:
        """Return the frames that the destination has received from the guest."""
        port = self.ports["destination"]
        return self.destination.end_counts([port], self.destination.collect())[port.number].received or 0

    def to_old_place(self) -> int:
        """Return the frames that the source has sent, or should have sent, to the guest."""
        port = self.ports["source"]
        collected = self.source.collect()
        dropped = drop_counters({name: value for name, value in collected.items() if name.startswith(f"{port.number}.")})
        return (self.source.end_counts([port], collected)[port.number].sent or 0) + sum(dropped.values())


@contextmanager
def joined_switches(
    duts: tuple[Dut, Dut],
    kind: CableKind,
    settings: LiveMigrationSettings,
    placements: tuple[Placement, Placement, Placement],
    on_step: Callable[[str], None] = lambda step: None,
) -> Iterator[Places]:
    """Join two switches by a cable, with a station on the first one and an end of the migration on each; remove everything afterwards.

    Args:
        duts: Devices that are not started yet, each with a host of its own: the source and the destination.
        kind: Kind of the guest's cables.
        settings: Settings of the method.
        placements: Placements of the guest at the source and at the destination, and of the other station.
        on_step: Called with each step, for the user.

    Raises:
        LabError: a part could not be started.
    """
    source, destination = duts
    guest = MigratingGuest("guest", placements[0])
    arrival = MigratingGuest("arrival", placements[1], guest=guest.name)
    station = NamespaceStation("station", placements[2])
    station.prepare()
    ethtool, *_ = require_programs(settings, placements[0])
    with ExitStack() as stack:
        for dut in duts:
            dut.prepare()
            on_step(f"starting {dut.title}")
            stack.callback(dut.stop)
            dut.start()

        def lay(kind: CableKind, dut: Dut, name: str) -> Cable:
            cable = lay_cable(Laying(kind, f"{dut.host.cable_prefix}{name}", dut.host, dut.serves_sockets))
            stack.callback(remove_cable, cable, dut.host)
            return cable

        here, there = lay(kind, source, "m1"), lay(kind, destination, "n1")
        to_station, trunk = lay(CableKind.VETH, source, "m2"), lay(CableKind.VETH, source, "m3")
        trunk_end = replace(trunk, dut_end=trunk.far_end, far_end=trunk.dut_end)
        ports = {"source": DutPort(_GUEST, here), "destination": DutPort(_GUEST, there)}
        source.configure([ports["source"], DutPort(_STATION, to_station), DutPort(_TRUNK, trunk)], ())
        destination.configure([ports["destination"], DutPort(_TRUNK, trunk_end)], ())
        on_step("starting the guest")
        stack.callback(guest.stop)
        guest.start(source.plugged_in(here), ADDRESSES[0], [ethtool])
        on_step("starting its second place")
        stack.callback(arrival.stop)
        arrival.await_guest_of(guest, destination.plugged_in(there))
        stack.callback(station.stop)
        station.start(source.plugged_in(to_station), ADDRESSES[1], [])
        # The guest's port at the destination is not up before the guest is there.
        source.await_ready(READY_TIMEOUT_S)
        yield Places(source, destination, guest, arrival, station, ports)


@dataclass(frozen=True)
class _Seen:
    """What was seen during a migration."""

    report: MigrationReport
    echoes: Echoes
    guest: EchoCounts
    station: EchoCounts
    drops: dict[str, int]
    """Growth of the switches' counters of dropped frames."""
    misdirected: int


def measure_live_migration(
    places: Places, settings: LiveMigrationSettings, watch: SweepWatch, on_step: Callable[[str], None] = lambda step: None
) -> Outcome:
    """Migrate the guest under load, and watch what others do meanwhile.

    Raises:
        LabError: the migration failed, or the guest's memory is not what it was.
    """
    on_step("filling the guest's memory")
    content = places.guest.fill_memory(settings.memory_mib)
    seen = watch.over("migration", partial(_migrate, places, settings, on_step))
    if (found := places.arrival.content_hash()) != content:
        raise GuestError(f"the guest's memory is damaged after the migration: its data had the hash {content}, now {found}")
    return Outcome(
        status=MeasurementStatus.OK,
        headline="live_migration_gap_s",
        compared=("live_migration_downtime_s", "live_migration_lost_messages", "live_migration_uncounted_messages"),
        metrics=_metrics(seen),
        curves=(
            Curve(
                name="answers",
                x_name="time",
                x_unit="s",
                y_name="answers",
                y_unit="messages/s",
                points=seen.echoes.rates(_CURVE_BIN_S),
            ),
        ),
        parts=tuple(watch.parts),
    )


def _migrate(places: Places, settings: LiveMigrationSettings, on_step: Callable[[str], None]) -> _Seen:
    guest, arrival, station = places.guest, places.arrival, places.station
    load = EchoLoad(station, guest.address, messages_per_s=settings.messages_per_s, message_bytes=settings.message_bytes)
    counters, of_guest, of_station = places.counters(), echo_counts(guest), echo_counts(station)
    try:
        on_step("sending")
        load.start()
        _await_answer(station, "its first place")
        time.sleep(settings.steady_s)
        on_step("migrating")
        report = guest.migrate_to(
            arrival,
            downtime_limit_ms=settings.downtime_limit_ms,
            bandwidth_mib_s=settings.bandwidth_mib_s,
            timeout_s=settings.timeout_s,
        )
        # The guest announces itself, so that the switches learn its new place.
        if not wait_until(lambda: places.received() > 0, _ANSWER_TIMEOUT_S):
            raise GuestError(f"the guest has sent nothing from its new place for {_ANSWER_TIMEOUT_S:g} s")
        announced = places.to_old_place()
        _await_answer(station, "its new place")
        time.sleep(settings.steady_s)
        echoes = load.end()
    finally:
        load.stop()
        # The error of a program that has ended explains more than that of a program without a peer.
        places.check()
    guest_counts, station_counts = _quiet_counts(arrival, station)
    after = places.counters()
    return _Seen(
        report=report,
        echoes=echoes,
        guest=guest_counts.since(of_guest),
        station=station_counts.since(of_station),
        drops={name: value - counters.get(name, 0) for name, value in drop_counters(after).items()},
        misdirected=places.to_old_place() - announced,
    )


def _await_answer(station: NamespaceStation, where: str) -> None:
    before = echo_counts(station).replies_received
    if not wait_until(lambda: echo_counts(station).replies_received > before, _ANSWER_TIMEOUT_S):
        raise GuestError(f"no answer of the guest from {where} has arrived for {_ANSWER_TIMEOUT_S:g} s: the switches do not join it")


def _quiet_counts(*stations: MigratingGuest | NamespaceStation) -> tuple[EchoCounts, ...]:
    """Return the counters of the stations once no message is under way."""
    last: list[tuple[EchoCounts, ...]] = []

    def is_quiet() -> bool:
        last.append(tuple(echo_counts(station) for station in stations))
        return len(last) > 1 and last[-1] == last[-2]

    wait_until(is_quiet, _QUIET_LIMIT_S, _QUIET_S)
    return last[-1]


def _metrics(seen: _Seen) -> dict[str, Metric]:
    to_guest = seen.station.requests_sent - seen.guest.requests_received
    from_guest = seen.guest.replies_sent - seen.station.replies_received
    dropped = sum(seen.drops.values())
    # On a busy machine ping sends fewer messages than it should, and does not make up for them.
    rate = seen.station.requests_sent / (seen.echoes.arrived_at[-1] - seen.echoes.arrived_at[0])
    lower = partial(Metric, better=Better.LOWER)
    metrics = {
        # Nothing arrives between two messages.
        "gap_s": lower(value=seen.echoes.longest_gap_s, unit="s", resolution=1 / rate),
        "downtime_s": lower(value=seen.report.downtime_s, unit="s", resolution=0.001),
        "total_s": lower(value=seen.report.total_s, unit="s", resolution=0.001),
        "setup_s": lower(value=seen.report.setup_s, unit="s", resolution=0.001),
        "transferred_bytes": lower(value=seen.report.transferred_bytes, unit="bytes"),
        "sent_messages": Metric(value=seen.station.requests_sent, unit="messages"),
        "sent_messages_per_s": Metric(value=rate, unit="messages/s"),
        "lost_messages": lower(value=to_guest + from_guest, unit="messages"),
        "lost_to_guest_messages": lower(value=to_guest, unit="messages"),
        "lost_from_guest_messages": lower(value=from_guest, unit="messages"),
        "uncounted_messages": lower(value=max(0, to_guest + from_guest - dropped), unit="messages"),
        "duplicate_messages": lower(value=seen.echoes.duplicates, unit="messages"),
        "damaged_messages": lower(value=seen.echoes.damaged, unit="messages"),
        "dropped_frames": lower(value=dropped, unit="frames"),
        "misdirected_frames": lower(value=seen.misdirected, unit="frames"),
        **{f"{_cause(name)}_frames": lower(value=frames, unit="frames") for name, frames in seen.drops.items() if frames},
    }
    return {f"live_migration_{name}": metric for name, metric in metrics.items()}


def _cause(counter: str) -> str:
    """Return the part of a metric's name for a counter: `source_guest_dropped_not_bound` for `source 1.dropped_not_bound`."""
    place, _, name = counter.partition(" ")
    number, _, cause = name.rpartition(".")
    port = _PORTS.get(int(number)) if number.isdecimal() else None
    return "_".join(filter(None, (place, port, cause)))
