"""Loss is booked on the place where it happened: from what is counted at each hop before and after a trial.

A frame goes from the generator's port over a cable into the device, in PVP through guests and the device again, over a cable to the
generator's other port. What one hop handed on and the next did not see was lost between the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringroad_lab.trial import LOSS_PLACES, DirectionCounts, LossByPlace

# What drivers call frames that went no further.
_DROPS = re.compile("drop|missed|no_buffer|errors|failure|overrun")


@dataclass(frozen=True)
class EndCounts:
    """What is counted at one end of a cable, since any beginning, frames; None: there is no such counter."""

    received: int | None = None
    """Came to it over the cable, whether or not it could take them."""
    sent: int | None = None
    """Went from it onto the cable."""
    no_room: int | None = None
    """Were dropped there because the other end, or the cable, had no room for them."""

    def since(self, before: EndCounts) -> EndCounts:
        """Return what was counted since then."""
        return EndCounts(_growth(before.received, self.received), _growth(before.sent, self.sent), _growth(before.no_room, self.no_room))


@dataclass(frozen=True)
class HopCounters:
    """All counters along the way, at one moment or over a trial."""

    device: Mapping[int, EndCounts] = field(default_factory=dict)
    """At the device's ports, by number; a port that it does not tell of is not there."""
    generator: Mapping[str, EndCounts] = field(default_factory=dict)
    """At the interfaces of the generator's ends, by name of the generator's port; empty where an end is no interface."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """All that anybody counts as dropped, by its own names: for people."""

    def since(self, before: HopCounters) -> HopCounters:
        """Return what was counted since then; of drops only what grew."""
        nothing = EndCounts()
        # Some tell of a cause from its first frame on.
        first = 0 if before.drops else None
        grown = {name: _growth(before.drops.get(name, first), value) for name, value in self.drops.items()}
        return HopCounters(
            {port: counts.since(before.device.get(port, nothing)) for port, counts in self.device.items()},
            {port: counts.since(before.generator.get(port, nothing)) for port, counts in self.generator.items()},
            {name: growth for name, growth in grown.items() if growth},
        )


@dataclass(frozen=True)
class Path:
    """The way of the frames of one direction."""

    sender: str
    """Name of the generator's port."""
    receiver: str
    passes: tuple[tuple[int, int], ...]
    """Ports of the device where frames come in and go out, each time that they pass it."""
    has_interfaces: bool
    """Whether the generator's ends are interfaces. Else they are rings of memory that the device itself fills and empties: it holds
    the sender up when it is slow, and there is no cable in which a frame could be lost."""


def paths(ports: tuple[str, str], device_ports: Sequence[int], *, has_interfaces: bool) -> dict[str, Path]:
    """Return the ways of both directions, by name of the sending port; the device's ports as frames of the first one come to them."""
    found = {}
    for (sender, receiver), numbers in ((ports, list(device_ports)), (ports[::-1], list(reversed(device_ports)))):
        passes = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        found[sender] = Path(sender, receiver, passes, has_interfaces)
    return found


def book(way: DirectionCounts, path: Path, counted: HopCounters) -> LossByPlace:
    """Book the lost frames of a direction on the places where they were lost, from what was counted over the trial.

    The hops count frames of learning and of others too. So a place gets no more than is left of the loss, in the order of the way, and
    what is left at the end is unexplained: damaged frames, or frames lost where nobody counts or where a duplicate made up for them.
    A counter that saw fewer frames than arrived in the end, as of a card that forwards by itself, is not believed.
    """
    nothing = EndCounts()
    device = {port: _believed(counts, way.received_frames) for port, counts in counted.device.items()}
    inside: int | None = 0
    guests: int | None = 0
    full = 0
    for number, (in_port, out_port) in enumerate(path.passes):
        came, went = device.get(in_port, nothing), device.get(out_port, nothing)
        missing = _gap(came.received, went.sent)
        # What the next hop had no room for was not lost in the device, though that is who counts it.
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
    return LossByPlace.model_validate({**booked, "unexplained": left, "is_refused_by_device": not path.has_interfaces})


def drop_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """Return those counters that are of frames dropped, by their names."""
    return {name: value for name, value in counters.items() if _DROPS.search(name)}


def loss_parts(loss: LossByPlace) -> list[tuple[int, str]]:
    """Return how many frames were lost at each place where any were, in the order of the way, and what is said of them."""
    told = LOSS_PLACES | ({"refused": "left waiting in the ring that the device empties"} if loss.is_refused_by_device else {})
    return [(frames, said) for place, said in told.items() if (frames := getattr(loss, place))]


def loss_text(loss: LossByPlace) -> str:
    """Return where frames were lost, for people: `12 lost in the device and 3 refused by ...`, the most first."""
    told = sorted(loss_parts(loss), key=lambda part: -part[0])
    *first, last = [f"{frames} {said}" for frames, said in told] or ["no frame was lost"]
    return f"{', '.join(first)} and {last}" if first else last


def _growth(before: int | None, after: int | None) -> int | None:
    # A counter that went back was set to 0, or has no more digits: nothing is known of what it counted.
    return None if before is None or after is None or after < before else after - before


def _believed(counts: EndCounts, arrived: int) -> EndCounts:
    received, sent = (None if frames is None or frames < arrived else frames for frames in (counts.received, counts.sent))
    return EndCounts(received, sent, counts.no_room)


def _gap(handed_on: int | None, came: int | None) -> int | None:
    # More may come than was sent: duplicates, and frames of others.
    return None if handed_on is None or came is None else max(0, handed_on - came)


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
