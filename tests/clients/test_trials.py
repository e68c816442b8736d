"""Trials one after the other: ports stay open, and `GET /ringroad/flows` returns the exact result of each."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import snappi

from client import MAC_B, Api, Config, add_flow, all_through, await_flows, refused, transmit, without_token
from conftest import PATIENCE_S, Daemon

TRIALS = 200
FRAMES = 200


def between(locations: tuple[str, str]) -> Config:
    """Return a configuration of two ports."""
    config = snappi.Config()
    for name, location in zip("ab", locations, strict=True):
        config.ports.port(name=name, location=location)
    return config


def flow_report(location: str) -> dict[str, Any]:
    """Return the result of the flows."""
    url, token = without_token(location)
    request = urllib.request.Request(f"{url}/ringroad/flows", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def ports_of(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the daemon's ports by their names."""
    ports: list[dict[str, Any]] = json.loads(daemon.run("--json", "status"))["ports"]
    return sorted(ports, key=lambda port: str(port["name"]))


def run_trials(
    serve: Callable[..., str], locations: tuple[str, str], threads: str, trials: int = TRIALS, allowed: str = ""
) -> Callable[[int], None]:
    """Run short trials, each with its own configuration, and check that each counts its own frames, all of them.

    Return a function that runs more of them.
    """
    allow = ("--allow-location", allowed) if allowed else ()
    url = serve("--http", "--threads", threads, *allow)
    api = snappi.api(location=url, verify=False)

    def run(trials: int) -> None:
        for trial in range(trials):
            run_trial(api, url, locations, 64 + trial % 3 * 100)

    run(trials)
    return run


def run_trial(api: Api, url: str, locations: tuple[str, str], size: int) -> None:
    """Run one trial of 20 ms."""
    config = between(locations)
    flow = add_flow(config, "f")
    flow.size.fixed = size
    flow.rate.pps = FRAMES * 50
    flow.duration.fixed_packets.packets = FRAMES
    api.set_config(config)
    transmit(api, "start")
    await_flows(api, "end of the flow", all_through)
    outcome = flow_report(url)
    (flow,), (_, receiver) = outcome["flows"], outcome["ports"]
    (arrival,) = flow["arrivals"]
    assert outcome["failure"] is None
    assert flow["sent"]["frames"] == flow["offered"]["sent_frames"] == FRAMES
    assert (arrival["port"], arrival["received"], arrival["distinct"]) == ("b", FRAMES, FRAMES)
    assert [arrival[count] for count in ("lost", "excess", "duplicates", "corrupted")] == [0, 0, 0, 0]
    # Nothing came late: all of the trial before was waited for.
    assert (receiver["received"]["frames"], receiver["received"]["earlier_frames"]) == (FRAMES, 0)
    assert flow["departure_span_ns"] <= flow["offered"]["elapsed_ns"]
    latency = arrival["delay"]["latency_ns"]
    assert latency["count"] == FRAMES
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99_99"]


def regions(daemon: Daemon) -> set[str]:
    """Return the shared memory of the server's ports of the daemon: a reopened port has a new one."""
    owners = {port["owner"]["pid"] for port in ports_of(daemon)}
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in owners)
    return {line.split()[4] for line in maps.splitlines() if "memfd:" in line}


@pytest.mark.parametrize("threads", ["queue", "one"])
def test_ports_of_a_switch_stay_open_between_trials(serve: Callable[..., str], daemon: Daemon, threads: str) -> None:
    """The daemon counts all trials at the same two ports."""
    run_trials(serve, ("vale0:a", "vale0:b"), threads)
    sender, receiver = ports_of(daemon)
    assert (sender["name"], receiver["name"]) == ("vale0:a", "vale0:b")
    assert sender["counters"]["received_frames"] == TRIALS * FRAMES
    assert receiver["counters"]["delivered_frames"] == TRIALS * FRAMES


def test_the_ends_of_a_pipe_stay_open_between_trials(serve: Callable[..., str], daemon: Daemon) -> None:
    """Every trial over a pipe is over the same memory."""
    trials = run_trials(serve, ("t{1", "t}1"), "queue", 1)
    before = regions(daemon)
    assert before
    trials(TRIALS)
    assert regions(daemon) == before


def test_a_card_and_its_switch_stay_connected_between_trials(serve: Callable[..., str], daemon: Daemon) -> None:
    """The vhost-user server's socket is made once."""
    socket = daemon.folder / "v.sock"
    trials = run_trials(serve, (f"virtio-user:{socket}", f"vhost-user:{socket}"), "queue", 1, f"*:{socket}")
    made = socket.stat()
    trials(TRIALS)
    assert (socket.stat().st_ino, socket.stat().st_ctime_ns) == (made.st_ino, made.st_ctime_ns)


