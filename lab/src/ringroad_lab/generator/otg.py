"""Trials through any generator that serves the Open Traffic Generator model."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GeneratorError
from ringroad_lab.facts.witness import Witness
from ringroad_lab.generator import traffic
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.offered_load import asked_s, tolerance_s
from ringroad_lab.generator.otg_client import Distribution, FlowDetail, FlowMetric, OtgClient, PortMetric, TrialDetail
from ringroad_lab.trial import DirectionCounts, LatencySummary, TrialRequest, TrialResult, TrialVerdict

# Time without a frame after which all frames in flight have arrived. RFC 2544, section 23, waits 2 s, which is the limit here.
SETTLED_S = 0.1
SETTLE_LIMIT_S = 2.0
POLL_S = 0.02
# A generator that does not stop by itself is stopped this long after the end.
OVERTIME_S = 2.0


class OtgGenerator(Generator):
    """Runs trials with two ports of a generator, one at each end of the path."""

    def __init__(self, client: OtgClient, locations: tuple[str, str], name: str = "", witness: Witness | None = None) -> None:
        """Take the server and the locations of its ports.

        Args:
            client: The server.
            locations: Locations of its ports.
            name: Name and version of the generator; if empty, the server reports them.
            witness: Measures how much of the run's processors other processes use while a load is offered.
        """
        self._client = client
        self._locations = locations
        self._name = name
        self._witness = witness

    def plug_in(self) -> None:
        """Open the ports, without traffic, so that the other ends can connect.

        Raises:
            GeneratorError: a port cannot be opened.
        """
        self._client.set_config(traffic.ports(self._locations))

    def version(self) -> str:
        """Return name and version."""
        return self._name or self._client.version()

    def port_modes(self) -> dict[str, str]:
        """Return the mode of each port, if the generator reports the modes."""
        detail = self._client.detail()
        return {port.port: port.mode for port in detail.ports} if detail else {}

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, wait for the last frames, and count.

        Raises:
            GeneratorError: the generator is unreachable, or rejected the load.
        """
        # The model has whole frames per second: this rate is offered, judged and recorded.
        load = request.load.model_copy(update={"rate_fps": float(round(request.load.rate_fps))})
        reason = f"a load of {request.load.rate_fps:g} frames/s for {request.duration_s:g} s has no frame"
        request = request.model_copy(update={"load": load})
        intended = load.burst_frames if load.burst_frames is not None else round(load.rate_fps * request.duration_s)
        ways = traffic.directions(load)
        started_at = time.time()
        if not intended or not load.rate_fps:
            nothing = tuple(_direction(way, 0) for way in ways)
            return TrialResult(request=request, started_at=started_at, verdict=TrialVerdict.INVALID, reasons=(reason,), directions=nothing)

        self._client.set_config(traffic.traffic(self._locations, load, request.duration_s))
        reasons = []
        if load.learning:
            self._send([way.learning_flow for way in ways], 0.0, "learning frames")
        expected_s = asked_s(request)
        look = self._witness.look() if self._witness else None
        started_at = time.time()
        overtime = self._send(traffic.load_flows(load), expected_s, "the load")
        disturbance = self._witness.since(look) if self._witness and look else None
        if overtime:
            reasons.append(overtime)
        if not self._settle():
            reasons.append(f"frames still arrived {SETTLE_LIMIT_S:g} s after the end of the load")

        detail = self._client.detail()
        metrics = {flow.name: flow for flow in self._client.flow_metrics()}
        ports = self._client.port_metrics()
        if detail is not None:
            counts = tuple(_detailed(way, intended, request, detail) for way in ways)
        else:
            counts = tuple(_plain(way, intended, expected_s, metrics, ports) for way in ways)
        counts = tuple(_with_port_totals(way, ports) for way in counts)
        reasons += _faults(request, detail)
        return TrialResult(
            request=request,
            started_at=started_at,
            verdict=TrialVerdict.INVALID if reasons else TrialVerdict.VALID,
            reasons=tuple(reasons),
            directions=counts,
            # The clock's greatest deviation, as part of the time that was measured with it.
            clock_error=detail.clock.max_ns / 1e9 / expected_s if detail and detail.clock.comparisons else None,
            disturbance=disturbance,
        )

    def close(self) -> None:
        """Close the connection; the server's ports stay open."""
        self._client.close()

    def _send(self, flow_names: Sequence[str], expected_s: float, what: str) -> str:
        """Start flows and wait for their end; return a reason if they had to be stopped."""
        self._client.transmit("start", flow_names)
        # The end of a limited flow is known, and polling before the end disturbs the flow.
        time.sleep(expected_s)
        limit_s = OVERTIME_S + expected_s
        if wait_until(self._is_silent, limit_s, POLL_S):
            return ""
        self._client.transmit("stop", flow_names)
        if not wait_until(self._is_silent, OVERTIME_S, POLL_S):
            raise GeneratorError(f"the generator does not stop sending {what}")
        return f"the generator still sent {what} {limit_s:g} s after its end, and was stopped"

    def _is_silent(self) -> bool:
        return all(port.transmit == "stopped" for port in self._client.port_metrics())

    def _settle(self) -> bool:
        """Wait until the counters stop changing; return False if they never do."""
        last: tuple[int, ...] = ()
        rest_since = time.monotonic()

        def rests() -> bool:
            nonlocal last, rest_since
            now = tuple(port.frames_rx for port in self._client.port_metrics())
            if now != last:
                last, rest_since = now, time.monotonic()
            return time.monotonic() - rest_since >= SETTLED_S

        return wait_until(rests, SETTLE_LIMIT_S, POLL_S)


