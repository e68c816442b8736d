"""The locations of layers: in the package, and for site, host and user in a settings folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.document import SUFFIX, Document, read_document
from ringroad_lab.scenario.layers import Layer, LayerKind
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.topology import Topology

_PACKAGE = Path(__file__).parent
LOCAL_HOST = "local"


def settings_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the user's own settings: $RINGROAD_LAB_CONFIG, else ringroad-lab in $XDG_CONFIG_HOME or ~/.config."""
    if named := environment.get("RINGROAD_LAB_CONFIG"):
        return Path(named)
    return Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/")) / ".config") / "ringroad-lab"


@dataclass(frozen=True)
class Library:
    """The available layers.

    A settings folder has `site.toml`, `hosts/HOSTNAME.toml` and `scenarios/NAME.toml`.
    """

    folder: Path
    hostname: str
    package: Path = _PACKAGE

    @classmethod
    def of_this_machine(cls) -> Library:
        """Make the library of this user on this machine."""
        return cls(settings_folder(os.environ), socket.gethostname())

    def defaults(self) -> Layer:
        """Return the lowest layer."""
        return Layer(LayerKind.DEFAULTS, self._read(self.package / "layers/defaults.toml"))

    def dut_layer(self, driver: str) -> Layer | None:
        """Return the defaults of a driver: keys of its table `[dut.LABEL]`."""
        return self._optional(LayerKind.DUT, f"dut/{driver}.toml")

    def topology_layer(self, topology: Topology) -> Layer | None:
        """Return the defaults of a topology."""
        return self._optional(LayerKind.TOPOLOGY, f"topology/{topology}.toml")

    def site_layers(self) -> list[Layer]:
        """Return the site's layer, if there is one."""
        found = _find(self.folder, "site")
        return [Layer(LayerKind.SITE, read_document(found))] if found else []

    def host_layers(self, dut_hosts: Sequence[str]) -> list[Layer]:
        """Return the layers of this machine and of the hosts of devices, if there are any."""
        names = dict.fromkeys([self.hostname, *(host for host in dut_hosts if host != LOCAL_HOST)])
        found = [_find(self.folder / "hosts", name) for name in names]
        return [Layer(LayerKind.HOST, read_document(path)) for path in found if path]

    def profiles(self) -> dict[str, Path]:
        """Return the layers of the package that a user can add on top, by name."""
        return {path.stem: path for path in sorted((self.package / "layers/profile").glob("*.toml"))}

    def user_layer(self, name: str) -> Layer:
        """Return a layer that the user names: a profile, or a file.

        Raises:
            ScenarioError: the layer does not exist, or cannot be read.
        """
        if _is_path(name):
            return Layer(LayerKind.USER, self._read(Path(name)))
        profiles = self.profiles()
        if name not in profiles:
            raise ScenarioError(f"there is no layer '{name}'{suggest(name, profiles)}; write the name of a file with its suffix, {SUFFIX}")
        return Layer(LayerKind.USER, self._read(profiles[name]))

    def scenario_files(self) -> dict[str, Path]:
        """Return the files of all scenarios, by name; the user's own scenarios override the package's."""
        with _reading(self.folder):
            own = {path.stem: path for path in sorted((self.folder / "scenarios").glob("*")) if path.suffix == SUFFIX}
        return {path.stem: path for path in sorted((self.package / "catalogue").glob("*.toml"))} | own

    def scenario(self, name: str) -> Layer:
        """Return a scenario's own layer, by its name or as a file.

        Raises:
            ScenarioError: the scenario does not exist, or cannot be read.
        """
        if _is_path(name):
            return self.scenario_layer(Path(name))
        files = self.scenario_files()
        if name not in files:
            raise ScenarioError(f"there is no scenario '{name}'{suggest(name, files)} (`ringroad-lab list` shows all)")
        return self.scenario_layer(files[name])

    def scenario_layer(self, path: Path) -> Layer:
        """Return a scenario's own layer, by its file.

        Raises:
            ScenarioError: the file cannot be read.
        """
        return Layer(LayerKind.SCENARIO, self._read(path))

    def _read(self, path: Path) -> Document:
        # Files of the package are shown relative to it: its location is irrelevant.
        is_builtin = path.is_relative_to(self.package)
        return read_document(path, f"built in: {path.relative_to(self.package)}" if is_builtin else None)

    def _optional(self, kind: LayerKind, name: str) -> Layer | None:
        # The name of a driver can come from the user: never read outside of the folder.
        path = self.package / "layers" / name
        return Layer(kind, self._read(path)) if path.parent.parent == self.package / "layers" and path.is_file() else None


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(SUFFIX)


def _find(folder: Path, stem: str) -> Path | None:
    with _reading(folder):
        return path if (path := folder / f"{stem}{SUFFIX}").is_file() else None


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Report why a settings folder cannot be read."""
    try:
        yield
    except OSError as error:
        raise ScenarioError(f"{folder}: {error.strerror}; RINGROAD_LAB_CONFIG names another folder of settings") from error
