"""An emulated machine with an IOMMU and three network cards: one for SSH, two whose other ends are TAPs on this side.

It is QEMU with Debian's kernel: a real kernel and a real DPDK bind and drive its cards, though slowly. Runs in a sandbox, and writes the
results of all checks as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from ringroad_lab.cable.cards import give_card, set_card
from ringroad_lab.cable.interface import NicPair
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import HostError, LabError
from ringroad_lab.guest.initramfs import READY, build_initramfs
from ringroad_lab.guest.virtual_machine import QEMU, VIRTIO_MODULES
from ringroad_lab.host.interface import Host
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.ringroad_program import require_ringroad
from ringroad_lab.scenario.model import Scenario, SiteHost
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.trial import Load, TrialRequest
from sandboxed import answer

PORT = 2222
# Compiles the modules that the client of DPDK's counters imports: on an emulated processor, compiling them each time would take long.
COMPILE = """
import os, sys, zipfile
home = os.path.dirname(os.__file__)
with zipfile.PyZipFile(sys.argv[1], "w") as archive:
    for package in ("", "collections", "encodings", "importlib", "json", "re"):
        archive.writepy(os.path.join(home, package))
"""
BOOT_S = 240.0
MODULES = (*VIRTIO_MODULES, "irqbypass", "vfio", "vfio_virqfd", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci")
PYTHON = "/usr/bin/python3"
PROGRAMS = (
    "sshd",
    "timeout",
    "taskset",
    "mktemp",
    "stdbuf",
    "env",
    "ip",
    "ethtool",
    "dpdk-testpmd",
    "dpdk-telemetry.py",
    "/usr/bin/python3",
)
DRIVERS = ("librte_bus_pci", "librte_bus_vdev", "librte_mempool_ring", "librte_net_virtio")
# The cards of the device under test: slots of the machine's PCI bus.
CARDS = ("0000:00:05.0", "0000:00:06.0")


def build(host: Host, folder: Path) -> list[str]:
    """Create the machine's initramfs; return QEMU's command."""
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    (folder / "known").write_text(f"[127.0.0.1]:{PORT} {(folder / 'host.pub').read_text()}")
    library = folder / "python.zip"
    host.run([PYTHON, "-c", COMPILE, str(library)])
    config = folder / "sshd_config"
    config.write_text(
        f"Port 22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        f"PermitRootLogin yes\nPasswordAuthentication no\nUseDNS no\nSetEnv PYTHONPATH={library} PYTHONDONTWRITEBYTECODE=1\n"
    )
    found = [host.require(program, program) for program in PROGRAMS]
    drivers = [path for name in DRIVERS for path in host.run(["sh", "-c", f"ls /usr/lib/*/dpdk/pmds-*/{name}.so.??"]).stdout.split()]
    globs = "/usr/lib/python3*/lib-dynload/readline.*.so /usr/libexec/coreutils/libstdbuf.so /lib/*-linux-gnu/libgcc_s.so.1"
    loaded = host.run(["sh", "-c", f"ls {globs}"]).stdout.split()
    kernel = json.loads(host.run([require_ringroad(host, "ringroad"), "vm", "kernel", "--json"], timeout_s=120).stdout)
    script = f"""\
