"""The mapping of loads to TRex's client library, on a double of that library: TRex itself cannot run without network cards.

The double has the names and arguments of `trex.stl.api` of TRex 3.0x. It sends nothing, and counts the frames that it would send.
"""

# ruff: noqa: ANN401, D101, D105 - a double of a library without types
from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.errors import GeneratorError
from ringroad_lab.frame_size import IMIX, parse_frame_mix
from ringroad_lab.generator.offered_load import CheckedGenerator
from ringroad_lab.generator.trex import FIRST_GROUP, FIRST_LATENCY_GROUP, LIBRARY, TrexServer, TrexSettings
from ringroad_lab.host.local import LocalHost
from ringroad_lab.trial import FlowSet, Load, TrialRequest, TrialVerdict

PORTS = (3, 4)


class Packet:
    """A Scapy packet: its layers and its length."""

    LENGTHS = {"Ether": 14, "Dot1Q": 4, "IP": 20, "UDP": 8}

    def __init__(self, *layers: tuple[str, dict[str, Any]], payload: bytes = b"") -> None:
        self.layers = layers
        self.payload = payload

    def __truediv__(self, other: Packet | bytes) -> Packet:
        if isinstance(other, bytes):
            return Packet(*self.layers, payload=other)
        return Packet(*self.layers, *other.layers)

    def __len__(self) -> int:
        return sum(self.LENGTHS[name] for name, _ in self.layers) + len(self.payload)


class STLError(Exception):
    pass


class STLTimeoutError(STLError):
    pass


class Client:
    """A connected client; `lost_frames` of the frames that each port sends do not arrive."""

    def __init__(self, **place: Any) -> None:
        self.place = place
        self.calls: list[str] = []
        self.streams: dict[int, list[Any]] = {}
        self.sent: dict[int, dict[int, int]] = {}
        self.lost_frames = 0
        self.is_up = False

    def connect(self) -> None:
        self.is_up = True

    def is_connected(self) -> bool:
        return self.is_up

    def disconnect(self) -> None:
        self.is_up = False

    def get_server_version(self) -> dict[str, str]:
        return {"version": "v3.04"}

    def reset(self, ports: list[int]) -> None:
        self.remove_all_streams(ports)

    def remove_all_streams(self, ports: list[int]) -> None:
        for port in ports:
            self.streams[port] = []

    def set_port_attr(self, ports: list[int], promiscuous: bool) -> None:
        self.calls.append(f"promiscuous {promiscuous} {ports}")

    def add_streams(self, streams: list[Any], ports: list[int]) -> None:
        for port in ports:
            self.streams[port] += streams

    def clear_stats(self, ports: list[int]) -> None:
        self.sent = {}

    def start(self, ports: list[int], force: bool, duration: float = -1) -> None:
        self.calls.append(f"start {ports} {duration:g}")
        for port in ports:
            for stream in self.streams[port]:
                if stream.flow_stats is not None:
                    frames = stream.mode.total_pkts or round(stream.mode.pps * duration)
                    groups = self.sent.setdefault(stream.flow_stats.pg_id, {})
                    groups[port] = groups.get(port, 0) + frames

    def wait_on_traffic(self, ports: list[int], timeout: float | None = None) -> None:
        self.calls.append(f"wait {ports}")

    def get_pgid_stats(self) -> dict[str, Any]:
        other: dict[int, int] = {PORTS[0]: PORTS[1], PORTS[1]: PORTS[0]}
        statistics: dict[str, Any] = {"flow_stats": {}, "latency": {}}
        for group, ports in self.sent.items():
            lost = 0 if group >= FIRST_LATENCY_GROUP else self.lost_frames
            came = {other[port]: frames - lost for port, frames in ports.items()}
            statistics["flow_stats"][group] = {"tx_pkts": ports, "rx_pkts": came}
            if group >= FIRST_LATENCY_GROUP:
                statistics["latency"][group] = {"latency": {"average": 7.5, "total_min": 5, "total_max": 20}}
        return statistics


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module: Any = ModuleType(LIBRARY)
    for name in Packet.LENGTHS:
        setattr(module, name, lambda _name=name, **fields: Packet((_name, fields)))
    module.STLError, module.STLTimeoutError, module.STLClient = STLError, STLTimeoutError, Client
    module.STLPktBuilder = lambda pkt, vm=None: SimpleNamespace(pkt=pkt, vm=vm)
    module.STLTXCont = lambda pps: SimpleNamespace(pps=pps, total_pkts=None)
    module.STLTXSingleBurst = lambda pps, total_pkts: SimpleNamespace(pps=pps, total_pkts=total_pkts)
    module.STLFlowStats = module.STLFlowLatencyStats = lambda pg_id: SimpleNamespace(pg_id=pg_id)
    module.STLStream = lambda packet, mode, flow_stats=None: SimpleNamespace(packet=packet, mode=mode, flow_stats=flow_stats)

    class Machine:
        def __init__(self) -> None:
            self.commands: list[Any] = []

        def var(self, **fields: Any) -> None:
            self.commands.append(fields)

        def write(self, **fields: Any) -> None:
            self.commands.append(fields)

        def fix_chksum(self) -> None:
            self.commands.append("checksum")

    module.STLVM = Machine
    for part in ("trex", "trex.stl"):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    monkeypatch.setitem(sys.modules, LIBRARY, module)
    return SimpleNamespace(module=module)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


