"""Writes a job as a tmt plan: the machines of a bed by role, and a test on the generator that runs `ringroad-lab`.

All machines prepare, then the test runs, then all machines finish: tmt's phases are the barriers. The generator connects to the other
machines by SSH with a key that is created for the job and removed at its end.
"""

from __future__ import annotations

import json
import os
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import asyncssh
from pydantic import Field

from ringroad_lab.fleet.engine.interface import EngineError, Job
from ringroad_lab.fleet.engine.job_environment import BED_VARIABLE, FLEET_VARIABLE, job_environment
from ringroad_lab.fleet.engine.tmt_process import SECRETS
from ringroad_lab.fleet.inventory import GENERATOR, BedSettings, fleet_file
from ringroad_lab.scenario.toml_text import toml_text
from ringroad_lab.text_types import Word
from ringroad_lab.trial import Frozen

STATUS_FILE = "ringroad-lab.status"
_SCRIPTS = ("leftovers.sh", "prepare-generator.sh", "finish-generator.sh", "authorize.sh", "forget-secrets.sh", "run.sh")
_JOBS = "/run/ringroad-lab-tmt"


class TmtSettings(Frozen):
    """`[engine.tmt]`: the command of tmt, and SSH access to the machines of the beds."""

    program: Word = "tmt"
    user: Word = "root"
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    key_file: Word | None = None
    """Private key; None: the user's default keys."""
    known_hosts_file: Word = "~/.ssh/known_hosts"
    """Contains the host keys of the machines; unknown keys are rejected."""
    lab: Word = "ringroad-lab"
    """Command of the laboratory on the generators."""
    longest_s: Annotated[int, Field(ge=60, le=30 * 86400)] = 86400
    """Time after which tmt ends a run."""

    @property
    def known_hosts(self) -> Path:
        """Return the path of the known hosts file."""
        return Path(self.known_hosts_file).expanduser()


