"""Beaker carries out the jobs: one is a recipe set of a generator and a device.

Beaker's own numbers are its keys, `J:12`. An upload's answer may be lost though the job was accepted, so a job is looked for by its name,
which is in the whiteboard, before it is submitted and when a submission fails.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, cast

from ringroad_lab.fleet.engine.beaker.hub import Hub, HubRefusedError
from ringroad_lab.fleet.engine.beaker.job_xml import bed_mark, job_xml
from ringroad_lab.fleet.engine.beaker.results import read_results
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.job_folder import KEPT_JOBS, LAST_WORDS_BYTES, all_but_newest, make_job_folder

LOG_NAME = "ringroad-lab.log"
"""What `ringroad-lab` said, among the logs of the generator's task."""
_RUNNING = ("Running",)
# The machines are reserved for people: nothing of the job goes on.
_OVER = ("Reserved",)


class BeakerEngine(Engine):
    """Has Beaker carry out jobs."""

    name = "beaker"
    title = "Beaker: a recipe set of generator and device for each run"
    settings_type = BeakerSettings

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, read the password, and make the folder for what jobs leave behind.

        Raises:
            LabError: the password is not there, or the folder cannot be made.
        """
        super().__init__(settings)
        self._own = cast(BeakerSettings, settings.own)
        self._hub = Hub(self._own)
        self._looked: dict[str, tuple[float, JobReport]] = {}
        """By key, when the hub was asked and what it said: it has others to serve."""
        make_job_folder(settings.folder)

    def reserve(self) -> bool:
        """Whether Beaker's queue has room for one more of this fleet's jobs.

        Raises:
            EngineError: the hub cannot tell now.
        """
        return len(self._under_way(f"{self._own.whiteboard} run=", self._own.most_jobs)) < self._own.most_jobs

    def may_go_on(self, key: str) -> bool:
        """Whether a run is gone on with: another job may get other machines. One that may have been submitted keeps its name."""
        return not key

    def submit(self, job: Job) -> str:
        """Upload a job, unless it is there already.

        Raises:
            EngineError: the hub did not take it, or cannot be reached.
        """
        if (found := self.find(job.name)) is not None:
            return found
        bed, machines = self._place(job)
        try:
            return _key(self._hub.call("jobs.upload", job_xml(self._own, job, bed, machines)))
        except HubRefusedError:
            raise
        except EngineError:
            # It may have been accepted.
            if (found := self.find(job.name)) is not None:
                return found
            raise

    def _place(self, job: Job) -> tuple[str, dict[str, str]]:
        """Return the bed that has the fewest of our jobs, and its machines by role."""
        if not job.beds:
            return "", dict.fromkeys(self._own.roles, "")
        waiting = {}
        for name in sorted(job.beds):
            waiting[name] = len(self._under_way(bed_mark(name), self._own.most_jobs)) if len(job.beds) > 1 else 0
            if not waiting[name]:
                break
        bed = min(waiting, key=lambda name: waiting[name])
        return bed, dict(job.beds[bed].machines)

    def state(self, key: str) -> JobReport:
        """Ask the hub; of a job that ended, fetch its results and what `ringroad-lab` said.

        Raises:
            EngineError: the hub cannot tell now.
        """
        looked_at, report = self._looked.get(key, (float("-inf"), None))
        if report is not None and time.monotonic() < looked_at + self._own.look_every_s:
            return report
        report = self._look(key)
        self._looked = {each: seen for each, seen in self._looked.items() if time.monotonic() < seen[0] + self._own.look_every_s}
        self._looked[key] = time.monotonic(), report
        return report

    def _look(self, key: str) -> JobReport:
        try:
            info = self._info(key)
        except HubRefusedError:
            number = int(key.partition(":")[2])
            if self._filter({"minid": number, "maxid": number}):
                raise
            # Somebody deleted it: nobody will ever tell more.
            return JobReport(JobState.ENDED, output=f"{self._own.hub} has no job {key} any more")
        state = str(info.get("state_label", ""))
        if not info.get("is_finished") and state not in _OVER:
            return JobReport(JobState.RUNNING if state in _RUNNING else JobState.QUEUED)
        results = self._hub.call("taskactions.to_xml", key, False, True, False)
        content = results.data if hasattr(results, "data") else str(results).encode()
        self._keep(key, "results.xml", content)
        try:
            ending = read_results(content)
        except ValueError as error:
            raise EngineError(f"{self._own.hub}: the results of {key} cannot be read: {error}") from error
        said = self._last_words(key)
        return JobReport(JobState.ENDED, ending.exit_status, f"{said}\n{ending.words}".strip())

    def cancel(self, key: str) -> None:
        """Have Beaker end a job at once.

        Raises:
            EngineError: the hub cannot be reached, or refuses it though the job goes on.
        """
        try:
            self._looked.pop(key, None)
            self._hub.call("taskactions.stop", key, "cancel", "its request was taken back")
        except HubRefusedError:
            if not self._info(key).get("is_finished"):
                raise

    def _info(self, key: str) -> dict[str, Any]:
        info = self._hub.call("taskactions.task_info", key, True)
        if not isinstance(info, dict):
            raise EngineError(f"{self._own.hub} answers taskactions.task_info of {key} with no structure")
        return info

    def find(self, name: str) -> str | None:
        """Return the key of the newest job of a name, also of one that ended: its results tell how.

        Raises:
            EngineError: the hub cannot tell now.
        """
        found = self._filter({"whiteboard": f"run={name} ", "owner": self._own.user, "limit": 1})
        return found[0] if found else None

    def _under_way(self, mark: str, limit: int) -> list[str]:
        return self._filter({"whiteboard": mark, "owner": self._own.user, "is_finished": False, "limit": limit})

    def _filter(self, criteria: dict[str, Any]) -> list[str]:
        """Return the keys of jobs, the newest first."""
        found = self._hub.call("jobs.filter", criteria)
        if not isinstance(found, list):
            raise EngineError(f"{self._own.hub} answers jobs.filter with no list")
        return [_key(each) for each in found]

    def _last_words(self, key: str) -> str:
        """Return the end of what `ringroad-lab` said; what cannot be had is left out, as the results tell the rest."""
        with suppress(EngineError):
            logs = self._hub.call("taskactions.files", key)
            for log in logs if isinstance(logs, list) else ():
                if isinstance(log, dict) and log.get("filename") == LOG_NAME:
                    content = self._hub.fetch(str(log.get("url")), LAST_WORDS_BYTES)
                    self._keep(key, "log", content)
                    return content.decode(errors="replace").strip()
        return ""

    def _keep(self, key: str, what: str, content: bytes) -> None:
        """Keep what a job left behind, for people; where the disk is full, go on."""
        with suppress(OSError):
            for path in all_but_newest(self.settings.folder.glob("beaker-*"), 2 * KEPT_JOBS):
                path.unlink(missing_ok=True)
            (self.settings.folder / f"beaker-{key.partition(':')[2]}.{what}").write_bytes(content)


def _key(told: object) -> str:
    """Check a job's number, which becomes part of a file's name."""
    kind, _, number = str(told).partition(":")
    if kind != "J" or not number.isdecimal():
        raise EngineError(f"Beaker names a job {str(told)[:100]!r}, which is no number of one")
    return f"J:{number}"
