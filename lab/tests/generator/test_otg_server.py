"""Any server of the Open Traffic Generator model: a server that already runs, on another machine, and a server that a command starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from ringroad_lab.errors import GeneratorError, LabError
from ringroad_lab.generator.otg_server import OtgServer, OtgServerSettings
from ringroad_lab.host.local import LocalHost
from ringroad_lab.ringroad_program import require_ringroad

PATIENCE_S = 240.0
TOKEN = uuid.uuid4().hex
TESTER = "192.0.2.1"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


@pytest.fixture
def namespaces(host: LocalHost) -> Iterator[tuple[str, str]]:
    """Create two network namespaces as two machines: a control path between them, and two cables from the tester to the device."""
    tester, device = (f"lab{uuid.uuid4().hex[:8]}" for _ in range(2))
    try:
        for name in (tester, device):
            host.run(["ip", "netns", "add", name])
        pairs = {"control": "control", "g1": "d1", "g2": "d2"}
        for left, right in pairs.items():
            host.run(["ip", "-n", tester, "link", "add", left, "type", "veth", "peer", "name", right, "netns", device])
        for name, ends, address in ((tester, pairs.keys(), TESTER), (device, pairs.values(), "192.0.2.2")):
            host.run(["ip", "-n", name, "address", "add", f"{address}/24", "dev", "control"])
            for end in ("lo", *ends):
                host.run(["ip", "-n", name, "link", "set", end, "up"])
        yield tester, device
    finally:
        for name in (tester, device):
            host.run(["ip", "netns", "delete", name], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_device_is_measured_by_a_generator_on_another_machine(host: LocalHost, namespaces: tuple[str, str], tmp_path: Path) -> None:
    tester, device = namespaces
    certificate, key, token = (tmp_path / name for name in ("cert.pem", "key.pem", "token"))
    names = ["-subj", "/CN=tester", "-addext", f"subjectAltName=IP:{TESTER}", "-days", "2"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    host.run(["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(certificate)])
    token.write_text(TOKEN)
    token.chmod(0o600)
    serve = [require_ringroad(host, "ringroad"), "otg", "--listen", f"{TESTER}:8443", "--allow-location", "g*", "--token-file", str(token)]
    server = host.start("otg", ["ip", "netns", "exec", tester, *serve, "--cert", str(certificate), "--key", str(key)])
    assert server.wait_output(f"https://{TESTER}:8443", 15.0), server.output()
    scenario = tmp_path / "elsewhere.toml"
    scenario.write_text(
        'duts = ["linux-bridge"]\nphysical = "nic"\nprivate = false\nlink_bps = 1e7\nmethods = ["throughput"]\nrepetitions = 1\n'
        f'generator = {{ driver = "otg", url = "https://{TESTER}:8443", ca_file = "{certificate}", token_file = "{token}" }}\n'
        'host.local.nics = [{ generator_interface = "g1", dut_interface = "d1" }, { generator_interface = "g2", dut_interface = "d2" }]\n'
    )
    store = ("--store", str(tmp_path / "results.db"))
    quick = ("--layer", "quick", "--set", "frames=[64]", "--set", "method.throughput.resolution=0.4")
    lab = ["ip", "netns", "exec", device, sys.executable, "-m", "ringroad_lab.cli.main"]
    done = subprocess.run([*lab, "run", str(scenario), *quick, *store, "--json"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (measurement,) = json.loads(done.stdout)["measurements"]
    assert measurement["metrics"]["throughput_fps"]["value"] > 0
    exported = subprocess.run([*lab, "export", "latest", *store, "--output", "-"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert f"at https://{TESTER}:8443" in json.loads(exported.stdout)["generator_version"]
    assert TOKEN not in exported.stdout
    # An untrusted certificate is rejected.
    no_ca_file = ["--set", "generator.ca_file=null"]
    refused = subprocess.run([*lab, "run", str(scenario), *quick, *no_ca_file, *store], capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 4
    assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr


def test_a_command_starts_a_server_and_its_end_is_reported(host: LocalHost, tmp_path: Path) -> None:
    socket_free = ["python3", "-c", "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"]
    port = host.run(socket_free).stdout.strip()
    command = ("ringroad", "otg", "--http", "--no-token", "--listen", f"127.0.0.1:{port}")
    server = OtgServer(OtgServerSettings(url=f"http://127.0.0.1:{port}", command=command), host, frozenset())
    server.start()
    assert server.version().endswith(f"at http://127.0.0.1:{port}")
    server.processes()[0].stop()
    with pytest.raises(GeneratorError, match="the generator ended with status"):
        server.check()
    server.stop()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-generator",), "no-such-generator, which starts the generator, was not found on"),
        (("false",), "the generator ended with status 1"),
    ],
)
def test_a_command_that_does_not_start_a_server_is_reported(host: LocalHost, command: tuple[str, ...], words: str) -> None:
    server = OtgServer(OtgServerSettings(url="http://127.0.0.1:9", command=command), host, frozenset())
    with pytest.raises(LabError, match=words):
        server.start()
    server.stop()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "tester:8443"}, "write https://HOST:PORT"),
        ({"url": "https://otg:secret@tester:8443"}, "token_file"),
        ({"url": "https://tester", "verify": False, "ca_file": "/a"}, "leave one out"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OtgServerSettings.model_validate(settings)