mkdir -p /etc /run/sshd /var/log /root /dev/shm
echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
echo 'sshd:x:1:1::/run/sshd:/bin/false' >>/etc/passwd
echo 'root:x:0:' >/etc/group
mount -t tmpfs tmpfs /dev/shm
chmod 600 {folder}/host
# DPDK searches for the names with its whole version; a file with two names is loaded once.
for driver in {" ".join(drivers)}; do ln -s "$driver" "$driver.0"; done
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip link set eth2 up mtu 1400
/usr/sbin/sshd -f {config}
echo "{READY}"
while true; do sleep 3600; done
"""
    files = [*found, *drivers, *loaded, str(library), str(config), *(str(folder / name) for name in ("host", "user.pub"))]
    place = PurePosixPath(folder / "boot")
    host.run(["mkdir", "-p", str(place)])
    archive = build_initramfs(host, place, PurePosixPath(kernel["modules"]), MODULES, script, files)
    cards = ["-netdev", f"user,id=n0,hostfwd=tcp:127.0.0.1:{PORT}-:22", "-device", "virtio-net-pci,netdev=n0,addr=4"]
    for number, address in enumerate(CARDS, 1):
        slot = address[8:10].lstrip("0")
        cards += ["-netdev", f"tap,id=n{number},ifname=near{number},script=no,downscript=no"]
        cards += ["-device", f"virtio-net-pci,netdev=n{number},addr={slot},disable-legacy=on,iommu_platform=on,ats=on"]
    return [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1024M"),
        *("-device", "intel-iommu,intremap=on,device-iotlb=on"),
        *cards,
        *("-kernel", kernel["image"], "-initrd", str(archive)),
        *("-append", "console=ttyS0 quiet panic=-1 no_timer_check intel_iommu=on"),
    ]


def error_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except HostError as error:
        return str(error)
    return ""


def nics(card: str, number: int = 1) -> NicPair:
    return NicPair(generator_interface=f"near{number}", dut_interface=card)


def driver_of(host: Host, address: str) -> str:
    return host.run(["sh", "-c", f'basename "$(readlink /sys/bus/pci/devices/{address}/driver)"']).stdout.strip()


def links(host: Host) -> list[str]:
    """Return interfaces with their settings, without their indices, which may change."""
    return sorted(line.partition(": ")[2] for line in host.run(["ip", "-o", "link"]).stdout.splitlines())


def check_given_and_put_back(place: SiteHost) -> dict[str, Any]:
    """Bind a card by its interface name; state and MTU are restored."""
    host = SshHost(place)
    results: dict[str, Any] = {"before": links(host)}
    results["address"] = give_card(host, nics("eth2"))
    results["given"] = driver_of(host, CARDS[1])
    results["links"] = links(host)
    results["again"] = give_card(host, nics("eth2"))
    results["by address"] = give_card(host, nics(CARDS[1]))
    results["in use"] = error_of(lambda: give_card(host, nics("eth0")))
    results["absent"] = error_of(lambda: give_card(host, nics("eth9")))
    results["functions"] = error_of(lambda: give_card(host, nics("eth1").model_copy(update={"virtual_function": 0})))
    host.close()
    host = SshHost(place)
    results["after"], results["put back"] = links(host), driver_of(host, CARDS[1])
    host.close()
    return results


def check_put_back_after_a_kill(place: SiteHost) -> dict[str, Any]:
    """Abort the connection while the card is bound."""
    host, other = SshHost(place), SshHost(place)
    try:
        before = links(other)
        give_card(host, nics("eth1"))
        set_card(host, "eth2", 9018)
        results: dict[str, Any] = {"given": driver_of(other, CARDS[0]), "set": links(other)}
        host._loop.call_soon_threadsafe(host.connection.abort)
        results["is put back"] = wait_until(lambda: links(other) == before, 60)
        return results
    finally:
        host.close()
        other.close()


def check_setup(place: SiteHost) -> dict[str, Any]:
    """Send frames from here through testpmd on the machine, with cards bound to vfio-pci."""
    frame = {"name": "64", "parts": [[64, 1]]}
    pairs = [nics(card, number).model_dump(mode="json") for number, card in enumerate(("eth1", "eth2"), 1)]
    fields = {
        "name": "cards",
        "duts": [{"label": "testpmd", "driver": "testpmd", "host": place.name}],
        "physical": "vfio",
        "cpus": {"dut": [1]},
        "methods": [{"name": "throughput"}],
        "frames": [frame],
        "huge_pages": False,
        "hosts": [{**place.model_dump(mode="json"), "nics": pairs}],
    }
    scenario = Scenario.model_validate(fields)
    host = SshHost(place)
    try:
        with TestSetup(scenario, scenario.duts[0], dut_host=host) as setup:
            load = Load.model_validate({"frame": frame, "rate_fps": 500})
            result = setup.generator.trial(TrialRequest(load=load, duration_s=0.2))
            results: dict[str, Any] = {"received": [way.received_frames for way in result.directions], "counters": setup.collect()}
            results["drivers"] = [driver_of(host, card) for card in CARDS]
        return results
    finally:
        host.close()


def check(_request: object) -> dict[str, Any]:
    for number in (1, 2):
        subprocess.run(["ip", "tuntap", "add", "dev", f"near{number}", "mode", "tap"], check=True)
        subprocess.run(["ip", "link", "set", f"near{number}", "up"], check=True)
    host = LocalHost()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machine = host.start("machine", build(host, folder))
        if why := machine.why_silent(READY, BOOT_S):
            return {"error": f"the machine {why}"}
        place = SiteHost(name="far", address="127.0.0.1", port=PORT, key_file=str(folder / "user"), known_hosts_file=str(folder / "known"))
        results: dict[str, Any] = {}
        try:
            # The SSH server listens a moment later.
            assert wait_until(lambda: not error_of(lambda: SshHost(place).close()), 60)
            results["given"] = check_given_and_put_back(place)
            results["killed"] = check_put_back_after_a_kill(place)
            results["setup"] = check_setup(place)
        except LabError as error:
            results["error"] = f"{type(error).__name__}: {error}\n{machine.last_words()}"
        finally:
            host.close()
        return results


if __name__ == "__main__":
    answer(check)
