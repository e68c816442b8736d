"""A Slurm cluster for tests: slurmctld and a slurmd for each node, without systemd, munge or cgroups, on its own ports.

`close` ends all processes, including those that killed daemons and jobs left. It finds daemons and steps by their working directory, the
cluster's folder; jobs by the configuration in their environment; and their children.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from free_ports import free_ports
from ringroad_lab.deadline import wait_until

PATIENCE_S = 300.0
# Debian installs the daemons in folders that only root's PATH contains.
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_CONFIG = """
ClusterName=ringroad-test
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=20
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=15
KillWait=2
SlurmdParameters=config_overrides
Licenses=ixia:1
"""


def is_installed() -> bool:
    return all(shutil.which(program, path=_PATH) for program in ("slurmctld", "slurmd", "sbatch"))


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    name: str
    features: str
    address: str = "127.0.0.1"
    inside: tuple[str, ...] = ()
    """Prefix of slurmd's command for a network namespace: `ip netns exec NAME`. The namespace must reach the controller's address."""


# The generator is the first of a bed, the device under test the second.
TWO_BEDS = (
    Node("host-a1", "bed-a"),
    Node("host-a2", "bed-a"),
    Node("host-b1", "bed-b"),
    Node("host-b2", "bed-b"),
)


class SlurmCluster:
    """A cluster that is up after `start`; also a context manager."""

    def __init__(self, nodes: Sequence[Node] = TWO_BEDS, address: str = "127.0.0.1") -> None:
        # Not in the test's folder: socket paths must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.nodes = {node.name: node for node in nodes}
        self.config = self.folder / "slurm.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (self.folder / "state").mkdir()
        host = socket.gethostname().partition(".")[0]
        port, *ports = free_ports(1 + len(nodes))
        lines = [_CONFIG.format(host=host, address=address, port=port, user=getpass.getuser(), folder=self.folder)]
        for node, its_port in zip(nodes, ports, strict=True):
            (self.folder / "spool" / node.name).mkdir(parents=True)
            where = f"NodeHostName={host} NodeAddr={node.address} Port={its_port}"
            lines.append(f"NodeName={node.name} {where} CPUs=2 RealMemory=100 Feature={node.features}")
        lines.append(f"PartitionName=lab Nodes={','.join(self.nodes)} Default=YES MaxTime=8:00:00 State=UP OverSubscribe=EXCLUSIVE")
        self.config.write_text("\n".join(lines) + "\n")

    def __enter__(self) -> SlurmCluster:
        """Start the cluster."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the cluster."""
        self.close()

    def start(self) -> None:
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        assert wait_until(lambda: set(self.states().values()) == {"idle"}, PATIENCE_S), self.said()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        while left := self._left():
            for each in left:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(left, PATIENCE_S)
        for process in self._processes.values():
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.config)])
        assert wait_until(self.is_controller_up, PATIENCE_S), self.said()

    def start_node(self, name: str) -> None:
        self._start(name, [*self.nodes[name].inside, "slurmd", "-D", "-N", name, "-f", str(self.config)])

    def kill(self, daemon: str) -> None:
        """Kill `slurmctld`, or the slurmd of a node, with SIGKILL; steps and scripts of its jobs continue."""
        self._processes[daemon].kill()
        self._processes[daemon].wait()

    def lose(self, node: str) -> None:
        """Kill a slurmd with SIGKILL, and report this to slurmctld, which would notice only after half a minute."""
        self.kill(node)
        self.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def freeze(self, daemon: str) -> None:
        """Stop a daemon, so that it exists but does not answer."""
        self._processes[daemon].send_signal(signal.SIGSTOP)

    def thaw(self, daemon: str) -> None:
        self._processes[daemon].send_signal(signal.SIGCONT)

    def call(self, *argv: str) -> str:
        """Run a Slurm program as an administrator."""
        done = self._run(*argv)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def states(self) -> dict[str, str]:
        """Return the states of the nodes by name."""
        try:
            lines = self.call("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        except AssertionError:
            return {}
        return {line.split()[0]: line.split()[1] for line in lines}

    def is_controller_up(self) -> bool:
        done = self._run("scontrol", "ping")
        return done.returncode == 0 and "is UP" in done.stdout

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.config)}

    def said(self) -> str:
        """Return jobs, nodes, and the end of the daemons' logs, without messages about MPI plugins, which the tests do not use."""
        said = [self._run("scontrol", "show", what).stdout for what in ("jobs", "nodes")]
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text().splitlines(keepends=True)
            said.append(f"{path.name}:\n" + "".join(line for line in lines if "mpi" not in line.lower())[-2000:])
        return "\n".join(said)

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def _start(self, name: str, argv: Sequence[str]) -> None:
        with (self.folder / f"{name}.output.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                argv, env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _left(self) -> list[psutil.Process]:
        found: set[psutil.Process] = set()
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.cwd() == str(self.folder) or process.environ().get("SLURM_CONF") == str(self.config):
                    found |= {process, *process.children(recursive=True)}
        return [each for each in found if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
