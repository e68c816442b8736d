"""Throughput and latency by message size between two stations, by NetPIPE and by sockperf, as comparisons of accelerators have it."""

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
# To be told with each result.
CONDITIONS: dict[StationKind, str] = {
    "namespaces": "Message sizes: the stations are network namespaces at the ends of veth pairs",
    "guests": "Message sizes: the stations are QEMU guests with a virtio-net card and a processor each",
}
# Stations send messages, not frames of a size: what stands in a record where the size of frames would.
MESSAGES = FrameMix(name="messages", parts=((64, 1),))
# What each of NetPIPE's measurements takes, s; and how many sizes it has between two powers of two.
_NETPIPE_POINT_S = 0.75
_NETPIPE_SIZES_EACH = 2
# How long guests boot, s.
_BOOT_S = 10.0
# What sockperf takes for each size beside its bouncing, s.
_SOCKPERF_OVERHEAD_S = 2.5
_SOCKPERF_MAX_POWERS = 16


class MessageSizeSettings(MethodSettings):
    """What can be set of a sweep."""

    tools: tuple[Tool, ...] = Field(default=("netpipe", "sockperf-udp", "sockperf-tcp"), min_length=1)
    stations: StationKind = "namespaces"
    """Between what messages bounce: network namespaces, or virtual machines."""
    max_bytes: Annotated[int, Field(ge=16, le=8 * 1024 * 1024)] = 131072
    """NetPIPE's greatest block. sockperf ends at 65507 bytes, the greatest UDP message."""
    perturbation_bytes: Annotated[int, Field(ge=0, le=64)] = 3
    """NetPIPE measures so many bytes below and above each of its sizes too (its default)."""
    seconds_each: Annotated[int, Field(ge=1, le=60)] = 1
    """How long sockperf bounces messages of each size."""
    timeout_s: Annotated[float, Field(gt=0)] = 300.0
    """When NetPIPE is given up."""


class MessageSizeMethod(Method):
    """Sweeps message sizes. Whoever calls it joins the stations; the generator has no part in it."""

    name: ClassVar[str] = "message-size"
    title: ClassVar[str] = "Throughput and latency by message size (NetPIPE, sockperf)"
    settings_type: ClassVar[type[MethodSettings]] = MessageSizeSettings
    is_between_stations: ClassVar[bool] = True

    def expected_s(self, trial_overhead_s: float) -> float:
        """Return how long a sweep is expected to take, s; an overhead for each tool."""
        settings = self._own_settings
        powers = math.log2(settings.max_bytes)
        netpipe_s = powers * _NETPIPE_SIZES_EACH * (3 if settings.perturbation_bytes else 1) * _NETPIPE_POINT_S
        sockperf_sizes = 2 * min(powers, _SOCKPERF_MAX_POWERS) - 6
        sockperf_s = sockperf_sizes * (settings.seconds_each + _SOCKPERF_OVERHEAD_S)
        boot_s = _BOOT_S if settings.stations == "guests" else 0.0
        return boot_s + sum((netpipe_s if tool == "netpipe" else sockperf_s) + trial_overhead_s for tool in settings.tools)

    def deviations(self) -> tuple[str, ...]:
        """Return under which conditions the figures are."""
        return (
            f"{CONDITIONS[self._own_settings.stations]}; offloads (checksums, segmentation, GRO) are off there.",
            "Message sizes: one message is under way at a time, so throughput is what the latency leaves room for (NetPIPE's definition).",
        )

    def measure(self, context: MethodContext) -> Outcome:
        """Have the stations measured.

        Raises:
            ScenarioError: there are none.
            LabError: what could not be measured, and why.
        """
        if context.between_stations is None:
            raise ScenarioError("message sizes are measured between stations, and there are none")
        return context.between_stations()

    @property
    def _own_settings(self) -> MessageSizeSettings:
        assert isinstance(self.settings, MessageSizeSettings)
        return self.settings
