"""Ringroad's ports: rings of frames in shared memory.

``Port`` sends and receives, ``AsyncPort`` does so under asyncio, ``Daemon`` queries and controls the daemon.
"""

from ringroad._ringroad import (
    DaemonRefused,
    ForkError,
    FrameTooLong,
    Port,
    PortBusy,
    PortGone,
    RingroadError,
    RxBatch,
    TxBatch,
    View,
    __version__,
)
from ringroad.async_port import AsyncPort
from ringroad.daemon import Daemon

__all__ = [
    "AsyncPort",
    "Daemon",
    "DaemonRefused",
    "ForkError",
    "FrameTooLong",
    "Port",
    "PortBusy",
    "PortGone",
    "RingroadError",
    "RxBatch",
    "TxBatch",
    "View",
    "__version__",
]
