"""Trials through the Open Traffic Generator model, from a simulated server's responses to results and their validity."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_otg_server import SimulatedServer, simulated_server

from ringroad_lab.errors import GeneratorError
from ringroad_lab.flow_set.acl_rules import acl_headers
from ringroad_lab.flow_set.interface import address_text
from ringroad_lab.frame_size import IMIX, FrameMix
from ringroad_lab.generator import otg, traffic
from ringroad_lab.generator.offered_load import CheckedGenerator
from ringroad_lab.generator.otg import OtgGenerator
from ringroad_lab.generator.otg_client import OtgClient, TrialDetail
from ringroad_lab.trial import AddressPlan, FlowSet, FlowShape, Load, TrialRequest, TrialVerdict

FRAME = FrameMix(name="64", parts=((64, 1),))
LOCATIONS = ("memif:a", "memif:b")


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with simulated_server() as made:
        yield made


@pytest.fixture
def generator(server: SimulatedServer) -> Iterator[OtgGenerator]:
    made = OtgGenerator(OtgClient(server.url, timeout_s=5), LOCATIONS)
    yield made
    made.close()


def request(**load: Any) -> TrialRequest:  # noqa: ANN401
    return TrialRequest(load=Load(frame=FRAME, rate_fps=10_000, **load), duration_s=0.01)


def answer_with(server: SimulatedServer, one_to_two: dict[str, Any], two_to_one: dict[str, Any] | None = None) -> None:
    """Make the server report flows of 100 frames in each direction, except for the given values."""
    usual = {"frames_tx": "100", "frames_rx": "100", "loss": 0.0, "transmit": "stopped"}
    server.flows = [{"name": "1 to 2", **usual, **one_to_two}, {"name": "2 to 1", **usual, **(two_to_one or {})}]
    received = [int(flow["frames_rx"]) for flow in server.flows]
    server.ports = [
        {"name": "1", "frames_tx": 100, "frames_rx": received[1], "transmit": "stopped"},
        {"name": "2", "frames_tx": 100, "frames_rx": received[0], "transmit": "stopped"},
    ]


def test_a_trial_is_configured_started_and_counted(server: SimulatedServer, generator: OtgGenerator) -> None:
    latency = {"minimum_ns": 10, "maximum_ns": 30, "average_ns": 20}
    answer_with(server, {"latency": latency}, {"frames_rx": "90", "loss": 10.0})
    result = CheckedGenerator(generator).trial(request())
    assert result.verdict is TrialVerdict.VALID, result.reasons
    assert [(way.sender, way.receiver, way.sent_frames, way.received_frames) for way in result.directions] == [
        ("1", "2", 100, 100),
        ("2", "1", 100, 90),
    ]
    assert result.directions[0].latency is not None
    assert (result.directions[0].latency.mean_ns, result.directions[0].latency.percentiles_ns) == (20, {})
    (config,) = server.bodies("/config")
    assert [(port["name"], port["location"]) for port in config["ports"]] == [("1", "memif:a"), ("2", "memif:b")]
    starts = [body["traffic"]["flow_transmit"] for body in server.bodies("/control/state")]
    assert [(start["state"], start["flow_names"]) for start in starts] == [
        ("start", ["learning at 2", "learning at 1"]),
        ("start", ["1 to 2", "2 to 1"]),
    ]


def test_duplicates_never_hide_loss(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {"frames_rx": "105", "loss": 5.0})
    way = CheckedGenerator(generator).trial(request()).directions[0]
    assert (way.received_frames, way.lost_frames, way.duplicate_frames) == (95, 5, 10)


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        ({"frames_tx": "90", "frames_rx": "90"}, "1 to 2: the generator sent 90 frames of 100 requested, 10 % less"),
        ({"frames_tx": "120", "frames_rx": "120"}, "20 % more"),
        ({"frames_tx": "0", "frames_rx": "0"}, "1 to 2: no frame was sent"),
    ],
)
def test_a_load_that_was_not_offered_is_invalid(
    server: SimulatedServer, generator: OtgGenerator, reported: dict[str, Any], reason: str
) -> None:
    answer_with(server, reported)
    result = CheckedGenerator(generator).trial(request())
    assert result.verdict is TrialVerdict.INVALID
    assert any(reason in each for each in result.reasons), result.reasons


def test_foreign_frames_make_a_trial_invalid(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    server.ports[1]["frames_rx"] = 150
    result = CheckedGenerator(generator).trial(request())
    assert result.reasons == ("1 to 2: 50 frames arrived that are not of this trial: there is another sender",)
    assert result.directions[0].received_frames == 100


def test_counters_that_never_stop_changing_make_a_trial_invalid(
    server: SimulatedServer, generator: OtgGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otg, "SETTLE_LIMIT_S", 0.3)
    answer_with(server, {})
    metrics = server.answers["/monitor/metrics"]

    def arriving(body: Any) -> tuple[int, Any]:  # noqa: ANN401
        server.ports[0]["frames_rx"] += 1
        return metrics(body)

    server.answers["/monitor/metrics"] = arriving
    reasons = CheckedGenerator(generator).trial(request()).reasons
    assert "frames still arrived 0.3 s after the end of the load" in reasons


def test_a_generator_that_does_not_stop_is_stopped(
    server: SimulatedServer, generator: OtgGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otg, "OVERTIME_S", 0.1)
    answer_with(server, {})
    server.ports[0]["transmit"] = "started"

    def control(body: Any) -> tuple[int, Any]:  # noqa: ANN401
        if body["traffic"]["flow_transmit"]["state"] == "stop":
            server.ports[0]["transmit"] = "stopped"
        return 200, {}

    server.answers["/control/state"] = control
    result = CheckedGenerator(generator).trial(request(learning=False))
    assert any("and was stopped" in reason for reason in result.reasons)
    server.answers["/control/state"] = lambda _: (200, {})
    server.ports[0]["transmit"] = "started"
    with pytest.raises(GeneratorError, match="does not stop sending the load"):
        CheckedGenerator(generator).trial(request(learning=False))


def test_a_load_without_frames_is_invalid_and_not_offered(server: SimulatedServer, generator: OtgGenerator) -> None:
    result = CheckedGenerator(generator).trial(TrialRequest(load=Load(frame=FRAME, rate_fps=1), duration_s=0.1))
    assert result.reasons == ("a load of 1 frames/s for 0.1 s has no frame",)
    assert not server.asked


@pytest.mark.parametrize(
    ("path", "answer", "text"),
    [
        (
            "/config",
            (400, {"code": 400, "errors": ["ports[0].location: no such interface"]}),
            "refused /config: ports.0..location: no such",
        ),
        ("/config", (500, "it broke"), "refused /config: it broke"),
        ("/config", (200, "[1, 2]"), "returned no JSON object for /config"),
        ("/monitor/metrics", (200, {"port_metrics": [{"frames_rx": 1}]}), "invalid response for /monitor/metrics: port_metrics.0.name"),
        ("/monitor/metrics", (200, {"port_metrics": [{"name": "1", "frames_rx": -1}]}), "port_metrics.0.frames_rx"),
        ("/ringroad/flows", (200, {"clock": 7}), "invalid response for /ringroad/flows: clock"),
    ],
)
def test_rejections_and_invalid_responses_are_errors(
    server: SimulatedServer, generator: OtgGenerator, path: str, answer: tuple[int, Any], text: str
) -> None:
    answer_with(server, {})
    server.answers[path] = lambda _: answer
    with pytest.raises(GeneratorError, match=text):
        CheckedGenerator(generator).trial(request(learning=False))


def test_a_load_is_offered_and_judged_in_whole_frames_per_second(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    result = CheckedGenerator(generator).trial(TrialRequest(load=Load(frame=FRAME, rate_fps=1000.4, learning=False), duration_s=0.1))
    assert result.is_valid, result.reasons
    assert result.request.load.rate_fps == 1000
    assert result.directions[0].intended_frames == 100
    assert {int(flow["rate"]["pps"]) for flow in server.bodies("/config")[-1]["flows"]} == {1000}


def test_a_flow_without_metrics_is_an_error(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    del server.flows[1]
    with pytest.raises(GeneratorError, match="does not report flow '2 to 1'"):
        CheckedGenerator(generator).trial(request())


def test_no_server_at_the_url_is_an_error() -> None:
    with simulated_server() as gone:
        url = gone.url
    client = OtgClient(url, timeout_s=5)
    with pytest.raises(GeneratorError, match=f"the generator at {url} does not answer /capabilities/version"):
        client.version()
    client.close()


def detail(**differs: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what Ringroad's generator reports of 100 frames from 1 to 2, except for the given values."""
    values: dict[str, Any] = {
        "sent": 100,
        "unsent": 0,
        "elapsed_ns": 10_000_000,
        "distinct": 100,
        "excess": 0,
        "duplicates": 0,
        "blocked_ns": 0,
    }
    values |= {"unsent_slots": 0, "foreign": 0, "failure": None, **differs}
    received = {"foreign_frames": 0, "corrupted_unattributed": 0, "unknown_stream_frames": 0, "frames": 100}
    port = {"mode": "memif", "unsent_slots": 0, "blocked_ns": 0, "received": received}
    arrival = {"port": "2", "received": values["distinct"], "distinct": values["distinct"], "excess": values["excess"]}
    arrival |= {"duplicates": values["duplicates"], "reordered": 3, "corrupted": 0, "delay": {"latency_ns": LATENCY}}
    offered = {"elapsed_ns": values["elapsed_ns"], "intended_frames": 100, "sent_frames": values["sent"]}
    return {
        "failure": values["failure"],
        "clock": {"source": "tsc", "comparisons": 4, "max_ns": 1000},
        "flows": [{"load": "1 to 2", "offered": offered, "unsent_frames": values["unsent"], "arrivals": [arrival]}],
        "ports": [
            {"port": "1", **port, "blocked_ns": values["blocked_ns"], "unsent_slots": values["unsent_slots"]},
            {"port": "2", **port, "received": {**received, "foreign_frames": values["foreign"]}},
        ],
    }


