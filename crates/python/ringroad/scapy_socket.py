"""A socket for Scapy: ``sniff(opened_socket=RingroadSocket("vale0:a"))``, ``sr1``, ``sendp(..., socket=...)``."""

import time
from collections.abc import Sequence
from select import select as select_descriptors
from typing import Any

from scapy.data import MTU
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.supersocket import SuperSocket

from ringroad._ringroad import Port


class RingroadSocket(SuperSocket):  # type: ignore[misc]
    """Frames of a port as Scapy's packets. Its arguments are those of ``Port``."""

    desc = "a port of Ringroad"
    nonblocking_socket = True

    def __init__(self, name: str, basecls: type[Packet] = Ether, **wishes: Any) -> None:  # noqa: ANN401
        """Open the port. Frames are dissected as ``basecls``."""
        self.port = Port(name, **wishes)
        self.basecls = basecls
        self.closed = False
        # Scapy looks for these.
        self.ins = self.outs = self

    def send(self, x: Packet | bytes) -> int:
        """Send a packet."""
        frame = bytes(x)
        sent = self.port.send(frame)
        if isinstance(x, Packet):
            x.sent_time = time.time()
        return len(frame) * sent

    def recv_raw(self, x: int = MTU) -> tuple[type[Packet] | None, bytes | None, float | None]:
        """Return a frame that is there."""
        with self.port.recv_batch(1, timeout=0) as batch:
            if not len(batch):
                return None, None, None
            at_ns = memoryview(batch.timestamps)[0]
            return self.basecls, bytes(batch[0][:x]), at_ns / 1e9 if at_ns else time.time()

    def fileno(self) -> int:
        """Return the port's descriptor."""
        return self.port.fileno()

    def close(self) -> None:
        """End the port."""
        if not self.closed:
            self.closed = True
            self.port.close()

    @staticmethod
    def select(sockets: Sequence[SuperSocket], remain: float | None = None) -> list[SuperSocket]:
        """Return the sockets that have something to read, waiting ``remain`` seconds at most."""
        ports = [socket for socket in sockets if isinstance(socket, RingroadSocket)]
        ready: list[SuperSocket] = [socket for socket in ports if socket.port.arm("rx")]
        try:
            waiting = [socket for socket in sockets if socket not in ready]
            readable, _, _ = select_descriptors(waiting, [], [], 0 if ready else remain)
        finally:
            for socket in ports:
                if not socket.closed:
                    socket.port.disarm()
        return ready + readable
