"""Test setups end to end: real programs in a sandbox, with tiny durations. Frames pass and are counted; rates are not asserted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import ScenarioError
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.setup.watched_generator import WatchedGenerator, contradiction
from ringroad_lab.trial import LOSS_PLACES, DirectionCounts, Load, LossByPlace, TrialRequest, TrialResult, TrialVerdict
from sandboxed import ask_in_sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_dpdk = pytest.mark.skipif(shutil.which("dpdk-testpmd") is None, reason="dpdk-testpmd is not installed (dpdk-dev)")

FRAME_64 = {"name": "64", "parts": [[64, 1]]}
IMIX = {"name": "imix", "parts": [[64, 7], [594, 4], [1518, 1]]}
PROGRAM = Path(__file__).parent / "setup_in_sandbox.py"


def try_setup(driver: str, cable: str, loads: list[dict[str, Any]], *, env: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Build a setup in a sandbox, offer it loads, and return the results."""
    dut = {"label": driver, "driver": driver, "settings": more.pop("settings", {})}
    scenario = {
        "name": "test",
        "duts": [dut],
        "physical": cable,
        "methods": [{"name": "throughput"}],
        "frames": [FRAME_64],
        "huge_pages": False,
        **more.pop("scenario", {}),
    }
    return ask_in_sandbox(PROGRAM, {"scenario": scenario, "loads": loads, "duration_s": 0.2, **more}, env)


def assert_forwards(results: dict[str, Any], *, ways: int = 2, most_foreign: int = 0) -> None:
    assert "error" not in results, results
    for trial in results["trials"]:
        assert len(trial["directions"]) == ways
        for way in trial["directions"]:
            # On a busy machine the generator may be late, and report it; the counts must still be right.
            assert 0 < way["received_frames"] <= way["sent_frames"]
            assert way["foreign_frames"] <= most_foreign
            assert way["duplicate_frames"] == 0
            assert way["latency"]["min_ns"] > 0


BEDS = [
    pytest.param("linux-bridge", "veth", id="linux-bridge-veth"),
    pytest.param("ringroad", "veth", id="ringroad-veth"),
    pytest.param("ringroad", "memif", id="ringroad-memif"),
    pytest.param("ringroad", "vhost-user", id="ringroad-vhost-user"),
    pytest.param("testpmd", "memif", id="testpmd-memif", marks=needs_dpdk),
    pytest.param("testpmd", "vhost-user", id="testpmd-vhost-user", marks=needs_dpdk),
    pytest.param("testpmd", "veth", id="testpmd-veth", marks=needs_dpdk),
]
# One of DPDK's programs on two libraries, and what forwards without it.
FORWARDERS = [
    pytest.param("forwarder", {}, "af_xdp", id="ringroad-fwd"),
    pytest.param("testpmd", {"veth_mode": "pcap"}, "net_pcap over the system's libpcap", id="testpmd-pcap", marks=needs_dpdk),
    pytest.param(
        "testpmd", {"veth_mode": "pcap-ringroad"}, "net_pcap over Ringroad's libpcap, AF_XDP", id="testpmd-ours", marks=needs_dpdk
    ),
]


@pytest.mark.parametrize(("driver", "settings", "mode"), FORWARDERS)
def test_a_program_forwards_over_the_library_that_its_settings_name(driver: str, settings: dict[str, Any], mode: str) -> None:
    results = try_setup(driver, "veth", [{"frame": FRAME_64, "rate_fps": 2000}], settings=settings)
    assert_forwards(results)
    received = sum(way["received_frames"] for way in results["trials"][0]["directions"])
    assert results["counters"]["1.rx_frames"] + results["counters"]["2.rx_frames"] >= received
    assert mode in results["record"]["ports"]["1"]
    # The daemon of Ringroad is a part of the device whose ports it serves.
    serves = "Ringroad" in results["record"]["versions"]
    assert serves is (settings.get("veth_mode") != "pcap")
    assert len(results["processes"]["dut"]) == 1 + serves


