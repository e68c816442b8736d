"""Verbs of beds, as a user types them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from ringroad_lab.cli.main import make_app
from ringroad_lab.cli.man import roff
from ringroad_lab.errors import LabError, ScenarioError, StoreError

FLEET = f"""
[bed.a]
class = "nic100g"
machines = {{generator = "{socket.gethostname()}", dut = "dut-a"}}
calibration_limit = 0.1

[bed.b]
machines.generator = "elsewhere"
"""


@pytest.fixture(autouse=True)
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGROAD_LAB_STORE", str(tmp_path / "results.db"))
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(tmp_path))
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET)
    return file


def lab(*arguments: str) -> Result:
    result = CliRunner().invoke(make_app(), list(arguments))
    if isinstance(result.exception, LabError):
        raise result.exception
    return result


def test_a_bed_is_listed_put_into_quarantine_and_released() -> None:
    assert [(bed["name"], bed["word"]) for bed in json.loads(lab("beds", "--json").stdout)["beds"]] == [("a", "free"), ("b", "free")]
    assert "ringroad-lab beds release a" in lab("beds", "quarantine", "a", "--reason", "its cable is loose").stdout
    listed = lab("beds").stdout
    assert "its cable is loose" in listed
    assert "generator elsewhere" in listed
    assert lab("beds", "release", "a").stdout == "bed a: released\n"
    with pytest.raises(StoreError, match="not in quarantine"):
        lab("beds", "release", "a")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["beds", "quarantine", "aa", "--reason", "x"], "no bed 'aa'"),
        (["beds", "quarantine", "a", "--reason", " "], "--reason is empty"),
        (["run", "BRIDGE_VETH", "--bed", "c"], "no bed 'c' in fleet.toml"),
        (["dispatch", "--once", "--bed-class", "nic25g"], "no bed of the fleet"),
    ],
)
def test_unknown_beds_and_missing_reasons_are_reported(arguments: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        lab(*arguments)


def test_a_dispatcher_without_a_bed_on_its_machine_does_not_start(fleet: Path) -> None:
    fleet.write_text('[bed.b]\nmachines.generator = "elsewhere"\n')
    with pytest.raises(ScenarioError, match=r"has machine .* as its generator"):
        lab("dispatch", "--once")


def test_the_manual_has_the_verb_that_lists_beds() -> None:
    group = typer.main.get_command(make_app())
    assert isinstance(group, typer.core.TyperGroup)
    page = roff(group)
    for words in (".SS beds\n", ".SS beds release\n", "is not available, or failed its calibration"):
        assert words in page
