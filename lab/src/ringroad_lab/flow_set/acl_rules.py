"""Rules like those of an access control list, generated from a seed, and headers of frames that match them.

The shape follows ClassBench's filter sets (D. E. Taylor and J. S. Turner, "ClassBench: A Packet Classification Benchmark", IEEE/ACM
Transactions on Networking 15(3), 2007): prefixes of varying lengths, with some frequent pairs of lengths; nested prefixes, since a few
networks hold most of them; five classes of port ranges, with a few ranges and ports for many rules; one protocol in most rules; no
duplicate rules; more specific rules first. The weights are our own, not from a ClassBench seed file. Most rules are for UDP, while real
lists are mostly for TCP: after a TCP header a frame of 64 bytes has no room for the timestamp in the generator's signature, and a
classifier treats both alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import log2
from typing import TypeVar

from ringroad_lab.flow_set.interface import ADDRESS_BITS, FlowEntry, FrameHeader, address_mask, prefix_text

T = TypeVar("T")

PORT_BITS = 16
ANY_PORT = (0, 2**PORT_BITS - 1)
FIRST_PRIORITY = 65_535
MOST_ENTRIES = 60_000
"""Each rule has its own priority, and the white list needs some lower ones."""

_PROTOCOLS = {"udp": 84, "tcp": 8, "icmp": 2, "ip": 6}
_WITH_PORTS = ("udp", "tcp")
_SOURCE_BITS = {0: 12, 8: 2, 14: 2, 16: 8, 17: 2, 18: 3, 19: 3, 20: 4, 21: 4, 22: 4, 23: 5, 24: 16, 26: 3, 27: 4, 28: 4, 30: 4, 32: 22}
_DESTINATION_BITS = {0: 4, 8: 1, 16: 5, 18: 2, 20: 3, 21: 3, 22: 4, 23: 5, 24: 20, 25: 3, 26: 4, 27: 5, 28: 6, 29: 4, 30: 5, 31: 2, 32: 26}
# Any port, the upper and the lower ones, one port, and other ranges.
_SOURCE_PORTS = {"any": 97, "one": 3}
_DESTINATION_PORTS = {"any": 20, "upper": 4, "lower": 1, "one": 68, "range": 7}
_FIRST_UPPER_PORT = 1024
_WIDEST_RANGE_BITS = 6
# Number of pairs of prefix lengths, ranges and single ports in each list; the most frequent are first.
_LENGTH_PAIRS = 32
_RANGES = 5
_SINGLE_PORTS = 200
# Addresses of hosts, by their first byte.
_FIRST_BYTES = range(1, 224)
# Probability that a prefix lies in a known network; a network with more prefixes gets more new ones.
_NESTING = 0.8


@dataclass(frozen=True)
class Prefix:
    """Addresses whose first bits are the same."""

    address: int
    bits: int


@dataclass(frozen=True)
class AclRule:
    """A rule of a list."""

    protocol: str
    source: Prefix
    destination: Prefix
    source_ports: tuple[int, int]
    """First and last port."""
    destination_ports: tuple[int, int]

    @property
    def scope_bits(self) -> float:
        """The number of headers that it matches, as a power of two; rules are sorted by it."""
        ports = sum(log2(last - first + 1) for first, last in (self.source_ports, self.destination_ports))
        return 2 * ADDRESS_BITS - self.source.bits - self.destination.bits + ports + (self.protocol == "ip") * 8

    @property
    def matches_udp(self) -> bool:
        """Whether frames of the generator can match it."""
        return self.protocol in ("udp", "ip")


@dataclass(frozen=True)
class PortMask:
    """Ports that have the bits of a mask in common."""

    value: int
    mask: int

    def field(self, name: str) -> str:
        """Return the field of a match; empty for any port."""
        if not self.mask:
            return ""
        return f"{name}={self.value}" if self.mask == ANY_PORT[1] else f"{name}={self.value:#x}/{self.mask:#x}"


def port_masks(first: int, last: int) -> list[PortMask]:
    """Return the fewest masks that match exactly a range of ports, for tables without ranges."""
    found = []
    while first <= last:
        # The largest aligned block of ports that begins here and does not exceed the last port.
        size = first & -first or 2**PORT_BITS
        while first + size - 1 > last:
            size //= 2
        found.append(PortMask(first, 2**PORT_BITS - size))
        first += size
    return found


@cache
def acl_rules(entries: int, seed: int) -> tuple[AclRule, ...]:
    """Return rules that need exactly this number of flow entries, the highest priority first."""
    if entries > MOST_ENTRIES:
        raise ValueError(f"a list has at most {MOST_ENTRIES} entries, not {entries}: each rule has its own priority")
    drawn = _DrawnRules(seed)
    rules: dict[AclRule, None] = {}
    left = entries
    while left:
        rule = drawn.rule()
        if rule not in rules and (needed := len(_masks(rule))) <= left:
            rules[rule] = None
            left -= needed
    return tuple(sorted(rules, key=lambda rule: rule.scope_bits))


def acl_entries(entries: int, seed: int) -> Iterator[FlowEntry]:
    """Yield the flow entries of the rules. All of them forward: intended drops would count as loss."""
    for number, rule in enumerate(acl_rules(entries, seed)):
        for source_ports, destination_ports in _masks(rule):
            fields = (
                rule.protocol,
                f"nw_src={prefix_text(rule.source.address, rule.source.bits)}" if rule.source.bits else "",
                f"nw_dst={prefix_text(rule.destination.address, rule.destination.bits)}" if rule.destination.bits else "",
                source_ports.field("tp_src"),
                destination_ports.field("tp_dst"),
            )
            yield FlowEntry(",".join(filter(None, fields)), FIRST_PRIORITY - number)


def acl_headers(entries: int, seed: int) -> list[FrameHeader]:
    """Return a header for each entry that UDP frames can match, in random order; an earlier rule can match the frame first."""
    draw = random.Random(seed)
    headers = [
        FrameHeader(
            _within(draw, rule.source.address, address_mask(rule.source.bits), ADDRESS_BITS),
            _within(draw, rule.destination.address, address_mask(rule.destination.bits), ADDRESS_BITS),
            _within(draw, source_ports.value, source_ports.mask, PORT_BITS),
            _within(draw, destination_ports.value, destination_ports.mask, PORT_BITS),
        )
        for rule in acl_rules(entries, seed)
        if rule.matches_udp
        for source_ports, destination_ports in _masks(rule)
    ]
    draw.shuffle(headers)
    return headers


def _masks(rule: AclRule) -> Sequence[tuple[PortMask, PortMask]]:
    return list(product(port_masks(*rule.source_ports), port_masks(*rule.destination_ports)))


class _DrawnRules:
    """Rules of one list, drawn one after the other."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        pairs = [(self._weighted(_SOURCE_BITS), self._weighted(_DESTINATION_BITS)) for _ in range(_LENGTH_PAIRS)]
        self._length_pairs = sorted(set(pairs), key=lambda pair: -_SOURCE_BITS[pair[0]] * _DESTINATION_BITS[pair[1]])
        self._ranges = [self._range() for _ in range(_RANGES)]
        self._single_ports = [self._draw.randrange(2**PORT_BITS) for _ in range(_SINGLE_PORTS)]
        self._sources: list[int] = []
        self._destinations: list[int] = []

    def rule(self) -> AclRule:
        """Draw a rule; it can be a duplicate."""
        protocol = self._weighted(_PROTOCOLS)
        has_ports = protocol in _WITH_PORTS
        source_bits, destination_bits = self._frequent(self._length_pairs)
        return AclRule(
            protocol,
            self._prefix(source_bits, self._sources),
            self._prefix(destination_bits, self._destinations),
            self._ports(_SOURCE_PORTS) if has_ports else ANY_PORT,
            self._ports(_DESTINATION_PORTS) if has_ports else ANY_PORT,
        )

    def _prefix(self, bits: int, known: list[int]) -> Prefix:
        address = self._draw.choice(_FIRST_BYTES) << 24 | self._draw.getrandbits(24)
        if known and self._draw.random() < _NESTING:
            shared = address_mask(self._draw.randint(8, ADDRESS_BITS))
            address = self._draw.choice(known) & shared | address & ~shared
        known.append(address)
        return Prefix(address & address_mask(bits), bits)

    def _ports(self, weights: Mapping[str, int]) -> tuple[int, int]:
        match self._weighted(weights):
            case "any":
                return ANY_PORT
            case "upper":
                return _FIRST_UPPER_PORT, ANY_PORT[1]
            case "lower":
                return 0, _FIRST_UPPER_PORT - 1
            case "one":
                port = self._frequent(self._single_ports)
                return port, port
        return self._frequent(self._ranges)

    def _range(self) -> tuple[int, int]:
        first = self._draw.randrange(1, 2**PORT_BITS - 1)
        width = self._draw.randint(2, 2**_WIDEST_RANGE_BITS)
        return first, min(ANY_PORT[1], first + width - 1)

    def _weighted(self, weights: Mapping[T, int]) -> T:
        return self._draw.choices(list(weights), list(weights.values()))[0]

    def _frequent(self, items: Sequence[T]) -> T:
        """Draw an item: the second half as often as the first, the third a third as often (Zipf's law)."""
        return self._draw.choices(items, [1 / (number + 1) for number in range(len(items))])[0]


def _within(draw: random.Random, value: int, mask: int, bits: int) -> int:
    return value | (draw.getrandbits(bits) & ~mask)
