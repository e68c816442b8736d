"""Attributes loss to the place where it happened, from the counters of each hop before and after a trial.

A frame travels from the generator's port over a cable into the device, in PVP through guests and the device again, and over a cable to the
generator's other port. Frames that one hop sent and the next hop did not see were lost between the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringroad_lab.trial import LOSS_PLACES, DirectionCounts, LossByPlace

# Names of drivers' counters of dropped frames.
_DROPS = re.compile("drop|missed|no_buffer|errors|failure|overrun")


@dataclass(frozen=True)
class EndCounts:
    """Frame counters at one end of a cable, since an arbitrary start; None: there is no such counter."""

    received: int | None = None
    """Frames that arrived over the cable, accepted or not."""
    sent: int | None = None
    """Frames sent onto the cable."""
    no_room: int | None = None
    """Frames dropped there because the other end, or the cable, had no room for them."""

    def since(self, before: EndCounts) -> EndCounts:
        """Return the growth since an earlier reading."""
        return EndCounts(_growth(before.received, self.received), _growth(before.sent, self.sent), _growth(before.no_room, self.no_room))


@dataclass(frozen=True)
class HopCounters:
    """All counters along the path, at one moment or over a trial."""

    device: Mapping[int, EndCounts] = field(default_factory=dict)
    """Counts at the device's ports, by number; ports without counters are missing."""
    generator: Mapping[str, EndCounts] = field(default_factory=dict)
    """Counts at the interfaces of the generator's ends, by name of the generator's port; empty if an end is not an interface."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """All counters of drops, by their own names, for display."""

    def since(self, before: HopCounters) -> HopCounters:
        """Return the growth since an earlier reading; of drops only counters that grew."""
        nothing = EndCounts()
        # Some devices report a cause only after its first frame.
        first = 0 if before.drops else None
        grown = {name: _growth(before.drops.get(name, first), value) for name, value in self.drops.items()}
        return HopCounters(
            {port: counts.since(before.device.get(port, nothing)) for port, counts in self.device.items()},
            {port: counts.since(before.generator.get(port, nothing)) for port, counts in self.generator.items()},
            {name: growth for name, growth in grown.items() if growth},
        )


@dataclass(frozen=True)
class FramePath:
    """The path of the frames of one direction."""

    sender: str
    """Name of the generator's port."""
    receiver: str
    passes: tuple[tuple[int, int], ...]
    """Ports where frames enter and leave, for each pass through the device."""
    has_interfaces: bool
    """Whether the generator's ends are interfaces. Otherwise they are rings in memory that the device itself fills and empties: a slow
    device holds the sender up, and no frame can be lost on a cable."""
    is_forwarded_by_sender: bool = False
    """Whether all of the device's forwarding runs in the sender's thread, so that the sender waits for the device."""


def paths(
    ports: tuple[str, str], device_ports: Sequence[int], *, has_interfaces: bool, is_forwarded_by_sender: bool = False
) -> dict[str, FramePath]:
    """Return the paths of both directions, by name of the sending port; `device_ports` in the order of the first direction."""
    found = {}
    for (sender, receiver), numbers in ((ports, list(device_ports)), (ports[::-1], list(reversed(device_ports)))):
        passes = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        found[sender] = FramePath(sender, receiver, passes, has_interfaces, is_forwarded_by_sender)
    return found


def book(way: DirectionCounts, path: FramePath, counted: HopCounters) -> LossByPlace:
    """Attribute the lost frames of a direction to places, from the counters over the trial.

    The hops also count learning frames and foreign frames. So each place, in the order of the path, gets at most the loss that is left. The
    rest at the end is unexplained: damaged frames, or frames lost where there is no counter or where a duplicate hides the loss. A counter
    that saw fewer frames than finally arrived, as of a card that forwards in hardware, is ignored.
    """
    nothing = EndCounts()
    device = {port: _believed(counts, way.received_frames) for port, counts in counted.device.items()}
    inside: int | None = 0
    guests: int | None = 0
    full = 0
    for number, (in_port, out_port) in enumerate(path.passes):
        came, went = device.get(in_port, nothing), device.get(out_port, nothing)
        missing = _gap(came.received, went.sent)
        # Frames that the next hop had no room for were not lost in the device, though the device counts them.
        full = min(went.no_room or 0, missing or 0)
        inside = _sum(inside, missing, -full)
        if number + 1 < len(path.passes):
            back = device.get(path.passes[number + 1][0], nothing)
            guests = _sum(guests, _gap(went.sent, back.received), full)
    first = device.get(path.passes[0][0], nothing).received
    last = device.get(path.passes[-1][1], nothing).sent
    end = _believed(counted.generator.get(path.receiver, nothing), way.received_frames)
    arrived = end.received if path.has_interfaces else last
    found = {
        "refused": way.refused_frames,
        "before_device": _gap(way.port_sent_frames, first),
        "in_device": inside,
        "in_guests": guests,
        "behind_device": _sum(_gap(last, arrived), full if path.has_interfaces else 0),
        "at_receiver": _sum(_gap(arrived, way.port_received_frames), 0 if path.has_interfaces else full),
    }
    left = way.lost_frames
    booked: dict[str, int | None] = {}
    for place, frames in found.items():
        booked[place] = None if frames is None else min(frames, left)
        left -= booked[place] or 0
    flags = {"is_refused_by_device": not path.has_interfaces, "is_forwarded_by_sender": path.is_forwarded_by_sender}
    return LossByPlace.model_validate({**booked, "unexplained": left, **flags})


def drop_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of dropped frames, selected by their names."""
    return {name: value for name, value in counters.items() if _DROPS.search(name)}


def loss_parts(loss: LossByPlace) -> list[tuple[int, str]]:
    """Return the number of lost frames and a description for each place with loss, in the order of the path."""
    descriptions = LOSS_PLACES | ({"refused": "left waiting in the ring that the device empties"} if loss.is_refused_by_device else {})
    return [(frames, text) for place, text in descriptions.items() if (frames := getattr(loss, place))]


def loss_text(loss: LossByPlace) -> str:
    """Describe where frames were lost: `12 lost in the device and 3 refused by ...`, the greatest number first."""
    parts = sorted(loss_parts(loss), key=lambda part: -part[0])
    *first, last = [f"{frames} {text}" for frames, text in parts] or ["no frame was lost"]
    return f"{', '.join(first)} and {last}" if first else last


def _growth(before: int | None, after: int | None) -> int | None:
    # A counter that went back was reset or has wrapped: its growth is unknown.
    return None if before is None or after is None or after < before else after - before


def _believed(counts: EndCounts, arrived: int) -> EndCounts:
    received, sent = (None if frames is None or frames < arrived else frames for frames in (counts.received, counts.sent))
    return EndCounts(received, sent, counts.no_room)


def _gap(sent: int | None, arrived: int | None) -> int | None:
    # Duplicates and foreign frames may make more frames arrive than were sent.
    return None if sent is None or arrived is None else max(0, sent - arrived)


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