@pytest.mark.parametrize(("driver", "cable"), BEDS)
def test_frames_pass_and_are_counted(driver: str, cable: str) -> None:
    loads = [
        {"frame": FRAME_64, "rate_fps": 2000},
        {"frame": IMIX, "rate_fps": 1000, "bidirectional": False, "flows": 100},
    ]
    results = try_setup(driver, cable, loads[:1], scenario={"frames": [FRAME_64, IMIX]})
    assert_forwards(results)
    sent = sum(way["sent_frames"] for way in results["trials"][0]["directions"])
    # The device's own counters: the trial's frames at least, besides those of the probe.
    assert (
        results["counters"]["1.rx_frames"] + results["counters"]["2.rx_frames"]
        >= sent - results["trials"][0]["directions"][0]["refused_frames"]
    )
    assert results["counters"]["1.tx_frames"] > 0
    record = results["record"]
    assert record["driver"] == driver
    assert record["versions"]
    assert {"1", "2"} <= set(record["ports"])
    # Names of ports must be the same in every run.
    assert "ringroad-lab-" not in str(record["ports"])
    assert bool(results["processes"]["dut"]) is (driver != "linux-bridge")
    # The kernel does not report its time spent on frames.
    assert (results["busy_s"] is None) if driver == "linux-bridge" else (results["busy_s"] > 0)
    one_way = try_setup(driver, cable, loads[1:], scenario={"frames": [FRAME_64, IMIX], "bidirectional": False})
    assert_forwards(one_way, ways=1)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed (gcc)")
