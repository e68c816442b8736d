"""The stock client of the Open Traffic Generator model against `ringroad otg`."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import snappi

from client import (
    MAC_A,
    Api,
    add_flow,
    all_through,
    await_flows,
    flow_metrics,
    port_metrics,
    refused,
    transmit,
    two_ports,
)
from conftest import PATIENCE_S, Daemon


@pytest.mark.parametrize("encryption", [(), ("--http",)])
def test_flows_are_sent_counted_and_measured(serve: Callable[..., str], encryption: tuple[str, ...]) -> None:
    """Two flows against each other: every frame is counted on both sides, and started again from 0."""
    api = snappi.api(location=serve(*encryption), verify=False, version_check=True)
    config = two_ports()
    there, back = add_flow(config, "there"), add_flow(config, "back", tx="b", rx="a")
    # No more than a ring takes, for as long as the receiver gets no processor.
    there.duration.fixed_packets.packets = 1000
    back.duration.fixed_packets.packets = 500
    back.size.weight_pairs.custom.custom(size=64, weight=3)
    back.size.weight_pairs.custom.custom(size=512, weight=1)
    assert not api.set_config(config).warnings
    assert api.get_config().serialize() == config.serialize()

    for _ in range(2):
        transmit(api, "start")
        flows = await_flows(api, "end of the flows", all_through)
        assert (flows["there"].frames_tx, flows["back"].frames_tx) == (1000, 500)
        assert flows["there"].bytes_tx == flows["there"].bytes_rx == 1000 * 128
        assert flows["back"].bytes_tx == flows["back"].bytes_rx == 375 * 64 + 125 * 512
        for flow in flows.values():
            assert flow.loss == 0
            latency = flow.latency
            assert 0 < latency.minimum_ns <= latency.average_ns <= latency.maximum_ns
        ports = port_metrics(api)
        assert (ports["a"].frames_tx, ports["a"].frames_rx) == (1000, 500)
        assert (ports["b"].frames_tx, ports["b"].frames_rx) == (500, 1000)
        assert (ports["a"].location, ports["a"].link, ports["a"].transmit) == ("vale0:a", "up", "stopped")
        assert ports["b"].bytes_rx == 1000 * 128


def test_frames_vary_as_the_flow_defines(api: Api, daemon: Daemon, tmp_path: Path) -> None:
    """A third station on the switch sees addresses, ports and tags in the order of the patterns."""
    config = two_ports()
    flow = config.flows.flow(name="f")[-1]
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "a", ["b"]
    ethernet, vlan, ip, udp = flow.packet.ethernet().vlan().ipv4().udp()
    ethernet.src.value, ethernet.dst.value = MAC_A, "ff:ff:ff:ff:ff:ff"
    vlan.id.values = [10, 20, 30]
    ip.src.increment.start, ip.src.increment.step, ip.src.increment.count = "198.18.0.250", "0.0.0.2", 10
    udp.dst_port.decrement.start, udp.dst_port.decrement.step, udp.dst_port.decrement.count = 4000, 1, 4
    udp.src_port.random.min, udp.src_port.random.max, udp.src_port.random.count = 1000, 1009, 7
    flow.duration.fixed_packets.packets = 420
    flow.rate.pps = 20_000
    flow.metrics.enable = True
    api.set_config(config)

    file = tmp_path / "seen.pcap"
    capture, _ = daemon.start("capture", "vale0:c", "--write", str(file), "--count", "420")
    try:
        transmit(api, "start")
        capture.communicate(timeout=PATIENCE_S)
    finally:
        capture.kill()
    frames = read_pcap(file)
    assert len(frames) == 420

    fields = [struct.unpack("!6s6sHHH12s4s4sHHHH", frame[:46]) for frame in frames]
    assert {len(frame) for frame in frames} == {60}
    assert [tci for _, _, _, tci, *_ in fields] == [10, 20, 30] * 140
    first = int.from_bytes(bytes([198, 18, 0, 250]), "big")
    assert [int.from_bytes(field[6], "big") for field in fields] == [first + 2 * step for step in range(10)] * 42
    assert [field[9] for field in fields] == [4000, 3999, 3998, 3997] * 105
    drawn = [field[8] for field in fields]
    assert drawn == drawn[:7] * 60
    assert set(drawn) <= set(range(1000, 1010))
    assert all(ones_complement_sum(frame[18:38]) == 0xFFFF for frame in frames)
    assert all(ones_complement_sum(pseudo_header(frame) + frame[38:]) == 0xFFFF for frame in frames)
    assert max(Counter(frames).values()) == 1, "each frame has a signature of its own"


def test_flows_start_and_stop_one_by_one(api: Api) -> None:
    """A flow without end is paused, resumes, and stops for good; the other is not touched."""
    config = two_ports(receiver="vale0:b@slots=4096")
    for name in ("endless", "limited"):
        add_flow(config, name).rate.pps = 2000
    config.flows[1].duration.fixed_packets.packets = 100
    api.set_config(config)

    transmit(api, "start", "endless")
    await_flows(api, "frame of the one", lambda flows: flows["endless"].frames_rx > 10)
    flows = flow_metrics(api)
    assert (flows["endless"].transmit, flows["limited"].transmit) == ("started", "stopped")
    assert flows["limited"].frames_tx == 0
    assert port_metrics(api, "a")["a"].transmit == "started"

    transmit(api, "start", "limited")
    await_flows(api, "end of the other", lambda flows: flows["limited"].frames_rx == 100)
    assert flow_metrics(api)["endless"].transmit == "started"
    error = refused(lambda: transmit(api, "start", "limited"))
    assert error.code == 400
    assert "stop endless first" in error.errors[0]
    assert "limited" in refused(lambda: transmit(api, "pause")).errors[0]

    transmit(api, "pause", "endless")
    paused = await_flows(api, "last frame", lambda flows: flows["endless"].frames_rx == flows["endless"].frames_tx)
    assert paused["endless"].transmit == "paused"
    transmit(api, "resume", "endless")
    await_flows(api, "more frames", lambda flows: flows["endless"].frames_rx > paused["endless"].frames_rx)
    transmit(api, "stop")
    through = await_flows(api, "last frame", all_through)
    assert through["endless"].loss == 0
    assert flow_metrics(api)["endless"].frames_tx == through["endless"].frames_tx


def test_what_does_not_arrive_is_lost_and_what_arrives_at_two_ports_counts_twice(api: Api) -> None:
    """Loss is of the frames that should come: nothing from a station to itself, all of a broadcast at each port."""
    config = two_ports()
    config.ports.port(name="c", location="vale0:c")
    itself, everybody, unmeasured = (add_flow(config, name) for name in ("itself", "everybody", "unmeasured"))
    for flow in config.flows:
        flow.duration.fixed_packets.packets = 100
    itself.packet[0].dst.value = MAC_A
    everybody.packet[0].dst.value = "ff:ff:ff:ff:ff:ff"
    everybody.tx_rx.port.rx_names = ["b", "c"]
    everybody.metrics.rx_tx_ratio.rx_count  # noqa: B018 (reading chooses it)
    unmeasured.metrics.enable = False
    api.set_config(config)
    transmit(api, "start")

    def through(flows: dict[str, Any]) -> bool:
        return flows["everybody"].frames_rx == 200 and all(flow.transmit == "stopped" for flow in flows.values())

    flows = await_flows(api, "end of the flows", through)
    assert (flows["itself"].frames_tx, flows["itself"].frames_rx, flows["itself"].loss) == (100, 0, 100)
    assert (flows["everybody"].frames_tx, flows["everybody"].loss) == (100, 0)
    assert (flows["unmeasured"].frames_tx, flows["unmeasured"].frames_rx, flows["unmeasured"].loss) == (100, None, None)
    # The port sees what is not measured too.
    assert port_metrics(api, "b")["b"].frames_rx == 200


def test_a_port_that_fails_is_reported_and_a_new_configuration_recovers(api: Api, daemon: Daemon) -> None:
    """The daemon ends under a flow: its client gets the reason, and starts again with the next daemon."""
    config = two_ports()
    add_flow(config, "f")
    api.set_config(config)
    transmit(api, "start")
    await_flows(api, "frame", lambda flows: flows["f"].frames_rx > 0)
    daemon.run("down")

    def failure() -> Any:  # noqa: ANN401 (snappi has no types)
        await_flows(api, "failure", lambda _: False)

    error = refused(failure)
    assert (error.code, error.kind) == (500, "internal")
    assert "port vale0:" in error.errors[0]
    assert "set the configuration again" in error.errors[0]

    daemon.run("up")
    config.flows[0].duration.fixed_packets.packets = 10
    api.set_config(config)
    transmit(api, "start")
    assert await_flows(api, "end of the flow", all_through)["f"].frames_rx == 10


def test_metrics_are_filtered_by_name_and_column(api: Api) -> None:
    """A client sees the rows and columns it names, and gets an error for unknown ones."""
    config = two_ports()
    for name in ("one", "two"):
        add_flow(config, name)
    config.layer1.layer1(name="speed", port_names=["a"], speed="speed_10_gbps")
    api.set_config(config)
    request = snappi.MetricsRequest()
    request.flow.flow_names, request.flow.metric_names = ["two"], ["frames_tx", "transmit"]
    (row,) = api.get_metrics(request).flow_metrics
    assert row.serialize("dict") == {"name": "two", "frames_tx": 0, "transmit": "stopped"} or row.serialize("dict") == {
        "name": "two",
        "frames_tx": "0",
        "transmit": "stopped",
    }
    assert list(port_metrics(api, "b")) == ["b"]
    assert port_metrics(api, "a")["a"].speed == 1_250_000
    assert "three" in refused(lambda: flow_metrics(api, "three")).errors[0]


def test_what_is_not_supported_is_named_and_nothing_of_it_is_done(api: Api) -> None:
    """Every error is reported with its path, and the previous configuration stays."""
    before = two_ports()
    add_flow(before, "before")
    api.set_config(before)

    config = two_ports()
    config.devices.device(name="router")
    add_flow(config, "f").packet.gre()
    config.flows[0].rate.percentage = 50
    config.flows[0].tx_rx.port.rx_names = ["c"]
    config.flows.flow(name="g")[-1].tx_rx.device.tx_names = ["router"]
    config.flows[1].tx_rx.device.rx_names = ["router"]
    error = refused(lambda: api.set_config(config))
    assert (error.code, error.kind) == (400, "validation")
    texts = "\n".join(error.errors)
    for expected in [
        "devices: not supported; supported are ports, layer1, flows, options",
        "flows[0].packet[3].gre: not supported; supported are ethernet, vlan,",
        'flows[0].rate.percentage: port "a" has no speed',
        'flows[0].tx_rx.port.rx_names: no port is called "c"',
        "flows[1].tx_rx.device: not supported; supported is port",
    ]:
        assert expected in texts
    assert api.get_config().serialize() == before.serialize()

    # What fits the model but makes no frame.
    config = two_ports()
    add_flow(config, "f").packet.ipv6()
    config.flows[0].size.fixed = 80
    error = refused(lambda: api.set_config(config))
    assert error.errors[0].startswith("flows[0].packet[3].ipv6: ")


def test_a_port_that_cannot_be_opened_is_named_and_the_ports_before_are_open_again(api: Api) -> None:
    """A wrong location is reported with its path; the previous configuration is in force again."""
    before = two_ports()
    add_flow(before, "f").duration.fixed_packets.packets = 10
    api.set_config(before)
    config = two_ports()
    config.ports[1].location = "vale0:b@slots=3"
    error = refused(lambda: api.set_config(config))
    assert error.code == 400
    assert error.errors[0].startswith("ports[1].location: ")
    config.ports[1].location = "no-such-interface"
    error = refused(lambda: api.set_config(config))
    assert error.errors[0].startswith("ports[1].location: ")
    assert "no-such-interface" in error.errors[0]

    assert api.get_config().serialize() == before.serialize()
    transmit(api, "start")
    assert await_flows(api, "end of the flow", all_through)["f"].frames_rx == 10


def test_flows_are_changed_added_and_removed(api: Api) -> None:
    """Parts of a configuration change while nothing transmits."""
    config = two_ports()
    add_flow(config, "f").duration.fixed_packets.packets = 10
    api.set_config(config)

    update = snappi.ConfigUpdate()
    update.flows.property_names = ["size"]
    changed = config.flows[0].clone()
    changed.size.fixed = 256
    update.flows.flows.append(changed)
    api.update_config(update)

    added = two_ports()
    add_flow(added, "g").duration.fixed_packets.packets = 20
    append = snappi.ConfigAppend()
    resources = append.config_append_list.add()
    resources.flows.append(added.flows[0])
    api.append_config(append)
    transmit(api, "start")
    flows = await_flows(api, "end of the flows", all_through)
    assert (flows["f"].bytes_rx, flows["g"].bytes_rx) == (10 * 256, 20 * 128)

    delete = snappi.ConfigDelete()
    delete.config_delete_list.add().flows = ["f"]
    api.delete_config(delete)
    assert [flow.name for flow in api.get_config().flows] == ["g"]
    assert "f" in refused(lambda: api.delete_config(delete)).errors[0]


def test_requests_that_need_what_there_is_not_are_refused(api: Api) -> None:
    """Captures, states, actions and commands without a configuration have their own words."""
    assert "nothing is configured" in refused(lambda: transmit(api, "start")).errors[0]
    capture = snappi.CaptureRequest()
    capture.port_name = "a"
    assert "ringroad capture" in refused(lambda: api.get_capture(capture)).errors[0]
    states = snappi.StatesRequest()
    states.ipv4_neighbors.ethernet_names = ["x"]
    assert "not supported" in refused(lambda: api.get_states(states)).errors[0]
    assert "not JSON" in refused(lambda: api._transport.send_recv("post", "/config", payload="{")).errors[0]
    assert refused(lambda: api._transport.send_recv("get", "/nothing")).code == 404


def test_a_flow_of_some_seconds_ends_by_itself_and_keeps_below_its_rate(api: Api) -> None:
    """A percentage is of the line: 20 bytes per frame beside the frame."""
    config = two_ports()
    config.layer1.layer1(name="speed", port_names=["a"], speed="speed_10_fd_mbps")
    flow = add_flow(config, "f")
    flow.size.fixed = 1480
    flow.rate.percentage = 60
    flow.duration.fixed_seconds.seconds = 0.2
    api.set_config(config)
    transmit(api, "start")
    flows = await_flows(api, "end of the flow", all_through)
    # 0.2 s of 6 Mbit/s in frames of 1500 bytes on the line, the first of them at once. A thread that the kernel held up
    # at the end has sent fewer.
    assert 0 < flows["f"].frames_tx <= 100


def read_pcap(file: Path) -> list[bytes]:
    """Return the frames of a capture file of this machine's byte order."""
    content = file.read_bytes()
    frames, offset = [], 24
    while offset < len(content):
        (length,) = struct.unpack_from("=I", content, offset + 8)
        frames.append(content[offset + 16 : offset + 16 + length])
        offset += 16 + length
    return frames


def pseudo_header(frame: bytes) -> bytes:
    """Return what a UDP checksum counts of the IPv4 header behind a VLAN tag (RFC 768)."""
    return frame[30:38] + struct.pack("!BBH", 0, 17, len(frame) - 38)


def ones_complement_sum(content: bytes) -> int:
    """Return the sum that right checksums make all ones (RFC 1071)."""
    words = struct.unpack(f"!{len(content) // 2}H", content)
    total: int = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
