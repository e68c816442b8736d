"""Writes reports to a folder, for CI servers that collect files: JUnit XML, or another form of `ringroad-lab report`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.notification.interface import Notifier, Sender, TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice, Occasion, Stage
from ringroad_lab.report.interface import REPORTERS
from ringroad_lab.report.junit import error_as_junit
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.text_types import Word
from ringroad_lab.whole_file import write_whole

_JUNIT = "junit"
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


class ReportFile(Notifier):
    """Writes a file to a folder for each request, and for each run without a request."""

    title = "Writes a report to a folder: JUnit XML, or another form"

    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.ALWAYS,)
    folder: Path
    form: Word = _JUNIT
    """A form from `ringroad-lab list reports`."""

    def make_sender(self) -> Sender:
        """Check the folder and the form.

        Raises:
            ScenarioError: the folder does not exist, or the form is unknown.
        """
        if self.form not in REPORTERS:
            raise ScenarioError(f"unknown report form '{self.form}'{suggest(self.form, REPORTERS)}")
        if not self.folder.is_dir():
            raise ScenarioError(f"{self.folder} is not a folder: create it, or set another folder for reports")
        return _ReportFileSender(self)

    def concerns(self, notice: Notice) -> bool:
        """Return whether there is something to report: only JUnit XML can report an end without a run."""
        return (notice.record is not None or self.form == _JUNIT) and super().concerns(notice)


class _ReportFileSender(Sender):
    def __init__(self, settings: ReportFile) -> None:
        self._settings = settings
        self.address = f"{settings.form} in {settings.folder}"

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        reporter = REPORTERS[self._settings.form]()
        name = (
            f"request-{notice.request.id}" if notice.request else f"run-{_NO_NAME.sub('_', notice.record.run_id)}" if notice.record else ""
        )
        try:
            if notice.stage is Stage.ERROR and self._settings.form == _JUNIT:
                text = error_as_junit(notice.subject, notice.outcome, notice.reason, notice.happened_at)
            elif notice.record is None or not name:
                raise UnsentError("there is no run to report")
            else:
                text = reporter.render(notice.record, notice.load_comparison() if reporter.compares else None)
            write_whole(self._settings.folder / f"{name}{reporter.suffix}", text)
        except LabError as error:
            raise TemporaryError(str(error)) from error
        except OSError as error:
            raise TemporaryError(f"{self._settings.folder}: {error.strerror}") from error
