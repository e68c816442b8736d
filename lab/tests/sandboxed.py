"""Programs of the tests that run in a sandbox: told what to do in JSON, and telling what came of it in a line of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringroad_lab.errors import LabError
from ringroad_lab.sandbox.private import Sandbox

TIMEOUT_S = 120


def ask_in_sandbox(program: Path, asked: object, env: dict[str, str] | None = None, *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run a program in a sandbox, and return what it told."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    sandbox = Sandbox.start([sys.executable, str(program)], env={"PYTHONPATH": path, **(env or {})})
    try:
        sandbox.stdin.write(json.dumps(asked))
        sandbox.stdin.close()
        line = sandbox.stdout.readline()
        assert line, "the program ended without a word"
        assert sandbox.wait(timeout_s) == 0
        told = json.loads(line)
        assert isinstance(told, dict)
        return told
    finally:
        sandbox.close(0.0)


def answer(work: Callable[[Any], dict[str, Any]]) -> None:
    """Do what is asked, in the sandbox, and tell what came of it, or the error."""
    try:
        told = work(json.load(sys.stdin))
    except LabError as error:
        told = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(told))
