"""A trial: one load offered for one duration, and its result. The interface between methods and generators.

A trial whose load the generator could not offer is *invalid*: it contains no information about the device under test, and never counts as
loss or as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ringroad_lab.frame_size import FrameMix

# Values beyond these limits cannot be measured, calculated with or stored.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Figure = Annotated[float, Field(ge=-1e30, le=1e30)]
Seconds = Annotated[float, Field(ge=0, le=1e30)]
FramesPerSecond = Annotated[float, Field(ge=0, le=1e30)]
VlanId = Annotated[int, Field(ge=0, le=4094)]
Vni = Annotated[int, Field(ge=0, lt=2**24)]
# Limit: the end of the year 9999.
Moment = Annotated[float, Field(ge=0, lt=253_402_300_800)]
"""Seconds since 1970, UTC."""


class Frozen(BaseModel):
    """An immutable value that is validated once, when it is created."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AddressPlan(StrEnum):
    """Addresses of the frames of a load."""

    FIXED = "fixed"
    """One station at each end."""
    SOURCES = "sources"
    """`stations` source addresses, in turn; the destination is the station at the other end."""
    RETURNED = "returned"
    """One source; the destinations are in turn the stations that `SOURCES` has behind the sender's own port. A switch that has learned a
    station does not forward its frames, and floods frames to unknown stations (RFC 2889 with two ports)."""


class FlowShape(StrEnum):
    """Kind of the entries of a flow set."""

    ADDRESSES = "addresses"
    """One entry for each source address, with a few masks."""
    ACL = "acl"
    """Rules as in an access control list: prefixes, port ranges, protocols, priorities."""


class FlowSet(Frozen):
    """Entries of a flow table, and the frames that match them, which the generator's port 1 sends."""

    shape: FlowShape = FlowShape.ADDRESSES
    entries: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    masks: Annotated[int, Field(ge=1, le=20)] = 1
    """Number of combinations of fields and masks, among which the entries of addresses are divided."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of the generated rules."""
    white_list: bool = False
    """Whether frames of the generator's port 2 must pass a white list, like that of an untrusted tenant."""


class Load(Frozen):
    """The traffic that a trial offers."""

    frame: FrameMix
    rate_fps: FramesPerSecond
    """Intended load of each direction, frames/s."""
    bidirectional: bool = True
    flows: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """UDP flows per direction."""
    vlans: tuple[VlanId, VlanId] = (0, 0)
    """VLAN of the frames that ports 1 and 2 send (IEEE 802.1Q); 0: no tag. A tag makes a frame 4 bytes longer than its nominal size."""
    vnis: tuple[Vni, Vni] = (0, 0)
    """VXLAN network of the frames that ports 1 and 2 send (RFC 7348); 0: no VXLAN. It makes a frame 50 bytes longer than its nominal
    size."""
    addresses: AddressPlan = AddressPlan.FIXED
    stations: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Stations of an address plan that is not fixed."""
    first_station: Annotated[int, Field(ge=0, le=4_000_000_000)] = 0
    """Number of the first station: loads with disjoint station numbers have different addresses."""
    burst_frames: Annotated[int, Field(ge=1)] | None = None
    """Number of frames in a single burst, sent back to back at `rate_fps` or faster (RFC 9004); None: a constant load."""
    flow_set: FlowSet | None = None
    """Port 1 sends the frames of these flow entries in place of `flows`."""
    attack_fps: FramesPerSecond = 0.0
    """Frames/s that port 2 sends in addition to the load, to make a cache of the device's classifier grow; they are not counted."""
    learning: bool = True
    """Whether the receiving ends send a few frames first, so that a learning switch learns their addresses."""


class TrialRequest(Frozen):
    """A load and its duration."""

    load: Load
    duration_s: Seconds
    purpose: str = "search"
    """Purpose of the trial: `warm-up`, `search`, `validation`, `verification`, `latency`, ..."""


class TrialVerdict(StrEnum):
    """Validity of a trial, in the order of severity."""

    VALID = "valid"
    """The generator offered the requested load; loss is the device's."""
    INVALID = "invalid"
    """The generator did not offer the requested load; the reasons have details."""


class LatencySummary(Frozen):
    """One-way latency of the frames of one direction, ns."""

    frames: Count
    min_ns: Figure
    mean_ns: Figure
    max_ns: Figure
    percentiles_ns: dict[str, Figure] = {}
    """Percentiles by name: `50`, `90`, `99`, `99.9`; empty if the generator reports none."""
    precision: Figure | None = None
    """Maximum relative error of the percentiles; None if the generator reports none."""


