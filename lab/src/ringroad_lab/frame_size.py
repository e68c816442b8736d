"""Sizes of frames, FCS included as in RFC 2544, and the line rates of a link."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Preamble, start-of-frame delimiter and interframe gap take the time of this many bytes on a link (IEEE 802.3).
LINE_OVERHEAD_BYTES = 20
FCS_BYTES = 4
MIN_FRAME_BYTES = 64
MAX_FRAME_BYTES = 9216

_Positive = Annotated[int, Field(ge=1, le=1_000_000)]


class FrameMix(BaseModel):
    """Frames of one size, or of several in a fixed ratio."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    """Text that the user wrote: `64`, `imix`, `64:7,594:4,1518:1`; names the mix in results."""
    parts: tuple[tuple[_Positive, _Positive], ...] = Field(min_length=1)
    """Size in bytes, FCS included, and the number of frames with that size in each round."""

    @property
    def mean_bytes(self) -> float:
        """Mean size, bytes, FCS included."""
        frames = sum(weight for _, weight in self.parts)
        return sum(size * weight for size, weight in self.parts) / frames

    @property
    def genome(self) -> str:
        """The mix in the notation of RFC 6985's custom genomes: sizes and weights."""
        return ",".join(f"{size}:{weight}" for size, weight in self.parts)

    def line_rate_fps(self, link_bps: float, extra_bytes: int = 0) -> float:
        """Return the line rate, frames/s, of a link of `link_bps` bits per second, with frames longer by `extra_bytes`."""
        return link_bps / (8 * (self.mean_bytes + extra_bytes + LINE_OVERHEAD_BYTES))


# The commonly used "simple IMIX".
IMIX = FrameMix(name="imix", parts=((64, 7), (594, 4), (1518, 1)))
NAMED_MIXES = {
    "imix": IMIX.parts,
    # Named mixes of the Open Traffic Generator model (Flow.Size.WeightPairs), except those with sizes below 64.
    "otg-imix": ((64, 7), (570, 4), (1518, 1)),
    "ipsec-imix": ((90, 5867), (92, 200), (594, 2366), (1418, 1567)),
    "tcp-imix": ((90, 5867), (92, 200), (594, 2366), (1518, 1567)),
}
# RFC 6985 section 4: `genome:aaafg` is a mix whose letters stand for sizes.
GENOME_SIZES = {"a": 64, "b": 128, "c": 256, "d": 512, "e": 1024, "f": 1280, "g": 1518, "h": 2112, "i": 9000}


def parse_frame_mix(text: str) -> FrameMix:
    """Parse `64`, `imix` and other names, `genome:aaafg` (RFC 6985) or `64:7,594:4,1518:1`.

    Raises:
        ValueError: the text is invalid.
    """
    text = text.strip()
    if (named := NAMED_MIXES.get(text.lower())) is not None:
        return FrameMix(name=text.lower(), parts=named)
    if text.startswith("genome:"):
        return _genome(text)
    parts = []
    for part in text.split(","):
        size_text, _, weight_text = part.partition(":")
        try:
            size, weight = int(size_text), int(weight_text or "1")
        except ValueError:
            raise ValueError(
                f"frame size {text!r}: write 64, {', '.join(NAMED_MIXES)}, genome:aaafg, or sizes with weights such as 64:7,594:4"
            ) from None
        if not MIN_FRAME_BYTES <= size <= MAX_FRAME_BYTES:
            raise ValueError(f"frame size {size}: from {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, FCS included")
        if not 1 <= weight <= 1000:
            raise ValueError(f"weight {weight} of frame size {size}: from 1 to 1000")
        parts.append((size, weight))
    return FrameMix(name=text, parts=tuple(parts))


def _genome(text: str) -> FrameMix:
    letters = text.removeprefix("genome:")
    if not letters or not set(letters) <= set(GENOME_SIZES):
        raise ValueError(f"genome {letters!r}: one letter or more of {', '.join(f'{key} ({size})' for key, size in GENOME_SIZES.items())}")
    return FrameMix(name=text, parts=tuple((GENOME_SIZES[letter], letters.count(letter)) for letter in sorted(set(letters))))
