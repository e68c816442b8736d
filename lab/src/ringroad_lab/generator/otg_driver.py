"""Base class of the drivers for servers of the Open Traffic Generator model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringroad_lab.cable.interface import CABLES, Cable, CableKind
from ringroad_lab.errors import GeneratorError
from ringroad_lab.generator.interface import Generator, GeneratorDriver, GeneratorSettings
from ringroad_lab.generator.otg import OtgGenerator
from ringroad_lab.generator.otg_client import OtgClient
from ringroad_lab.generator.self_test import measure_ceiling
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.trial import Load


class OtgDriver(GeneratorDriver):
    """A server that a client connects to; the lab may have started the server."""

    def __init__(self, settings: GeneratorSettings, host: Host, cpus: frozenset[int]) -> None:
        """Take validated settings."""
        super().__init__(settings, host, cpus)
        self._client: OtgClient | None = None
        self._generator: OtgGenerator | None = None
        self._process: Process | None = None

    @property
    def client(self) -> OtgClient:
        """The client of the server.

        Raises:
            GeneratorError: the server was not started.
        """
        if self._client is None:
            raise GeneratorError(f"{self.title} was not started")
        return self._client

    def location(self, number: int, cable: Cable) -> str:
        """Return the server's name for the location of port 1 or 2, at the far end of a cable.

        Raises:
            ScenarioError: the server has no location for such a cable.
        """
        return CABLES[cable.kind]().generator_location(cable)

    @classmethod
    def reaches(cls, kind: CableKind, settings: GeneratorSettings) -> bool:
        """Return whether the generator has ports for the kind of cable."""
        return CABLES[kind].reaches_generator

    @property
    def has_own_locations(self) -> bool:
        """Whether its locations differ from Ringroad's, so that the lab cannot loop its ports."""
        return False

    def plug_in(self, cables: tuple[Cable, Cable]) -> Generator:
        """Open its ports."""
        locations = (self.location(1, cables[0]), self.location(2, cables[1]))
        self._generator = OtgGenerator(self.client, locations, self.version(), self.witness)
        self._generator.plug_in()
        return self._generator

    def ceiling(self, kind: CableKind, load: Load) -> GeneratorCeiling | None:
        """Measure the ceiling with its ports looped by one cable."""
        if self.has_own_locations or self.settings.is_elsewhere or not CABLES[kind].can_loop:
            return None
        return measure_ceiling(self.client, self.host, kind, load)

    def port_modes(self) -> Mapping[str, str]:
        """Return the port modes that Ringroad's generator reports."""
        return self._generator.port_modes() if self._generator else {}

    def processes(self) -> Sequence[Process]:
        """Return the server's process, if the lab started it."""
        return [self._process] if self._process else []

    def check(self) -> None:
        """Check that the server's process is alive; a server that runs elsewhere is checked by its responses."""
        if self._process is not None and (why := self._process.death()):
            raise GeneratorError(f"the generator {why}")

    def stop(self) -> None:
        """Disconnect from the server; stop it if the lab started it."""
        if self._client is not None:
            self._client.close()
        if self._process is not None:
            self._process.stop()
