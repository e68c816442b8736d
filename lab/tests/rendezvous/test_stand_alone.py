"""The self-contained member program on a machine with only an old Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import vermin

from ringroad_lab.rendezvous import member


def test_the_program_needs_only_python_3_6_and_its_standard_library() -> None:
    config = vermin.Config()
    config.add_target("3.6")
    source = Path(member.__file__).read_text()
    (_, (major, minor)) = vermin.detect(source, config=config)
    assert (major, minor) <= (3, 6)


def test_the_verb_prints_a_program_that_runs_alone(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-m", "ringroad_lab.cli.main", "rendezvous", "client"], capture_output=True, check=True)
    file = tmp_path / "rendezvous.py"
    file.write_bytes(printed.stdout)
    # -I -S: without package folders.
    argv = [sys.executable, "-I", "-S", str(file), "arrive", "1", "--as", "dut", "--deadline", "1"]
    found = subprocess.run(argv, capture_output=True, check=False, text=True, env={})
    assert found.returncode == member.USAGE
    assert "set the server" in found.stderr
