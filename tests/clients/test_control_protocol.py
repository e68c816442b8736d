"""The control protocol in another language, implemented from the documentation alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from conftest import PATIENCE_S, Daemon

DOCS = Path(__file__).parents[2] / "docs"


def test_the_documented_client_talks_to_the_daemon(daemon: Daemon) -> None:
    """Run the client of the page against a daemon."""
    page = (DOCS / "control-protocol.md").read_text()
    [client] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    client = client.replace("/run/ringroad/ringroad.sock", str(daemon.folder / "r.sock"))
    daemon.run("attach", "vale0:a", "--driver", "null:no-rx=1")
    done = subprocess.run(
        [sys.executable, "-c", client], check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S
    )
    hello, ports = (ast.literal_eval(line) for line in done.stdout.splitlines())
    assert hello["hello"]["protocol"] == 1
    assert [port["name"] for port in ports["list"]["ports"]] == ["vale0:a"]
