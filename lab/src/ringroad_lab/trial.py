"""A trial: one load, offered for one duration, and its result. The interface between methods and generators.

A trial that the generator could not carry is *invalid*: it says nothing about the device under test, and is never
read as a loss or as a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ringroad_lab.frame_size import FrameMix

# What lies beyond these limits was not measured, and could be neither calculated with nor stored.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Figure = Annotated[float, Field(ge=-1e30, le=1e30)]
Seconds = Annotated[float, Field(ge=0, le=1e30)]
FramesPerSecond = Annotated[float, Field(ge=0, le=1e30)]
VlanId = Annotated[int, Field(ge=0, le=4094)]
Vni = Annotated[int, Field(ge=0, lt=2**24)]
# Up to the end of the year 9999.
Moment = Annotated[float, Field(ge=0, lt=253_402_300_800)]
"""Seconds since 1970, UTC."""


class Frozen(BaseModel):
    """A value that is checked once, where it comes in, and does not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AddressPlan(StrEnum):
    """Which addresses the frames of a load have."""

    FIXED = "fixed"
    """One station at each end."""
    SOURCES = "sources"
    """`stations` source addresses, in turn; the destination is the station at the other end."""
    RETURNED = "returned"
    """One source; the destinations are in turn those stations that `SOURCES` has behind the sender's own port. A switch that knows where
    they are forwards none of these frames, and floods those to stations that it does not know (RFC 2889 with two ports)."""


class FlowShape(StrEnum):
    """What the entries of a flow set are like."""

    ADDRESSES = "addresses"
    """An entry for each of as many source addresses, by a few masks."""
    ACL = "acl"
    """Rules like those of an access control list: prefixes, port ranges, protocols, priorities."""


class FlowSet(Frozen):
    """Entries of a flow table, and by the same numbers the frames that match them: those that the generator's port 1 sends."""

    shape: FlowShape = FlowShape.ADDRESSES
    entries: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    masks: Annotated[int, Field(ge=1, le=20)] = 1
    """Of addresses: combinations of fields and masks that the entries have; each has its part of them."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Of rules."""
    white_list: bool = False
    """Whether frames of the generator's port 2 have to pass a white list, as that of a tenant whom nobody trusts."""


class Load(Frozen):
    """What is offered."""

    frame: FrameMix
    rate_fps: FramesPerSecond
    """Intended load of each direction, frames/s."""
    bidirectional: bool = True
    flows: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """UDP flows per direction."""
    vlans: tuple[VlanId, VlanId] = (0, 0)
    """VLAN of the frames that ports 1 and 2 send (IEEE 802.1Q); 0: no tag. A tag makes a frame 4 bytes longer than its size says."""
    vnis: tuple[Vni, Vni] = (0, 0)
    """VXLAN network of the frames that ports 1 and 2 send (RFC 7348); 0: no VXLAN. It makes a frame 50 bytes longer than its size says."""
    addresses: AddressPlan = AddressPlan.FIXED
    stations: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Stations of an address plan that is not fixed."""
    first_station: Annotated[int, Field(ge=0, le=4_000_000_000)] = 0
    """Number of the first of them: loads whose numbers do not overlap have different addresses."""
    burst_frames: Annotated[int, Field(ge=1)] | None = None
    """So many frames back to back at `rate_fps` or faster, and no more (RFC 9004); None: a constant load."""
    flow_set: FlowSet | None = None
    """Flow entries whose frames port 1 sends, in place of `flows` of its own."""
    attack_fps: FramesPerSecond = 0.0
    """Frames/s that port 2 sends beside the load, to have a cache of the device's classifier grow; they count nowhere."""
    learning: bool = True
    """Whether the receiving ends send a few frames first, so that a learning switch knows where they are."""


class TrialRequest(Frozen):
    """A load and for how long."""

    load: Load
    duration_s: Seconds
    purpose: str = "search"
    """What the trial is for: `warm-up`, `search`, `validation`, `verification`, `latency`, ..."""


class TrialVerdict(StrEnum):
    """What a trial says about its load. In the order of severity."""

    VALID = "valid"
    """The generator did what was asked; loss is the device's."""
    INVALID = "invalid"
    """The generator did not; the reasons tell how."""


class LatencySummary(Frozen):
    """One-way latency of the frames of one direction, ns."""

    frames: Count
    min_ns: Figure
    mean_ns: Figure
    max_ns: Figure
    percentiles_ns: dict[str, Figure] = {}
    """By name: `50`, `90`, `99`, `99.9`; empty where the generator tells none."""
    precision: Figure | None = None
    """Greatest relative error of the percentiles; None where the generator tells none."""


