"""Replaces `ringroad-lab` on a generator, called by tmt: the run is fabricated, but the SSH connection is real.

It reports its start and its findings in files in $FABRICATED_FOLDER, and continues when the file `go` exists there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from simulated_engine import tiny_run

from ringroad_lab.cli.main import main as real_main
from ringroad_lab.fleet.engine.job_environment import job_of_this_process
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.record import RunState
from ringroad_lab.scenario.model import SiteHost
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of


def reach(arguments: list[str]) -> dict[str, str]:
    """Connect to the device's machine with the given settings; return its links."""
    prefix = "--set=host.dut."
    values = dict(each.removeprefix(prefix).split(" = ") for each in arguments if each.startswith(prefix))
    host = SshHost(SiteHost(name="dut", **{name: json.loads(value) for name, value in values.items()}))
    try:
        return {"links": host.run(["ip", "-br", "address"]).stdout}
    finally:
        host.close()


def main() -> int:
    if sys.argv[1] not in ("run", "resume"):
        real_main()
        return 0
    folder = Path(os.environ["FABRICATED_FOLDER"])
    # As in a long trial, only the second signal ends the run.
    signals_left = 2 if (folder / "long-trial").exists() else 1

    def stop(*_: object) -> None:
        nonlocal signals_left
        signals_left -= 1

    signal.signal(signal.SIGTERM, stop)
    run_id = job_of_this_process() or sys.argv[2]
    found = reach(sys.argv) if sys.argv[1] == "run" else {}
    record = tiny_run(run_id)
    with ResultStore(os.environ["RINGROAD_LAB_STORE"]) as store:
        if sys.argv[1] == "run":
            store.begin_run(head_of(record))
        there = len(store.get_run(run_id).measurements)
        for measurement in record.measurements[there:3]:
            store.add_measurement(run_id, measurement)
        report = {"pid": os.getpid(), "bed": os.environ["RINGROAD_LAB_BED"], "arguments": sys.argv[1:], **found}
        (folder / "began.new").write_text(json.dumps(report))
        (folder / "began.new").replace(folder / "began")
        while not (folder / "go").exists() and signals_left > 0:
            time.sleep(0.02)
        if signals_left <= 0:
            store.end_run(record.model_copy(update={"measurements": (), "state": RunState.STOPPED}))
            print("stopped")
            return 130
        for measurement in record.measurements[max(3, there) :]:
            store.add_measurement(run_id, measurement)
        store.end_run(record)
    print("measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
