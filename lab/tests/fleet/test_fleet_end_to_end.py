"""From a package in a folder to the verdict on a real run, through the program itself; its dispatcher and its run are killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml

from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.tables import DeliveryState
from ringroad_lab.record import RunState
from ringroad_lab.request.model import RequestState
from ringroad_lab.sandbox.machine_lock import machine_holder
from ringroad_lab.store.result_store import ResultStore

PATIENCE_S = 240.0
FLEET = """
[source.packages]
kind = "folder"
folder = "{folder}"

[[rule]]
name = "each build of my switch"
source = "packages"
match.name = "my-switch"
build = "{{name}}-{{full_version}}"
scenario = "BRIDGE_VETH"
layers = ["quick"]
settings.frames = [64, 1518]
settings.repetitions = 1
settings.method.throughput.resolution = 0.4
labels.version = "{{version}}"
labels.sha256 = "{{sha256}}"
baseline = "last-stable"
package = "{{name}}"
"""


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_package_in_a_folder_gets_one_verdict_although_everything_is_killed(tmp_path: Path) -> None:
    folder, location, fleet = tmp_path / "packages", str(tmp_path / "results.db"), tmp_path / "fleet.toml"
    folder.mkdir()
    fleet.write_text(FLEET.format(folder=folder))
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "notifications.toml").write_text(f'[[report]]\nname = "CI"\nfolder = "{results}"\n')
    control = tmp_path / "package" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: my-switch\nVersion: 3.5.0-1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: none\n")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", control.parents[1], folder], check=True, capture_output=True)
    env = {**os.environ, "RINGROAD_LAB_STORE": location, "RINGROAD_LAB_CONFIG": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)

    def start(*more: str) -> subprocess.Popen[str]:
        options = ("--poll", "0.1", "--retry-wait", "0", *more)
        argv = [sys.executable, "-m", "ringroad_lab.cli.main", "dispatch", *options]
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    processes = [start()]
    try:
        with ResultStore(location) as store:
            requests = Requests(store)

            def measured() -> int:
                found = requests.find()
                summaries = store.summaries() if found and found[0].run_id else []
                return sum(summaries[0].statuses.values()) if summaries else 0

            assert wait_until(lambda: measured() > 0 or processes[0].poll() is not None, PATIENCE_S)
            processes[0].kill()
            # The run itself holds the machine, and is killed next.
            holder = machine_holder()
            assert holder, processes[0].communicate()[0]
            os.kill(holder.pid, signal.SIGKILL)
            processes.append(start("--once"))
            # A poll that finds nothing new leaves nothing to do.
            assert processes[1].wait(PATIENCE_S) == 0, processes[1].communicate()[0]
            (request,) = requests.find()
            changes = [(change.old, change.new, change.why) for change in requests.changes(request.id)]
            assert request.state is RequestState.DONE, changes
            assert (request.build, request.verdict, request.attempts) == ("my-switch-3.5.0-1", "measured", 2)
            assert json.loads(requests.get(request.id).payload)["arch"] == "all"
            (summary,) = store.summaries()
            assert (summary.run_id, summary.state) == (request.run_id, RunState.FINISHED)
            assert summary.labels["build"] == "my-switch-3.5.0-1"
            assert summary.labels["request"] == str(request.id)
            assert sum(summary.statuses.values()) == 2
            record = store.get_run(summary.run_id)
            # The command as a user repeats it, without what made it a job.
            assert record.command[:3] == ("ringroad-lab", "run", "BRIDGE_VETH")
            assert [(each.target, each.state) for each in Outbox(store).of_request(request.id)] == [("CI", DeliveryState.DELIVERED)]
            (suite,) = JUnitXml.fromfile(str(results / f"request-{request.id}.xml"))
            assert (suite.tests, suite.failures) == (2, 0)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
