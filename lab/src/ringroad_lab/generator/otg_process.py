"""Ringroad's generator in its own process: `ringroad otg`."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from ringroad_lab.errors import GeneratorError
from ringroad_lab.generator.otg_client import OtgClient
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.ringroad_program import require_ringroad

START_TIMEOUT_S = 15.0


class _Ready(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    ready: bool
    url: str
    token: str


class OtgProcess:
    """A server of the Open Traffic Generator model, on a port of the loopback interface that nobody else has."""

    def __init__(self, host: Host, cpus: frozenset[int], name: str = "generator") -> None:
        """Start it and wait until it serves.

        Raises:
            MissingProgramError: `ringroad` is not there.
            GeneratorError: it did not start.
        """
        program = require_ringroad(host, "ringroad")
        self.version = host.run([program, "--version"]).stdout.strip()
        # Its client is the lab alone, which has the token, and whose cables are sockets and interfaces.
        argv = [program, "--json", "otg", "--http", "--listen", "127.0.0.1:0", "--allow-location", "**"]
        if cpus:
            # Each port sends and receives in a thread; fewer processors than ports are shared without switching threads.
            argv += ["--cpu", ",".join(str(cpu) for cpu in sorted(cpus)), "--threads", "one" if len(cpus) < 2 else "queue"]
        self.process: Process = host.start(name, argv, cpus=cpus)
        if not self.process.wait_output("\n", START_TIMEOUT_S):
            said = self.process.output()
            self.process.stop()
            raise GeneratorError(f"ringroad otg did not start: {said.strip() or 'it said nothing'}")
        line = self.process.output().splitlines()[0]
        try:
            ready = _Ready.model_validate(json.loads(line))
        except (ValueError, ValidationError) as error:
            self.process.stop()
            raise GeneratorError(f"ringroad otg did not start: {self.process.output().strip()}") from error
        if not ready.ready or not urlsplit(ready.url).port:
            self.process.stop()
            raise GeneratorError(f"ringroad otg does not serve: {line}")
        self.client = OtgClient(ready.url, token=ready.token)

    def check(self) -> None:
        """Check that it lives.

        Raises:
            GeneratorError: with what it said last.
        """
        if not self.process.is_running():
            status = self.process.stop()
            raise GeneratorError(f"the generator ended with status {status}: {self.process.output().strip()[-2000:] or 'it said nothing'}")

    def stop(self) -> None:
        """End it; possible any number of times."""
        self.client.close()
        self.process.stop()
