from collections.abc import Iterable, Iterator
from os import PathLike
from types import TracebackType
from typing import Literal, Self, SupportsIndex, TypeAlias, final

from typing_extensions import Buffer

Interest: TypeAlias = Literal["rx", "tx", "both"]

__version__: str

class RingroadError(RuntimeError):
    """What Ringroad refused, or could not do."""

class PortGone(RingroadError):
    """The port does not work any more: close it, and open it again."""

class PortBusy(RingroadError):
    """Another thread uses the port, or a batch of it is open."""

class ForkError(RingroadError):
    """A process that forked this one opened the port or connection: open another one here."""

class FrameTooLong(ValueError):
    """A frame that no ring of the port can hold."""

class DaemonRefused(RingroadError):
    """The daemon's reason, in words."""

    kind: str
    """The reason for programs, such as ``port_taken``."""
    advice: str
    """The remedy; empty if there is none."""

@final
class View:
    """Memory of a ring, seen without a copy: ``numpy.asarray(view)``, ``memoryview(view)``.

    It stays mapped while the view, or any object made from it, exists. Once its batch is released or sent, it shows
    what others put there: copy what you keep. In a child of ``os.fork()`` objects made before it read zeros.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class RxBatch:
    """Received frames, where they lie, until the batch is released: by ``with``, ``release()`` or its end."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: SupportsIndex, /) -> memoryview: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    @property
    def buffers(self) -> View:
        """A row of bytes for each frame, with the number of valid bytes in ``lengths`` (uint8, two dimensions)."""
    @property
    def lengths(self) -> View:
        """Length of each frame, bytes (uint32)."""
    @property
    def timestamps(self) -> View:
        """When each frame came to its interface, ns since the Unix epoch; 0 where its driver does not know (uint64)."""
    def release(self) -> None:
        """Give the buffers back to the ring."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class TxBatch:
    """Free buffers, to be written and sent. One that is left without ``send()`` sends nothing."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: SupportsIndex, /) -> memoryview: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    @property
    def buffers(self) -> View:
        """A row of bytes for each frame, to be written (uint8, two dimensions)."""
    @property
    def lengths(self) -> View:
        """Length of each frame, bytes, to be written (uint32)."""
    def send(self, count: int | None = None, *, length: int | None = None) -> int:
        """Send the first ``count`` frames, else all.

        They have ``length`` bytes each, else the lengths in ``lengths``. Returns their number.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Port:
    """A port, open until ``close()`` or the end of ``with``.

    ``name`` is as everywhere in Ringroad: ``vale0:a``, ``pipe{1``, ``xdp:eth0``, ``file.pcap``. A daemon is started
    where the port needs one and none runs, unless ``start`` is false. With ``reconnect`` the port continues when the
    daemon ends and comes back. One thread uses a port at a time; another one gets ``PortBusy``. A port belongs to the
    process that opened it; a child of ``os.fork()`` gets ``ForkError``.
    """

    def __new__(
        cls,
        name: str,
        *,
        queues: int | None = None,
        slots: int | None = None,
        buffer_bytes: int | None = None,
        socket: str | PathLike[str] | None = None,
        reconnect: bool = False,
        start: bool = True,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def mode(self) -> str:
        """The mechanism in use, in words."""
    @property
    def queues(self) -> int: ...
    @property
    def buffer_bytes(self) -> int:
        """Size of a buffer, bytes."""
    @property
    def max_frame_bytes(self) -> int:
        """Longest frame, over several buffers, bytes."""
    @property
    def pending(self) -> int:
        """Slots sent that have not come back."""
    @property
    def reconnections(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def send(self, frames: Buffer | Iterable[Buffer], *, timeout: float | None = None, queue: int = 0) -> int:
        """Send a frame, or each of an iterable, waiting for room. Returns how many were sent in ``timeout`` seconds."""
    def recv(self, timeout: float | None = None) -> bytes | None:
        """Return the next frame, waiting for it ``timeout`` seconds at most; None where none came."""
    def recv_many(self, most: int = 256, *, timeout: float | None = None) -> list[bytes]:
        """Return the frames that are there, waiting for the first; an empty list where none came."""
    def recv_batch(self, most: int = 256, *, timeout: float | None = None) -> RxBatch:
        """Return the frames that are there, where they lie, waiting for the first."""
    def tx_batch(self, most: int = 256, *, timeout: float | None = None, queue: int = 0) -> TxBatch:
        """Return free buffers to write and send, waiting for the first."""
    def wait(self, interest: Interest = "rx", timeout: float | None = None) -> bool:
        """Wait for frames, free slots or both. Returns whether there are any."""
    def sync(self) -> None:
        """Show the other side what was sent, and look for what came."""
    def arm(self, interest: Interest = "rx") -> bool:
        """Have ``fileno()`` become readable when the port is ready. True: it is ready now, and nothing is armed."""
    def disarm(self) -> None:
        """Undo ``arm()``."""
    def fileno(self) -> int: ...
    def close(self) -> None:
        """End the port. What was sent is still forwarded."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...

class Daemon:
    def __new__(cls, socket: str | PathLike[str] | None = None) -> Self: ...
    def request_json(self, request: str, /) -> str: ...
