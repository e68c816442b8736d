"""The load that the generator carries by itself: its two ports are connected, with no device between them.

The generator does the same work as with a device: it writes each frame at one port and reads it at the other. If its virtio cards need
a separate back end as their peer, the back end's copies are additional work, and the ceiling is rather too low than too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringroad_lab.cable.interface import CABLES, CableKind, Laying
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GeneratorError
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.offered_load import CheckedGenerator
from ringroad_lab.generator.otg import OtgGenerator
from ringroad_lab.generator.otg_client import OtgClient
from ringroad_lab.generator.traffic import extra_bytes
from ringroad_lab.host.interface import Host
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.trial import Load, TrialRequest, TrialResult

# Load that no software generator sends on one processor: the result is a first guess.
OVERLOAD_FPS = 50_000_000
STEP_UP = 1.1
STEP_DOWN = 0.8
# Number of steps down to a hundredth of the first guess, for a machine that is busy otherwise, and up again.
STEPS = 30
# One passing trial is enough for a ceiling: each later trial checks it again.
TRIAL_S = 0.2
CONNECT_TIMEOUT_S = 10.0


def measure_ceiling(client: OtgClient, host: Host, kind: CableKind, load: Load, *, trial_s: float = TRIAL_S) -> GeneratorCeiling:
    """Find the highest load of frames and flows like those of `load` that the generator carries without loss over its own loop.

    Raises:
        GeneratorError: it does not even carry a small load, or such cables cannot be looped.
    """
    longest = max(size for size, _ in load.frame.parts) + max(extra_bytes(load, sender) for sender in (0, 1))
    with _loop(client, host, kind, longest) as generator:
        return search_ceiling(generator, kind, load, trial_s=trial_s)


def search_ceiling(generator: Generator, kind: CableKind, load: Load, *, trial_s: float) -> GeneratorCeiling:
    """Find the ceiling over an existing loop: from the result of an overload, go up while all frames arrive, or else down until they do.

    Raises:
        GeneratorError: no load passes.
    """
    clock_errors: list[float] = []
    frame = load.frame

    def offer(rate_fps: float) -> TrialResult:
        offered = load.model_copy(update={"rate_fps": rate_fps, "learning": False})
        result = generator.trial(TrialRequest(load=offered, duration_s=trial_s, purpose="self-test"))
        if result.clock_error is not None:
            clock_errors.append(result.clock_error)
        return result

    overload = offer(OVERLOAD_FPS)
    rate_fps = min(way.received_frames / way.transmit_s if way.transmit_s else 0.0 for way in overload.directions)
    if not rate_fps:
        why = "; ".join(overload.reasons) or "all frames are lost"
        raise GeneratorError(f"the generator does not carry {frame.name} frames over {kind} to itself: {why}")
    ceiling_fps = 0.0
    last = overload
    for _ in range(STEPS):
        last = offer(rate_fps)
        if last.is_valid and not last.lost_frames:
            ceiling_fps = rate_fps
            rate_fps *= STEP_UP
        elif ceiling_fps:
            break
        else:
            rate_fps *= STEP_DOWN
    if not ceiling_fps:
        why = "; ".join(last.reasons) or f"{last.lost_frames} frames lost"
        raise GeneratorError(f"the generator does not carry {rate_fps:.0f} {frame.name} frames/s over {kind} to itself: {why}")
    return GeneratorCeiling(transport=str(kind), frame=frame, ceiling_fps=ceiling_fps, clock_error=max(clock_errors, default=None))


@contextmanager
def _loop(client: OtgClient, host: Host, kind: CableKind, max_frame_bytes: int) -> Iterator[Generator]:
    """Connect the generator's two ports by one cable."""
    cable_type = CABLES[kind]()
    if not cable_type.can_loop:
        raise GeneratorError(f"the generator cannot be looped by {kind} alone")
    cable = lay_cable(Laying(kind, f"{host.cable_prefix}loop", host, max_frame_bytes=max_frame_bytes))
    try:
        ports = OtgGenerator(client, (cable_type.loop_location(cable), cable_type.generator_location(cable)))
        ports.plug_in()
        generator = CheckedGenerator(ports)
        _await_connection(generator, kind)
        yield generator
    finally:
        try:
            client.close_ports()
        finally:
            remove_cable(cable, host)


def _await_connection(generator: Generator, kind: CableKind) -> None:
    """Offer a few frames until some arrive: two ports of one generator need a moment to connect."""
    load = Load(frame=FrameMix(name="64", parts=((64, 1),)), rate_fps=1000, learning=False)
    request = TrialRequest(load=load, duration_s=0.01, purpose="self-test")
    if not wait_until(lambda: all(way.received_frames for way in generator.trial(request).directions), CONNECT_TIMEOUT_S):
        raise GeneratorError(f"the generator's two ports, connected by {kind}, do not reach each other")
