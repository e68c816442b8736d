"""A picture of the topology, as SVG inside a page, in the page's colours."""

from __future__ import annotations

from html import escape

from ringroad_lab.topology import Topology, wire

_GENERATOR_WIDTH = 130
_PORT_GAP = 90
_GUEST_TOP = 24
_GUEST_HEIGHT = 56
_DUT_HEIGHT = 64


def topology_picture(topology: str, dut: str, physical: str, guest: str = "", guest_cables: str = "", *, ends: str = "generator") -> str:
    """Draw a topology: the generator or stations at both ends, the device, its guests, and the path of the frames. Texts are escaped."""
    known = Topology(topology) if topology in Topology.__members__ else Topology.P2P
    wiring = wire(known)
    path = [1, *(port for pair in wiring.guest_ports for port in pair), 2]
    has_guests = bool(wiring.guest_ports)
    top = _GUEST_TOP + (_GUEST_HEIGHT + 54 if has_guests else 0)
    gap = _PORT_GAP if has_guests else 2 * _PORT_GAP
    left = _GENERATOR_WIDTH + 110
    ports: dict[int, tuple[float, float]] = {number: (left + 50 + gap * index, top) for index, number in enumerate(path)}
    dut_right = left + 100 + gap * (len(path) - 1)
    middle = top + _DUT_HEIGHT / 2
    width = dut_right + 110 + _GENERATOR_WIDTH + 2
    height = top + _DUT_HEIGHT + 28
    parts = [
        _box(1, middle - 28, _GENERATOR_WIDTH, 56, ends, ""),
        _box(dut_right + 110, middle - 28, _GENERATOR_WIDTH, 56, ends, ""),
        _box(left, top, dut_right - left, _DUT_HEIGHT, "", "dut"),
        _text((left + dut_right) / 2, top + _DUT_HEIGHT + 18, dut, "strong"),
        _line(_GENERATOR_WIDTH + 1, middle, left, middle),
        _line(dut_right, middle, dut_right + 110, middle),
        _text(_GENERATOR_WIDTH + 56, middle - 8, physical, "small"),
        _text(dut_right + 55, middle - 8, physical, "small"),
    ]
    for number, pair in enumerate(wiring.guest_ports, start=1):
        x_in, x_out = ports[pair[0]][0], ports[pair[1]][0]
        name = f"{guest or 'guest'} {number}" if len(wiring.guest_ports) > 1 else guest or "guest"
        parts.append(_box(x_in - 30, _GUEST_TOP, x_out - x_in + 60, _GUEST_HEIGHT, name, "guest"))
        parts += [_line(x, _GUEST_TOP + _GUEST_HEIGHT, x, top) for x in (x_in, x_out)]
        parts.append(_text((x_in + x_out) / 2, top - 22, guest_cables, "small"))
    # The path through the device: between each pair of ports that a rule connects.
    for first, second in zip(path[::2], path[1::2], strict=True):
        (x1, y1), (x2, y2) = _inside(ports, first, middle, left, dut_right), _inside(ports, second, middle, left, dut_right)
        y = middle if not has_guests else top + 42
        parts.append(f'<path class="way" d="M{x1:g} {y1:g}V{y:g}H{x2:g}V{y2:g}"/>')
    for number in path:
        x, y = _inside(ports, number, middle, left, dut_right)
        parts.append(f'<circle class="port" cx="{x:g}" cy="{y:g}" r="11"/>' + _text(x, y + 4, str(number), "small"))
    label = f"{known}: frames pass from the {ends} through ports {', '.join(map(str, path))} of {dut}, and back"
    body = "".join(parts)
    return (
        f'<svg class="topology" role="img" aria-label="{escape(label)}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


def _inside(ports: dict[int, tuple[float, float]], number: int, middle: float, left: float, right: float) -> tuple[float, float]:
    """Return the position of a port: physical ports at the sides, guest ports at the upper edge."""
    if number == 1:
        return left, middle
    return (right, middle) if number == 2 else ports[number]


def _box(x: float, y: float, width: float, height: float, text: str, kind: str) -> str:
    box = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
    return box + (_text(x + width / 2, y + height / 2 + 5, text, "") if text else "")


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="cable" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'
