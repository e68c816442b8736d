"""A run on a bed as a process, without measuring: `python holding_bed.py STORE CLOCK_FILE`.

The process takes bed `a`, starts the run, and prints a line; then it stores a measurement for each input line, and prints the result.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fabricated_runs import fabricated_run
from ringroad_lab.errors import BedLostError
from ringroad_lab.fleet.bed_leases import BedLeases
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.run.bed_guard import occupied
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of

if __name__ == "__main__":
    location, clock_file = sys.argv[1:]
    record = fabricated_run(run_id="00000000-run")
    bed = BedSettings.model_validate({"machines": {"generator": "here"}})
    with ResultStore(location) as store:
        leases = BedLeases(store, clock=lambda: float(Path(clock_file).read_text()))
        with occupied("a", bed, leases, store, record.run_id, ()) as guard:
            fenced = store.fenced(guard.check_in)
            fenced.begin_run(head_of(record))
            print("measures", flush=True)
            for number, _ in enumerate(sys.stdin):
                try:
                    guard.check()
                    print("trial", flush=True)
                    fenced.add_measurement(record.run_id, record.measurements[number])
                    print("kept", flush=True)
                except BedLostError as error:
                    print(f"lost: {error}", flush=True)
                    break
