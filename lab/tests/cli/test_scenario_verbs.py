"""The verbs of scenarios, as a user calls them: in a process of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenarios").mkdir()
    return tmp_path


def lab(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", "from ringroad_lab.cli.main import main; main()", *arguments],
        env={**os.environ, "RINGROAD_LAB_CONFIG": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_list_has_the_scenarios_of_the_package_and_of_the_user(folder: Path) -> None:
    (folder / "scenarios/mine.toml").write_text('title = "My own"\nduts = ["ovs"]\n')
    listed = lab(folder, "list")
    assert listed.returncode == 0
    assert "OVS_DPDK1q_GUEST_DPDK1q" in listed.stdout
    assert "My own" in listed.stdout
    rows = {row["scenario"]: row for row in json.loads(lab(folder, "list", "--json").stdout)}
    assert rows["mine"] == {"scenario": "mine", "topologies": "P2P", "devices": "ovs", "title": "My own"}


@pytest.mark.parametrize(
    ("kind", "name"), [("layers", "rfc2544"), ("devices", "ringroad"), ("guests", "testpmd"), ("methods", "throughput")]
)
def test_list_tells_what_scenarios_are_made_of(folder: Path, kind: str, name: str) -> None:
    assert name in lab(folder, "list", kind).stdout.split()


def test_what_show_prints_is_a_scenario(folder: Path) -> None:
    shown = lab(folder, "show", "compare-switches", "--set", "queues=2")
    tree = tomllib.loads(shown.stdout)
    assert tree["queues"] == 2
    (folder / "scenarios/copy.toml").write_text(shown.stdout)
    again = json.loads(lab(folder, "show", "copy", "--json").stdout)["topologies"][0]["scenario"]
    first = json.loads(lab(folder, "show", "compare-switches", "-s", "queues=2", "--json").stdout)["topologies"][0]["scenario"]
    assert {**again, "name": ""} == {**first, "name": ""}


def test_show_tells_where_each_setting_is_from(folder: Path) -> None:
    (folder / "site.toml").write_text("\nflows = 7\n")
    lines = lab(folder, "show", "OVS_DPDK1q", "--origin", "-l", "quick", "-s", "queues=2").stdout.splitlines()
    origins = {line.split(" ")[0]: line.rpartition("  # ")[2] for line in lines}
    assert origins["private"].startswith("defaults, built in: layers/defaults.toml:")
    assert origins["dut.ovs-dpdk.physical"] == "DUT, built in: layers/dut/ovs-dpdk.toml:2"
    assert origins["duts"] == "scenario, built in: catalogue/OVS_DPDK1q.toml:3"
    assert origins["flows"] == f"site, {folder}/site.toml:2"
    assert origins["repetitions"].startswith("file, built in: layers/profile/quick.toml:")
    assert origins["queues"] == "--set queues"


def test_plan_tells_order_time_and_programs(folder: Path) -> None:
    planned = lab(folder, "plan", "compare-switches")
    assert planned.returncode == 0
    assert "15 measurements" in planned.stdout
    document = json.loads(lab(folder, "plan", "compare-switches", "--json").stdout)
    assert [start["dut"] for start in document["starts"]] == ["linux-bridge", "ovs", "ringroad-veth", "ovs-dpdk", "ringroad"]
    assert document["expected_s"] > sum(start["expected_s"] for start in document["starts"])
    assert {"ip", "ovs-vsctl"} <= {program["program"] for program in document["programs"]}


def test_plan_names_the_package_of_a_missing_program(folder: Path, tmp_path: Path) -> None:
    # Nothing is where a switch of our own is looked for.
    document = json.loads(
        lab(folder, "plan", "RINGROAD_VETH", "--json", RINGROAD_BIN_DIR=str(tmp_path / "none"), PATH="/usr/bin:/bin").stdout
    )
    if any(shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin") for name in ("ringroad", "ringroadd")):
        pytest.skip("Ringroad is installed on this machine")
    missing = [program["program"] for program in document["programs"] if program["path"] is None]
    assert missing
    assert document["missing_packages"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "compare-switchs"], "ringroad-lab: there is no scenario 'compare-switchs'; did you mean 'compare-switches'?"),
        (["plan", "OVS_VANILLA", "--set", "queus=2"], "did you mean 'queues'?"),
        (["plan", "OVS_VANILLA", "--layer", "none.toml"], "ringroad-lab: none.toml: No such file or directory"),
        (["show", "OVS_VANILLA", "--set", "queues"], "write KEY.PATH=VALUE"),
        (["shw"], "No such command"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_with_status_2(folder: Path, arguments: list[str], told: str) -> None:
    ended = lab(folder, *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_version_and_help(folder: Path) -> None:
    assert lab(folder, "--version").stdout.startswith("ringroad-lab ")
    assert "plan" in lab(folder, "--help").stdout


def test_the_manual_page_has_every_verb_and_no_warning(folder: Path) -> None:
    page = lab(folder, "man").stdout
    for part in (".TH RINGROAD-LAB 1", ".SS plan", "\\-\\-set", ".SH EXIT STATUS"):
        assert part in page
    if (mandoc := shutil.which("mandoc")) is None:
        pytest.skip("mandoc is not installed")
    checked = subprocess.run([mandoc, "-T", "lint", "-W", "warning"], input=page, capture_output=True, text=True, timeout=30, check=False)
    # It has no date: the version tells how old it is.
    assert [line for line in checked.stdout.splitlines() if "missing date" not in line] == []


def test_completion_knows_the_scenarios(folder: Path) -> None:
    completed = lab(folder, _RINGROAD_LAB_COMPLETE="complete_bash", COMP_WORDS="ringroad-lab show compare", COMP_CWORD="2")
    assert "compare-switches" in completed.stdout
