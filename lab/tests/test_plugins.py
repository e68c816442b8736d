"""Plug-in packages: the example package, installed and run, and broken packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringroad_lab.cable.interface import CABLES
from ringroad_lab.dut.interface import DUTS, Dut
from ringroad_lab.errors import PluginError
from ringroad_lab.fleet.engine.interface import ENGINES
from ringroad_lab.fleet.sources.interface import SOURCES
from ringroad_lab.generator.interface import GENERATORS
from ringroad_lab.guest.interface import GUESTS
from ringroad_lab.kinds import Kinds
from ringroad_lab.method.interface import METHODS
from ringroad_lab.notification.interface import NOTIFIERS
from ringroad_lab.report.interface import REPORTERS

EXAMPLE = Path(__file__).parents[1] / "examples/ringroad-lab-example"
PATIENCE_S = 240.0


def lab(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program with an additional folder of packages."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = [sys.executable, "-m", "ringroad_lab.cli.main", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "PYTHONPATH": path})


@pytest.fixture
def example(tmp_path: Path) -> Path:
    # Building leaves files in the sources.
    shutil.copytree(EXAMPLE, tmp_path / "source")
    target = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, *install, str(tmp_path / "source")], check=True, timeout=PATIENCE_S)
    return target


def package(site: Path, name: str, group: str, entries: dict[str, str]) -> None:
    """Install a package that consists only of entry points."""
    information = site / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "\n".join(f"{key} = {value}" for key, value in entries.items())
    (information / "entry_points.txt").write_text(f"[{group}]\n{lines}\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_example_package_is_listed_measured_and_reported(example: Path, tmp_path: Path) -> None:
    listed = {row["driver"]: row["package"] for row in json.loads(lab(example, "list", "devices", "--json").stdout)}
    assert listed["kernel-mirror"] == "ringroad-lab-example 0.1.0"
    assert listed["ovs"] == "ringroad-lab"
    scenario = tmp_path / "mine.toml"
    scenario.write_text('duts = ["kernel-mirror"]\nphysical = "veth"\nmethods = ["one-trial"]\nframes = [64]\nrepetitions = 1\n')
    store = ("--store", str(tmp_path / "results.db"))
    done = lab(example, "run", str(scenario), *store, "--json")
    assert done.returncode == 0, done.stderr
    (measurement,) = json.loads(done.stdout)["measurements"]
    assert (measurement["status"], measurement["metrics"]["loss_ratio"]["value"]) == ("ok", 0.0)
    assert lab(example, "report", "--format", "one-line", *store).stdout == "mine: 1 measurements of kernel-mirror\n"
    # Attributes that the example device does not define have correct defaults.
    (record,) = [json.loads(lab(example, "export", "latest", *store, "--output", "-").stdout)]
    assert record["duts"][0]["ports"]["1"].startswith("veth p1")
    assert record["measurements"][0]["dut_counters"] == {}


def test_a_broken_package_is_named_and_does_not_affect_others(tmp_path: Path) -> None:
    package(tmp_path, "broken-switch", "ringroad_lab.duts", {"no-module": "no_such_module:Switch", "no-switch": "json:JSONDecoder"})
    rows = {row["driver"]: row for row in json.loads(lab(tmp_path, "list", "devices", "--json").stdout)}
    assert rows["no-module"]["package"] == "broken-switch 1.0"
    assert "cannot be loaded: ModuleNotFoundError" in rows["no-module"]["title"]
    assert rows["linux-bridge"]["title"] == "Linux bridge"
    assert lab(tmp_path, "show", "BRIDGE_VETH").returncode == 0
    for driver, words in (
        ("no-module", "fix the package, or uninstall it"),
        ("no-switch", "is not a subclass of "),
    ):
        done = lab(tmp_path, "plan", "BRIDGE_VETH", "--set", f"duts=[{driver}]")
        assert done.returncode == 1
        assert "of the package broken-switch 1.0" in done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_no_package_can_replace_a_kind_of_the_laboratory(tmp_path: Path) -> None:
    package(tmp_path, "takes-over", "ringroad_lab.duts", {"ovs": "no_such_module:Switch"})
    rows = {row["driver"]: row["package"] for row in json.loads(lab(tmp_path, "list", "devices", "--json").stdout)}
    assert rows["ovs"] == "ringroad-lab"


def test_missing_methods_of_a_class_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "half-a-switch", "ringroad_lab.duts", {"half": "half_a_switch:Half"})
    (tmp_path / "half_a_switch.py").write_text("from ringroad_lab.dut.interface import Dut\nclass Half(Dut):\n    title = 'half'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    fresh: Kinds[Dut] = Kinds(DUTS.group, DUTS.base, DUTS.own)
    with pytest.raises(PluginError, match="does not define configure, start"):
        fresh["half"]


@pytest.mark.parametrize(
    "kinds", [DUTS, GUESTS, CABLES, METHODS, GENERATORS, REPORTERS, ENGINES, SOURCES, NOTIFIERS], ids=lambda kinds: str(kinds.group)
)
def test_every_kind_of_the_laboratory_can_be_loaded(kinds: Kinds[object]) -> None:
    assert list(kinds)[: len(kinds.own)] == list(kinds.own)
    for name in kinds.own:
        assert issubclass(kinds[name], kinds.base)
