"""The verbs of scenarios, as a user calls them."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringroad_lab.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenarios").mkdir()
    return tmp_path


@dataclass(frozen=True)
class Ended:
    """Output and exit status of the program."""

    returncode: int
    stdout: str
    stderr: str


Lab = Callable[..., Ended]


@pytest.fixture
def lab(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    """The program with the settings of `folder`, in this process: a process of its own takes a second to start."""
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(folder))

    def run(*arguments: str, **environment: str) -> Ended:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["ringroad-lab", *arguments])
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, *capsys.readouterr())

    return run


def test_list_has_the_scenarios_of_the_package_and_of_the_user(lab: Lab, folder: Path) -> None:
    (folder / "scenarios/mine.toml").write_text('title = "My own"\nduts = ["ovs"]\n')
    listed = lab("list")
    assert listed.returncode == 0
    assert "OVS_DPDK1q_GUEST_DPDK1q" in listed.stdout
    assert "My own" in listed.stdout
    rows = {row["scenario"]: row for row in json.loads(lab("list", "--json").stdout)}
    assert rows["mine"] == {"scenario": "mine", "topologies": "P2P", "devices": "ovs", "title": "My own"}


@pytest.mark.parametrize(
    ("kind", "name"), [("layers", "rfc2544"), ("devices", "ringroad"), ("guests", "testpmd"), ("methods", "throughput")]
)
def test_list_shows_the_parts_of_scenarios(lab: Lab, kind: str, name: str) -> None:
    assert name in lab("list", kind).stdout.split()


def test_the_output_of_show_is_a_scenario(lab: Lab, folder: Path) -> None:
    shown = lab("show", "compare-switches", "--set", "queues=2")
    tree = tomllib.loads(shown.stdout)
    assert tree["queues"] == 2
    (folder / "scenarios/copy.toml").write_text(shown.stdout)
    again = json.loads(lab("show", "copy", "--json").stdout)["topologies"][0]["scenario"]
    first = json.loads(lab("show", "compare-switches", "-s", "queues=2", "--json").stdout)["topologies"][0]["scenario"]
    assert {**again, "name": ""} == {**first, "name": ""}


def test_show_prints_the_origin_of_each_setting(lab: Lab, folder: Path) -> None:
    (folder / "site.toml").write_text("\nflows = 7\n")
    lines = lab("show", "OVS_DPDK1q", "--origin", "-l", "quick", "-s", "queues=2").stdout.splitlines()
    origins = {line.split(" ")[0]: line.rpartition("  # ")[2] for line in lines}
    assert origins["private"].startswith("defaults, built in: layers/defaults.toml:")
    assert origins["dut.ovs-dpdk.physical"] == "DUT, built in: layers/dut/ovs-dpdk.toml:2"
    assert origins["duts"] == "scenario, built in: catalogue/OVS_DPDK1q.toml:3"
    assert origins["flows"] == f"site, {folder}/site.toml:2"
    assert origins["repetitions"].startswith("file, built in: layers/profile/quick.toml:")
    assert origins["queues"] == "--set queues"


def test_plan_prints_order_time_and_programs(lab: Lab) -> None:
    planned = lab("plan", "compare-switches")
    assert planned.returncode == 0
    assert "15 measurements" in planned.stdout
    document = json.loads(lab("plan", "compare-switches", "--json").stdout)
    assert [start["dut"] for start in document["starts"]] == ["linux-bridge", "ovs", "ringroad-veth", "ovs-dpdk", "ringroad"]
    assert document["expected_s"] > sum(start["expected_s"] for start in document["starts"])
    assert {"ip", "ovs-vsctl"} <= {program["program"] for program in document["programs"]}


def test_plan_names_the_package_of_a_missing_program(lab: Lab, tmp_path: Path) -> None:
    # The folder with our own switch is empty.
    document = json.loads(lab("plan", "RINGROAD_VETH", "--json", RINGROAD_BIN_DIR=str(tmp_path / "none"), PATH="/usr/bin:/bin").stdout)
    if any(shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin") for name in ("ringroad", "ringroadd")):
        pytest.skip("Ringroad is installed on this machine")
    missing = [program["program"] for program in document["programs"] if program["path"] is None]
    assert missing
    assert document["missing_packages"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "compare-switchs"], "ringroad-lab: there is no scenario 'compare-switchs'; did you mean 'compare-switches'?"),
        (["plan", "OVS_VANILLA", "--set", "queus=2"], "did you mean 'queues'?"),
        (["plan", "OVS_VANILLA", "--layer", "none.toml"], "ringroad-lab: none.toml: No such file or directory"),
        (["show", "OVS_VANILLA", "--set", "queues"], "write KEY.PATH=VALUE"),
        (["run", "OVS_VANILLA", "--label", "x"], "ringroad-lab: label 'x': write NAME=VALUE"),
        (["plan", "MESSAGE_SIZES", "--set", "topologies=[PVP]"], "message-size measures between two stations: P2P, not PVP"),
        (["shw"], "No such command"),
        ([], "Usage: ringroad-lab"),
    ],
)
def test_invalid_arguments_are_reported_with_status_2(lab: Lab, arguments: list[str], message: str) -> None:
    ended = lab(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unwritable_report_is_reported_before_measuring(lab: Lab, folder: Path) -> None:
    ended = lab("run", "BRIDGE_VETH", "-l", "quick", "--report", f"{folder}/none/report.html", "--store", f"{folder}/runs.db")
    assert ended.returncode in (1, 3)
    if ended.returncode == 1:
        assert "none/report.html: name a file in an existing, writable folder" in ended.stderr
    assert not (folder / "runs.db").exists()


def test_foreign_text_loses_control_characters(lab: Lab, folder: Path) -> None:
    (folder / "scenarios/red.toml").write_text('title = "\\u001b[31mred"\nduts = ["ovs"]\n')
    (folder / "scenarios/broken.toml").write_text('"\\u001b[31m" = 1\nqueues = 0\n')
    for arguments in (["list"], ["show", "red"], ["plan", "red"], ["show", "broken"]):
        ended = lab(*arguments)
        assert "\x1b" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("verb", ["list", "show", "plan"])
def test_json_output_is_a_single_document(lab: Lab, verb: str) -> None:
    # These arguments also cause a warning.
    arguments = [] if verb == "list" else ["OVS_VANILLA", "--set", "guest=testpmd"]
    assert json.loads(lab(verb, *arguments, "--json").stdout)


def test_an_unwritable_output_is_reported(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ringroad_lab.cli.show.toml_text", full)
    ended = lab("show", "OVS_VANILLA")
    assert (ended.returncode, ended.stderr) == (1, "ringroad-lab: [Errno 28] No space left on device\n")


def test_version_and_help() -> None:
    # A separate process: the other tests run the program in this process.
    program = [sys.executable, "-P", "-m", "ringroad_lab.cli.main"]
    version = subprocess.run([*program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert version.stdout.startswith("ringroad-lab ")
    wrong = subprocess.run([*program, "show", "none"], capture_output=True, text=True, timeout=60, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("ringroad-lab: there is no scenario 'none'")


@pytest.mark.parametrize("verb", [[], *([verb] for verb in ("list", "show", "plan", "run", "resume", "man"))])
def test_help_of_every_verb(lab: Lab, verb: list[str]) -> None:
    shown = lab(*verb, "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: ringroad-lab")


def test_the_manual_page_has_every_verb_and_no_warning(lab: Lab) -> None:
    page = lab("man").stdout
    for part in (".TH RINGROAD-LAB 1", ".SS plan", "\\-\\-set", ".SH EXIT STATUS"):
        assert part in page
    if (mandoc := shutil.which("mandoc")) is None:
        pytest.skip("mandoc is not installed")
    checked = subprocess.run([mandoc, "-T", "lint", "-W", "warning"], input=page, capture_output=True, text=True, timeout=30, check=False)
    # The page has a version instead of a date.
    assert [line for line in checked.stdout.splitlines() if "missing date" not in line] == []


def test_completion_knows_the_scenarios(lab: Lab) -> None:
    completed = lab(_RINGROAD_LAB_COMPLETE="complete_bash", COMP_WORDS="ringroad-lab show compare", COMP_CWORD="2")
    assert "compare-switches" in completed.stdout
