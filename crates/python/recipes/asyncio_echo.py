"""Send each frame back to its sender, under asyncio: python3 asyncio_echo.py vale0:echo"""

import asyncio
import sys

import ringroad


async def echo(name: str) -> None:
    """Exchange the addresses of each frame."""
    async with ringroad.AsyncPort(name) as port:
        print(port.port, flush=True)
        while True:
            frames = await port.recv_many()
            await port.send([frame[6:12] + frame[:6] + frame[12:] for frame in frames])


asyncio.run(echo(sys.argv[1]))
