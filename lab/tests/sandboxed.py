"""Runs programs of the tests in a sandbox. They read their task as JSON, and write the result as one line of JSON."""

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


def ask_in_sandbox(program: Path, request: object, env: dict[str, str] | None = None, *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run a program in a sandbox, and return its result."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    sandbox = Sandbox.start([sys.executable, str(program)], env={"PYTHONPATH": path, **(env or {})})
    try:
        sandbox.stdin.write(json.dumps(request))
        sandbox.stdin.close()
        line = sandbox.stdout.readline()
        assert line, "the program ended without output"
        assert sandbox.wait(timeout_s) == 0
        result = json.loads(line)
        assert isinstance(result, dict)
        return result
    finally:
        sandbox.close(0.0)


def answer(work: Callable[[Any], dict[str, Any]]) -> None:
    """Run `work` on the request in the sandbox, and print the result or the error."""
    try:
        result = work(json.load(sys.stdin))
    except LabError as error:
        result = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(result))
