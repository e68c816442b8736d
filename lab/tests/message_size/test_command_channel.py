"""Commands over a serial port: the guest's shell as the first process of a PID namespace, with a pseudo-terminal as its port."""

from __future__ import annotations

import os
import pty
import select
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from ringroad_lab.guest.initramfs import READY
from ringroad_lab.message_size.command_channel import SERVE_COMMANDS, CommandChannel


def _carry(server: socket.socket, port: int, left: Path) -> None:
    """Carry bytes between channel and port, as QEMU does, but from the port only after the process that has `left` open has ended."""
    client, _ = server.accept()
    # The channel's end may be closed while the guest still writes.
    with client, suppress(BrokenPipeError):
        os.write(port, client.recv(4096))
        left.read_bytes()
        while True:
            for source in select.select([client.fileno(), port], [], [])[0]:
                if source == port:
                    client.sendall(os.read(port, 4096))
                elif sent := client.recv(4096):
                    os.write(port, sent)
                else:
                    return


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("busybox") is None, reason="needs root and busybox")
def test_a_process_that_ends_while_a_command_is_answered_does_not_end_the_guest(tmp_path: Path) -> None:
    port, far_end = pty.openpty()
    terminal, left, script = os.ttyname(far_end), tmp_path / "left", tmp_path / "init"
    os.mkfifo(left)
    commands = SERVE_COMMANDS.replace("/dev/ttyS1", terminal).replace("/run/command", str(tmp_path / "command"))
    script.write_text(f"set -e\n{commands}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        carrier = threading.Thread(target=_carry, args=(server, port, left), daemon=True)
        carrier.start()
        argv = ["unshare", "--pid", "--fork", "--kill-child", "busybox", "sh", str(script)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as guest:
            try:
                assert guest.stdout
                assert guest.stdout.readline().strip() == READY
                channel = CommandChannel(PurePosixPath(tmp_path / "socket"))
                # The port has no room for the answer when the process ends.
                fill = f"/bin/dd if=/dev/zero of={terminal} oflag=nonblock bs=64"
                status, output = channel.run(f"sleep 1 >{left} & {fill} 2>/dev/null || true; exit 3", 60)
                assert (status, output.strip("\0")) == (3, "")
                assert output
                assert channel.run("echo still here", 60) == (0, "still here\n")
                channel.close()
                # It uses the port's descriptor until it ends.
                carrier.join()
            finally:
                guest.kill()
    os.close(port)
    os.close(far_end)
