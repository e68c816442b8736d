"""Cables, created in the kernel."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringroad_lab.cable.interface import Cable, CableKind, Laying, NicPair
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.errors import SandboxError
from ringroad_lab.host.local import LocalHost

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex[:8]


def link(host: LocalHost, interface: str) -> dict[str, object] | None:
    shown = host.run(["ip", "-j", "-d", "link", "show", "dev", interface], check=False)
    return None if shown.status else json.loads(shown.stdout)[0]


@pytest.mark.parametrize("kind", [CableKind.VHOST_USER, CableKind.MEMIF])
def test_a_socket_is_one_path_for_both_ends(host: LocalHost, name: str, kind: CableKind) -> None:
    cable = lay_cable(Laying(kind, name, host, is_dut_server=False, queues=2))
    path = f"{host.folder}/{name}.sock"
    assert cable == Cable(kind, name, path, path, is_dut_server=False, queues=2)
    remove_cable(cable, host)


@needs_root
def test_a_veth_pair_is_up_without_offloads_and_ipv6(host: LocalHost, name: str) -> None:
    cable = lay_cable(Laying(CableKind.VETH, name, host, queues=2, max_frame_bytes=9018))
    try:
        for end in (cable.dut_end, cable.far_end):
            seen = link(host, end)
            assert seen is not None
            assert (seen["mtu"], seen["num_tx_queues"], seen["num_rx_queues"]) == (9000, 2, 2)
            assert "LOWER_UP" in seen["flags"]  # type: ignore[operator]
            features = host.run(["ethtool", "-k", end]).stdout
            for feature in ("tx-checksumming", "rx-checksumming", "tcp-segmentation-offload", "generic-receive-offload"):
                assert f"{feature}: off" in features
            assert Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").read_text() == "1\n"
    finally:
        remove_cable(cable, host)
    assert link(host, cable.dut_end) is link(host, cable.far_end) is None
    remove_cable(cable, host)


@needs_root
def test_a_tap_is_both_the_devices_end_and_the_far_end(host: LocalHost, name: str) -> None:
    cable = lay_cable(Laying(CableKind.TAP, name, host))
    try:
        assert cable.far_end == cable.dut_end
        seen = link(host, cable.dut_end)
        assert seen is not None
        assert seen["mtu"] == 1500
    finally:
        remove_cable(cable, host)
    assert link(host, cable.dut_end) is None


@needs_root
def test_a_cable_that_cannot_be_laid_is_reported_and_leaves_nothing(host: LocalHost, name: str) -> None:
    with pytest.raises(SandboxError, match=rf"cable {name} \(veth\): ip link set dev {name}_dut mtu 99982 up ended with status"):
        lay_cable(Laying(CableKind.VETH, name, host, max_frame_bytes=100_000))
    assert link(host, f"{name}_dut") is None
    with pytest.raises(SandboxError, match="no-such0"):
        lay_cable(Laying(CableKind.NIC, name, host, nics=NicPair(generator_interface="no-such1", dut_interface="no-such0"), far_host=host))
    with pytest.raises(ValueError, match="1 to 8 characters"):
        lay_cable(Laying(CableKind.VETH, "far-too-long", host))
