"""Access to the server and its ports: with the stock client, and with an attacker's means."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import snappi

from client import Api, add_flow, all_through, await_flows, refused, transmit, two_ports, without_token
from conftest import PATIENCE_S, Daemon, binary, stop


def post_config(url: str, **headers: str) -> requests.Response:
    """Set an empty configuration."""
    return requests.post(f"{url}/config", json={}, headers=headers, verify=False, timeout=PATIENCE_S)


def is_served(api: Api) -> bool:
    """Send a few frames, and return whether all came."""
    config = two_ports()
    add_flow(config, "f").duration.fixed_packets.packets = 10
    api.set_config(config)
    transmit(api, "start")
    return bool(await_flows(api, "end of the flow", all_through)["f"].frames_rx == 10)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("encryption", [(), ("--http",)])
def test_the_stock_client_shows_the_token_in_its_location(
    serve: Callable[..., str], encryption: tuple[str, ...]
) -> None:
    """Without the token it gets an error with the remedy, and cannot change the owner's configuration."""
    location = serve(*encryption)
    url, token = without_token(location)
    owner = snappi.api(location=location, verify=False)
    assert is_served(owner)
    for wrong in (url, location.replace(token, secrets.token_hex(32))):
        stranger = snappi.api(location=wrong, verify=False)
        error = refused(partial(stranger.set_config, snappi.Config()))
        assert error.code == 401
        assert "https://otg:TOKEN@HOST:PORT" in error.errors[0]
    assert len(owner.get_config().ports) == 2
    assert post_config(url, Authorization=f"Bearer {token}").status_code == 200


def test_a_name_of_another_host_is_refused_even_with_the_token(serve: Callable[..., str]) -> None:
    """A hostile site that has its name lead here, and a page of another site."""
    url, token = without_token(serve("--http", "--host-name", "lab.example"))
    for headers, status in [
        ({"Host": "evil.example"}, 421),
        ({"Host": "lab.example"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": url}, 200),
    ]:
        assert post_config(url, Authorization=f"Bearer {token}", **headers).status_code == status, headers


def test_files_and_interfaces_are_for_the_command_line_to_allow(serve: Callable[..., str], tmp_path: Path) -> None:
    """What is not allowed is named with what would allow it, and stays as it is."""
    kept, allowed = tmp_path / "kept", tmp_path / "allowed.pcap"
    kept.write_text("root's")
    api = snappi.api(location=serve("--allow-location", f"pcap:out={tmp_path}/*.pcap"), verify=False)
    config = snappi.Config()
    config.ports.port(name="a", location=f"pcap:out={kept}")
    config.ports.port(name="b", location="lo")
    error = refused(lambda: api.set_config(config))
    assert error.code == 400
    assert f"--allow-location 'pcap:out={kept}'" in error.errors[0]
    assert "--allow-location 'lo'" in error.errors[1]
    assert kept.read_text() == "root's"
    config.ports[0].location, config.ports[1].location = f"pcap:out={allowed}", "null:no-rx=1"
    api.set_config(config)
    assert allowed.exists()


def test_a_token_comes_from_a_file_that_others_cannot_read(daemon: Daemon, tmp_path: Path) -> None:
    """Then the server does not print it, and one that others can read is refused."""
    file, token = tmp_path / "token", secrets.token_hex(32)
    file.write_text(token + "\n")
    arguments = ("otg", "--http", "--listen", "127.0.0.1:0", "--token-file", str(file))
    file.chmod(0o644)
    assert "other users can read it" in failure(daemon, *arguments)
    file.chmod(0o600)
    process, ready = daemon.start(*arguments)
    assert ready["token"] is None
    assert token not in json.dumps(ready)
    assert post_config(ready["url"]).status_code == 401
    assert is_served(snappi.api(location=ready["url"].replace("://", f"://otg:{token}@")))
    stop(process)


def test_a_socket_needs_no_token_since_its_file_is_the_owner_s(daemon: Daemon, tmp_path: Path) -> None:
    """A program of the same user can use HTTP there."""
    path = daemon.folder / "otg.sock"
    process, ready = daemon.start("otg", "--listen", f"unix:{path}")
    assert (ready["url"], ready["token"]) == (f"unix:{path}", None)
    assert path.stat().st_mode & 0o777 == 0o600
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", "/capabilities/version")
    answer = connection.getresponse()
    assert answer.status == 200
    assert json.load(answer)["api_spec_version"] == "^1.0.0"
    connection.close()
    stop(process)
    assert not path.exists()


def test_no_token_is_for_this_machine_alone(daemon: Daemon) -> None:
    """It has to be configured, and the network is not admitted."""
    arguments = ("otg", "--http", "--no-token", "--listen")
    assert "without a token" in failure(daemon, *arguments, "0.0.0.0:0")
    process, ready = daemon.start(*arguments, "127.0.0.1:0")
    assert ready["location"] == ready["url"]
    assert is_served(snappi.api(location=ready["url"]))
    assert post_config(ready["url"], Host="evil.example").status_code == 421
    stop(process)


def failure(daemon: Daemon, *arguments: str) -> str:
    """Return the error output of a command that does not start."""
    done: Any = subprocess.run(
        [binary("ringroad"), *arguments], env=daemon.environment(), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    output: str = done.stderr
    return output
