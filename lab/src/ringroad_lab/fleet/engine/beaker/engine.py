"""Runs jobs in Beaker: a job is one recipe set of a generator and a device.

The key of a job is its Beaker id, `J:12`. The engine searches for a job by its name, which is in the whiteboard, before it submits the job.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, cast

from ringroad_lab.fleet.engine.beaker.hub import BeakerHub, HubRefusedError
from ringroad_lab.fleet.engine.beaker.job_xml import bed_mark, job_xml
from ringroad_lab.fleet.engine.beaker.results import read_results
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.job_folder import KEPT_JOBS, LAST_WORDS_BYTES, all_but_newest, make_job_folder

LOG_NAME = "ringroad-lab.log"
"""The log with the output of `ringroad-lab`, in the generator's task."""
_RUNNING = ("Running",)
# The machines are reserved for users: the job itself has ended.
_OVER = ("Reserved",)


class BeakerEngine(Engine):
    """Runs jobs in Beaker."""

    title = "Beaker: one recipe set of generator and device per run"
    settings_type = BeakerSettings

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, read the password, and create the folder for the jobs' files.

        Raises:
            LabError: the password is missing, or the folder cannot be created.
        """
        super().__init__(settings)
        self._own = cast(BeakerSettings, settings.own)
        self._hub = BeakerHub(self._own)
        self._polled: dict[str, tuple[float, JobReport]] = {}
        """Time and result of the last poll, by key: they limit the load on the hub."""
        make_job_folder(settings.folder)

    def reserve(self) -> bool:
        """Return whether Beaker's queue has room for another job of this fleet.

        Raises:
            EngineError: the hub cannot be queried now.
        """
        return len(self._under_way(f"{self._own.whiteboard} run=", self._own.most_jobs)) < self._own.most_jobs

    def may_go_on(self, key: str) -> bool:
        """Return whether a new job can resume the run.

        With a key it cannot: the new job may get other machines. Without a key, the job may have been submitted, so the run keeps its name.
        """
        return not key

    def submit(self, job: Job) -> str:
        """Upload a job, unless the hub already has it.

        Raises:
            EngineError: the hub refused the job, or cannot be reached.
        """
        if (found := self.find(job.name)) is not None:
            return found
        bed, machines = self._place(job)
        return self._hub.upload_job(job.name, job_xml(self._own, job, bed, machines))

    def _place(self, job: Job) -> tuple[str, dict[str, str]]:
        """Return the bed with the fewest jobs of this fleet, and its machines by role."""
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
        """Poll the hub. For an ended job, fetch its results and the output of `ringroad-lab`.

        Raises:
            EngineError: the hub cannot be queried now.
        """
        polled_at, report = self._polled.get(key, (float("-inf"), None))
        if report is not None and time.monotonic() < polled_at + self._own.look_every_s:
            return report
        report = self._poll(key)
        self._polled = {each: seen for each, seen in self._polled.items() if time.monotonic() < seen[0] + self._own.look_every_s}
        self._polled[key] = time.monotonic(), report
        return report

    def _poll(self, key: str) -> JobReport:
        try:
            info = self._info(key)
        except HubRefusedError:
            number = int(key.partition(":")[2])
            if self._hub.jobs({"minid": number, "maxid": number}):
                raise
            # The job was deleted: the hub will never report more.
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
        output = self._last_words(key)
        return JobReport(JobState.ENDED, ending.exit_status, f"{output}\n{ending.words}".strip())

    def cancel(self, key: str) -> None:
        """Have Beaker stop a job at once.

        Raises:
            EngineError: the hub cannot be reached, or refuses although the job has not ended.
        """
        try:
            self._polled.pop(key, None)
            self._hub.call("taskactions.stop", key, "cancel", "its request was cancelled")
        except HubRefusedError:
            if not self._info(key).get("is_finished"):
                raise

    def _info(self, key: str) -> dict[str, Any]:
        info = self._hub.call("taskactions.task_info", key, True)
        if not isinstance(info, dict):
            raise EngineError(f"{self._own.hub} did not return a structure for taskactions.task_info of {key}")
        return info

    def find(self, name: str) -> str | None:
        """Return the key of the newest job with this name, including an ended job: its results show how it ended.

        Raises:
            EngineError: the hub cannot be queried now.
        """
        return self._hub.find_job(name)

    def _under_way(self, mark: str, limit: int) -> list[str]:
        return self._hub.jobs({"whiteboard": mark, "owner": self._own.user, "is_finished": False, "limit": limit})

    def _last_words(self, key: str) -> str:
        """Return the end of the output of `ringroad-lab`; empty if it is not available, since the results report the rest."""
        with suppress(EngineError):
            logs = self._hub.call("taskactions.files", key)
            for log in logs if isinstance(logs, list) else ():
                if isinstance(log, dict) and log.get("filename") == LOG_NAME:
                    content = self._hub.fetch(str(log.get("url")), LAST_WORDS_BYTES)
                    self._keep(key, "log", content)
                    return content.decode(errors="replace").strip()
        return ""

    def _keep(self, key: str, what: str, content: bytes) -> None:
        """Save a file of a job for users; ignore errors such as a full disk."""
        with suppress(OSError):
            for path in all_but_newest(self.settings.folder.glob("beaker-*"), 2 * KEPT_JOBS):
                path.unlink(missing_ok=True)
            (self.settings.folder / f"beaker-{key.partition(':')[2]}.{what}").write_bytes(content)