@pytest.fixture
def server(api: SimpleNamespace, host: LocalHost) -> TrexServer:
    made = TrexServer(TrexSettings(host="tester", ports=PORTS), host, frozenset())
    made.start()
    return made


def trial(server: TrexServer, **load: Any) -> Any:
    cables = tuple(Cable(CableKind.NIC, f"p{number}", f"d{number}", f"g{number}") for number in (1, 2))
    generator = CheckedGenerator(server.plug_in((cables[0], cables[1])))
    fields = {"frame": parse_frame_mix("64"), "rate_fps": 100_000.0, **load}
    return generator.trial(TrialRequest(load=Load(**fields), duration_s=0.5))


def test_the_client_connects_to_the_address_and_configures_the_ports(server: TrexServer) -> None:
    assert server.version() == "TRex v3.04 at tester"
    assert server._client.place == {"server": "tester", "sync_port": 4501, "async_port": 4500}
    result = trial(server)
    assert server._client.calls[0] == "promiscuous True [3, 4]"
    # Learning frames first, from the receiving ports.
    assert server._client.calls[1:] == ["start [4, 3] -1", "wait [3, 4]", "start [3, 4] 0.5", "wait [3, 4]"]
    assert (result.verdict, result.sent_frames, result.lost_frames) == (TrialVerdict.VALID, 100_000, 0)
    assert result.directions[0].latency.mean_ns == 7500
    server._client.disconnect()
    with pytest.raises(GeneratorError, match="TRex at tester has ended"):
        server.check()


def test_lost_frames_are_reported_and_a_stream_has_the_size_and_rate_of_its_part(server: TrexServer) -> None:
    server._client.lost_frames = 17
    result = trial(server, frame=IMIX, rate_fps=121_000.0, bidirectional=False, vlans=(100, 0))
    assert [way.lost_frames for way in result.directions] == [17]
    streams = server._client.streams[3]
    assert [len(stream.packet.pkt) for stream in streams] == [64, 594, 1518, 1518]
    assert [round(stream.mode.pps) for stream in streams] == [70_000, 40_000, 10_000, 1000]
    assert [stream.flow_stats.pg_id for stream in streams] == [FIRST_GROUP] * 3 + [FIRST_LATENCY_GROUP]
    assert ("Dot1Q", {"vlan": 100}) in streams[0].packet.pkt.layers
    assert not server._client.streams[4]


def test_a_burst_has_its_number_of_frames_and_no_duration(server: TrexServer) -> None:
    result = trial(server, burst_frames=5000, bidirectional=False, learning=False)
    assert server._client.calls[1:] == ["start [3] -1", "wait [3]"]
    assert (result.directions[0].intended_frames, result.directions[0].sent_frames) == (5000, 5000)


@pytest.mark.parametrize(("flows", "field", "last"), [(1000, "UDP.sport", 2023), (100_000, "IP.src", (10 << 24) + 100_000)])
def test_many_flows_vary_the_port_or_the_address(server: TrexServer, flows: int, field: str, last: int) -> None:
    trial(server, flows=flows, bidirectional=False)
    commands = server._client.streams[3][0].packet.vm.commands
    assert commands[0]["max_value"] == last
    assert commands[1]["pkt_offset"] == field


def test_a_sender_that_does_not_end_makes_the_trial_invalid(server: TrexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []

    def wait(ports: list[int], timeout: float | None = None) -> None:
        if timeout is not None:
            raise STLTimeoutError

    monkeypatch.setattr(server._client, "wait_on_traffic", wait)
    server._client.stop = lambda ports: stopped.extend(ports)
    result = trial(server)
    assert result.verdict is TrialVerdict.INVALID
    assert "still sent" in result.reasons[0]
    assert stopped == [3, 4]


@pytest.mark.parametrize(
    ("load", "words"), [({"addresses": "sources"}, "address plans"), ({"vnis": (5, 0)}, "VXLAN"), ({"flow_set": FlowSet()}, "flow sets")]
)
def test_unsupported_loads_are_rejected(server: TrexServer, load: dict[str, Any], words: str) -> None:
    with pytest.raises(GeneratorError, match=words):
        trial(server, **load)


def test_a_missing_library_is_reported_with_the_fix(host: LocalHost) -> None:
    with pytest.raises(GeneratorError, match="set `library` of the generator"):
        TrexServer(TrexSettings(), host, frozenset()).prepare()