class LossByPlace(Frozen):
    """Where the lost frames of one or more directions were lost. The sum is exactly what was sent and did not arrive.

    None: no counter tells, and what was lost there is among the unexplained. It is never 0 in its place.
    """

    refused: Count
    """The generator's ring had no room for them when they were due."""
    before_device: Count | None
    """Sent, and not come to the device."""
    in_device: Count | None
    """Come to the device, and neither handed on nor refused by what it hands on to."""
    in_guests: Count | None
    """Handed to a guest, or refused by its full ring, and not come back from it; 0 where there is no guest."""
    behind_device: Count | None
    """Handed on by the device, or refused by the cable's full queue, and not come to the generator's interface."""
    at_receiver: Count | None
    """Come to the generator's interface or ring, or refused by that full ring, and not taken by the generator."""
    unexplained: Count
    is_refused_by_device: bool = False
    """Whether the device empties the generator's ring, as over shared memory: then the refused frames are its loss."""

    @property
    def frames(self) -> int:
        """All of them."""
        return sum(getattr(self, place) or 0 for place in LOSS_PLACES)

    @property
    def of_device(self) -> int:
        """Those that count as the device's loss. What nobody can explain may be its loss, and so may what its guests lost."""
        refused = self.refused if self.is_refused_by_device else 0
        return refused + (self.in_device or 0) + (self.in_guests or 0) + self.unexplained

    @property
    def ahead_of_device(self) -> int:
        """Those that never came to the device, for reasons that are not its own: by so many its load was less than asked."""
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
"""The places of [`LossByPlace`], in the order in which a frame comes to them, with what is said of frames there."""


class DirectionCounts(Frozen):
    """Frames of one direction, counted by the generator after it stopped and settled."""

    sender: str
    """Name of the generator's port that sent."""
    receiver: str
    """Name of the generator's port where the frames should arrive."""
    intended_frames: Count
    sent_frames: Count
    """Frames offered."""
    refused_frames: Count = 0
    """Those of the sent that the generator's ring had no room for when they were due: lost, before the device looked at them."""
    received_frames: Count
    """Different frames of this trial that arrived, duplicates not counted."""
    duplicate_frames: Count = 0
    reordered_frames: Count = 0
    damaged_frames: Count = 0
    foreign_frames: Count = 0
    """Frames that arrived and are not of this trial."""
    transmit_s: Seconds
    """From the first frame to the end of the last, as the generator measured it."""
    latency: LatencySummary | None = None
    port_sent_frames: Count | None = None
    """All frames that the sending port handed over, those of learning too; None where the generator does not tell."""
    port_received_frames: Count | None = None
    """All frames that the receiving port took, whoever sent them; None where the generator does not tell."""
    loss: LossByPlace | None = None
    """Where the lost frames were lost; None where it was not looked for, as in records of an older ringroad-lab."""

    @property
    def lost_frames(self) -> int:
        """Frames sent that did not arrive. Duplicates never make up for them."""
        return max(0, self.sent_frames - self.received_frames)

    @property
    def device_lost_frames(self) -> int:
        """Those that count as the device's loss; all of them where it is not known where they were lost."""
        return self.loss.of_device if self.loss is not None else self.lost_frames