def test_a_program_over_netmap_forwards(tmp_path: Path) -> None:
    compat = Path(__file__).parents[3] / "compat"
    library = Path(os.environ["RINGROAD_BIN_DIR"]) / "libringroad_c.so"
    for name in ("libringroad.so.0", "libringroad.so"):
        (tmp_path / name).symlink_to(library)
    bridge = tmp_path / "bridge"
    link = [f"-L{tmp_path}", "-lringroad", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", f"-I{compat}/include", "-o", bridge, compat / "examples/bridge.c", *link], check=True)
    settings = {"command": [str(bridge), "netmap:{a}", "netmap:{b}"]}
    results = try_setup("forwarder", "veth", [{"frame": FRAME_64, "rate_fps": 2000}], settings=settings)
    assert_forwards(results)
    assert results["record"]["ports"]["1"].startswith("netmap")
    assert results["record"]["versions"]["bridge"] == str(bridge)
    assert results["counters"]["1.rx_frames"] > 0


def test_a_forwarding_program_that_ends_is_reported_with_its_output() -> None:
    results = try_setup("forwarder", "veth", [], settings={"command": ["/bin/sh", "-c", "echo {a} is not mine; exit 3", "{b}"]})
    assert results["error"] == "DutError"
    assert "sh of Forwarding program ended with status 3: " in results["text"]
    assert "p1_dut is not mine" in results["text"]


def test_a_missing_forwarding_program_is_named_with_its_package() -> None:
    results = try_setup("forwarder", "veth", [], settings={"command": ["/absent/click", "{a}", "{b}"], "package": "click-router"})
    assert results["error"] == "MissingProgramError"
    assert "/absent/click is not installed on this machine: apt-get install click-router" in results["text"]


@pytest.mark.parametrize(
    ("driver", "cable"), [("ringroad", "vhost-user"), pytest.param("testpmd", "memif", marks=needs_dpdk)], ids=["ringroad", "testpmd"]
)
def test_a_device_that_ends_is_an_error_and_not_a_figure(driver: str, cable: str) -> None:
    load = {"frame": FRAME_64, "rate_fps": 2000}
    results = try_setup(driver, cable, [load, {"kill": True}, load])
    assert results["error"] == "DutError"
    assert "ended with status" in results["text"]


def test_a_device_that_forwards_nothing_is_an_error_with_its_counters() -> None:
    results = try_setup("cut-bridge", "veth", [], cut=True)
    assert results["error"] == "DutError"
    assert "Linux bridge forwards nothing: 0 of 50 from 1 to 2, 0 of 50 from 2 to 1 frames arrived" in results["text"]
    assert "1.rx_frames" in results["text"]


def test_the_generators_ceiling_is_measured_once_before_the_device_starts() -> None:
    results = try_setup("ringroad", "memif", [], self_test=True)
    assert "error" not in results, results
    (ceiling,) = results["ceilings"]
    assert (ceiling["transport"], ceiling["frame"]["name"]) == ("memif", "64")
    assert ceiling["ceiling_fps"] > 0
    assert results["steps"].index("starting Ringroad switch") > results["steps"].index("measuring the generator's ceiling over memif: 64")


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    results = try_setup("ringroad", "memif", [], env={"RINGROAD_BIN_DIR": str(tmp_path)})
    assert results["error"] == "MissingProgramError"
    assert "ringroad is not installed" in results["text"]


@pytest.mark.parametrize(
    ("driver", "cable", "settings", "text"),
    [
        ("no-such", "veth", {}, "there is no device 'no-such': there are forwarder, linux-bridge, "),
        ("linux-bridge", "memif", {}, "linux-bridge has no port for memif; it supports nic, tap, veth"),
        ("testpmd", "memif", {"forward_mode": "txonly"}, "settings of testpmd: forward_mode: Input should be"),
        ("ringroad", "memif", {"speed": 1}, "settings of ringroad: speed: Extra inputs are not permitted"),
        ("ringroad", "memif", {"rule_set": 5}, 'settings of ringroad: : Value error, rule_set needs forwarding = "rules"'),
    ],
)
def test_incompatible_parts_are_reported_before_the_start(driver: str, cable: str, settings: dict[str, Any], text: str) -> None:
    choice = DutChoice(label="dut", driver=driver, settings=settings)
    scenario = Scenario(
        name="test",
        duts=(choice,),
        physical=CableKind(cable),
        methods=(MethodChoice(name="throughput"),),
        frames=(FrameMix(name="64", parts=((64, 1),)),),
    )
    with pytest.raises(ScenarioError, match=text):
        TestSetup(scenario, choice)


def refused_trial(rate_fps: float) -> TrialResult:
    way = DirectionCounts(
        sender="1", receiver="2", intended_frames=100, sent_frames=100, refused_frames=60, received_frames=40, transmit_s=1.0
    )
    request = TrialRequest(load=Load(frame=FrameMix(name="64", parts=((64, 1),)), rate_fps=rate_fps), duration_s=1.0)
    return TrialResult(request=request, started_at=0.0, verdict=TrialVerdict.VALID, directions=(way,))


@pytest.mark.parametrize(("rate_fps", "is_valid"), [(1000.0, True), (1001.0, False)])
def test_full_rings_are_the_devices_loss_only_up_to_the_generators_ceiling(rate_fps: float, is_valid: bool) -> None:
    class Refused(Generator):
        def trial(self, request: TrialRequest) -> TrialResult:
            return refused_trial(request.load.rate_fps)

        def version(self) -> str:
            return "simulated"

    checks: list[str] = []
    watched = WatchedGenerator(
        Refused(),
        lambda: checks.append("checked"),
        lambda frame: GeneratorCeiling(transport="memif", frame=frame, ceiling_fps=1000.0),
        lambda frame, cause: None,
    )
    result = watched.trial(refused_trial(rate_fps).request)
    assert result.is_valid is is_valid
    assert result.lost_frames == 60
    assert checks == ["checked"]
    assert is_valid or "above the 1000 frames/s that the generator carries by itself" in result.reasons[0]


@pytest.mark.parametrize(
    ("rate_fps", "refused", "lost", "expected"),
    [
        pytest.param(900.0, 60, 60, "the generator offered 40 frames of 100 at 900 frames/s", id="offered-less"),
        pytest.param(900.0, 0, 60, "", id="the-device-lost-them"),
        pytest.param(1200.0, 0, 0, "the generator carried 1200 frames/s", id="carried-more"),
        pytest.param(1200.0, 60, 60, "", id="less-above-the-ceiling"),
    ],
)
def test_a_trial_that_contradicts_the_ceiling_is_reported(rate_fps: float, refused: int, lost: int, expected: str) -> None:
    trial = refused_trial(rate_fps)
    way = trial.directions[0].model_copy(update={"refused_frames": refused, "received_frames": 100 - lost})
    ceiling = GeneratorCeiling(transport="veth", frame=trial.request.load.frame, ceiling_fps=1000.0)
    cause = contradiction(trial.model_copy(update={"directions": (way,)}), ceiling)
    assert cause.startswith(expected) if expected else not cause
    assert not expected or cause.endswith("its ceiling was measured as 1000 frames/s")


def test_a_device_that_holds_the_sender_up_contradicts_no_ceiling() -> None:
    trial = refused_trial(900.0)
    loss = LossByPlace(
        refused=60,
        before_device=0,
        in_device=0,
        in_guests=0,
        behind_device=0,
        at_receiver=0,
        unexplained=0,
        is_refused_by_device=True,
    )
    way = trial.directions[0].model_copy(update={"loss": loss})
    ceiling = GeneratorCeiling(transport="memif", frame=trial.request.load.frame, ceiling_fps=1000.0)
    assert contradiction(trial.model_copy(update={"directions": (way,)}), ceiling) == ""


def test_nothing_sent_and_bursts_contradict_no_ceiling() -> None:
    trial = refused_trial(900.0)
    ceiling = GeneratorCeiling(transport="veth", frame=trial.request.load.frame, ceiling_fps=1000.0)
    unsent = trial.directions[0].model_copy(update={"sent_frames": 0, "refused_frames": 0, "received_frames": 0})
    assert contradiction(trial.model_copy(update={"directions": (unsent,)}), ceiling) == ""
    burst = trial.request.model_copy(update={"load": trial.request.load.model_copy(update={"burst_frames": 100})})
    assert contradiction(trial.model_copy(update={"request": burst}), ceiling) == ""


def only_loss(results: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int], int]:
    """Return the places of loss of the only trial in one direction, the drop counters, and the number of lost frames."""
    assert "error" not in results, results
    (trial,) = results["trials"]
    (way,) = trial["directions"]
    loss = {place: way["loss"][place] for place in LOSS_PLACES}
    lost = way["sent_frames"] - way["received_frames"]
    assert sum(loss.values()) == lost
    return {place: frames for place, frames in loss.items() if frames}, trial["drop_counters"], lost


