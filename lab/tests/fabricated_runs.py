"""Fabricated records of runs, for tests that process records. Nothing in them was measured."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence

from ringroad_lab.frame_size import FrameMix, parse_frame_mix
from ringroad_lab.record import (
    Better,
    Curve,
    DutRecord,
    GeneratorCeiling,
    LogExcerpt,
    Measurement,
    MeasurementStatus,
    Metric,
    NoiseFloor,
    Outcome,
    RunRecord,
    RunState,
    Series,
)
from ringroad_lab.trial import DirectionCounts, Disturbance, LatencySummary, Load, TrialRequest, TrialResult, TrialVerdict

# A time in November 2023.
EPOCH = 1_700_000_000.0
HOSTILE = '<script>alert("1")</script>\'"&{{7*7}}</script>'
# Frames/s at 64 bytes, by label; larger frames are slightly slower.
CAPACITIES_FPS = {"linux-bridge": 490_000.0, "ovs": 240_000.0, "ovs-dpdk": 4_100_000.0, "ringroad": 5_200_000.0}


def fabricated_trial(
    frame: FrameMix, rate_fps: float, *, loss_ratio: float = 0.0, started_at: float = EPOCH, is_valid: bool = True, purpose: str = "search"
) -> TrialResult:
    """Return a trial of one second in both directions."""
    sent = int(rate_fps)
    latency = LatencySummary(
        frames=1000,
        min_ns=4000.0,
        mean_ns=9000.0,
        max_ns=250_000.0,
        percentiles_ns={"50": 8000.0, "90": 15_000.0, "99": 40_000.0, "99.9": 120_000.0},
        precision=0.01,
    )
    return TrialResult(
        request=TrialRequest(load=Load(frame=frame, rate_fps=rate_fps), duration_s=1.0, purpose=purpose),
        started_at=started_at,
        verdict=TrialVerdict.VALID if is_valid else TrialVerdict.INVALID,
        reasons=() if is_valid else ("sent 61 % of the frames it should have",),
        directions=tuple(
            DirectionCounts(
                sender=sender,
                receiver=receiver,
                intended_frames=sent,
                sent_frames=sent,
                received_frames=sent - int(sent * loss_ratio),
                transmit_s=1.0,
                latency=latency,
            )
            for sender, receiver in (("left", "right"), ("right", "left"))
        ),
    )


def disturbed(record: RunRecord, dut: str, *, is_repeated: bool = False) -> RunRecord:
    """Return a run in which another program took two fifths of a processor from the first trial of each measurement of a device."""
    seen = Disturbance(limit=0.05, elapsed_s=1.0, processor=1, others_s=0.4, programs={"cc1plus": 0.4})
    quiet = Disturbance(limit=0.05, elapsed_s=1.0, processor=1)
    measurements = []
    for m in record.measurements:
        trials = [trial.model_copy(update={"disturbance": quiet}) for trial in m.trials]
        if m.dut == dut:
            trials[0] = trials[0].model_copy(update={"disturbance": seen, "is_disturbed": True, "is_repeated": is_repeated})
        measurements.append(m.model_copy(update={"trials": tuple(trials)}))
    return record.model_copy(update={"measurements": tuple(measurements)})


def fabricated_throughput(
    number: int,
    dut: str,
    frame: FrameMix,
    throughput_fps: float,
    *,
    repetition: int = 0,
    started_at: float = EPOCH,
    status: MeasurementStatus = MeasurementStatus.OK,
    reasons: tuple[str, ...] = (),
) -> Measurement:
    """Return a measurement of throughput with a few trials; an invalid measurement has no figure."""
    metrics = {
        "throughput_fps": Metric(value=throughput_fps, unit="frames/s", better=Better.HIGHER),
        "throughput_bps": Metric(value=throughput_fps * 8 * frame.mean_bytes, unit="bit/s", better=Better.HIGHER),
    }
    is_invalid = status is MeasurementStatus.INVALID
    return Measurement(
        number=number,
        dut=dut,
        topology="P2P",
        method="throughput",
        frame=frame,
        repetition=repetition,
        started_at=started_at,
        elapsed_s=7.5,
        outcome=Outcome(
            status=status,
            reasons=reasons,
            headline="" if is_invalid else "throughput_fps",
            metrics={} if is_invalid else metrics,
            curves=(
                Curve(
                    name="loss",
                    x_name="offered load",
                    x_unit="frames/s",
                    y_name="loss ratio",
                    y_unit="ratio",
                    points=tuple((throughput_fps * step / 10, max(0.0, 1 - 10 / step)) for step in range(5, 21)),
                ),
            ),
        ),
        trials=(
            fabricated_trial(frame, throughput_fps * 1.5, loss_ratio=0.33, started_at=started_at, is_valid=not is_invalid),
            fabricated_trial(frame, throughput_fps, started_at=started_at + 1.1, is_valid=not is_invalid, purpose="validation"),
        ),
        dut_counters={"1.rx_frames": 1_000_000, "1.drops.ring_full": 17},
    )


def fabricated_latency(number: int, dut: str, frame: FrameMix, median_ns: float, *, repetition: int = 0) -> Measurement:
    """Return a measurement of latency."""
    factors = {"min": 0.5, "mean": 1.2, "max": 40.0, "p50": 1.0, "p90": 1.7, "p99": 4.2, "p99.9": 15.0}
    return Measurement(
        number=number,
        dut=dut,
        topology="P2P",
        method="latency",
        frame=frame,
        repetition=repetition,
        started_at=EPOCH + 10 * number,
        elapsed_s=4.0,
        outcome=Outcome(
            status=MeasurementStatus.OK,
            headline="latency_100pct_mean_ns",
            metrics={
                f"latency_100pct_{name}_ns": Metric(value=median_ns * f, unit="ns", better=Better.LOWER) for name, f in factors.items()
            },
            curves=(
                Curve(
                    name="latency at 100 % of throughput",
                    x_name="percentile",
                    x_unit="%",
                    y_name="latency",
                    y_unit="ns",
                    points=tuple((float(name[1:]), median_ns * f) for name, f in factors.items() if name[0] == "p"),
                ),
            ),
        ),
        trials=(fabricated_trial(frame, 100_000.0, purpose="latency"),),
    )


def fabricated_run(
    *,
    run_id: str | None = None,
    name: str = "P2P_FABRICATED",
    capacities_fps: Mapping[str, float] = CAPACITIES_FPS,
    frames: Sequence[str] = ("64", "512", "1518"),
    repetitions: int = 3,
    spread: float = 0.01,
    seed: int = 1,
    started_at: float = EPOCH,
    state: RunState = RunState.FINISHED,
    latency: bool = True,
    link_bps: float | None = None,
    labels: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    facts: Mapping[str, Mapping[str, str]] | None = None,
    supersedes: str | None = None,
    logs: Sequence[LogExcerpt] = (LogExcerpt(source="ovs-vswitchd", text="bridge br0: added interface\n"),),
) -> RunRecord:
    """Return a run: throughput of each device at each size, in turns, with a spread around its capacity."""
    chance = random.Random(seed)
    mixes = [parse_frame_mix(text) for text in frames]
    measurements: list[Measurement] = []
    for repetition in range(repetitions):
        for dut, capacity in capacities_fps.items():
            for mix in mixes:
                rate = capacity * (1 - 0.0002 * mix.mean_bytes) * chance.gauss(1, spread)
                number = len(measurements)
                at = started_at + 10 * number
                measurements.append(fabricated_throughput(number, dut, mix, rate, repetition=repetition, started_at=at))
    if latency:
        for dut, capacity in capacities_fps.items():
            measurements.append(fabricated_latency(len(measurements), dut, mixes[0], 4e10 / capacity))
    ended_at = started_at + 10.0 * len(measurements)
    return RunRecord(
        run_id=run_id or str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        name=name,
        scenario={
            "scenarios": [
                {"name": name, "topology": "P2P", "physical": "veth", "flows": 64, "bidirectional": True, "repetitions": repetitions}
            ]
        },
        command=("ringroad-lab", "run", name, "--seed", "it's fabricated"),
        lab_version="0.1.0",
        generator_version="ringroad 0.4.0",
        started_at=started_at,
        ended_at=ended_at,
        state=state,
        duts=tuple(
            DutRecord(
                label=dut,
                driver=dut,
                settings={"batch": 32},
                versions=dict(versions or {dut: "3.1.0"}),
                ports={"1": "veth, AF_XDP native, copy", "2": "veth, AF_XDP native, copy"},
            )
            for dut in capacities_fps
        ),
        facts={group: dict(entries) for group, entries in (facts or FACTS).items()},
        link_bps=link_bps,
        ceilings=tuple(GeneratorCeiling(transport="veth", frame=mix, ceiling_fps=7e6, clock_error=2e-5) for mix in mixes),
        noise_floors=tuple(
            NoiseFloor(dut=dut, method="throughput", frame_name=mix.name, metric="throughput_fps", pairs=5, ratio_interval=(0.985, 1.016))
            for dut in capacities_fps
            for mix in mixes
        ),
        measurements=tuple(measurements),
        series=tuple(
            Series(
                name=name,
                subject=subject,
                unit=unit,
                points=tuple((started_at + second, chance.uniform(low, high)) for second in range(0, int(ended_at - started_at), 5)),
            )
            for name, subject, unit, low, high in (
                ("processor time", "ovs-vswitchd", "%", 80, 100),
                ("memory", "ovs-vswitchd", "bytes", 5.0e7, 5.2e7),
                ("steal time", "machine", "%", 0, 6),
            )
        ),
        logs=tuple(logs),
        deviations=("Trials last 1 s; RFC 2544 section 24 asks for 60 s.", "One frame size of IMIX is not standard."),
        labels=dict(labels or {"version": "3.1.0", "branch": "main"}),
        supersedes=supersedes,
    )


FACTS = {
    "machine": {"board": "fabricated", "hypervisor": "none"},
    "processor": {"model": "Fabricated 9000", "cores": "2", "governor": "performance"},
    "kernel": {"release": "6.1.0-56-amd64", "command line": "quiet mitigations=auto"},
}
