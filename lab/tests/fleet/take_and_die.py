"""An AMQP source that is killed between the commit of its first message and the acknowledgement: `python take_and_die.py STORE QUEUE`.

$BROKER_URL is the URL of the broker.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.amqp import AmqpSource
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.store.result_store import ResultStore


class Dying(Requests):
    """Requests that kill the process after it has added one."""

    def add(self, *arguments: Any) -> Any:  # noqa: ANN401
        super().add(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    location, queue = sys.argv[1:]
    rule = MessageRule(name="all", build="{name}-{version}-{release}", scenario="BRIDGE_VETH")
    source = AmqpSource(url_env="BROKER_URL", queue=queue, queue_type="existing")
    with ResultStore(location) as store:
        watcher = source.watcher("bus", Intake(Dying(store), [rule]))
        watcher.look()
        threading.Event().wait(120)
