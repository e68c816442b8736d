"""The two ends of a migration: QEMU with the guest, and QEMU that waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ringroad_lab.cable.interface import Cable
from ringroad_lab.deadline import wait_until
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.virtual_machine import BOOT_LIMIT_S
from ringroad_lab.message_size.command_channel import CommandChannel
from ringroad_lab.message_size.guest_station import FOLDER, GuestStation
from ringroad_lab.migration.monitor import Monitor

_CONTENT = FOLDER / "content"
# Hashing takes long in an emulated guest on a busy machine.
_CONTENT_TIMEOUT_S = 120.0
_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class MigrationReport:
    """What QEMU reports of a migration (`query-migrate`)."""

    downtime_s: float
    """Time between the stop of the guest and the end of the migration at the source."""
    total_s: float
    setup_s: float
    transferred_bytes: int


class MigratingGuest(GuestStation):
    """One end of a migration."""

    title: ClassVar[str] = "QEMU guest that migrates"

    def __init__(self, name: str, placement: Placement, *, guest: str | None = None) -> None:
        """Take a name that is unique in the run. `guest` is the name of the other end if the guest is there first."""
        super().__init__(name, placement)
        self._guest = guest or name
        self._monitor_path = self._folder / "monitor.sock"
        self._incoming = self._folder / "incoming.sock"
        self._monitor: Monitor | None = None

    @property
    def _identity(self) -> str:
        return self._guest

    def _further_options(self) -> Sequence[str]:
        return (*super()._further_options(), "-qmp", f"unix:{self._monitor_path},server=on,wait=off")

    @property
    def monitor(self) -> Monitor:
        """QEMU's monitor."""
        if self._monitor is None:
            self._monitor = Monitor(self._monitor_path)
        return self._monitor

    def await_guest_of(self, source: MigratingGuest, cable: Cable) -> None:
        """Start QEMU without a guest, with the cards and files of `source`, and wait until it listens for the guest.

        Raises:
            GuestError: it does not start.
        """
        self.address, self._image_files = source.address, source._image_files
        try:
            self.host.run(["mkdir", "-p", str(self._folder)])
            process = self._start_qemu([cable], "-incoming", f"unix:{self._incoming}")
        except HostError as error:
            raise GuestError(f"{self.name}: {error}") from error
        wait_until(lambda: self._is_waiting() or not process.is_running(), BOOT_LIMIT_S)
        self.check()
        if not self._is_waiting():
            raise GuestError(f"{self.name}: QEMU does not wait for a guest after {BOOT_LIMIT_S:g} s: {process.last_words()}")
        try:
            self._channel = CommandChannel(self._socket)
        except HostError as error:
            raise GuestError(f"{self.name}: {error}") from error

    def _is_waiting(self) -> bool:
        try:
            return self._status() == "inmigrate"
        except GuestError:
            return False

    def _status(self) -> str:
        status = self.monitor.execute("query-status")
        return str(status.get("status")) if isinstance(status, dict) else ""

    def fill_memory(self, mib: int) -> str:
        """Write random data into the guest's memory; return their hash."""
        self.run(["dd", "if=/dev/urandom", f"of={_CONTENT}", "bs=1M", f"count={mib}"], timeout_s=_CONTENT_TIMEOUT_S)
        return self.content_hash()

    def content_hash(self) -> str:
        """Return the hash of the random data."""
        return self.run(["sha256sum", str(_CONTENT)], timeout_s=_CONTENT_TIMEOUT_S).stdout.split()[0]

    def migrate_to(self, other: MigratingGuest, *, downtime_limit_ms: int, bandwidth_mib_s: int, timeout_s: float) -> MigrationReport:
        """Migrate the guest, and wait until it runs at its new place.

        Raises:
            GuestError: the migration failed, or timed out.
        """
        self.monitor.execute("migrate-set-parameters", downtime_limit=downtime_limit_ms, max_bandwidth=bandwidth_mib_s << 20)
        self.monitor.execute("migrate", uri=f"unix:{other._incoming}")
        reports: list[dict[str, Any]] = []

        def has_ended() -> bool:
            reports[:] = [self.monitor.execute("query-migrate")]
            return reports[0].get("status") in _ENDED

        is_over = wait_until(has_ended, timeout_s)
        other.check()
        status = reports[0].get("status")
        if status != "completed":
            why = reports[0].get("error-desc", "no reason") if is_over else f"after {timeout_s:g} s"
            raise GuestError(f"{self.name}: the migration is {status}: {why}")
        if not wait_until(lambda: other._status() == "running", timeout_s):
            raise GuestError(f"{other.name}: the guest does not run: it is {other._status()}")
        return parse_report(reports[0])

    def stop(self) -> None:
        """Stop this end."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        super().stop()


def parse_report(report: dict[str, Any]) -> MigrationReport:
    """Parse the report of a completed migration.

    Raises:
        GuestError: a figure is missing.
    """
    try:
        milliseconds = {name: int(report[name]) for name in ("downtime", "total-time", "setup-time")}
        transferred_bytes = int(report["ram"]["transferred"])
    except (KeyError, TypeError, ValueError) as error:
        raise GuestError(f"QEMU's report of the migration has no figures ({error!r}): {str(report)[:500]}") from error
    downtime_s, total_s, setup_s = (value / 1000 for value in milliseconds.values())
    return MigrationReport(downtime_s, total_s, setup_s, transferred_bytes)
