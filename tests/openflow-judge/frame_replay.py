"""Sending frames at a rate: by tcpreplay, since os-ken's own sender makes some hundred in a second."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Other threads of the tester answer the switches while this one waits.
from eventlet.green import subprocess
from os_ken.lib import pcaplib

_ACTUAL = re.compile(r"^Actual: (\d+) packets .* sent in ([0-9.]+) seconds", re.MULTILINE)


@dataclass(frozen=True)
class Sent:
    """What was sent."""

    frames: int
    seconds: float


def replay(frames: Sequence[bytes], rounds: int, rate_fps: int, interface: str) -> Sent:
    """Send the frames the given number of times, at the given frames per second.

    Raises:
        OSError: tcpreplay failed; the text has its words.
    """
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder, "frames.pcap")
        with capture.open("wb") as file:
            writer = pcaplib.Writer(file)
            for frame in frames:
                writer.write_pkt(frame)
        command = ["tcpreplay", "--intf1", interface, "--pps", str(rate_fps), "--loop", str(rounds)]
        done = subprocess.run(
            [*command, "--preload-pcap", str(capture)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    actual = _ACTUAL.search(done.stdout)
    if done.returncode or actual is None:
        raise OSError(f"tcpreplay: {done.stdout.strip()}")
    return Sent(int(actual[1]), float(actual[2]))