def _direction(way: traffic.Direction, intended: int) -> DirectionCounts:
    return DirectionCounts(
        sender=traffic.PORT_NAMES[way.sender],
        receiver=traffic.PORT_NAMES[way.receiver],
        intended_frames=intended,
        sent_frames=0,
        received_frames=0,
        transmit_s=0.0,
    )


def _with_port_totals(way: DirectionCounts, ports: Sequence[PortMetric]) -> DirectionCounts:
    """Add the total counts of the two ports."""
    by_name = {port.name: port for port in ports}
    sender, receiver = by_name.get(way.sender), by_name.get(way.receiver)
    return way.model_copy(
        update={
            "port_sent_frames": sender.frames_tx if sender else None,
            "port_received_frames": receiver.frames_rx if receiver else None,
        }
    )


def _detailed(way: traffic.Direction, intended: int, request: TrialRequest, detail: TrialDetail) -> DirectionCounts:
    """Return the counts of one direction, from the details that Ringroad's generator reports beyond the model."""
    flow = next((flow for flow in detail.flows if flow.load == way.flow), None)
    arrival = next((arrival for arrival in flow.arrivals if arrival.port == traffic.PORT_NAMES[way.receiver]), None) if flow else None
    if flow is None or arrival is None:
        raise GeneratorError(f"the generator does not report flow {way.flow!r}")
    received = next((port.received for port in detail.ports if port.port == traffic.PORT_NAMES[way.receiver]), None)
    unsent, overdue = _refused_frames(way, intended, flow, request, detail)
    distinct = min(arrival.distinct, flow.offered.sent_frames)
    elapsed_s = flow.offered.elapsed_ns / 1e9
    return _direction(way, intended).model_copy(
        update={
            "sent_frames": flow.offered.sent_frames + unsent,
            "refused_frames": unsent + overdue,
            "received_frames": max(0, distinct - overdue),
            "duplicate_frames": arrival.duplicates + arrival.excess,
            "reordered_frames": arrival.reordered,
            "damaged_frames": arrival.corrupted + (received.corrupted_unattributed if received else 0),
            "foreign_frames": received.foreign_frames + received.unknown_stream_frames if received else 0,
            "transmit_s": asked_s(request) if overdue else elapsed_s,
            "latency": _latency(arrival.delay.latency_ns),
        }
    )


