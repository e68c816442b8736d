"""Calls of the stock client, for the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import snappi

from conftest import PATIENCE_S

MAC_A, MAC_B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
# The client's own objects have no types.
Api = Any
Config = Any
Flow = Any


def two_ports(receiver: str = "vale0:b") -> Config:
    """Return a configuration of two ports on a switch."""
    config = snappi.Config()
    config.ports.port(name="a", location="vale0:a")
    config.ports.port(name="b", location=receiver)
    return config


def add_flow(config: Config, name: str, tx: str = "a", rx: str = "b") -> Flow:
    """Add a measured UDP flow from a port to the other."""
    flow = config.flows.flow(name=name)[-1]
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = tx, [rx]
    ethernet, ip, udp = flow.packet.ethernet().ipv4().udp()
    ethernet.src.value, ethernet.dst.value = (MAC_A, MAC_B) if tx == "a" else (MAC_B, MAC_A)
    ip.src.value, ip.dst.value = "198.18.0.1", "198.19.0.1"
    udp.src_port.value, udp.dst_port.value = 5000, 9
    flow.size.fixed = 128
    flow.rate.pps = 20_000
    flow.metrics.enable = flow.metrics.loss = flow.metrics.latency.enable = True
    return flow


def transmit(api: Api, state: str, *flows: str) -> None:
    """Set the flows' state; all flows' where none is named."""
    control = snappi.ControlState()
    control.traffic.flow_transmit.state = state
    control.traffic.flow_transmit.flow_names = list(flows)
    api.set_control_state(control)


def without_token(location: str) -> tuple[str, str]:
    """Return a server's URL and its token, apart."""
    scheme, _, rest = location.partition("://")
    userinfo, at, address = rest.rpartition("@")
    assert at, f"{location} has no token"
    return f"{scheme}://{address}", userinfo.partition(":")[2]


def flow_metrics(api: Api, *names: str) -> dict[str, Any]:
    """Return the flows' metrics by name."""
    request = snappi.MetricsRequest()
    request.flow.flow_names = list(names)
    return {metric.name: metric for metric in api.get_metrics(request).flow_metrics}


def port_metrics(api: Api, *names: str) -> dict[str, Any]:
    """Return the ports' metrics by name."""
    request = snappi.MetricsRequest()
    request.port.port_names = list(names)
    return {metric.name: metric for metric in api.get_metrics(request).port_metrics}


def await_flows(api: Api, what: str, wished: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Poll until the metrics are as expected: the model has no other way to wait."""
    end = time.monotonic() + PATIENCE_S
    while True:
        metrics = flow_metrics(api)
        if wished(metrics):
            return metrics
        assert time.monotonic() < end, f"no {what}: {metrics}"
        time.sleep(0.01)


def all_through(metrics: dict[str, Any]) -> bool:
    """Return whether all flows have ended and their last frames have come."""
    return all(flow.transmit == "stopped" and flow.frames_rx == flow.frames_tx for flow in metrics.values())


def refused(call: Callable[[], object]) -> Any:  # noqa: ANN401 (snappi has no types)
    """Return the model's error object that a request is answered with."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 (the client raises just Exception)
        call()
    return raised.value.args[0]
