"""Trials through TRex in stateless mode, with TRex's own client library (trex_stl_lib), which is part of TRex and not a package.

TRex numbers its ports; the lab's first port is the first of `ports`. The streams of each direction have TRex's flow statistics, with which
a port distinguishes their frames from other frames.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ringroad_lab.cable.interface import Cable
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GeneratorError
from ringroad_lab.generator import traffic
from ringroad_lab.generator.interface import Generator, GeneratorDriver, GeneratorSettings
from ringroad_lab.generator.offered_load import asked_s
from ringroad_lab.trial import AddressPlan, DirectionCounts, LatencySummary, Load, TrialRequest, TrialResult, TrialVerdict

LIBRARY = "trex.stl.api"
# RFC 2544, section 23: frames in flight arrive within 2 s. TRex counts in blocks, and needs as long to show all frames.
SETTLE_S = 2.0
OVERTIME_S = 5.0
FIRST_GROUP = 5
FIRST_LATENCY_GROUP = 15
# A load of at least this many times the latency stream includes the latency stream.
LATENCY_FPS = 1000
LATENCY_PART = 10
FCS_BYTES = 4


class TrexSettings(GeneratorSettings):
    """Address and ports of TRex."""

    host: str = "127.0.0.1"
    """Host on which `t-rex-64 -i` runs."""
    sync_port: Annotated[int, Field(ge=1, le=65535)] = 4501
    async_port: Annotated[int, Field(ge=1, le=65535)] = 4500
    ports: tuple[int, int] = (0, 1)
    """Numbers of its two ports."""
    library: Path | None = None
    """Folder of the client, `automation/trex_control_plane/interactive` of TRex; None: on Python's module path."""

    @property
    def is_elsewhere(self) -> bool:
        """Return True: it always runs independently of the lab."""
        return True


def import_client(library: Path | None) -> Any:  # noqa: ANN401 - the library is not installed when types are checked
    """Import TRex's client.

    Raises:
        GeneratorError: the client is not installed.
    """
    if library is not None and str(library) not in sys.path:
        sys.path.append(str(library))
    try:
        return importlib.import_module(LIBRARY)
    except ImportError as error:
        raise GeneratorError(
            f"TRex's client library cannot be imported ({error}): set `library` of the generator to TRex's folder "
            "automation/trex_control_plane/interactive"
        ) from error


class TrexServer(GeneratorDriver):
    """A TRex server that already runs."""

    title: ClassVar[str] = "TRex in stateless mode, by its own client library"
    settings_type: ClassVar[type[GeneratorSettings]] = TrexSettings
    settings: TrexSettings
    _client: Any = None

    def prepare(self) -> None:
        """Import TRex's client."""
        self._api = import_client(self.settings.library)

    def start(self) -> None:
        """Connect, and acquire the ports."""
        self.prepare()
        settings = self.settings
        self._client = self._api.STLClient(server=settings.host, sync_port=settings.sync_port, async_port=settings.async_port)
        try:
            self._client.connect()
            self._client.reset(ports=list(settings.ports))
        except self._api.STLError as error:
            raise GeneratorError(f"TRex at {settings.host}:{settings.sync_port} cannot be used: {error}") from error

    def plug_in(self, cables: tuple[Cable, Cable]) -> Generator:
        """Make the ports accept frames to any address; the user has configured which cable is at which port."""
        self._client.set_port_attr(ports=list(self.settings.ports), promiscuous=True)
        return TrexGenerator(self._api, self._client, self.settings.ports, self.version())

    def version(self) -> str:
        """Return TRex's version and host."""
        server = self._client.get_server_version() if self._client is not None else {}
        return f"TRex {server.get('version', 'unknown')} at {self.settings.host}"

    def check(self) -> None:
        """Check that it is still connected."""
        if self._client is not None and not self._client.is_connected():
            raise GeneratorError(f"TRex at {self.settings.host} has ended, or closed its connection")

    def stop(self) -> None:
        """Disconnect."""
        if self._client is not None and self._client.is_connected():
            self._client.disconnect()