class DisturbanceLimits(Frozen):
    """How much others may take of the run's processors, and what repeating a trial may cost where they took more."""

    limit: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Part of the time of the processor that lost the most. A trial that lost more is disturbed."""
    extra_trials: Annotated[int, Field(ge=0, le=1000)] = 6
    """Disturbed trials that a measurement repeats at most."""
    extra_s: Seconds = 15.0
    """Length of the trials that a measurement repeats at most, s."""


class Disturbance(Frozen):
    """What others took of the run's processors while a trial offered its load: of the processor that lost the most."""

    limit: Annotated[float, Field(gt=0, le=1)]
    """Of [`DisturbanceLimits`], as it was."""
    elapsed_s: Seconds
    processor: Count
    """Its number."""
    steal_s: Seconds = 0.0
    """Time that the hypervisor gave to others."""
    others_s: Seconds = 0.0
    """Time of programs that have no part in the run."""
    programs: dict[str, Seconds] = {}
    """The greatest of these, by name."""
    wait_s: Seconds | None = None
    """Time in which threads of the generator, the device and the guests could have run, and others of them or strangers did. With frames
    moved by the kernel this is often its own work; so it is told, and decides nothing. None: the kernel does not tell."""
    throttles: Count = 0
    """How often a processor of the run was slowed down because it was too hot."""
    frequency_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least frequency of the run's processors before and after, of the greatest; None where the machine shows none."""

    @property
    def ratio(self) -> float:
        """Part of the processor's time that others took."""
        return min(1.0, (self.steal_s + self.others_s) / self.elapsed_s) if self.elapsed_s else 0.0

    @property
    def is_above_limit(self) -> bool:
        """Whether that may have changed the trial's result."""
        return self.ratio > self.limit or self.throttles > 0

    def describe(self) -> str:
        """Say for people what took how much."""
        parts = [("steal time", self.steal_s), *self.programs.items()]
        took = ", ".join(f"{name} {taken_s / self.elapsed_s:.0%}" for name, taken_s in parts if self.elapsed_s and taken_s)
        hot = [f"{self.throttles} times too hot"] if self.throttles else []
        said = [f"{self.ratio:.0%} of processor {self.processor}{f' ({took})' if took else ''}", *hot]
        return ", ".join(said)


class TrialResult(Frozen):
    """What came of a trial."""

    request: TrialRequest
    started_at: Moment
    verdict: TrialVerdict
    reasons: tuple[str, ...] = ()
    """Why it is invalid."""
    directions: tuple[DirectionCounts, ...] = Field(min_length=1, max_length=2)
    clock_error: Figure | None = None
    """Greatest relative error of the generator's clock in this trial, where it tells that."""
    drop_counters: dict[str, Count] = {}
    """Counters of drops that grew, by who counts and its name for them: `device 1.rx_dropped`. One frame may be in several."""
    disturbance: Disturbance | None = None
    """What others took meanwhile; None where nobody watched."""
    is_disturbed: bool = False
    """Whether that was above the limit and may have made the result what it is: where only loss counts, a trial without any is none."""
    is_repeated: bool = False
    """Whether it was repeated because it was disturbed; then no figure rests on it."""

    @property
    def is_valid(self) -> bool:
        """Whether it says something about the device under test."""
        return self.verdict is TrialVerdict.VALID

    @property
    def sent_frames(self) -> int:
        """Frames sent, both directions."""
        return sum(direction.sent_frames for direction in self.directions)

    @property
    def lost_frames(self) -> int:
        """Frames lost, both directions; a surplus of one never makes up for the other's loss."""
        return sum(direction.lost_frames for direction in self.directions)

    @property
    def loss_ratio(self) -> float:
        """Part of the frames sent that did not arrive, both directions, wherever they were lost."""
        return self.lost_frames / self.sent_frames if self.sent_frames else 0.0

    @property
    def device_lost_frames(self) -> int:
        """Frames that count as the device's loss, both directions."""
        return sum(direction.device_lost_frames for direction in self.directions)

    @property
    def device_loss_ratio(self) -> float:
        """Part of the frames sent that the device lost, both directions."""
        return self.device_lost_frames / self.sent_frames if self.sent_frames else 0.0

    @property
    def loss(self) -> LossByPlace | None:
        """Where frames were lost, both directions; None where it was not looked for."""
        return sum_losses([direction.loss for direction in self.directions if direction.loss is not None])

    @property
    def offered_fps(self) -> float:
        """Offered load, mean of the directions, frames/s: frames sent over the time that sending took."""
        return sum(d.sent_frames / d.transmit_s for d in self.directions if d.transmit_s) / len(self.directions)

    @property
    def forwarded_fps(self) -> float:
        """Forwarding rate, mean of the directions, frames/s."""
        return sum(d.received_frames / d.transmit_s for d in self.directions if d.transmit_s) / len(self.directions)


def sum_losses(losses: Sequence[LossByPlace]) -> LossByPlace | None:
    """Add losses up, place by place; None where there are none. What one does not know of a place is among its unexplained frames."""
    if not losses:
        return None
    sums: dict[str, int | None] = {}
    for place in LOSS_PLACES:
        known = [frames for loss in losses if (frames := getattr(loss, place)) is not None]
        sums[place] = sum(known) if known else None
    is_refused_by_device = all(loss.is_refused_by_device for loss in losses)
    return LossByPlace.model_validate({**sums, "is_refused_by_device": is_refused_by_device})
