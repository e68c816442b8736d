"""Builds of commits with a recipe, from a local repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringroad_lab.build.choice import BuildChoice, GitBuild, StagedBuild
from ringroad_lab.build.commit import Made, make_build
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import BuildError, HostError
from ringroad_lab.host.local import LocalHost
from ringroad_lab.run.staging import Staging

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
RECIPE = (
    'echo building; mkdir -p "$PREFIX/sbin" && cp switch "$PREFIX/sbin/ovs-vswitchd" && pwd >"$PREFIX/where"; date +%s%N >"$PREFIX/when"'
)


def git(repository: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *user, *arguments], cwd=repository, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "one")
    return folder


def commit(repository: Path, content: str) -> str:
    (repository / "switch").write_text(f"#!/bin/sh\necho {content}\n")
    (repository / "switch").chmod(0o755)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", content)
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    host = LocalHost(tmp_path)
    yield host
    host.close()


class Maker:
    """Makes builds, each with its own clone."""

    def __init__(self, host: LocalHost, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.kept = folder / "kept"
        self.clones = 0

    def __call__(self, repository: Path, commit: str, recipe: str = RECIPE, within_s: float = 60.0, **environment: str) -> Made:
        self.clones += 1
        clone = self.folder / f"clone-{self.clones}"
        clone.mkdir()
        values = {"repository": str(repository), "commit": commit, "recipe": recipe, "within_s": within_s, "environment": environment}
        return make_build(self.host, GitBuild.model_validate(values), clone, self.kept)


@pytest.fixture
def make(host: LocalHost, tmp_path: Path) -> Maker:
    return Maker(host, tmp_path)


def test_a_commit_is_built_in_a_clean_clone(make: Maker, repository: Path) -> None:
    old = git(repository, "rev-parse", "HEAD")
    new = commit(repository, "two")
    (repository / "switch").write_text("not committed")
    made = make(repository, old)
    assert made.commit == old
    assert "echo one" in (made.root / "sbin/ovs-vswitchd").read_text()
    assert (made.root / "where").read_text().strip() != str(repository)
    assert made.log == "building\n"
    # A short hash, a branch or a tag gives the same commit.
    git(repository, "tag", "v2")
    for name in (new, new[:10], "main", "v2"):
        assert make(repository, name).commit == new


def test_a_build_is_made_once_for_each_commit_and_recipe(make: Maker, repository: Path) -> None:
    old = git(repository, "rev-parse", "HEAD")
    first = make(repository, old)
    assert make(repository, "main").root == first.root
    assert (make(repository, old).root / "when").read_text() == (first.root / "when").read_text()
    assert make(repository, old, recipe=f"{RECIPE}; true").root != first.root
    assert make(repository, old, OPTION="1").root != first.root
    commit(repository, "two")
    assert make(repository, "main").root != first.root


def test_a_message_field_is_a_variable_of_the_recipe_and_not_a_command(make: Maker, repository: Path) -> None:
    made = make(repository, "main", 'printf %s "$VERSION" >"$PREFIX/version"', VERSION="$(id); 1 2")
    assert (made.root / "version").read_text() == "$(id); 1 2"


def test_a_failed_recipe_is_reported_with_its_log_and_retried(make: Maker, repository: Path) -> None:
    with pytest.raises(BuildError, match=r"ended with status 3: no compiler; its log is .*/log") as failed:
        make(repository, "main", "touch $PREFIX/half; seq 3; echo no compiler >&2; exit 3")
    assert failed.value.log == "1\n2\n3\nno compiler\n"
    (log,) = make.kept.glob("*/log")
    assert log.read_text() == failed.value.log
    # Its leftovers are not a build.
    with pytest.raises(BuildError, match="ended with status 3"):
        make(repository, "main", "touch $PREFIX/half; seq 3; echo no compiler >&2; exit 3")
    with pytest.raises(BuildError, match="put nothing into"):
        make(repository, "main", "true")


def test_a_recipe_that_takes_too_long_is_stopped_with_all_its_processes(make: Maker, repository: Path) -> None:
    with pytest.raises(BuildError, match=r"did not end within 0.5 s: 7"):
        make(repository, "main", "sleep 613 & echo 7; wait", within_s=0.5)
    assert wait_until(lambda: not any(process.info["cmdline"] == ["sleep", "613"] for process in psutil.process_iter(["cmdline"])), 10)


def test_old_builds_are_removed_and_the_one_in_use_is_not(make: Maker, repository: Path) -> None:
    first = make(repository, "main")
    for number in range(21):
        make(repository, "main", f"{RECIPE}; true {number}")
    assert len([path for path in make.kept.iterdir() if path.is_dir()]) == 20
    assert not first.root.exists()


@pytest.mark.parametrize(("name", "why"), [("no-such-branch", "no-such-branch"), ("f" * 40, "f" * 40)])
def test_a_missing_commit_is_reported(make: Maker, repository: Path, name: str, why: str) -> None:
    with pytest.raises(HostError, match=why):
        make(repository, name)


@pytest.mark.parametrize(
    "values",
    [
        {"repository": "ext::sh -c id"},
        {"repository": "--upload-pack=id"},
        {"repository": "https://me:secret@example.org/a.git"},
        {"commit": "--output=x"},
        {"commit": ""},
    ],
)
def test_values_that_git_would_treat_as_options_or_programs_are_rejected(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"not a git repository|password|pattern"):
        GitBuild.model_validate({"repository": "/srv/a.git", "commit": "main", "recipe": "true", **values})


def test_a_device_runs_the_build_and_the_run_records_the_commit(
    host: LocalHost, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    head = git(repository, "rev-parse", "HEAD")
    stage = Staging(host)
    choice = BuildChoice.model_validate({"git": {"repository": str(repository), "commit": "main", "recipe": RECIPE}})
    made = stage._stage(choice, "dut.new.build", StagedBuild)
    assert isinstance(made, StagedBuild)
    assert str(made) == f"commit {head} of {repository}"
    assert made.prefix is not None
    assert Path(made.prefix, "sbin/ovs-vswitchd").exists()
    assert stage.facts["dut.new.build"]["commit"] == head
