"""Trials through any generator that serves the Open Traffic Generator model."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GeneratorError
from ringroad_lab.facts.witness import Witness
from ringroad_lab.generator import traffic
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.judgement import judge
from ringroad_lab.generator.otg_client import Distribution, FlowDetail, FlowMetric, OtgClient, PortMetric, TrialDetail
from ringroad_lab.offered_load import asked_s, tolerance_s
from ringroad_lab.trial import DirectionCounts, LatencySummary, TrialRequest, TrialResult, TrialVerdict

# No frame for so long after the stop: what was under way has arrived. RFC 2544, section 23, waits 2 s, which is the limit here.
SETTLED_S = 0.1
SETTLE_LIMIT_S = 2.0
POLL_S = 0.02
# A generator that does not stop by itself is stopped so long after the end.
OVERTIME_S = 2.0


class OtgGenerator(Generator):
    """Two ports of a generator, one at each end of the path."""

    def __init__(self, client: OtgClient, locations: tuple[str, str], name: str = "", witness: Witness | None = None) -> None:
        """Take a server and the locations of its ports.

        Args:
            client: The server.
            locations: Of its ports.
            name: What it is called, where it does not say.
            witness: Who tells what others take of the run's processors while a load is offered.
        """
        self._client = client
        self._locations = locations
        self._name = name
        self._witness = witness

    def plug_in(self) -> None:
        """Open the ports, without traffic, so that whoever is at the other ends finds them.

        Raises:
            GeneratorError: one cannot be opened.
        """
        self._client.set_config(traffic.ports(self._locations))

    def version(self) -> str:
        """Return name and version."""
        return self._name or self._client.version()

    def port_modes(self) -> dict[str, str]:
        """Return how the generator's ports are served, where it tells that."""
        detail = self._client.detail()
        return {port.port: port.mode for port in detail.ports} if detail else {}

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, wait for the last frames, count.

        Raises:
            GeneratorError: the generator cannot be reached, or refused the load.
        """
        # The model has whole frames per second: that is what is offered, judged and recorded.
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
        reasons += judge(request, counts, detail)
        return TrialResult(
            request=request,
            started_at=started_at,
            verdict=TrialVerdict.INVALID if reasons else TrialVerdict.VALID,
            reasons=tuple(reasons),
            directions=counts,
            # How far the clock strayed at most, as part of the time that was measured with it.
            clock_error=detail.clock.max_ns / 1e9 / expected_s if detail and detail.clock.comparisons else None,
            disturbance=disturbance,
        )

    def close(self) -> None:
        """Close the connection; the server's ports stay open."""
        self._client.close()

    def _send(self, flow_names: Sequence[str], expected_s: float, what: str) -> str:
        """Start flows and wait for their end; say so where they had to be stopped."""
        self._client.transmit("start", flow_names)
        # What a limited flow does until its end is known, and whoever asks in the meantime disturbs it.
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
        """Wait until the counters rest; False where they never did."""
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
    """Add what the two ports counted in all."""
    told = {port.name: port for port in ports}
    sender, receiver = told.get(way.sender), told.get(way.receiver)
    return way.model_copy(
        update={
            "port_sent_frames": sender.frames_tx if sender else None,
            "port_received_frames": receiver.frames_rx if receiver else None,
        }
    )


def _detailed(way: traffic.Direction, intended: int, request: TrialRequest, detail: TrialDetail) -> DirectionCounts:
    """Counts of one direction, from what Ringroad's generator tells beyond the model."""
    flow = next((flow for flow in detail.flows if flow.load == way.flow), None)
    arrival = next((arrival for arrival in flow.arrivals if arrival.port == traffic.PORT_NAMES[way.receiver]), None) if flow else None
    if flow is None or arrival is None:
        raise GeneratorError(f"the generator does not tell of flow {way.flow!r}")
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
    """Frames that were due and that the generator's ring had no room for: those never sent, and those of a burst that left late.

    A ring that is full holds its sender up, where a wire would have taken the frames. They count as refused where the ring was full for
    most of the time that is missing, rather than the generator late by itself. Whose loss they are depends on who empties that ring.
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
        # The device took them as fast as it could: so many of them after the burst's time.
        return 0, round(flow.offered.sent_frames * excess_s / elapsed_s)
    return 0, 0


def _latency(told: Distribution | None) -> LatencySummary | None:
    if told is None or not told.count:
        return None
    percentiles = {"50": told.p50, "90": told.p90, "99": told.p99, "99.9": told.p99_9, "99.99": told.p99_99, "99.999": told.p99_999}
    return LatencySummary(
        frames=told.count, min_ns=told.min, mean_ns=told.mean, max_ns=told.max, percentiles_ns=percentiles, precision=0.001
    )


def _plain(
    way: traffic.Direction, intended: int, expected_s: float, metrics: dict[str, FlowMetric], port_metrics: Sequence[PortMetric]
) -> DirectionCounts:
    """Counts of one direction, from the model's metrics alone: they do not tell how long sending took."""
    flow = metrics.get(way.flow)
    if flow is None:
        raise GeneratorError(f"the generator does not tell of flow {way.flow!r}")
    # Loss is of different frames, so that duplicates hide none; without it, more frames than were sent are duplicates.
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
    """Name of the learning flow that arrives where `way` leads: it tells where the sender is."""
    return traffic.Direction(way.receiver, way.sender).learning_flow
