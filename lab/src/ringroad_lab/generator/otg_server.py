"""Any server of the Open Traffic Generator model, addressed by its URL."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GeneratorError
from ringroad_lab.generator.interface import GeneratorSettings
from ringroad_lab.generator.otg_client import OtgClient
from ringroad_lab.generator.otg_driver import OtgDriver
from ringroad_lab.ringroad_program import require_ringroad

POLL_S = 0.05


class OtgServerSettings(GeneratorSettings):
    """Address of the server, and the names of its ports."""

    url: str
    """`https://HOST:PORT`."""
    ports: tuple[str, str] | None = None
    """Locations of its two ports on the server; `{far_end}` stands for the interface or socket at the far end of the cable. None:
    Ringroad's names."""
    command: tuple[str, ...] = ()
    """Command that starts the server, in the run's namespaces and on the generator's processors; empty: it already runs."""
    start_timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Time limit for the first response."""
    verify: bool = True
    """Whether its certificate must be trusted."""
    ca_file: Path | None = None
    """CA certificates for the server's certificate (PEM), or the server's own certificate; None: the system's CA certificates."""
    token_file: Path | None = None
    """File with the token that the server requires. The file is read when the run starts, and the token is never recorded."""
    has_details: bool = True
    """Whether to request the details that Ringroad's generator reports beyond the model; other servers respond that they have none."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write https://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("the settings of a run are recorded: write the token to a file, and set token_file to its path")
        return url

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ca_file is not None and not self.verify:
            raise ValueError("ca_file requires verification, and verify = false disables it: leave one out")
        return self

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs independently of the lab."""
        return not self.command


class OtgServer(OtgDriver):
    """A server that already runs, or that a command starts."""

    title: ClassVar[str] = "a server of the Open Traffic Generator model"
    settings_type: ClassVar[type[GeneratorSettings]] = OtgServerSettings
    settings: OtgServerSettings

    @classmethod
    def reaches(cls, kind: CableKind, settings: GeneratorSettings) -> bool:
        """Return whether it has ports for such cables; ports named by the user always fit."""
        return super().reaches(kind, settings) or (isinstance(settings, OtgServerSettings) and settings.ports is not None)

    def prepare(self) -> None:
        """Find the program that starts the server, if there is a command, and read the token."""
        if self.settings.command:
            self._command = (self._program(self.settings.command[0]), *self.settings.command[1:])
        self._token = None
        if self.settings.token_file is not None:
            try:
                self._token = self.settings.token_file.expanduser().read_text().strip()
            except OSError as error:
                raise GeneratorError(f"token_file {self.settings.token_file} of the generator: {error.strerror}") from error

    def _program(self, name: str) -> str:
        if name == "ringroad":
            return require_ringroad(self.host, name)
        path = self.host.find_program(name)
        if path is None:
            raise GeneratorError(f"{name}, which starts the generator, was not found on {self.host.name}: see `command` of the generator")
        return path

    def start(self) -> None:
        """Connect to the server; if there is a command, start the server first."""
        self.prepare()
        verify: bool | str = str(self.settings.ca_file.expanduser()) if self.settings.ca_file else self.settings.verify
        self._client = client = OtgClient(self.settings.url, token=self._token, verify=verify, has_details=self.settings.has_details)
        if not self.settings.command:
            self._version = client.version()
            return
        self._process = self.host.start("generator", self._command, cpus=self.cpus)
        last: list[GeneratorError] = []

        def answers() -> bool:
            self.check()
            try:
                self._version = client.version()
            except GeneratorError as error:
                last[:] = [error]
                return False
            return True

        if not wait_until(answers, self.settings.start_timeout_s, POLL_S):
            raise GeneratorError(
                f"{PurePosixPath(self.settings.command[0]).name} does not serve at {self.settings.url} "
                f"after {self.settings.start_timeout_s:g} s: {last[0]}"
            )

    @property
    def has_own_locations(self) -> bool:
        """Whether the user named its ports."""
        return self.settings.ports is not None

    def location(self, number: int, cable: Cable) -> str:
        """Return the location from the settings, or else Ringroad's location."""
        if self.settings.ports is None:
            return super().location(number, cable)
        return self.settings.ports[number - 1].replace("{far_end}", cable.far_end)

    def version(self) -> str:
        """Return the version that the server reports, and its URL."""
        return f"{self._version} at {self.settings.url}"
