"""The ceilings of a run's generators, each measured once before it is needed."""

from __future__ import annotations

from collections.abc import Callable

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.errors import GeneratorError
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import GeneratorDriver
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.scenario.model import GeneratorChoice
from ringroad_lab.trial import Load

Key = tuple[str, CableKind, str]


class Ceilings:
    """The known ceilings, by the generator's settings, transport and frame mix."""

    def __init__(
        self,
        on_found: Callable[[GeneratorCeiling], None] = lambda ceiling: None,
        on_failed: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Take the callbacks for each measured ceiling, and for the error of a self-test that failed."""
        self.known: dict[Key, GeneratorCeiling | None] = {}
        """None: the generator cannot measure this ceiling."""
        self._on_found = on_found
        self._on_failed = on_failed
        self._contradicted: set[tuple[str, str]] = set()

    @staticmethod
    def key(generator: GeneratorChoice, kind: CableKind, frame: FrameMix) -> Key:
        """Return what a ceiling depends on."""
        return generator.model_dump_json(), kind, frame.name

    def measure(self, key: Key, driver: GeneratorDriver, load: Load, on_step: Callable[[str], None]) -> None:
        """Measure a ceiling that is not known.

        Raises:
            GeneratorError: the generator carries nothing.
        """
        if key in self.known:
            return
        _, kind, frame = key
        on_step(f"measuring the generator's ceiling over {kind}: {frame}")
        try:
            self.known[key] = ceiling = driver.ceiling(kind, load)
        except GeneratorError as error:
            self._on_failed(str(error))
            raise
        if ceiling is not None:
            self._on_found(ceiling)

    def measure_again(
        self, label: str, make: Callable[[], GeneratorDriver], kind: CableKind, load: Load, cause: str, on_step: Callable[[str], None]
    ) -> None:
        """Measure a ceiling that a trial contradicts again, once for each device and frame size; the known ceiling stays."""
        if (label, load.frame.name) in self._contradicted:
            return
        self._contradicted.add((label, load.frame.name))
        on_step(f"measuring the generator's ceiling again: {cause}")
        # Another process leaves the ports of the first one open: devices take long to reconnect.
        again = make()
        try:
            again.start()
            if (ceiling := again.ceiling(kind, load)) is not None:
                self._on_found(ceiling.model_copy(update={"cause": f"{label}: {cause}"}))
        except GeneratorError as error:
            # The measurement is not affected: the trial that was the cause is judged separately.
            on_step(f"the generator's ceiling could not be measured again: {error}")
        finally:
            again.stop()