class TrexGenerator(Generator):
    """Runs trials with two ports of TRex."""

    def __init__(self, api: Any, client: Any, ports: tuple[int, int], version: str) -> None:  # noqa: ANN401
        """Take TRex's client library, a connected client, and the numbers of the ports."""
        self._api = api
        self._client = client
        self._ports = ports
        self._version = version

    def version(self) -> str:
        """Return name and version."""
        return self._version

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, wait for the last frames, and count.

        Raises:
            GeneratorError: TRex rejected the load.
        """
        load = request.load.model_copy(update={"rate_fps": float(round(request.load.rate_fps))})
        if load.addresses is not AddressPlan.FIXED:
            raise GeneratorError("address plans are not supported with TRex: measure addresses with Ringroad's generator")
        if load.flow_set is not None or load.attack_fps:
            raise GeneratorError("flow sets are not supported with TRex: use Ringroad's generator")
        if any(load.vnis):
            raise GeneratorError("VXLAN is not supported with TRex: use Ringroad's generator")
        request = request.model_copy(update={"load": load})
        ways = traffic.directions(load)
        try:
            return self._trial(request, ways)
        except self._api.STLError as error:
            raise GeneratorError(f"TRex refused the load: {error}") from error

    def _trial(self, request: TrialRequest, ways: tuple[traffic.Direction, ...]) -> TrialResult:
        client, load = self._client, request.load
        ports = list(self._ports)
        expected_s = asked_s(request)
        client.reset(ports=ports)
        if load.learning:
            for way in ways:
                client.add_streams([self._learning(way)], ports=[self._ports[way.receiver]])
            client.start(ports=[self._ports[way.receiver] for way in ways], force=True)
            client.wait_on_traffic(ports=ports)
            client.remove_all_streams(ports=ports)
        for number, way in enumerate(ways):
            client.add_streams(self.streams(way, request, number), ports=[self._ports[way.sender]])
        client.clear_stats(ports=ports)
        started_at = time.time()
        senders = [self._ports[way.sender] for way in ways]
        client.start(ports=senders, force=True, **({} if load.burst_frames is not None else {"duration": request.duration_s}))
        reasons = []
        try:
            client.wait_on_traffic(ports=senders, timeout=expected_s + OVERTIME_S)
        except self._api.STLTimeoutError:
            client.stop(ports=senders)
            reasons.append(f"TRex still sent the load {OVERTIME_S:g} s after its end, and was stopped")
        counts: tuple[DirectionCounts, ...] = ()

        def has_all() -> bool:
            nonlocal counts
            statistics = client.get_pgid_stats()
            counts = tuple(self._counts(way, request, statistics, number) for number, way in enumerate(ways))
            return all(not way.lost_frames for way in counts)

        wait_until(has_all, SETTLE_S)
        verdict = TrialVerdict.INVALID if reasons else TrialVerdict.VALID
        return TrialResult(request=request, started_at=started_at, verdict=verdict, reasons=tuple(reasons), directions=counts)

    def streams(self, way: traffic.Direction, request: TrialRequest, number: int) -> list[Any]:
        """Return TRex's streams of one direction: one for each size of the mix, and a slow one for latency, whose frames also count."""
        api, load = self._api, request.load
        total = sum(weight for _, weight in load.frame.parts)
        # The frames of a burst are back to back: frames of another stream would come between them.
        latency_fps = LATENCY_FPS if load.burst_frames is None and load.rate_fps >= LATENCY_PART * LATENCY_FPS else 0
        streams = []
        for size, weight in load.frame.parts:
            packet = api.STLPktBuilder(pkt=self._packet(way, load, size), vm=self._many_flows(way, load))
            rate_fps = (load.rate_fps - latency_fps) * weight / total
            if load.burst_frames is None:
                mode = api.STLTXCont(pps=rate_fps)
            else:
                mode = api.STLTXSingleBurst(pps=load.rate_fps * weight / total, total_pkts=max(1, load.burst_frames * weight // total))
            streams.append(api.STLStream(packet=packet, mode=mode, flow_stats=api.STLFlowStats(pg_id=FIRST_GROUP + number)))
        if latency_fps:
            packet = api.STLPktBuilder(pkt=self._packet(way, load, max(size for size, _ in load.frame.parts)))
            latency_stats = api.STLFlowLatencyStats(pg_id=FIRST_LATENCY_GROUP + number)
            streams.append(api.STLStream(packet=packet, mode=api.STLTXCont(pps=latency_fps), flow_stats=latency_stats))
        return streams

    def _packet(self, way: traffic.Direction, load: Load | None, size: int) -> Any:  # noqa: ANN401
        """Return a frame of a direction for TRex's Scapy, without FCS."""
        api = self._api
        stations = [address.to_bytes(6).hex(":") for address in traffic.STATIONS]
        packet = api.Ether(src=stations[way.sender], dst=stations[way.receiver])
        if load is not None and load.vlans[way.sender]:
            packet = packet / api.Dot1Q(vlan=load.vlans[way.sender])
            size += traffic.VLAN_TAG_BYTES
        packet = packet / api.IP(src=traffic.PORT_ADDRESSES[way.sender], dst=traffic.PORT_ADDRESSES[way.receiver])
        packet = packet / api.UDP(sport=traffic.FIRST_UDP_PORT, dport=traffic.FIRST_UDP_PORT)
        return packet / (b"\0" * max(0, size - FCS_BYTES - len(packet)))

    def _learning(self, way: traffic.Direction) -> Any:  # noqa: ANN401
        packet = self._api.STLPktBuilder(pkt=self._packet(traffic.Direction(way.receiver, way.sender), None, 64))
        mode = self._api.STLTXSingleBurst(pps=traffic.LEARNING_FPS, total_pkts=traffic.LEARNING_FRAMES)
        return self._api.STLStream(packet=packet, mode=mode)

    def _many_flows(self, way: traffic.Direction, load: Load) -> Any:  # noqa: ANN401
        """Vary the source port, or the source address if there are more flows than ports, as Ringroad's generator does."""
        if load.flows == 1:
            return None
        machine = self._api.STLVM()
        if load.flows > traffic.UDP_PORTS:
            first = int.from_bytes(map(int, traffic.MANY_FLOWS_ADDRESSES[way.sender].split(".")))
            machine.var(name="flow", min_value=first, max_value=first + load.flows - 1, size=4, op="inc")
            machine.write(fv_name="flow", pkt_offset="IP.src")
            machine.fix_chksum()
        else:
            last = traffic.FIRST_UDP_PORT + load.flows - 1
            machine.var(name="flow", min_value=traffic.FIRST_UDP_PORT, max_value=last, size=2, op="inc")
            machine.write(fv_name="flow", pkt_offset="UDP.sport")
        return machine

    def _counts(self, way: traffic.Direction, request: TrialRequest, statistics: dict[str, Any], number: int) -> DirectionCounts:
        groups = [statistics["flow_stats"].get(group + number, {}) for group in (FIRST_GROUP, FIRST_LATENCY_GROUP)]
        sender, receiver = self._ports[way.sender], self._ports[way.receiver]
        load = request.load
        sent = sum(int(group.get("tx_pkts", {}).get(sender, 0)) for group in groups)
        received = sum(int(group.get("rx_pkts", {}).get(receiver, 0)) for group in groups)
        latency = statistics.get("latency", {}).get(FIRST_LATENCY_GROUP + number, {}).get("latency")
        return DirectionCounts(
            sender=traffic.PORT_NAMES[way.sender],
            receiver=traffic.PORT_NAMES[way.receiver],
            intended_frames=load.burst_frames if load.burst_frames is not None else round(load.rate_fps * request.duration_s),
            sent_frames=sent,
            received_frames=min(received, sent),
            # TRex does not identify frames: frames beyond those sent count as duplicates.
            duplicate_frames=max(0, received - sent),
            transmit_s=asked_s(request) if sent else 0.0,
            latency=_latency(latency, int(groups[1].get("rx_pkts", {}).get(receiver, 0))) if latency else None,
        )


def _latency(values: dict[str, Any], frames: int) -> LatencySummary | None:
    """Read TRex's latencies, which are in µs."""
    if not frames:
        return None
    return LatencySummary(
        frames=frames, min_ns=1000 * values["total_min"], mean_ns=1000 * values["average"], max_ns=1000 * values["total_max"]
    )