# One of twelve frames has 1518 bytes: 20 of 240.
LONG_FRAMES = 20
ONE_WAY_IMIX = {"frame": IMIX, "rate_fps": 1200, "bidirectional": False}


@pytest.mark.parametrize(
    ("command", "place", "counter"),
    [
        # A frame longer than the bucket of a token bucket filter never passes (tc-tbf(8)).
        pytest.param(
            "tc -n {netns} qdisc add dev {dut2} root tbf rate 100mbit burst 1000 limit 1000000",
            "in_device",
            "device: 2.qdisc_dropped",
            id="bridge-with-a-filter",
        ),
        pytest.param(
            "ip -n {netns} link set dev {dut1} mtu 1000", "before_device", "cable 1, generator's end: tx_dropped", id="first-cable"
        ),
        pytest.param("ip link set dev {far2} mtu 1000", "behind_device", "cable 2, generator's end: rx_dropped", id="second-cable"),
    ],
)
def test_drops_of_a_bridge_or_a_cable_are_attributed_to_it(command: str, place: str, counter: str) -> None:
    results = try_setup("linux-bridge", "veth", [ONE_WAY_IMIX], disturb=[command], scenario={"frames": [IMIX], "bidirectional": False})
    places, drops, lost = only_loss(results)
    assert lost == LONG_FRAMES
    assert places == {place: LONG_FRAMES}
    assert drops[counter] == LONG_FRAMES


