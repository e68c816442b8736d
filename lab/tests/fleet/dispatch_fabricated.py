"""`ringroad-lab dispatch`, with jobs that measure nothing: `python dispatch_fabricated.py STORE FOLDER [SLURM-SETTINGS]`.

The folder's `notifications.toml` names the recipients.
"""

from __future__ import annotations

import signal
import sys
import threading
from functools import partial
from pathlib import Path

from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
from ringroad_lab.fleet.engine.interface import Engine, EngineSettings
from ringroad_lab.fleet.engine.local import LocalEngine
from ringroad_lab.fleet.engine.slurm import SlurmEngine
from ringroad_lab.fleet.engine.slurm_settings import SlurmSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.notification.delivery import targets
from ringroad_lab.notification.settings import FILE_NAME, read_notifications
from ringroad_lab.store.result_store import ResultStore

if __name__ == "__main__":
    location, folder, *slurm = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    program = (sys.executable, str(Path(__file__).parent / "fabricated_job.py"))
    engine: Engine
    if slurm:
        engine = SlurmEngine(EngineSettings(location, Path(folder), own=SlurmSettings.model_validate_json(slurm[0])))
    else:
        engine = LocalEngine(EngineSettings(location, Path(folder), program))
    with ResultStore(location) as results:
        settings = DispatcherSettings(attempts=3, retry_wait_s=0.0, poll_s=0.05, notify_wait_s=0.05)
        notifications = Path(folder) / FILE_NAME
        recipients = targets(read_notifications(notifications)) if notifications.exists() else []
        # Tests wait for what it says.
        say = partial(print, flush=True)
        leases = Leases(results, "slurm" if slurm else "local")
        Dispatcher(results, engine, leases, settings, say=say, recipients=recipients).run(stopping, once=True)
