"""Parsers of the output of Open vSwitch's tools. The texts are of version 3.1."""

from __future__ import annotations

import pytest

from ringroad_lab.dut.open_vswitch_counters import (
    parse_drops,
    parse_interfaces,
    parse_polling_threads,
    parse_ports,
    parse_version,
    polling_cycles,
)

PORTS = """\
OFPST_PORT reply (OF1.4) (xid=0x2): 2 ports
  port  1: rx pkts=5003, bytes=300180, drop=1, errs=0, frame=?, over=?, crc=?
           tx pkts=5004, bytes=300240, drop=2, errs=0, coll=?
           duration=2.5s
           CUSTOM Statistics
                      ovs_tx_failure_drops=7, ovs_rx_qos_drops=0,
  port LOCAL: rx pkts=9, bytes=9, drop=9, errs=0, frame=0, over=0, crc=0
           tx pkts=9, bytes=9, drop=0, errs=0, coll=0
           duration=2.5s
"""
THREADS = """\
pmd thread numa_id 0 core_id 1:
  packets received: 10006
  avg. datapath passes per packet: 1.00
  miss with success upcall: 4
  idle cycles: 4197023382 (92.69%)
  processing cycles: 330739347 (7.31%)
  avg processing cycles per packet: 33054.10 (330739347/10006)
main thread:
  packets received: 0
"""


def test_counters_of_ports_have_the_port_numbers() -> None:
    assert parse_ports(PORTS) == {
        "1.rx_frames": 5003,
        "1.rx_bytes": 300180,
        "1.rx_drops": 1,
        "1.rx_errors": 0,
        "1.tx_frames": 5004,
        "1.tx_bytes": 300240,
        "1.tx_drops": 2,
        "1.tx_errors": 0,
        "1.ovs_tx_failure_drops": 7,
        "1.ovs_rx_qos_drops": 0,
    }


def test_polling_threads_are_named_by_their_processors() -> None:
    parsed = parse_polling_threads(THREADS)
    assert parsed["cpu1.packets_received"] == 10006
    assert parsed["cpu1.processing_cycles"] == 330739347
    assert parsed["cpu1.avg_processing_cycles_per_packet"] == 33054
    assert parsed["cpu1.miss_with_success_upcall"] == 4
    assert parsed["main.packets_received"] == 0
    assert polling_cycles(parsed) == (1, 330739347, 330739347 + 4197023382)
    assert polling_cycles({"main.idle_cycles": 1}) is None


def test_drops_are_parsed_by_cause() -> None:
    parsed = parse_drops(
        "datapath_drop_upcall_error   0.0/sec     0.000/sec        0.0000/sec   total: 12\n"
        "bridge_reconfigure           0.0/sec     0.000/sec        0.0000/sec   total: 5\n"
    )
    assert parsed == {"datapath_drop_upcall_error": 12}


def test_versions_of_both_builds_are_parsed() -> None:
    assert parse_version("ovs-vswitchd-dpdk (Open vSwitch) 3.1.0\nDPDK 22.11.11\n") == {"Open vSwitch": "3.1.0", "DPDK": "22.11.11"}
    assert parse_version("ovs-vswitchd (Open vSwitch) 3.1.0\n") == {"Open vSwitch": "3.1.0"}


def test_interfaces_are_parsed_by_name() -> None:
    table = {"headings": ["name", "error", "status"], "data": [["a", ["set", []], ["map", [["driver_name", "veth"]]]]]}
    assert parse_interfaces(table) == {"a": {"name": "a", "error": None, "status": {"driver_name": "veth"}}}


@pytest.mark.parametrize("table", [None, {}, {"headings": ["name"], "data": [["a", "b"]]}, {"headings": [], "data": [[]]}])
def test_an_invalid_table_is_rejected(table: object) -> None:
    with pytest.raises(ValueError, match="not a table of interfaces"):
        parse_interfaces(table)