class LossByPlace(Frozen):
    """Places where the lost frames of one or more directions were lost. The sum is exactly the number of frames sent that did not arrive.

    None: there is no counter, and frames lost there are among the unexplained. None is never replaced by 0.
    """

    refused: Count
    """The generator's ring had no room for them when they were due."""
    before_device: Count | None
    """Sent, but did not reach the device."""
    in_device: Count | None
    """Reached the device, but were neither sent on nor refused by the next hop."""
    in_guests: Count | None
    """Sent to a guest, or refused by its full ring, and did not come back; 0 without guests."""
    behind_device: Count | None
    """Sent by the device, or refused by the cable's full queue, and did not reach the generator's interface."""
    at_receiver: Count | None
    """Reached the generator's interface or ring, or were refused by that full ring, and were not received by the generator."""
    unexplained: Count
    is_refused_by_device: bool = False
    """Whether the device empties the generator's ring, as over shared memory: then the refused frames are the device's loss."""
    is_forwarded_by_sender: bool = False
    """Whether all of the device's forwarding runs in the generator's thread."""

    @property
    def frames(self) -> int:
        """All lost frames."""
        return sum(getattr(self, place) or 0 for place in LOSS_PLACES)

    @property
    def is_held_up(self) -> bool:
        """Whether frames were lost only because the generator's thread, which forwards for the device, had no time for them."""
        return self.is_forwarded_by_sender and 0 < self.frames == self.refused

    @property
    def of_device(self) -> int:
        """Frames that count as the device's loss, including unexplained loss and loss in guests, which may be the device's fault."""
        refused = self.refused if self.is_refused_by_device else 0
        return refused + (self.in_device or 0) + (self.in_guests or 0) + self.unexplained

    @property
    def ahead_of_device(self) -> int:
        """Frames that never reached the device, through no fault of the device: its load was lower than requested by this number."""
        return (0 if self.is_refused_by_device else self.refused) + (self.before_device or 0)


LOSS_PLACES = {
    "refused": "refused by the generator's full ring",
    "before_device": "lost before the device",
    "in_device": "lost in the device",
    "in_guests": "lost in the guests",
    "behind_device": "lost behind the device",
    "at_receiver": "lost at the generator's receive side",
    "unexplained": "not explained by any counter",
}
"""The places of [`LossByPlace`] in the order of the path, with the description of frames lost there."""


class DirectionCounts(Frozen):
    """Frames of one direction, counted by the generator after sending stopped and the settling time passed."""

    sender: str
    """Name of the generator's port that sent."""
    receiver: str
    """Name of the generator's port where the frames should arrive."""
    intended_frames: Count
    sent_frames: Count
    """Frames offered."""
    refused_frames: Count = 0
    """Frames sent for which the generator's ring had no room when they were due: lost before the device could read them."""
    received_frames: Count
    """Distinct frames of this trial that arrived, without duplicates."""
    duplicate_frames: Count = 0
    reordered_frames: Count = 0
    damaged_frames: Count = 0
    foreign_frames: Count = 0
    """Frames that arrived but do not belong to this trial."""
    transmit_s: Seconds
    """Time from the first frame to the end of the last, as the generator measured it."""
    latency: LatencySummary | None = None
    port_sent_frames: Count | None = None
    """All frames that the sending port sent, including learning frames; None if the generator does not report them."""
    port_received_frames: Count | None = None
    """All frames that the receiving port received, from any sender; None if the generator does not report them."""
    loss: LossByPlace | None = None
    """Places where the lost frames were lost; None if not determined, as in records of an older ringroad-lab."""

    @property
    def lost_frames(self) -> int:
        """Frames sent that did not arrive. Duplicates never compensate for them."""
        return max(0, self.sent_frames - self.received_frames)

    @property
    def device_lost_frames(self) -> int:
        """Lost frames that count as the device's loss; all of them if the place is unknown."""
        return self.loss.of_device if self.loss is not None else self.lost_frames


