"""Builds commits with a recipe in a clean clone, and keeps the builds, so that each commit is built once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.build.choice import GitBuild
from ringroad_lab.errors import BuildError, HostError
from ringroad_lab.host.interface import Host

_FETCH_S = 900.0
_KEPT_BUILDS = 20
# Marks a complete build.
_WHOLE = "whole"
# No prompts, and no transports that run programs. Credentials and proxies of the user's configuration still apply.
_GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
# Fetches only the commit if the server allows it, else everything.
_CLONE = """\
set -e
git init --quiet "$1" && cd "$1"
git remote add origin "$2"
if git fetch --quiet --depth 1 origin "$3" 2>/dev/null; then
    found=FETCH_HEAD
else
    git fetch --quiet --tags origin '+refs/heads/*:refs/remotes/origin/*'
    found=$(git rev-parse --quiet --verify "$3^{commit}" || git rev-parse --verify "origin/$3^{commit}")
fi
git -c advice.detachedHead=false checkout --quiet --detach "$found"
git rev-parse HEAD
"""


@dataclass(frozen=True)
class Made:
    """A build of a commit, made now or earlier."""

    root: Path
    commit: str
    """The full hash."""
    log: str
    """The last part of the recipe's output."""


def make_build(host: Host, choice: GitBuild, folder: Path, kept: Path | None = None) -> Made:
    """Make a build, or return an earlier one; `folder` is for the clone, `kept` for builds (default: the user's cache).

    Raises:
        BuildError: the commit is not available, or its recipe fails; with the recipe's log.
        HostError: a folder cannot be created.
        MissingProgramError: git is not installed.
    """
    host.require("git", "git")
    clone = folder / "clone"
    argv = ["sh", "-c", _CLONE, "sh", str(clone), choice.repository, choice.commit]
    commit = host.run(argv, timeout_s=_FETCH_S, env=_GIT_ENVIRONMENT).stdout.strip().rpartition("\n")[2]
    kept = kept or default_folder()
    key = json.dumps([choice.repository, commit, choice.recipe, sorted(choice.environment.items())])
    name = f"{commit[:12]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    with _only_one(kept, name):
        build = kept / name
        if not (build / _WHOLE).exists():
            _forget_old(kept, name)
            _run_recipe(host, choice, clone, build)
        with suppress(OSError):
            os.utime(build)
        return Made(build / "root", commit, (build / "log").read_text(encoding="utf-8", errors="replace"))


def default_folder() -> Path:
    """Return the folder of kept builds, by the XDG specification."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "ringroad-lab" / "builds"


def _run_recipe(host: Host, choice: GitBuild, clone: Path, build: Path) -> None:
    """Run the recipe in the final folder: programs can contain its path."""
    root = build / "root"
    shutil.rmtree(build, ignore_errors=True)
    root.mkdir(parents=True)
    environment = {**choice.environment, "PREFIX": str(root)}
    process = host.start("recipe", ["sh", "-c", 'cd "$1" && exec sh -c "$2"', "sh", str(clone), choice.recipe], env=environment)
    # The recipe cannot print this random word, so this waits for its end or its time limit.
    process.wait_output(secrets.token_hex(16), choice.within_s)
    is_late = process.is_running()
    status = process.stop(2.0)
    log = process.output()
    (build / "log").write_text(log, encoding="utf-8")
    if is_late or status:
        what = f"did not end within {choice.within_s:g} s" if is_late else f"ended with status {status}"
        last = log.strip().rpartition("\n")[2][-500:] or "no output"
        raise BuildError(f"the recipe for {choice} {what}: {last}; its log is {build / 'log'}", log)
    if not any(root.iterdir()):
        raise BuildError(f"the recipe for {choice} succeeded, but put nothing into $PREFIX", log)
    (build / _WHOLE).touch()


@contextmanager
def _only_one(kept: Path, name: str) -> Iterator[None]:
    """Lock the folder, so that no other process makes or removes builds meanwhile."""
    try:
        kept.mkdir(parents=True, exist_ok=True)
        with (kept / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise HostError(f"{error.filename or kept}: {error.strerror}") from error


def _forget_old(kept: Path, name: str) -> None:
    builds = sorted((path for path in kept.iterdir() if path.is_dir() and path.name != name), key=lambda path: path.stat().st_mtime)
    for path in builds[: -_KEPT_BUILDS + 1]:
        shutil.rmtree(path, ignore_errors=True)
