"""Ports under asyncio."""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ringroad._ringroad import Port

if TYPE_CHECKING:
    from typing_extensions import Buffer


def _frames(frames: "Buffer | Iterable[Buffer]") -> "list[Buffer]":
    try:
        return [memoryview(frames)]  # type: ignore[arg-type]
    except TypeError:
        return list(frames)  # type: ignore[arg-type]


class AsyncPort:
    """A port whose waits leave the event loop to others. Its arguments are those of ``Port``.

    One task receives and one sends at a time.
    """

    def __init__(self, name: str, **wishes: Any) -> None:  # noqa: ANN401
        """Open the port."""
        self.port = Port(name, **wishes)
        self._ready: dict[str, asyncio.Future[None]] = {}

    async def recv(self) -> bytes:
        """Return the next frame."""
        while (frame := self.port.recv(timeout=0)) is None:
            await self._wait("rx")
        return frame

    async def recv_many(self, most: int = 256) -> list[bytes]:
        """Return the frames that are there, waiting for the first."""
        while not (frames := self.port.recv_many(most, timeout=0)):
            await self._wait("rx")
        return frames

    async def send(self, frames: "Buffer | Iterable[Buffer]") -> int:
        """Send a frame, or each of an iterable, waiting for room. Returns their number."""
        waiting = _frames(frames)
        total = len(waiting)
        while waiting:
            sent = self.port.send(waiting, timeout=0)
            del waiting[:sent]
            if waiting:
                await self._wait("tx")
        return total

    def close(self) -> None:
        """End the port."""
        self.port.close()

    async def _wait(self, interest: Literal["rx", "tx"]) -> None:
        if interest in self._ready:
            raise RuntimeError(f"another task waits for {interest} at {self.port.name}")
        ready = asyncio.get_running_loop().create_future()
        self._ready[interest] = ready
        try:
            self._arm()
            await ready
        finally:
            del self._ready[interest]
            self._arm()

    def _arm(self) -> None:
        """Watch the descriptor for what is waited for now, or for nothing."""
        loop = asyncio.get_running_loop()
        descriptor = self.port.fileno()
        loop.remove_reader(descriptor)
        self.port.disarm()
        if not self._ready:
            return
        both = len(self._ready) > 1
        interest: Literal["rx", "tx", "both"] = "both" if both else "rx" if "rx" in self._ready else "tx"
        if self.port.arm(interest):
            self._wake()
        else:
            loop.add_reader(descriptor, self._wake)

    def _wake(self) -> None:
        for ready in self._ready.values():
            if not ready.done():
                ready.set_result(None)

    async def __aenter__(self) -> Self:
        """Return the port."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the port."""
        self.close()

    def __aiter__(self) -> Self:
        """Return the port, whose frames come one after the other."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next frame."""
        return await self.recv()