def test_a_new_configuration_closes_what_it_does_not_name(serve: Callable[..., str], daemon: Daemon) -> None:
    """The one port stays open, the other leaves the switch, a third comes."""
    api = snappi.api(location=serve("--http"), verify=False)
    api.set_config(between(("vale0:a", "vale0:b")))
    before = regions(daemon)
    api.set_config(between(("vale0:c", "vale0:a")))
    assert [port["name"] for port in ports_of(daemon)] == ["vale0:a", "vale0:c"]
    assert len(before & regions(daemon)) == 1
    api.set_config(snappi.Config())
    assert ports_of(daemon) == []


def test_flows_are_reported_once_none_transmits_and_learning_is_a_flow_like_others(serve: Callable[..., str]) -> None:
    """Learning frames the other way leave the measured flow's counters alone."""
    url = serve("--http")
    with pytest.raises(urllib.error.HTTPError) as nothing:
        flow_report(url)
    assert "nothing is configured" in json.load(nothing.value)["errors"][0]
    api = snappi.api(location=url, verify=False)
    # The ring takes all that is sent while the receiver gets no processor.
    config = between(("vale0:a", "vale0:b@slots=4096"))
    config.ports.port(name="c", location="vale0:c")
    add_flow(config, "measured").rate.pps = 2000
    learning = config.flows.flow(name="learning")[-1]
    learning.tx_rx.port.tx_name, learning.tx_rx.port.rx_names = "b", ["a"]
    learning.packet.ethernet()
    learning.packet[0].src.value, learning.packet[0].dst.value = MAC_B, "ff:ff:ff:ff:ff:ff"
    learning.duration.fixed_packets.packets = 3
    api.set_config(config)
    transmit(api, "start", "learning")
    await_flows(api, "end of learning", lambda flows: flows["learning"].transmit == "stopped")
    transmit(api, "start", "measured")
    with pytest.raises(urllib.error.HTTPError) as early:
        flow_report(url)
    assert "a flow transmits; stop all flows" in json.load(early.value)["errors"][0]
    transmit(api, "stop", "measured")
    await_flows(api, "last frame", lambda flows: flows["measured"].frames_rx == flows["measured"].frames_tx)
    outcome = flow_report(url)
    (flow, learned), ports = outcome["flows"], outcome["ports"]
    assert (flow["load"], learned["load"]) == ("measured", "learning")
    assert flow["arrivals"][0]["lost"] == 0
    assert flow["offered"]["intended_frames"] - flow["offered"]["sent_frames"] == flow["unsent_frames"]
    assert learned["sent"]["frames"] == 3
    # The switch knew where the flow leads before its first frame: the third port saw learning frames alone.
    assert [port["received"]["foreign_frames"] for port in ports] == [3, 0, 3]
    assert ports[2]["received"]["frames"] == 3


def test_back_to_back_frames_are_sent_to_the_last(serve: Callable[..., str]) -> None:
    """A burst at line rate has exactly its frames, for any timing of the sender."""
    url = serve("--http", "--threads", "one", "--burst", "32")
    api = snappi.api(location=url, verify=False)
    for frames in (1, 31, 5000):
        config = between(("vale0:a", "vale0:b"))
        config.layer1.layer1(name="speed", port_names=["a"], speed="speed_1_gbps")
        flow = add_flow(config, "f")
        flow.size.fixed, flow.rate.percentage = 1024, 100
        flow.duration.fixed_packets.packets = frames
        api.set_config(config)
        transmit(api, "start")
        await_flows(api, "end of the burst", lambda flows: flows["f"].transmit == "stopped")
        (flow,) = flow_report(url)["flows"]
        offered = flow["offered"]
        assert offered["sent_frames"] == flow["sent"]["frames"] == flow["arrivals"][0]["sent"] == frames
        assert offered["intended_frames"] == frames + offered["skipped_frames"]
        # The last leaves no earlier than the line could take it: a burst of 32 is handed over at once.
        assert flow["departure_span_ns"] <= offered["elapsed_ns"]
        assert offered["elapsed_ns"] >= (frames - 1) * (1024 + 20) * 8


def test_a_port_that_fails_is_reported_with_what_came_before(serve: Callable[..., str], daemon: Daemon) -> None:
    """The daemon ends under a flow; what was sent until then is reported. The next configuration reopens the port."""
    url = serve("--http")
    api = snappi.api(location=url, verify=False)
    config = between(("vale0:a", "vale0:b"))
    flow = add_flow(config, "f")
    api.set_config(config)
    transmit(api, "start")
    await_flows(api, "frame", lambda flows: flows["f"].frames_rx > 0)
    daemon.run("down")

    def failure() -> object:
        return await_flows(api, "failure", lambda _: False)

    assert "set the configuration again" in refused(failure).errors[0]
    outcome = flow_report(url)
    assert outcome["failure"]["port"] in ("a", "b")
    assert "vale0:" in outcome["failure"]["reason"]
    assert outcome["flows"][0]["arrivals"][0]["received"] > 0

    daemon.run("up")
    flow.duration.fixed_packets.packets = 10
    api.set_config(config)
    transmit(api, "start")
    await_flows(api, "end of the flow", all_through)
    outcome = flow_report(url)
    assert outcome["failure"] is None
    assert outcome["flows"][0]["arrivals"][0]["distinct"] == 10