LATENCY = {"count": 100, "min": 900, "mean": 2000.5, "max": 8000, "p50": 1900, "p90": 2500, "p99": 3800}
LATENCY |= {"p99_9": 7000, "p99_99": 8000, "p99_999": 8000, "stddev": 1.0}


def detailed_trial(server: SimulatedServer, generator: OtgGenerator, **differs: Any) -> Any:  # noqa: ANN401
    answer_with(server, {})
    server.answers["/ringroad/flows"] = lambda _: (200, detail(**differs))
    return CheckedGenerator(generator).trial(request(bidirectional=False))


def test_values_beyond_the_model_are_read_if_served(server: SimulatedServer, generator: OtgGenerator) -> None:
    result = detailed_trial(server, generator, distinct=98, duplicates=1)
    assert result.is_valid, result.reasons
    (way,) = result.directions
    assert (way.sent_frames, way.received_frames, way.duplicate_frames, way.reordered_frames) == (100, 98, 1, 3)
    assert way.transmit_s == 0.01
    assert way.latency is not None
    assert (way.latency.percentiles_ns["99.9"], way.latency.precision) == (7000, 0.001)
    assert result.clock_error == pytest.approx(1e-4)
    assert generator.port_modes() == {"1": "memif", "2": "memif"}


def test_under_an_attack_frames_that_the_device_has_not_taken_are_its_loss(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    server.answers["/ringroad/flows"] = lambda _: (200, detail(distinct=60, unsent_slots=40))
    result = CheckedGenerator(generator).trial(request(bidirectional=False, attack_fps=1000))
    assert result.is_valid, result.reasons
    assert result.directions[0].lost_frames == 40


def test_frames_that_the_device_had_no_room_for_are_its_loss(server: SimulatedServer, generator: OtgGenerator) -> None:
    # 60 frames at 10 000 frames/s take 6 ms; the ring was full for most of this time.
    result = detailed_trial(server, generator, sent=40, distinct=40, unsent=60, blocked_ns=5_000_000)
    assert result.is_valid, result.reasons
    (way,) = result.directions
    assert (way.sent_frames, way.refused_frames, way.lost_frames) == (100, 60, 60)


@pytest.mark.parametrize(
    ("differs", "reason"),
    [
        ({"sent": 40, "distinct": 40, "unsent": 60, "blocked_ns": 1_000_000}, "sent 40 frames of 100"),
        ({"elapsed_ns": 17_000_000}, r"sending took 0\.0170 s, not 0\.0100 s"),
        ({"elapsed_ns": 5_000_000}, r"sending took 0\.0050 s, not 0\.0100 s"),
        ({"unsent_slots": 7}, "port 1: 7 of the frames handed over were never taken"),
        ({"foreign": 11}, "11 frames arrived that are not of this trial"),
        ({"failure": {"port": "2", "reason": "the peer is gone"}}, "port 2 failed: the peer is gone"),
    ],
)
def test_shortcomings_that_the_generator_reports_make_a_trial_invalid(
    server: SimulatedServer, generator: OtgGenerator, differs: dict[str, Any], reason: str
) -> None:
    result = detailed_trial(server, generator, **differs)
    assert result.verdict is TrialVerdict.INVALID
    assert len(result.reasons) == 1
    assert re.search(reason, result.reasons[0])


def _detail_response(elapsed_ns: int, _path: object) -> tuple[int, dict[str, Any]]:
    return 200, detail(elapsed_ns=elapsed_ns)


def test_a_burst_may_be_faster_but_not_slower_than_its_rate(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    burst = TrialRequest(load=Load(frame=FRAME, rate_fps=10_000, bidirectional=False, burst_frames=100), duration_s=9.0)
    for elapsed_ns, is_valid in ((2_000_000, True), (10_000_000, True), (12_000_000, False)):
        server.answers["/ringroad/flows"] = partial(_detail_response, elapsed_ns)
        assert CheckedGenerator(generator).trial(burst).is_valid is is_valid
    (flow,) = [flow for flow in server.bodies("/config")[-1]["flows"] if flow["name"] == "1 to 2"]
    assert flow["duration"]["fixed_packets"]["packets"] == 100


def test_a_burst_that_the_device_had_no_room_for_is_its_loss(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    burst = TrialRequest(load=Load(frame=FRAME, rate_fps=10_000, bidirectional=False, burst_frames=100), duration_s=9.0)
    server.answers["/ringroad/flows"] = lambda _: (200, detail(elapsed_ns=40_000_000, blocked_ns=20_000_000))
    result = CheckedGenerator(generator).trial(burst)
    assert result.is_valid, result.reasons
    # It took 40 ms, of which three quarters are beyond the 10 ms that it should have taken.
    assert (result.directions[0].refused_frames, result.lost_frames) == (75, 75)
    server.answers["/ringroad/flows"] = lambda _: (200, detail(elapsed_ns=40_000_000, blocked_ns=5_000_000))
    assert not CheckedGenerator(generator).trial(burst).is_valid


@given(sent=st.integers(0, 1000), distinct=st.integers(0, 1000), unsent=st.integers(0, 1000), blocked_ns=st.integers(0, 10**9))
def test_loss_is_never_negative_nor_more_than_was_sent(sent: int, distinct: int, unsent: int, blocked_ns: int) -> None:
    details = TrialDetail.model_validate(detail(sent=sent, distinct=distinct, unsent=unsent, blocked_ns=blocked_ns))
    way = otg._detailed(traffic.Direction(0, 1), 100, request(), details)
    assert 0 <= way.lost_frames <= way.sent_frames
    assert way.received_frames <= sent
    assert way.refused_frames <= unsent
    assert not way.refused_frames or way.sent_frames <= way.intended_frames


def flows(load: Load) -> dict[str, dict[str, Any]]:
    config = json.loads(traffic.traffic(LOCATIONS, load, 1.5).serialize("json"))
    return {flow["name"]: flow for flow in config["flows"]}


def test_a_mix_is_weight_pairs_and_flows_are_udp_ports() -> None:
    made = flows(Load(frame=IMIX, rate_fps=999.6, flows=500))["1 to 2"]
    pairs = [(pair["size"], pair["weight"]) for pair in made["size"]["weight_pairs"]["custom"]]
    assert pairs == [(64, 7), (594, 4), (1518, 1)]
    assert int(made["rate"]["pps"]) == 1000
    assert made["duration"]["fixed_seconds"]["seconds"] == 1.5
    assert made["packet"][2]["udp"]["src_port"]["increment"] == {"start": 1024, "step": 1, "count": 500}
    many = flows(Load(frame=IMIX, rate_fps=1000, flows=100_000))["2 to 1"]
    assert many["packet"][1]["ipv4"]["src"]["increment"] == {"start": "11.0.0.1", "step": "0.0.0.1", "count": 100_000}


def test_frames_of_a_flow_set_match_its_entries() -> None:
    def packet(flow_set: FlowSet) -> tuple[dict[str, Any], dict[str, Any]]:
        _, ip, udp = flows(Load(frame=FRAME, rate_fps=1000, bidirectional=False, flow_set=flow_set))["1 to 2"]["packet"]
        return ip["ipv4"], udp["udp"]

    few, _ = packet(FlowSet(entries=300, masks=20))
    assert few["src"]["increment"] == {"start": "10.0.0.1", "step": "0.0.0.1", "count": 300}
    assert few["dst"]["value"] == "198.19.0.1"
    many, _ = packet(FlowSet(entries=1_000_000))
    # Seed 0: different addresses in each trial, because a short trial does not reach all addresses.
    assert many["src"]["random"] == {"min": "10.0.0.1", "max": "10.15.66.64", "seed": 0, "count": 65_537}
    ip, udp = packet(FlowSet(shape=FlowShape.ACL, entries=500, seed=4))
    columns = (ip["src"]["values"], ip["dst"]["values"], udp["src_port"]["values"], udp["dst_port"]["values"])
    expected = [
        (address_text(header.source), address_text(header.destination), header.source_port, header.destination_port)
        for header in acl_headers(500, 4)
    ]
    assert list(zip(*columns, strict=True)) == expected


def test_an_attack_is_sent_with_the_load_and_is_not_counted(server: SimulatedServer, generator: OtgGenerator) -> None:
    answer_with(server, {})
    server.flows = [server.flows[0], {**server.flows[0], "name": "attack"}]
    load = {"bidirectional": False, "learning": False, "attack_fps": 5000, "flow_set": FlowSet(white_list=True)}
    result = CheckedGenerator(generator).trial(request(**load))
    assert result.verdict is TrialVerdict.VALID, result.reasons
    assert [way.sender for way in result.directions] == ["1"]
    (start,) = [body["traffic"]["flow_transmit"] for body in server.bodies("/control/state")]
    assert start["flow_names"] == ["1 to 2", "attack"]
    (attack,) = [flow for flow in server.bodies("/config")[-1]["flows"] if flow["name"] == "attack"]
    assert attack["tx_rx"]["port"]["tx_name"] == "2"
    assert int(attack["rate"]["pps"]) == 5000
    assert not attack.get("metrics", {}).get("enable")
    ip, tcp = attack["packet"][1]["ipv4"], attack["packet"][2]["tcp"]
    assert {len(values) for values in (ip["src"]["values"], tcp["src_port"]["values"], tcp["dst_port"]["values"])} == {8192}
    # The lengths of the two cycles are coprime, so that all combinations of headers occur.
    assert math.gcd(8192, ip["dst"]["increment"]["count"]) == 1


def test_each_end_is_one_station_and_the_receivers_are_learned() -> None:
    made = flows(Load(frame=FRAME, rate_fps=1000))
    ethernet = {name: flow["packet"][0]["ethernet"] for name, flow in made.items()}
    assert ethernet["1 to 2"]["dst"]["value"] == ethernet["2 to 1"]["src"]["value"] == ethernet["learning at 2"]["src"]["value"]
    assert ethernet["2 to 1"]["dst"]["value"] == ethernet["1 to 2"]["src"]["value"] == ethernet["learning at 1"]["src"]["value"]
    assert set(flows(Load(frame=FRAME, rate_fps=1000, bidirectional=False))) == {"1 to 2", "learning at 2"}
    assert set(flows(Load(frame=FRAME, rate_fps=1000, learning=False))) == {"1 to 2", "2 to 1"}


def test_address_plans_name_the_same_stations() -> None:
    def ethernet(plan: AddressPlan) -> dict[str, Any]:
        load = Load(frame=FRAME, rate_fps=1000, bidirectional=False, addresses=plan, stations=300, first_station=256)
        header = flows(load)["1 to 2"]["packet"][0]["ethernet"]
        assert isinstance(header, dict)
        return header

    behind_1 = {"start": "02:01:00:00:01:00", "step": "00:00:00:00:00:01", "count": 300}
    assert ethernet(AddressPlan.SOURCES)["src"]["increment"] == behind_1
    assert ethernet(AddressPlan.RETURNED)["dst"]["increment"] == behind_1