def _refused_frames(way: traffic.Direction, intended: int, flow: FlowDetail, request: TrialRequest, detail: TrialDetail) -> tuple[int, int]:
    """Return the due frames that the generator's ring had no room for: frames never sent, and frames of a burst that left late.

    A full ring delays its sender; a wire would have taken the frames. The frames count as refused if the ring was full for most of the
    missing time; otherwise the generator itself was late. Which side lost the frames depends on what empties the ring.
    """
    sender = next((port for port in detail.ports if port.port == traffic.PORT_NAMES[way.sender]), None)
    blocked_s = sender.blocked_ns / 1e9 if sender else 0.0
    load = request.load
    if load.burst_frames is None:
        unsent = max(0, min(flow.unsent_frames, intended - flow.offered.sent_frames))
        return (unsent if blocked_s >= unsent / load.rate_fps / 2 else 0), 0
    elapsed_s = flow.offered.elapsed_ns / 1e9
    excess_s = elapsed_s - asked_s(request)
    if excess_s > tolerance_s(request) and blocked_s >= excess_s / 2:
        # The device took the frames as fast as it could: this many of them after the burst's time.
        return 0, round(flow.offered.sent_frames * excess_s / elapsed_s)
    return 0, 0


def _faults(request: TrialRequest, detail: TrialDetail | None) -> list[str]:
    """Return what the generator's details show to be wrong, a sentence each."""
    if detail is None:
        return []
    reasons = []
    if detail.failure is not None:
        reasons.append(f"the generator's port {detail.failure.port or '?'} failed: {detail.failure.reason}")
    # A device may be far behind under an attack: frames that it has not taken are lost. Other checks find out whether it is alive.
    if not request.load.attack_fps:
        for port in detail.ports:
            if port.unsent_slots:
                reasons.append(
                    f"port {port.port}: {port.unsent_slots} of the frames handed over were never taken: "
                    "the device has stopped, or is not connected"
                )
    return reasons


def _latency(distribution: Distribution | None) -> LatencySummary | None:
    if distribution is None or not distribution.count:
        return None
    return LatencySummary(
        frames=distribution.count,
        min_ns=distribution.min,
        mean_ns=distribution.mean,
        max_ns=distribution.max,
        percentiles_ns={
            "50": distribution.p50,
            "90": distribution.p90,
            "99": distribution.p99,
            "99.9": distribution.p99_9,
            "99.99": distribution.p99_99,
            "99.999": distribution.p99_999,
        },
        precision=0.001,
    )


def _plain(
    way: traffic.Direction, intended: int, expected_s: float, metrics: dict[str, FlowMetric], port_metrics: Sequence[PortMetric]
) -> DirectionCounts:
    """Return the counts of one direction, from the model's metrics alone, which lack the time of sending."""
    flow = metrics.get(way.flow)
    if flow is None:
        raise GeneratorError(f"the generator does not report flow {way.flow!r}")
    # The loss counts distinct frames, so duplicates do not hide it. Without the loss, frames beyond those sent are duplicates.
    distinct = flow.frames_rx if flow.loss is None else round(flow.frames_tx * (1 - flow.loss / 100))
    received = max(0, min(distinct, flow.frames_rx, flow.frames_tx))
    port = next((port for port in port_metrics if port.name == traffic.PORT_NAMES[way.receiver]), None)
    own = sum(each.frames_rx for name, each in metrics.items() if name in (way.flow, _learning_towards(way)))
    latency = flow.latency
    return _direction(way, intended).model_copy(
        update={
            "sent_frames": flow.frames_tx,
            "received_frames": received,
            "duplicate_frames": flow.frames_rx - received,
            "foreign_frames": max(0, port.frames_rx - own) if port else 0,
            "transmit_s": expected_s if flow.frames_tx else 0.0,
            "latency": LatencySummary(frames=received, min_ns=latency.minimum_ns, mean_ns=latency.average_ns, max_ns=latency.maximum_ns)
            if latency and received
            else None,
        }
    )


def _learning_towards(way: traffic.Direction) -> str:
    """Return the name of the learning flow that arrives at the receiver of `way`: it shows where the sender is."""
    return traffic.Direction(way.receiver, way.sender).learning_flow