def test_loss_at_a_small_receive_ring_is_the_generators() -> None:
    # Far more than the test setup carries: batches sent at once do not fit into a ring of 64.
    load = {"frame": FRAME_64, "rate_fps": 5_000_000, "bidirectional": False}
    results = try_setup("linux-bridge", "veth", [load], receiver_ring_size=64, ceiling_fps=1e7)
    places, drops, lost = only_loss(results)
    assert set(places) == {"refused", "at_receiver"}
    assert places["at_receiver"] == drops["cable 2, generator's end: rx_dropped"] > 0
    assert places["refused"] == lost - places["at_receiver"]
    # The generator did not reach its assumed ceiling: the ceiling is measured again, and both are reported.
    first, again = results["ceilings"]
    assert (first["ceiling_fps"], first["cause"]) == (1e7, "")
    assert "at 5000000 frames/s, and its ceiling was measured as 10000000 frames/s" in again["cause"]
    assert 0 < again["ceiling_fps"] < 1e7
    assert results["record"]["work_of_sender"].startswith("all of its forwarding")
    (way,) = results["trials"][0]["directions"]
    assert way["loss"]["is_forwarded_by_sender"]


@pytest.mark.parametrize(
    ("driver", "cable"),
    [("ringroad", "memif"), ("ringroad", "vhost-user"), pytest.param("testpmd", "memif", marks=needs_dpdk)],
)
def test_all_loss_over_shared_memory_is_attributed_to_places(driver: str, cable: str) -> None:
    load = {"frame": FRAME_64, "rate_fps": 20_000_000, "bidirectional": False}
    results = try_setup(driver, cable, [load], ceiling_fps=1e9)
    # Whether frames are lost depends on scheduling, but lost frames have a place. A device that had no processor at the end left frames
    # in the ring before it.
    places, _, _ = only_loss(results)
    assert set(places) <= {"refused", "before_device", "in_device", "at_receiver"}
    assert results["record"]["work_of_sender"] == ""


def processes_with(marker: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("RINGROAD_LAB_TEST") == marker:
            found.append(process.pid)
    return found


def name_of(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.NoSuchProcess:
        return ""


# None: kill the lab once the generator runs.
@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6, 1.0, None])
def test_a_killed_lab_leaves_nothing_of_a_setup(after_s: float | None) -> None:
    marker = uuid.uuid4().hex
    lab = subprocess.Popen(
        [sys.executable, "-c", KILLED_LAB, str(PROGRAM)],
        env={**os.environ, "RINGROAD_LAB_TEST": marker},
        start_new_session=True,
    )
    try:
        assert wait_until(lambda: len(processes_with(marker)) > 1, 60)
        if after_s is None:
            assert wait_until(lambda: "ringroad" in map(name_of, processes_with(marker)), 60)
        else:
            # Any moment while the setup is built or during the trials.
            time.sleep(after_s)
    finally:
        lab.kill()
        lab.wait()
    assert wait_until(lambda: not processes_with(marker), 10)


KILLED_LAB = """
import pathlib, sys
program = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(program.parents[1]))
from sandboxed import ask_in_sandbox
frame = {"name": "64", "parts": [[64, 1]]}
scenario = {"name": "test", "duts": [{"label": "bridge", "driver": "linux-bridge"}], "physical": "veth",
            "methods": [{"name": "throughput"}], "frames": [frame], "huge_pages": False}
ask_in_sandbox(program, {"scenario": scenario, "loads": 1000 * [{"frame": frame, "rate_fps": 1000}], "duration_s": 0.2})
"""