def write_plan(folder: Path, job: Job, bed_name: str, bed: BedSettings, settings: TmtSettings, store: str | None) -> None:
    """Write the tree of files that tmt reads.

    Raises:
        EngineError: a machine's host key is unknown.
        OSError: the files cannot be written.
    """
    _check_machines(bed, settings)
    (folder / ".fmf").mkdir(parents=True)
    (folder / ".fmf" / "version").write_text("1\n")
    scripts = resources.files("ringroad_lab.fleet.engine") / "tmt_scripts"
    for name in _SCRIPTS:
        (folder / name).write_text((scripts / name).read_text())
    others = sorted(role for role in bed.machines if role != GENERATOR)
    key = asyncssh.generate_private_key("ssh-ed25519", comment=f"ringroad-lab-tmt-job-{job.name}")
    _write_secret(folder / "job.key", key.export_private_key().decode())
    (folder / "job.pub").write_text(key.export_public_key().decode())
    (folder / "known_hosts").write_bytes(settings.known_hosts.read_bytes())
    (folder / "fleet.toml").write_text(fleet_file({bed_name: bed}))
    environment = {**job_environment(job.name), BED_VARIABLE: bed_name, FLEET_VARIABLE: f"{_JOBS}/{job.name}/fleet.toml"}
    if store is not None:
        environment["RINGROAD_LAB_STORE"] = store
    # The store is not in the plan, which tmt shows to all: its location may contain a password.
    _write_secret(folder / "job.environment", "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()))
    # A resumed run has these settings in its record.
    reach = [line for role in others for line in _reach(job.name, bed, role, settings)] if job.arguments[0] == "run" else []
    # JSON is also YAML.
    (folder / "main.fmf").write_text(
        json.dumps(
            {
                "/plan": _plan(job, bed, others, settings),
                "/run": {
                    "summary": f"ringroad-lab {' '.join(job.arguments[:2])}",
                    "test": shlex.join(["sh", "./run.sh", job.name, settings.lab, *job.arguments, *reach]),
                    "framework": "shell",
                    "result": "custom",
                    "duration": f"{settings.longest_s}s",
                },
            },
            indent=2,
        )
    )


def _plan(job: Job, bed: BedSettings, others: list[str], settings: TmtSettings) -> dict[str, Any]:
    def phase(name: str, where: list[str], *command: str) -> dict[str, Any]:
        return {"name": name, "how": "shell", "where": where, "script": shlex.join(["sh", *command])}

    prepare = [phase("the generator", [GENERATOR], "./prepare-generator.sh", job.name)]
    finish = [phase("the generator", [GENERATOR], "./finish-generator.sh", job.name)]
    if others:
        prepare.append(phase("access to the other machines", others, "./authorize.sh", "add"))
        finish.append(phase("access to the other machines", others, "./authorize.sh", "remove"))
    finish.append(phase("secrets", sorted(bed.machines), "./forget-secrets.sh", *SECRETS))
    return {
        "summary": f"Run {job.name} of ringroad-lab",
        "provision": [_machine(role, address, settings) for role, address in bed.machines.items()],
        "discover": {"how": "fmf", "where": [GENERATOR]},
        "prepare": prepare,
        "execute": {"how": "tmt"},
        "finish": finish,
    }


def _machine(role: str, address: str, settings: TmtSettings) -> dict[str, Any]:
    machine: dict[str, Any] = {"name": role, "role": role, "how": "connect", "guest": address, "port": settings.port}
    machine["user"] = settings.user
    if settings.user != "root":
        machine["become"] = True
    if settings.key_file is not None:
        machine["key"] = str(Path(settings.key_file).expanduser())
    return machine


def _check_machines(bed: BedSettings, settings: TmtSettings) -> None:
    for role, address in bed.machines.items():
        known = settings.known_hosts
        host = f"[{address}]:{settings.port}" if settings.port != 22 else address
        try:
            found = asyncssh.match_known_hosts(str(known), host, "", None)
        except (OSError, ValueError) as error:
            raise EngineError(f"{known}: {getattr(error, 'strerror', None) or error}") from error
        if not any(found):
            add = f"ssh-keyscan -p {settings.port} {address} >>{known}"
            raise EngineError(f"the host key of {address} ({role}) is not in {known}: verify the key, then add it: {add}")


def _reach(job: str, bed: BedSettings, role: str, settings: TmtSettings) -> list[str]:
    """Return the settings with which the laboratory connects to a machine; settings of the bed take precedence."""
    reach = {
        "address": bed.machines[role],
        "port": settings.port,
        "user": "root",
        "key_file": f"{_JOBS}/{job}/job.key",
        "known_hosts_file": f"{_JOBS}/{job}/known_hosts",
    }
    lines = toml_text({"host": {role: reach}}).splitlines()
    own = {setting.partition("=")[0].strip() for setting in bed.settings}
    return [f"--set={line}" for line in lines if line.partition("=")[0].strip() not in own]


def _write_secret(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)


def stop_command(job: str, bed: BedSettings, settings: TmtSettings) -> tuple[str, ...]:
    """Return the command that requests, once, the end of a job's run after its trial; it fails if the run has not begun."""
    folder = f"{_JOBS}/{job}"
    start = "$(sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f20)"
    script = f'read -r pid start <{folder}/process && [ "{start}" = "$start" ] && mkdir {folder}/told && kill -s TERM "$pid"'
    become = () if settings.user == "root" else ("sudo",)
    options = ["BatchMode=yes", "ConnectTimeout=10", "ControlPath=none", f"UserKnownHostsFile={settings.known_hosts}"]
    options += ["StrictHostKeyChecking=yes"]
    key = () if settings.key_file is None else ("-i", str(Path(settings.key_file).expanduser()), "-oIdentitiesOnly=yes")
    where = ("-p", str(settings.port), f"{settings.user}@{bed.machines[GENERATOR]}")
    return ("ssh", *(f"-o{option}" for option in options), *key, *where, shlex.join([*become, "sh", "-c", script]))


def ssh_environment(settings: TmtSettings) -> dict[str, str]:
    """Return the variables that make tmt reject unknown host keys; by default it accepts all."""
    return {"TMT_SSH_STRICT_HOST_KEY_CHECKING": "yes", "TMT_SSH_USER_KNOWN_HOSTS_FILE": str(settings.known_hosts)}
