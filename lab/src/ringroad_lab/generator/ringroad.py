"""Ringroad's generator in its own process: `ringroad otg`."""

from __future__ import annotations

import json
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from ringroad_lab.errors import GeneratorError
from ringroad_lab.generator.otg_client import OtgClient
from ringroad_lab.generator.otg_driver import OtgDriver
from ringroad_lab.ringroad_program import require_ringroad

START_TIMEOUT_S = 15.0


class _Ready(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    ready: bool
    url: str
    token: str


class RingroadGenerator(OtgDriver):
    """A server of the Open Traffic Generator model, on a free port of the loopback interface."""

    title: ClassVar[str] = "Ringroad's generator, started by the lab"
    can_run_twice: ClassVar[bool] = True

    def prepare(self) -> None:
        """Check that `ringroad` is installed."""
        self._program = require_ringroad(self.host, "ringroad")

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.prepare()
        self._version = self.host.run([self._program, "--version"]).stdout.strip()
        # The lab is its only client: it has the token, and its cables are sockets and interfaces.
        argv = [self._program, "--json", "otg", "--http", "--listen", "127.0.0.1:0", "--allow-location", "**"]
        if self.cpus:
            # Each port sends and receives in its own thread; on a single processor, one thread serves both ports, without switching.
            argv += ["--cpu", ",".join(str(cpu) for cpu in sorted(self.cpus)), "--threads", "one" if len(self.cpus) < 2 else "queue"]
        self._process = self.host.start("generator", argv, cpus=self.cpus)
        if not self._process.wait_output("\n", START_TIMEOUT_S):
            output = self._process.output()
            self.stop()
            raise GeneratorError(f"ringroad otg did not start: {output.strip() or 'no output'}")
        line = self._process.output().splitlines()[0]
        try:
            ready = _Ready.model_validate(json.loads(line))
        except (ValueError, ValidationError) as error:
            self.stop()
            raise GeneratorError(f"ringroad otg did not start: {self._process.output().strip()}") from error
        if not ready.ready or not urlsplit(ready.url).port:
            self.stop()
            raise GeneratorError(f"ringroad otg does not serve: {line}")
        self._client = OtgClient(ready.url, token=ready.token)

    def version(self) -> str:
        """Return name and version."""
        return self._version