class DisturbanceLimits(Frozen):
    """Limit for other programs' use of the run's processors, and limits for repeating trials that exceed it."""

    limit: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Fraction of the time of the processor that lost the most. A trial that lost more is disturbed."""
    extra_trials: Annotated[int, Field(ge=0, le=1000)] = 6
    """Maximum number of disturbed trials that a measurement repeats."""
    extra_s: Seconds = 15.0
    """Maximum total duration of the trials that a measurement repeats, s."""


class Disturbance(Frozen):
    """Time that others took of the run's processors while a trial offered its load: of the processor that lost the most."""

    limit: Annotated[float, Field(gt=0, le=1)]
    """The limit of [`DisturbanceLimits`] at the time of the trial."""
    elapsed_s: Seconds
    processor: Count
    """Number of the processor."""
    steal_s: Seconds = 0.0
    """Time that the hypervisor gave to others."""
    others_s: Seconds = 0.0
    """Time of programs that have no part in the run."""
    programs: dict[str, Seconds] = {}
    """The programs that took the most, by name."""
    wait_s: Seconds | None = None
    """Time in which threads of the generator, the device and the guests were runnable while other threads ran. If the kernel moves the
    frames, this is often the kernel's own work, so the value is only reported. None: the kernel does not report it."""
    throttles: Count = 0
    """Number of times that a processor of the run was slowed down because of heat."""
    frequency_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Lowest frequency of the run's processors before and after, relative to the highest; None if the machine does not report it."""

    @property
    def ratio(self) -> float:
        """Fraction of the processor's time that others took."""
        return min(1.0, (self.steal_s + self.others_s) / self.elapsed_s) if self.elapsed_s else 0.0

    @property
    def is_above_limit(self) -> bool:
        """Whether the disturbance may have changed the trial's result."""
        return self.ratio > self.limit or self.throttles > 0

    def describe(self) -> str:
        """Describe what took how much, for display."""
        parts = [("steal time", self.steal_s), *self.programs.items()]
        took = ", ".join(f"{name} {taken_s / self.elapsed_s:.0%}" for name, taken_s in parts if self.elapsed_s and taken_s)
        hot = [f"{self.throttles} times too hot"] if self.throttles else []
        texts = [f"{self.ratio:.0%} of processor {self.processor}{f' ({took})' if took else ''}", *hot]
        return ", ".join(texts)


class TrialResult(Frozen):
    """Result of a trial."""

    request: TrialRequest
    started_at: Moment
    verdict: TrialVerdict
    reasons: tuple[str, ...] = ()
    """Reasons for an invalid trial."""
    directions: tuple[DirectionCounts, ...] = Field(min_length=1, max_length=2)
    clock_error: Figure | None = None
    """Maximum relative error of the generator's clock in this trial; None if the generator does not report it."""
    drop_counters: dict[str, Count] = {}
    """Counters of drops that grew, by place and name: `device: 1.rx_dropped`. Several counters may count the same frame."""
    disturbance: Disturbance | None = None
    """Time that others took during the trial; None if not measured."""
    is_disturbed: bool = False
    """Whether the disturbance was above the limit and may have affected the result. If only loss counts, a trial without loss is not
    disturbed."""
    is_repeated: bool = False
    """Whether the trial was repeated because it was disturbed; then no figure rests on it."""

    @property
    def is_valid(self) -> bool:
        """Whether the trial is valid for the device under test."""
        return self.verdict is TrialVerdict.VALID

    @property
    def sent_frames(self) -> int:
        """Frames sent, both directions."""
        return sum(direction.sent_frames for direction in self.directions)

    @property
    def lost_frames(self) -> int:
        """Frames lost, both directions; a surplus in one direction never compensates for loss in the other."""
        return sum(direction.lost_frames for direction in self.directions)

    @property
    def loss_ratio(self) -> float:
        """Fraction of the frames sent that did not arrive, both directions, for any place of loss."""
        return self.lost_frames / self.sent_frames if self.sent_frames else 0.0

    @property
    def device_lost_frames(self) -> int:
        """Frames that count as the device's loss, both directions."""
        return sum(direction.device_lost_frames for direction in self.directions)

    @property
    def device_loss_ratio(self) -> float:
        """Fraction of the frames sent that the device lost, both directions."""
        return self.device_lost_frames / self.sent_frames if self.sent_frames else 0.0

    @property
    def loss(self) -> LossByPlace | None:
        """Places where frames were lost, both directions; None if not determined."""
        return sum_losses([direction.loss for direction in self.directions if direction.loss is not None])

    @property
    def offered_fps(self) -> float:
        """Offered load, mean of the directions, frames/s: frames sent divided by the sending time."""
        return sum(d.sent_frames / d.transmit_s for d in self.directions if d.transmit_s) / len(self.directions)

    @property
    def forwarded_fps(self) -> float:
        """Forwarding rate, mean of the directions, frames/s."""
        return sum(d.received_frames / d.transmit_s for d in self.directions if d.transmit_s) / len(self.directions)


def sum_losses(losses: Sequence[LossByPlace]) -> LossByPlace | None:
    """Sum losses by place; None without losses. If a loss has no counter for a place, its frames there are among its unexplained frames."""
    if not losses:
        return None
    sums: dict[str, int | None] = {}
    for place in LOSS_PLACES:
        known = [frames for loss in losses if (frames := getattr(loss, place)) is not None]
        sums[place] = sum(known) if known else None
    flags = {name: all(getattr(loss, name) for loss in losses) for name in ("is_refused_by_device", "is_forwarded_by_sender")}
    return LossByPlace.model_validate({**sums, **flags})
