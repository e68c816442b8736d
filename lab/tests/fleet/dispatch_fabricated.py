"""`ringroad-lab dispatch`, with jobs that measure nothing: `python dispatch_fabricated.py STORE FOLDER`.

Those are told whom the folder's `notifications.toml` has.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
from ringroad_lab.fleet.engine.interface import EngineSettings
from ringroad_lab.fleet.engine.local import LocalEngine
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.notification.delivery import targets
from ringroad_lab.notification.settings import FILE_NAME, read_notifications
from ringroad_lab.store.result_store import ResultStore

if __name__ == "__main__":
    location, folder = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    program = (sys.executable, str(Path(__file__).parent / "fabricated_job.py"))
    with ResultStore(location) as results:
        engine = LocalEngine(EngineSettings(location, Path(folder), program))
        settings = DispatcherSettings(attempts=3, retry_wait_s=0.0, poll_s=0.05, tell_wait_s=0.05)
        told = Path(folder) / FILE_NAME
        everybody = targets(read_notifications(told)) if told.exists() else []
        Dispatcher(results, engine, Leases(results, "local"), settings, everybody=everybody).run(stopping, once=True)
