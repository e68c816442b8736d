"""The registry of a kind of class: devices, guests, cables, methods, generators, reporters, engines, ...

Each package has its registry beside the interface that its classes implement. The laboratory's own classes are listed there, so that they
work in a source tree too. Other packages add classes by entry points (docs/lab/plugins.md). A class is imported when it is used, so a
broken class does not affect others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from ringroad_lab.errors import PluginError

OWN_PACKAGE = "ringroad-lab"

T = TypeVar("T")


@dataclass(frozen=True)
class Kinds(Mapping[str, type[T]], Generic[T]):
    """The classes of one group by their names in scenarios and on the command line; a class is imported on access."""

    group: str
    """Group of the entry points: `ringroad_lab.duts`."""
    base: type
    """Required base class of a plug-in's class."""
    own: Mapping[str, str] = field(hash=False)
    """The laboratory's own classes, as `MODULE:CLASS` below `ringroad_lab`."""

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        """All entries by name, the laboratory's own first: a plug-in cannot replace them."""
        mine = [EntryPoint(name, f"ringroad_lab.{value}", self.group) for name, value in self.own.items()]
        found: dict[str, EntryPoint] = {}
        for entry in [*mine, *sorted(entry_points(group=self.group), key=lambda each: (each.name, package_of(each)))]:
            found.setdefault(entry.name, entry)
        return found

    def __getitem__(self, name: str) -> type[T]:
        """Import a class.

        Raises:
            KeyError: there is no kind with that name.
            PluginError: its package is broken.
        """
        entry = self._entries[name]
        if name in self.own:
            own: type[T] = entry.load()
            return own
        where = f"{entry.value} of the package {package_of(entry)} (entry point '{name}' of {self.group})"
        try:
            # The error names the plug-in for any failure during the import.
            loaded = entry.load()
        except Exception as error:
            raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}; fix the package, or uninstall it") from error
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            raise PluginError(f"{where} is not a subclass of {self.base.__module__}.{self.base.__name__}: the laboratory cannot use it")
        if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
            raise PluginError(f"{where} does not define {', '.join(missing)}")
        return cast("type[T]", loaded)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names: the laboratory's own in their order, then those of plug-ins."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of kinds."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a kind with that name, without importing it."""
        return name in self._entries

    def package(self, name: str) -> str:
        """Return the package that provides a kind, with its version."""
        return OWN_PACKAGE if name in self.own else package_of(self._entries[name])

    def loadable(self) -> dict[str, type[T] | PluginError]:
        """Return all kinds for a list, each with its class, or with the error of loading it."""
        found: dict[str, type[T] | PluginError] = {}
        for name in self:
            try:
                found[name] = self[name]
            except PluginError as error:
                found[name] = error
        return found


def package_of(entry: EntryPoint) -> str:
    """Return name and version of the package that provides an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
