"""A daemon of Ringroad, with its own socket: of a switch, or below a program whose ports it serves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ringroad_lab.dut.interface import Dut, DutPort
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.host.interface import Completed, Process
from ringroad_lab.ringroad_program import require_ringroad

START_TIMEOUT_S = 15.0


class RingroadDaemon:
    """The daemon of one device: the device launches, checks and stops it."""

    def __init__(self, dut: Dut) -> None:
        """Take the device."""
        self._dut = dut
        self.socket = dut.host.folder / "ringroadd.sock"
        self._process: Process | None = None

    def prepare(self) -> None:
        """Check for the daemon and its client."""
        self._client = require_ringroad(self._dut.host, "ringroad")
        self._program = require_ringroad(self._dut.host, "ringroadd")

    def start(self, **workers: int | bool) -> None:
        """Start the daemon with a worker on each of the device's processors; `workers` are further settings of these (docs/daemon.md).

        Raises:
            DutError: with the end of its log.
        """
        host, cpus = self._dut.host, sorted(self._dut.placement.cpus)
        config = host.folder / "ringroadd.toml"
        settings: dict[str, object] = {**workers}
        if cpus:
            settings |= {"count": min(len(cpus), 16), "cpus": cpus[:16]}
        try:
            host.write_text(config, "\n".join(["[workers]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items()), ""]))
        except HostError as error:
            raise DutError(f"{self._dut.title} did not start: {error}") from error
        self._process = self._dut.launch("ringroadd", [self._program, "--socket", str(self.socket), "--config", str(config)])
        if why := self._process.why_silent("is ready", START_TIMEOUT_S):
            raise DutError(f"{self._dut.title} did not start: its daemon {why}")

    def command(self, *arguments: str) -> list[str]:
        """Return a command of `ringroad` for this daemon."""
        return [self._client, "--socket", str(self.socket), *arguments]

    def call(self, *arguments: str, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command of `ringroad`.

        Raises:
            HostError: it failed.
        """
        return self._dut.host.run(self.command("--json", *arguments), stdin=stdin, timeout_s=timeout_s)

    def serve(self, argv: Sequence[str]) -> list[str]:
        """Return the command of a program over netmap or libpcap that finds this daemon's ports among its devices."""
        return self.command("run", "--", *argv)

    def check(self) -> None:
        """Check that the daemon is running: the client would start another one.

        Raises:
            DutError: it is not.
        """
        if why := self._process.death() if self._process else "was not started":
            raise DutError(f"{self._dut.title}: its daemon {why}")

    def last_words(self) -> str:
        """Return the end of its log."""
        return self._process.last_words() if self._process else ""

    def version(self) -> str:
        """Return its version."""
        return self._dut.host.run([self._program, "--version"]).stdout.strip().rpartition(" ")[2]

    def status(self) -> dict[str, Any]:
        """Return its status (docs/daemon.md).

        Raises:
            DutError: it does not answer.
        """
        self.check()
        try:
            status = json.loads(self.call("status").stdout)
        except (HostError, json.JSONDecodeError) as error:
            raise DutError(f"{self._dut.title}: its daemon does not answer: {error}") from error
        if not isinstance(status, dict):
            raise DutError(f"{self._dut.title}: invalid reply from its daemon: {str(status)[:200]}")
        return status

    def ports(self) -> dict[str, dict[str, Any]]:
        """Return the status of its ports by their names."""
        return {port["name"]: port for port in self.status().get("ports", [])}

    def collect(self, ports: Mapping[str, DutPort]) -> dict[str, int]:
        """Return the counters of ports, given by their names: received frames, frames delivered to them, and drops by cause."""
        collected = {}
        for name, status in self.ports().items():
            if (port := ports.get(name)) is None:
                continue
            counters = status.get("counters", {})
            collected[f"{port.number}.rx_frames"] = int(counters.get("received_frames", 0))
            collected[f"{port.number}.tx_frames"] = int(counters.get("delivered_frames", 0))
            collected[f"{port.number}.rx_bytes"] = int(counters.get("received_bytes", 0))
            collected[f"{port.number}.tx_bytes"] = int(counters.get("delivered_bytes", 0))
            collected[f"{port.number}.violations"] = int(counters.get("violations", 0))
            # Causes that never happened may be left out.
            for cause, frames in ({"no_space": 0} | counters.get("drops", {})).items():
                collected[f"{port.number}.dropped_{cause}"] = int(frames)
        return collected

    def modes(self, ports: Mapping[str, DutPort]) -> dict[str, str]:
        """Return kind, mode and negotiated features of ports, by their numbers."""
        modes = {}
        for name, status in self.ports().items():
            if port := ports.get(name):
                peer = status.get("peer") or {}
                modes[str(port.number)] = ", ".join(filter(None, (status.get("kind"), status.get("mode"), peer.get("agreed"))))
        return modes

    def worker_frames(self) -> int:
        """Return the frames that its workers have moved."""
        return sum(int(worker["frames"]) for worker in self.status().get("workers", []))

    def busy_s(self) -> float:
        """Return the total time of the workers' turns that moved frames, s."""
        return sum(float(worker["busy_ns"]) for worker in self.status().get("workers", [])) / 1e9
