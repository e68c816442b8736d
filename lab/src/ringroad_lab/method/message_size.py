"""Throughput and latency by message size between two stations, measured by NetPIPE and sockperf as in comparisons of accelerators."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ringroad_lab.errors import ScenarioError
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.method.interface import Method, MethodContext, MethodSettings
from ringroad_lab.record import Outcome

Tool = Literal["netpipe", "sockperf-udp", "sockperf-tcp"]
StationKind = Literal["namespaces", "guests"]
StationPlacement = Literal["together", "device-apart", "stations-apart"]
_OFFLOADS = "offloads (checksums, segmentation, GRO) are off there"
CONDITIONS: dict[StationKind, str] = {
    "namespaces": f"the stations are network namespaces at the ends of veth pairs; {_OFFLOADS}",
    "guests": f"the stations are QEMU guests with a virtio-net card and a processor each; {_OFFLOADS}",
}
PLACEMENTS: dict[StationPlacement, str] = {
    "together": "stations and device share a processor",
    "device-apart": "the device has a processor of its own, and the stations share another one unless there are three",
    "stations-apart": "each station has a processor of its own, and the device shares the second station's unless there are three",
}
# Stations send messages, not frames of a given size: records have this instead of a frame size.
MESSAGES = FrameMix(name="messages", parts=((64, 1),))
# Duration of one NetPIPE measurement, s; and number of sizes between two powers of two.
_NETPIPE_POINT_S = 0.75
_NETPIPE_SIZES_EACH = 2
# Boot time of guests, s.
BOOT_S = 10.0
# Time that sockperf needs for each size in addition to the measurement, s.
_SOCKPERF_OVERHEAD_S = 2.5
_SOCKPERF_MAX_POWERS = 16


class StationSettings(MethodSettings):
    """Settings of each method that measures between stations."""

    stations: StationKind = "namespaces"
    """Kind of the stations: network namespaces or virtual machines."""
    placement: StationPlacement = "stations-apart"
    """Which parts have a processor of their own where there are too few. With the default each device pays for the wake-ups of two
    processors, as between two machines. A device that never sleeps leaves a station too little time then: `device-apart`."""

    def conditions(self) -> str:
        """Return what is reported with each result."""
        return f"{CONDITIONS[self.stations]}; {PLACEMENTS[self.placement]}"


class StationMethod(Method):
    """Measures between two stations. The caller connects the stations; the generator is not used."""

    settings_type: ClassVar[type[StationSettings]]
    is_between_stations: ClassVar[bool] = True
    settings: StationSettings

    def measure(self, context: MethodContext) -> Outcome:
        """Measure between the stations.

        Raises:
            ScenarioError: there are no stations.
            LabError: the measurement failed.
        """
        if context.between_stations is None:
            raise ScenarioError(f"{self.title}: it measures between stations, but there are no stations")
        return context.between_stations()


class MessageSizeSettings(StationSettings):
    """Settings of a sweep."""

    tools: tuple[Tool, ...] = Field(default=("netpipe", "sockperf-udp", "sockperf-tcp"), min_length=1)
    max_bytes: Annotated[int, Field(ge=16, le=8 * 1024 * 1024)] = 131072
    """NetPIPE's largest block. sockperf ends at 65507 bytes, the largest UDP message."""
    perturbation_bytes: Annotated[int, Field(ge=0, le=64)] = 3
    """NetPIPE also measures this many bytes below and above each of its sizes (NetPIPE's default)."""
    seconds_each: Annotated[int, Field(ge=1, le=60)] = 1
    """Time that sockperf measures each size."""
    timeout_s: Annotated[float, Field(gt=0)] = 300.0
    """Timeout of NetPIPE."""


class MessageSizeMethod(StationMethod):
    """Sweeps message sizes."""

    title: ClassVar[str] = "Throughput and latency by message size (NetPIPE, sockperf)"
    settings_type: ClassVar[type[StationSettings]] = MessageSizeSettings
    settings: MessageSizeSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of a sweep, s, with one overhead for each tool."""
        settings = self.settings
        powers = math.log2(settings.max_bytes)
        netpipe_s = powers * _NETPIPE_SIZES_EACH * (3 if settings.perturbation_bytes else 1) * _NETPIPE_POINT_S
        sockperf_sizes = 2 * min(powers, _SOCKPERF_MAX_POWERS) - 6
        sockperf_s = sockperf_sizes * (settings.seconds_each + _SOCKPERF_OVERHEAD_S)
        boot_s = BOOT_S if settings.stations == "guests" else 0.0
        return boot_s + sum((netpipe_s if tool == "netpipe" else sockperf_s) + trial_overhead_s for tool in settings.tools)

    def deviations(self) -> tuple[str, ...]:
        """Return the conditions of the measurement."""
        return (
            f"Message sizes: {self.settings.conditions()}.",
            "Message sizes: one message is in flight at a time, so the latency limits the throughput (NetPIPE's definition).",
        )
